"""The database of sessions beside its machines: client ids, expiry, routes, lives of nodes, outcomes that are open."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from session_databases import connect, run
from state_changes import change_to

from statemachines.drivers.persistent_sessions import machine_requests, route_rows
from statemachines.drivers.persistent_sessions.host_request import (
    Beat,
    LagAnswer,
    Look,
    Page,
    PutMessage,
    ReadPage,
    ReadPayloads,
    ShowMarker,
    ShownMarker,
    Subscribe,
    Unsubscribe,
    WatchedSession,
)
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.request_runs import runs_of
from statemachines.drivers.persistent_sessions.state_rows import runs_of_numbers
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.drivers.sql.failure import OutcomeOpen, StoreDamaged
from statemachines.kernel import ConfigurationError, Map, Superseded
from statemachines.persistent_sessions.collector_request import ReadRows, Tag
from statemachines.persistent_sessions.in_flight_record import RECEIVED, TAKEN, InFlightRecord
from statemachines.persistent_sessions.life_request import UnlockClient
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    CommitState,
    EpochBegun,
    EpochRows,
    Fence,
    LoadSession,
    MarkDelivered,
    NotOwner,
    PendingRead,
    PutMarker,
    PutRows,
    ReadPending,
    ReadRow,
    RowFenced,
    RowRead,
    RowStored,
    SessionState,
    StateChange,
    StateCommitted,
)
from statemachines.testing.postgres import run_sql


def message(number, topic="a/b"):
    return PutMessage(f"m{number}", topic, b"payload", 1)


def row(session, number, message="m1", epoch=1, writer="n1"):
    return PutRows(session, writer, epoch, (Queued(number, message, "a/+", 1),))


def test_a_session_is_made_found_and_discarded(url):
    async def play(store, clock):
        first = await connect(store, "s1")
        await store.do(Subscribe("s1", first.token, "a/+", 1))
        again = await connect(store, "s2")
        clean = await connect(store, "s3", clean=True)
        routes = await store.do(message(1))
        late = await store.ask(CommitState("s1", again.token, StateChange()))
        return first, again, clean, routes, late

    first, again, clean, routes, late = run(url, play)
    assert (first.session, first.present) == ("s1", False)
    assert (again.session, again.present) == ("s1", True)
    assert (clean.session, clean.present) == ("s3", False)
    assert first.token < again.token < clean.token
    assert routes == (), "the session that is discarded is routed nothing"
    assert late == (NotOwner(),)


def test_nothing_of_a_discarded_session_is_left_to_the_next(url):
    async def play(store, clock):
        one = await connect(store, "s1")
        await store.do(Subscribe("s1", one.token, "a/+", 1))
        await store.do(message(1))
        await store.ask(BeginEpoch("s1", "n1"))
        await store.ask(row("s1", 1))
        await store.ask(CommitState("s1", one.token, change_to(SessionState(Map({"n1": (1, 1)}), places=3))))
        await connect(store, "s2", clean=True)
        assert await store.ask(row("s1", 2)) == (RowStored(),), "a writer that does not know yet goes on"
        third = await connect(store, "s9")
        (loaded,) = await store.ask(LoadSession("c", "o", third.token))
        (pending,) = await store.ask(ReadPending("s2"))
        return third, loaded, pending

    third, loaded, pending = run(url, play)
    assert (third.session, third.present) == ("s2", True)
    assert loaded.state == SessionState()
    assert pending == PendingRead(())


def test_a_topic_is_routed_by_what_is_committed_before_it(url):
    """Two stores, of which each changes what the other knows."""

    async def play(store, clock):
        other = open_session_store(url)
        try:
            one, two = await connect(store, "s1"), await connect(other, "s2", "d")
            found = []
            for number, change in enumerate(
                (
                    Subscribe("s1", one.token, "a/+", 2),
                    Subscribe("s2", two.token, "a/b", 0),
                    Subscribe("s1", one.token, "a/+", 1),
                    Unsubscribe("s1", one.token, "a/+"),
                    Unsubscribe("s1", one.token, "never"),
                )
            ):
                assert await (other if number % 2 else store).do(change)
                routes = [
                    await each.do(PutMessage(f"{number}{n}", "a/b", b"", 1)) for n, each in enumerate((store, other))
                ]
                assert routes[0] == routes[1]
                found.append([tuple(route)[:3] for route in routes[0]])
            assert not await store.do(Subscribe("s1", one.token - 1, "x", 1)), "a lower token"
            return found
        finally:
            await other.close()

    assert run(url, play) == [
        [("s1", "a/+", 2)],
        [("s1", "a/+", 2), ("s2", "a/b", 0)],
        [("s1", "a/+", 1), ("s2", "a/b", 0)],
        [("s2", "a/b", 0)],
        [("s2", "a/b", 0)],
    ]


def test_routes_that_are_gone_are_forgotten_and_who_was_far_behind_knows_all(url, monkeypatch):
    monkeypatch.setattr(route_rows, "FORGET", 5)

    async def play(store, clock):
        behind = open_session_store(url)
        try:
            one = await connect(store, "s1")
            await store.do(Subscribe("s1", one.token, "old", 1))
            assert len(await behind.do(PutMessage("m0", "old", b"", 1))) == 1
            await store.do(Unsubscribe("s1", one.token, "old"))
            for number in range(20):
                await store.do(Subscribe("s1", one.token, f"t/{number}", 1))
                await store.do(Unsubscribe("s1", one.token, f"t/{number}"))
            await store.do(Subscribe("s1", one.token, "new", 1))
            found = [await behind.do(PutMessage(f"m-{topic}", topic, b"", 1)) for topic in ("old", "t/3", "new")]

            def count():
                with store._database.reading() as sql:
                    return sql.all("SELECT count(*) FROM @routes")[0][0]

            return [len(routes) for routes in found], await store._database.run(count)
        finally:
            await behind.close()

    found, kept = run(url, play)
    assert found == [0, 0, 1]
    assert kept <= 2 * 5 + 1


def test_PS_404_a_session_subscribes_so_many_filters_and_no_more(url, monkeypatch):
    monkeypatch.setattr(route_rows, "FILTERS_MAX", 3)

    async def play(store, clock):
        one, two = await connect(store, "s1"), await connect(store, "s2", "c2")
        asked = [Subscribe("s1", one.token, f"f{number}", 1) for number in range(4)]
        asked += [Subscribe("s1", one.token, "f1", 2), Subscribe("s1", one.token - 1, "f9", 2)]
        asked += [Unsubscribe("s1", one.token, "f0"), asked[3], Subscribe("s2", two.token, "f0", 1)]
        return [await store.do(each) for each in asked]

    assert run(url, play) == [True, True, True, None, True, False, True, True, True]


def test_a_transaction_that_is_undone_leaves_no_route_behind(url):
    async def play(store, clock):
        one = await connect(store, "s1")
        life = await store.begin_life("n2", 1_000)
        undone = [Subscribe("s1", one.token, "a/b", 1), message(1), row("s1", 7)]
        await store.ask(BeginEpoch("s1", "n1"))
        with pytest.raises(StoreDamaged, match="stores number 7"):
            await store.carry_out(life, 1, undone)
        await store.do(Subscribe("s1", one.token, "x", 1))
        return await store.do(message(2)), await store.do(message(3, "x"))

    first, second = run(url, play)
    assert first == ()
    assert [route.filter for route in second] == ["x"]


def test_messages_are_read_and_one_that_retention_took_has_no_id_any_more(url):
    async def play(store, clock):
        one = await connect(store, "s1")
        await store.do(Subscribe("s1", one.token, "a/+", 1))
        await store.do(message(1))
        await store.ask(BeginEpoch("s1", "n1"))
        await store.ask(row("s1", 1))
        await store.ask(row("s1", 2, "gone"))
        many = tuple(f"x{number}" for number in range(500))
        return await store.do(ReadPayloads(("m1", "gone", *many), 2**20)), await store.ask(ReadPending("s1"))

    found, pending = run(url, play)
    assert found == {
        "m1": Payload("a/b", b"payload"),
        **dict.fromkeys(("gone", *(f"x{number}" for number in range(500)))),
    }
    assert [(one.number, one.message) for one in pending[0].found[0].rows] == [(1, "m1"), (2, "")]


def test_PS_169_messages_are_read_as_far_as_their_payloads_are_of_so_many_bytes(url):
    """They are counted piece by piece: one that is full is the last."""

    async def play(store, clock):
        one = await connect(store, "s1")
        await store.do(Subscribe("s1", one.token, "a/+", 1))
        for number in range(250):
            await store.do(message(number))
        ids = tuple(f"m{number}" for number in range(250))
        exact = 100 * len(b"payload")
        return [await store.do(ReadPayloads(ids, most)) for most in (1, exact, exact + 1, 2**20)]

    found = run(url, play)
    assert [list(one) for one in found] == [[f"m{number}" for number in range(most)] for most in (100, 100, 200, 250)]
    assert set(found[-1].values()) == {Payload("a/b", b"payload")}


async def with_sizes(store, sizes, writer="n1"):
    """The session `s1`, and a row of this writer for a message of each size of topic and payload."""
    one = await connect(store, "s1")
    await store.do(Subscribe("s1", one.token, "a/+", 1))
    await store.ask(BeginEpoch("s1", writer))
    for number, size in enumerate(sizes, 1):
        await store.do(PutMessage(f"{writer}m{number}", "a/b", b"x" * (size - 3), 1))
        await store.ask(row("s1", number, f"{writer}m{number}", writer=writer))
    return one


def sized(size):
    return Payload("a/b", b"x" * (size - 3))


def test_PS_198_with_rows_come_the_payloads_that_are_no_larger_than_their_share(url):
    """Three rows are read, so each has a third; the fourth is not of this page."""

    async def play(store, clock):
        one = await with_sizes(store, (10, 11, 5, 4))
        pending = ReadPending("s1", "n1", 3)
        fence = Fence("s1", "n1", (1, 0), 2, one.token, 1, 3)
        pages = [await store.do(ReadPage(asked, 32)) for asked in (pending, fence)]
        return pages, [await store.ask(asked) for asked in (pending, fence)]

    pages, answers = run(url, play)
    assert pages == [Page(answer, {"n1m1": sized(10), "n1m3": sized(5)}) for answer in answers]
    assert [len(page.answers[0].found[0].rows) for page in pages] == [3, 3]
    assert pages[1].answers[0].more


def test_PS_198_what_is_read_of_several_writers_is_shared_by_them(url):
    async def play(store, clock):
        await with_sizes(store, (5, 6))
        await with_sizes(store, (5, 7), "n2")
        return [await store.do(ReadPage(ReadPending("s1", rows=2), most)) for most in (23, 24, 28)]

    found = run(url, play)
    assert [sorted(page.payloads) for page in found] == [
        ["n1m1", "n2m1"],
        ["n1m1", "n1m2", "n2m1"],
        ["n1m1", "n1m2", "n2m1", "n2m2"],
    ]
    assert all([len(one.rows) for one in page.answers[0].found] == [2, 2] for page in found)


def test_PS_198_a_message_that_is_gone_has_no_payload_and_a_session_without_writers_no_page(url):
    async def play(store, clock):
        await connect(store, "s1")
        empty = await store.do(ReadPage(ReadPending("s1", rows=2), 99))
        await store.ask(BeginEpoch("s1", "n1"))
        await store.ask(row("s1", 1, "gone"))
        return empty, await store.do(ReadPage(ReadPending("s1", rows=2), 99))

    empty, found = run(url, play)
    assert empty == Page((PendingRead(()),), {})
    assert found == Page((PendingRead((EpochRows("n1", 1, (Queued(1, "", "a/+", 1),)),)),), {})


def test_PS_168_a_packet_that_was_sent_is_not_written_again(url):
    """`taken` and `sent` come again alike, so a store may have either; whatever else changes is written."""

    async def play(store, clock):
        one = await connect(store, "s1")
        owned = LoadSession("c", "a~1/1", one.token)
        await store.ask(owned)
        other = open_session_store(url)
        packets = {key: InFlightRecord(key, "c", Queued(key, f"m{key}", "a", 2), key, TAKEN) for key in range(1, 4)}
        commits = [packets, packets | {2: replace(packets[2], status=RECEIVED)}]
        commits.append({2: commits[1][2], 3: replace(packets[3], place=9), 4: replace(packets[3], packet=4)})
        commits.append({4: replace(packets[3], packet=4, place=5)})
        read, known = [], SessionState()
        for each in commits:
            state = SessionState(packets=Map(each), places=9)
            await store.ask(CommitState("s1", one.token, change_to(state, known)))
            known = state
            (loaded,) = await other.ask(owned)
            read.append({key: (packet.status, packet.place) for key, packet in sorted(loaded.state.packets.items())})
        await other.close()
        return read

    assert run(url, play) == [
        {1: (TAKEN, 1), 2: (TAKEN, 2), 3: (TAKEN, 3)},
        {1: (TAKEN, 1), 2: (RECEIVED, 2), 3: (TAKEN, 3)},
        {2: (RECEIVED, 2), 3: (TAKEN, 9), 4: (TAKEN, 3)},
        {4: (TAKEN, 5)},
    ]


def test_rows_of_packets_are_made_before_the_transaction_that_stores_them(sqlite_url, monkeypatch):
    async def play(store, clock):
        one = await connect(store, "s1")
        await store.ask(LoadSession("c", "a~1/1", one.token))
        connection, inside = store._store._database._database.connection, []
        make = machine_requests.list_packet_rows

        def note(session, packets):
            inside.append(connection.in_transaction)
            return make(session, packets)

        monkeypatch.setattr(machine_requests, "list_packet_rows", note)
        state = SessionState(packets=Map({1: InFlightRecord(1, "c", Queued(1, "m1", "a", 1), 1)}), places=1)
        life = await store.begin_life("n2", 1_000)
        await store.carry_out(life, 1, [CommitState("s1", one.token, change_to(state))])
        return inside

    assert run(sqlite_url, play) == [False]


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 300])
def test_as_many_rows_as_there_are_are_stored_in_their_order(url, count):
    async def play(store, clock):
        one = await connect(store, "s1")
        owned = LoadSession("c", "a~1/1", one.token)
        await store.ask(owned)
        queued = tuple(Queued(number, f"m{number}", "a/+", number % 3) for number in range(1, count + 1))
        packets = {key: InFlightRecord(key, "c", Queued(key, f"p{key}", "b", 1), key) for key in range(1, count + 1, 2)}
        state = SessionState(Map(w=(1, count)), Map(packets), queued, 2 * count)
        read, known = [], SessionState()
        for each in (state, replace(state, queued=queued[count // 3 :], packets=Map(dict(list(packets.items())[9:])))):
            await store.ask(CommitState("s1", one.token, change_to(each, known)))
            known = each
            read.append((await store.ask(owned))[0].state == each)
        return read

    assert run(url, play) == [True, True]


def test_runs_of_numbers():
    assert runs_of_numbers([]) == []
    assert runs_of_numbers([4, 2, 3, 9, 7, 1]) == [(1, 4), (7, 7), (9, 9)]


def test_a_marker_is_shown_in_the_place_of_a_writer_elsewhere(url):
    async def play(store, clock):
        one = await connect(store, "s1")
        await store.do(Subscribe("s1", one.token, "a/+", 1))
        await store.do(message(1))
        nothing = await store.do(ShowMarker("s1", "n1", 1, 1))
        await store.ask(BeginEpoch("s1", "n1"))
        await store.ask(row("s1", 1))
        first = await store.do(ShowMarker("s1", "n1", 1, 1))
        await store.ask(row("s1", 2))
        again = await store.do(ShowMarker("s1", "n1", 1, 1))
        second = await store.do(ShowMarker("s1", "n1", 1, 2))
        older = await store.do(ShowMarker("s1", "n1", 1, 1))
        seen = await store.do(
            Look("n2", (WatchedSession("s1", one.token, (("n1", 1, 1),)), WatchedSession("s1", 0, ())))
        )
        ours = await store.do(Look("n1", (WatchedSession("s1", one.token, ()),)))
        return [nothing, first, again, second, older], seen, ours

    shown, seen, ours = run(url, play)
    assert shown == [None, ShownMarker(1, 2), ShownMarker(1, 2), ShownMarker(1, 3), None], (
        "the same k for the same marker"
    )
    assert seen[0] == LagAnswer("s1", False, ("n1",), (("n1", 1, Queued(2, "m1", "a/+", 1)),))
    assert seen[1] == LagAnswer("s1", True)
    assert ours == (LagAnswer("s1", False),)


def test_pages_of_one_writer_are_read_one_after_the_other(url):
    async def play(store, clock):
        one = await connect(store, "s1")
        await store.do(Subscribe("s1", one.token, "a/+", 1))
        await store.do(message(1))
        await store.ask(BeginEpoch("s1", "n1"))
        for number in range(1, 6):
            await store.ask(row("s1", number))
        found = []
        for taken in (0, 2, 4, 5):
            await store.ask(CommitState("s1", one.token, change_to(SessionState(Map({"n1": (1, taken)})))))
            (read,) = await store.ask(ReadPending("s1"))
            found.append([each.number for part in read.found for each in part.rows])
        return found

    assert run(url, play, page=2) == [[1, 2], [3, 4], [5], []]


# -- lives and batches ----------------------------------------------------------------------------------------------


def test_of_two_processes_under_one_name_the_newest_lives(url):
    async def play(store, clock):
        older = await store.begin_life("n5", 1_000)
        await store.carry_out(older, 1, [Beat("n5", 1_000)])
        newer = await store.begin_life("n5", 1_000)
        for ask in (store.carry_out(older, 2, [Beat("n5", 1_000)]), store.read(older, [ReadPayloads((), 1)])):
            with pytest.raises(Superseded, match="n5: another process has this name"):
                await ask
        await store.carry_out(newer, 1, [Beat("n5", 1_000)])

    run(url, play)


def test_PS_701_a_transaction_that_finds_the_tables_empty_says_that_they_were_put_back(postgres_url):
    """It began before they were, and waited for them: what it sees is older than their rows."""

    async def play(store, clock):
        life = await store.begin_life("n5", 1_000)
        run_sql(postgres_url, "DELETE FROM gapless_sessions.store")
        beat, read = [Beat("n5", 1_000)], [ReadPayloads((), 1)]
        for ask in (store.carry_out(life, 1, beat), store.read(life, read), store.begin_life("n6", 1_000)):
            with pytest.raises(StoreDamaged, match=r"empty; w.* put back from a copy"):
                await ask

    run(postgres_url, play)


def test_a_batch_of_before_or_of_another_store_is_refused(url):
    async def play(store, clock):
        life = await store.begin_life("n5", 1_000)
        await store.carry_out(life, 1, [Beat("n5", 1_000)])
        await store.carry_out(life, 2, [Beat("n5", 1_000)])
        with pytest.raises(StoreDamaged, match="put back from a copy"):
            await store.carry_out(life, 1, [Beat("n5", 1_000)])
        with pytest.raises(StoreDamaged, match="knows batch 2"):
            await store.carry_out(life, 4, [Beat("n5", 1_000)])
        with pytest.raises(StoreDamaged, match="another store"):
            await store.carry_out(type(life)("n5", life.number, b"x" * 16), 3, [])
        with pytest.raises(StoreDamaged, match="does not know life 9"):
            await store.read(type(life)("n5", 9, life.identity), [])

    run(url, play)


@pytest.mark.parametrize("is_committed", [False, True])
def test_who_is_cut_off_in_a_commit_looks_and_does_nothing_twice(url, is_committed):
    """The connection breaks before, or after, the server has committed: nobody is told which."""

    async def play(store, clock):
        life = await store.begin_life("n5", 10**6)
        one = await connect(store, "s1")
        batch = [
            BeginEpoch("s1", "n5"),
            row("s1", 1, writer="n5"),
            CommitState("s1", one.token, change_to(SessionState(queued=(Queued(1, "q"),), places=1))),
        ]
        plain = store._database.writing

        @contextmanager
        def cut(watch, **given):
            store._database.writing = plain
            try:
                with plain(watch) as sql:
                    yield sql
                    if not is_committed:
                        raise OutcomeOpen("cut")
            finally:
                if is_committed:
                    raise OutcomeOpen("cut")

        store._database.writing = cut
        with pytest.raises(OutcomeOpen):
            await store.carry_out(life, 1, batch)
        answers = await store.carry_out(life, 1, batch)
        more = CommitState("s1", one.token, StateChange(queued=(Queued(2, "r"),), places=2))
        await store.carry_out(life, 2, [more, row("s1", 2, writer="n5")])
        return answers, await store.ask(ReadPending("s1")), await store.ask(LoadSession("c", "o", one.token))

    answers, pending, loaded = run(url, play)
    assert [type(one).__name__ for (one,) in answers] == ["EpochBegun", "RowStored", "StateCommitted"]
    assert answers[0][0].epoch == 1
    assert [(part.epoch, [each.number for each in part.rows]) for part in pending[0].found] == [(1, [1, 2])]
    assert loaded[0].state == SessionState(queued=(Queued(1, "q"), Queued(2, "r")), places=2)


def rows(session, first, last, writer="n1", epoch=1):
    """A range."""
    stored = (Queued(number, f"m{number}", "a/+", 1) for number in range(first, last + 1))
    return PutRows(session, writer, epoch, tuple(stored))


def test_PS_403_ranges_of_several_sessions_are_few_statements_and_each_has_its_answer(url):
    async def play(store, clock):
        life = await store.begin_life("n1", 10**6)
        sessions = [f"s{number}" for number in range(40)]
        for number, session in enumerate(sessions):
            await connect(store, session, f"c{number}")
        begun = await store.carry_out(life, 1, [BeginEpoch(session, "n1") for session in sessions])
        statements = []
        with counting(store, statements):
            ranges = [rows(session, 1, 1 + number % 3) for number, session in enumerate(sessions)]
            batch = [*ranges, rows("s0", 2, 4), rows("s1", 1, 1, epoch=0), rows("gone", 1, 2)]
            answers = await store.carry_out(life, 2, batch)
        found = [await store.ask(ReadPending(session, "n1")) for session in sessions]
        return begun, answers, statements, found

    begun, answers, statements, found = run(url, play)
    assert begun == [(EpochBegun(1),)] * 40
    assert answers == [*[(RowStored(),)] * 41, (RowFenced(1),), (RowStored(),)]
    assert len(statements) < 20
    stored = [[row.number for part in polled.found for row in part.rows] for (polled,) in found]
    assert stored == [[1, 2, 3, 4], *([*range(1, 2 + number % 3)] for number in range(1, 40))]


@contextmanager
def counting(store, statements):
    """The statements of transactions that write are noted."""
    plain = store._database.writing

    @contextmanager
    def writing(watch=None, **given):
        with plain(watch, **given) as sql:
            for name in ("all", "run", "put_many"):
                setattr(sql, name, partial(note, getattr(sql, name)))
            yield sql

    def note(call, statement, *given, **values):
        statements.append(statement)
        return call(statement, *given, **values)

    store._database.writing = writing
    yield
    store._database.writing = plain


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (lambda: rows("s1", 5, 6), "stores number 5 for s1 after 3"),
        (lambda: rows("s1", 3, 4), "stores up to 4 for s1, of which 3 is the last"),
        (lambda: PutRows("s1", "n1", 1, (Queued(2, "m2", "a/+", 1), Queued(3, "other", "a/+", 1))), "where m3 is"),
    ],
)
def test_PS_403_a_range_that_is_there_in_part_or_is_another_is_damage(url, asked, words):
    async def play(store, clock):
        await connect(store, "s1")
        await store.ask(BeginEpoch("s1", "n1"))
        assert await store.ask(rows("s1", 1, 3)) == await store.ask(rows("s1", 2, 3)) == (RowStored(),)
        with pytest.raises(StoreDamaged, match=words):
            await store.ask(asked())
        return await store.ask(ReadPending("s1", "n1"))

    (polled,) = run(url, play)
    assert [row.number for row in polled.found[0].rows] == [1, 2, 3]


def test_a_server_that_ends_the_connection_in_a_commit_is_asked_again(postgres_url):
    """A real server: the process that serves us is ended while the commit is under way, as often as it takes."""

    async def play(store, clock):
        life = await store.begin_life("n5", 10**6)
        await connect(store, "s1")
        await store.carry_out(life, 1, [BeginEpoch("s1", "n5")])
        run_sql(
            postgres_url,
            "CREATE FUNCTION gapless_sessions.end_me() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$",
        )
        run_sql(
            postgres_url,
            "CREATE CONSTRAINT TRIGGER ends AFTER INSERT ON gapless_sessions.session_rows"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION gapless_sessions.end_me()",
        )
        with pytest.raises(OutcomeOpen):
            await store.carry_out(life, 2, [rows("s1", 1, 3, writer="n5")])
        run_sql(postgres_url, "DROP TRIGGER ends ON gapless_sessions.session_rows")
        answers = await store.carry_out(life, 2, [rows("s1", 1, 3, writer="n5")])
        return answers, await store.ask(ReadPending("s1"))

    answers, pending = run(postgres_url, play)
    assert answers == [(RowStored(),)]
    assert pending == (PendingRead((EpochRows("n5", 1, tuple(Queued(one, "", "a/+", 1) for one in (1, 2, 3))),)),)


def test_PS_204_epochs_that_nobody_asks_about_are_gone(url):
    """A node that begins a thousand times, or is fenced as often, leaves one of each session behind."""

    async def play(store, clock):
        await store.begin_life("n1", 1_000)
        one = await connect(store, "s1")
        epochs = []
        for life in range(5):
            (begun,) = await store.ask(BeginEpoch("s1", "n1"))
            await store.ask(row("s1", 1, f"m{life}", begun.epoch))
            for n in (1, 2):
                await store.ask(Fence("s1", "n1", (0, 0), 0, one.token, n))
            epochs.append(read_epochs(url))
        unclear = [await store.ask(ReadRow("s1", "n1", epoch, 1)) for epoch in (begun.epoch, begun.epoch + 1)]
        await store.ask(row("s1", 1, "m9", begun.epoch + 2))
        last = read_epochs(url)
        for _ in range(3):
            await store.ask(BeginEpoch("s1", "n1"))
        assert [each for _, each in read_epochs(url)] == [0], "of one that begins and stores nothing"
        return epochs, unclear, last, begun.epoch

    epochs, unclear, last, epoch = run(url, play)
    assert [len(one) for one in epochs] == [2] * 5
    assert epochs[-1] == [(epoch, 1), (epoch + 2, 0)], "who was fenced may still ask for what it has stored"
    assert unclear == [(RowRead(True),), (RowRead(False),)]
    assert last == [(epoch + 2, 1)]


def read_epochs(url):
    """(epoch, last number), by another connection."""
    statement = "SELECT epoch, last FROM @epochs ORDER BY epoch"
    if url.startswith("postgresql"):
        return run_sql(url, statement.replace("@", "gapless_sessions."))
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        return connection.execute(statement.replace("@", "")).fetchall()


async def committed(store, request):
    (answer,) = await store.ask(request)
    return isinstance(answer, StateCommitted)


def test_two_owners_race_to_commit_and_the_one_with_the_higher_token_wins(url):
    """Through two stores."""

    async def play(store, clock):
        other = open_session_store(url)
        try:
            first = await connect(store, "s1")
            one = SessionState(queued=(Queued(1, "a"),))
            assert await committed(store, CommitState("s1", first.token, change_to(one)))
            await other.ask(UnlockClient("c", "h"))
            second = await connect(other, "s1", owner="other")
            await other.ask(LoadSession("c", "o2", second.token))
            two = SessionState(queued=(Queued(2, "b"), Queued(3, "c")))
            assert await committed(other, CommitState("s1", second.token, change_to(two, one)))
            assert await store.ask(CommitState("s1", first.token, StateChange())) == (NotOwner(),)
            await store.ask(UnlockClient("c", "other"))
            third = await connect(store, "s1")
            three = SessionState(queued=(Queued(3, "c"),))
            assert await committed(store, CommitState("s1", third.token, change_to(three, two)))
            return await store.ask(LoadSession("c", "o3", third.token)), three
        finally:
            await other.close()

    loaded, three = run(url, play)
    assert loaded[0].state == three


def test_names_that_look_like_keys_of_others_are_others(url):
    async def play(store, clock):
        names = ["a", "a/", "A", "ä", "a\u0308", "a b", "a'b", "%", "_", "a:b", "🦊"]
        for name in names:
            one = await connect(store, f"s-{name}", name)
            await store.do(Subscribe(one.session, one.token, "t", 1))
        await store.do(message(1, "t"))
        for name in names:
            await store.ask(BeginEpoch(f"s-{name}", name))
            await store.ask(row(f"s-{name}", 1, writer=name))
        found = [(await store.ask(ReadPending(f"s-{name}")))[0].found for name in names]
        return names, found

    names, found = run(url, play)
    assert [[one.writer for one in part] for part in found] == [[name] for name in names]


# -- whose it is ----------------------------------------------------------------------------------------------------


def test_a_store_of_another_version_is_refused_by_name(url):
    run(url, nothing)
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute("PRAGMA user_version = 589833")
    else:
        run_sql(url, "UPDATE gapless_sessions.store SET version = 9, oldest_reader = 9")
    with pytest.raises(ConfigurationError, match="version 9, and needs a gapless with tables of version 9"):
        open_session_store(url)


async def nothing(store, clock):
    pass


@pytest.mark.parametrize("where", ["mysql://x/y", "sqlite://", "postgresql://h:secret@x"])
def test_what_is_no_store_is_refused_and_no_password_is_shown(where):
    with pytest.raises(ConfigurationError, match=r"^store") as error:
        open_session_store(where)
    assert "secret" not in str(error.value)


def test_a_file_that_was_put_back_while_a_node_ran_is_refused(sqlite_url):
    path = Path(sqlite_url.removeprefix("sqlite:///"))

    async def play(store, clock):
        life = await store.begin_life("n5", 1_000)
        with closing(sqlite3.connect(path)) as connection, connection:  # what a copy of before would say
            connection.execute("UPDATE nodes SET life = life - 1 WHERE name = ?", (b"n5",))
        with pytest.raises(StoreDamaged, match="does not know life 1"):
            await store.carry_out(life, 1, [])
        path.rename(path.with_suffix(".gone"))
        with pytest.raises(StoreDamaged, match="was removed"):
            await store.carry_out(life, 1, [])
        path.with_suffix(".gone").rename(path)

    run(sqlite_url, play)


def test_a_store_is_opened_by_a_user_who_lacks_a_privilege(postgres_url):
    run(postgres_url, nothing)
    run_sql(postgres_url, f"CREATE ROLE {(role := 'reader_' + postgres_url.rpartition('_')[2])} LOGIN")
    run_sql(postgres_url, f"GRANT USAGE ON SCHEMA gapless_sessions TO {role}")
    scheme, _, rest = postgres_url.partition("://")
    theirs = f"{scheme}://{role}@{rest.rpartition('@')[2]}"
    with pytest.raises(ConfigurationError, match=r"does not allow|permission"):
        open_session_store(theirs)


def test_a_marker_of_a_writer_goes_when_the_next_comes(url):
    async def play(store, clock):
        await connect(store, "s1")
        await store.ask(BeginEpoch("s1", "n1"))
        for token, n in ((1, 1), (1, 2), (2, 1), (1, 9)):
            await store.ask(PutMarker("s1", "n1", 1, 1, token, n))
        (found,) = await store.ask(ReadPending("s1"))
        return found

    assert run(url, play) == PendingRead((EpochRows("n1", 1, (), ((2, 1),)),)), "bounded, however many resume"


def test_a_queue_of_which_one_alone_is_another_is_what_is_read(sqlite_url):
    one, two, three, other = (Queued(number, f"m{number}") for number in (1, 2, 3, 9))
    queues = ((one, two, three), (two, three, other), (two, other), (two, one), (one, two, three, other), (other,))

    async def play(store, clock):
        connected = await connect(store, "s1")
        found, known = [], SessionState()
        for queue in queues:
            state = SessionState(queued=queue)
            await store.ask(CommitState("s1", connected.token, change_to(state, known)))
            known = state
            reader = open_session_store(sqlite_url, clock=clock)
            (loaded,) = await reader.ask(LoadSession("c", "o", connected.token))
            found.append(loaded.state.queued)
            await reader.close()
        return found

    assert run(sqlite_url, play) == list(queues)


def test_marks_of_rows_that_follow_each_other_mark_these_and_no_others(url):
    """In one batch, as one by one: rows of other writers and epochs, those between and behind, stay as they are."""
    wanted = [
        ("w1", 1, 2),
        ("w1", 1, 3),
        ("w1", 1, 4),
        ("w1", 2, 5),
        ("w2", 1, 1),
        ("w2", 1, 3),
        ("w2", 1, 2),
        ("w2", 1, 9),
    ]

    async def play(store, clock):
        await connect(store, "s1")
        for writer in ("w1", "w2"):
            for epoch in (1, 2):
                await store.ask(BeginEpoch("s1", writer))
                for number in range(1, 7):
                    await store.ask(PutRows("s1", writer, epoch, (Queued(number, f"m{number}", "t", 1),)))
        life = await store.begin_life("n1", 1_000)
        answers = await store.carry_out(life, 1, [MarkDelivered("s1", *one) for one in wanted])
        assert answers == [()] * len(wanted)
        (found,) = await store.ask(ReadPending("s1"))
        return {(one.writer, one.epoch, row.number) for one in found.found for row in one.rows}

    every = {(writer, epoch, number) for writer in ("w1", "w2") for epoch in (1, 2) for number in range(1, 7)}
    assert run(url, play) == every - set(wanted)


def test_PS_197_marks_of_several_rows_are_carried_out_alone_and_in_a_run(url):
    asked = [
        ("w1", 1, 1, 2),
        ("w1", 1, 3),
        ("w1", 1, 4, 5),
        ("w1", 2, 2, 4),
        ("w2", 1, 2, 3),
        ("w2", 1, 3, 4),
        ("w2", 2, 6, 9),
    ]

    async def play(store, clock):
        await connect(store, "s1")
        for writer in ("w1", "w2"):
            for epoch in (1, 2):
                await store.ask(BeginEpoch("s1", writer))
                for number in range(1, 7):
                    await store.ask(PutRows("s1", writer, epoch, (Queued(number, f"m{number}", "t", 1),)))
        life = await store.begin_life("n1", 1_000)
        await store.carry_out(life, 1, [MarkDelivered("s1", *one) for one in asked])
        (found,) = await store.ask(ReadPending("s1"))
        return [(one.writer, one.epoch, [row.number for row in one.rows]) for one in found.found]

    assert run(url, play) == [("w1", 1, [6]), ("w1", 2, [1, 5, 6]), ("w2", 1, [1, 5, 6]), ("w2", 2, [1, 2, 3, 4, 5])]


def test_PS_660_a_row_that_the_state_has_taken_goes_when_it_is_marked(url):
    """Of five rows three are taken, and four are marked: the fourth has a mark, and its collector."""

    async def play(store, clock):
        token = (await connect(store, "s1")).token
        for writer in ("w1", "w2"):
            await store.ask(BeginEpoch("s1", writer))
            for number in range(1, 6):
                await store.ask(PutRows("s1", writer, 1, (Queued(number, f"m{number}", "t", 1),)))
        await store.ask(CommitState("s1", token, StateChange(Map({"w1": (1, 3)}))))
        await store.ask(MarkDelivered("s1", "w1", 1, 1, 4))
        await store.ask(MarkDelivered("s1", "w2", 1, 1))
        (left,) = await store.ask(ReadRows(None, 99))
        (found,) = await store.ask(ReadPending("s1"))
        waiting = [(one.writer, [row.number for row in one.rows]) for one in found.found]
        return [(one.key.writer, one.key.number, one.key.tag) for one in left.rows if one.key.session == "s1"], waiting

    rows, waiting = run(url, play)
    undelivered = [("w1", 4), ("w1", 5), *(("w2", number) for number in range(1, 6))]
    marks = [("w1", 4, Tag.DELIVERED), ("w2", 1, Tag.DELIVERED)]
    assert set(rows) == {*((*one, Tag.UNDELIVERED) for one in undelivered), *marks}
    assert waiting == [("w1", [5]), ("w2", [2, 3, 4, 5])]


def test_requests_keep_their_order_and_marks_alone_go_together():
    marks = [MarkDelivered("s", "w", 1, number) for number in (1, 2, 3, 5)]
    others = [
        MarkDelivered("s", "w", 2, 4),
        MarkDelivered("s", "v", 2, 5),
        MarkDelivered("r", "v", 2, 6),
        BeginEpoch("s", "w"),
    ]
    asked = [*marks, *others, *marks]
    assert [list(one) for one in runs_of(asked)] == [
        marks[:3], [marks[3]], *([one] for one in others), marks[:3], [marks[3]],
    ]  # fmt: skip
    assert list(runs_of([])) == []
    several = [MarkDelivered("s", "w", 1, *one) for one in ((1, 3), (4,), (5, 9), (6, 7), (8, 8))]
    assert [list(one) for one in runs_of(several)] == [several[:3], several[3:]]
