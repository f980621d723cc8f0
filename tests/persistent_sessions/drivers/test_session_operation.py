"""Every statement of the session store finds its rows by a key: nothing that it asks costs more for what is stored.

What an operator does with a store of sessions, beside the nodes that use it.

Nodes of sessions among each other, and their store (PS-147, PS-153, PS-154, PS-160, PS-163).

What a commit survives: when the file waits for fsync, and which server is refused.
"""

import asyncio
import json

import pytest
from msgspec.structs import replace
from session_databases import SECOND, Clock, change_to, connect, open_node_store, queued
from session_nodes import node_of, take, where
from statement_plans import Access, watched
from waiting import pause, pause_async, run_async, until_async

from statemachines import cli
from statemachines.drivers.identity import Identity
from statemachines.drivers.persistent_sessions import (
    PersistentSession,
    SessionPublisher,
    collector_requests,
    group_rows,
    host_requests,
    life_requests,
    machine_requests,
    operator_requests,
    postgres,
    route_rows,
    session_command,
    session_row,
    sql,
    sqlite,
    store,
)
from statemachines.drivers.persistent_sessions.collector_requests import SessionBounds
from statemachines.drivers.persistent_sessions.group_rows import (
    CountWaiting,
    DeclareGroup,
    ForgetGroup,
    ListIdleGroups,
    ReadGroups,
    ReadReturned,
)
from statemachines.drivers.persistent_sessions.host_requests import (
    Beat,
    DropRows,
    Look,
    PutCarried,
    ReadNodes,
    ReadPayloads,
    WatchedSession,
)
from statemachines.drivers.persistent_sessions.life_requests import DropWill, EndWills, FindDueWills, OpenWithWill
from statemachines.drivers.persistent_sessions.machine_requests import ReadPage, StoreRows
from statemachines.drivers.persistent_sessions.node_messages import RetainHandling, SessionWill
from statemachines.drivers.persistent_sessions.operator_requests import (
    DeleteRows,
    DescribeSession,
    KickClient,
    ListSessions,
    PurgeClient,
)
from statemachines.drivers.persistent_sessions.payloads import Payload, SharedOrigin
from statemachines.drivers.persistent_sessions.persistent_session import SessionTaken
from statemachines.drivers.persistent_sessions.route_rows import (
    PublisherPacket,
    PutMessage,
    ReadFilters,
    ReadOptions,
    ReadPackets,
    ReadUnfinished,
    ReleasePacket,
    RetainedFull,
    Subscribe,
    SubscribeFront,
    Unsubscribe,
)
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.drivers.sql.durability import Durability
from statemachines.kernel import ConfigurationError, Map, Superseded
from statemachines.persistent_sessions import collector as collector
from statemachines.persistent_sessions import resume_record
from statemachines.persistent_sessions.in_flight_record import TAKEN, InFlightRecord
from statemachines.persistent_sessions.life_request import (
    KeepAlive,
    LeaveSession,
    LockClient,
    OpenSession,
    UnlockClient,
)
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    CommitState,
    ConfirmRows,
    EpochRows,
    Fence,
    LoadSession,
    MarkDelivered,
    PutMarker,
    PutRows,
    ReadPending,
    ReadRow,
    SessionState,
    SubscribeLive,
    UnsubscribeLive,
)
from statemachines.persistent_sessions.takeover_record import BeginTimeout, FindOwner, TakeoverRefused

ONE_ROW = ("store", "boot", "turns")

BOUNDED = {
    Access("epochs", ("session",)): "of each writer its epoch, and those that are not read to their end yet",
    Access("epochs", ("session", "writer")): "the same of one writer",
    Access("epochs", ("session", "writer"), "epoch"): "the same of one writer",
    Access("taken", ("session",)): "one of each writer, and a node has one writer",
    Access("packets", ("session",)): "the receive maximum",
    Access("packets", ("session",), "packet"): "the receive maximum",
    Access("packets", ("message",), index="packets_by_message"): "a look whether there is one",
    Access("queued", ("session",)): "Times.queue",
    Access("queued", ("session",), "place"): "Times.queue",
    Access("queued", ("message",), index="queued_by_message"): "a look whether there is one",
    Access("routes", ("session",)): "filters of one session, and 20 000 that are gone (route_rows.FORGET)",
    Access("routes", ("session",), "filter"): "filters of groups of one session",
    Access("routes", (), "version", "routes_by_version"): "changes that a node does not know yet",
    Access("routes", (), "version", "gone_routes"): "those that are deleted by it (route_rows.FORGET)",
    Access("nodes", (), "until_ns", "nodes_by_end"): "nodes that live",
    Access("session_rows", ("message",), index="rows_by_message"): "a look whether there is one; or, of a message that "
    "is deleted, a count of the sessions that it was for",
    Access("session_rows", ("session", "writer"), index="markers"): "a marker takes the place of those before",
    Access("session_rows", ("session", "writer", "epoch", "token", "n"), index="markers"): "the marker that is shown",
    Access("session_rows", ("session", "writer", "epoch"), "number"): "rows that one request marks (MARKS_MAX)",
    Access("session_rows", ("session", "writer", "epoch", "number"), index="marks"): "the mark of one row",
    Access("session_rows", ("session",), "writer"): "a look whether there is one",
    Access("declared_groups"): "shared_group.GROUPS_MAX",
    Access("returned", ("filter",)): "group_rows.RETURNED_MAX",
    Access("returned"): "a look whether there is one",
    Access("returned", index="returned_by_message"): "the same",
    Access("carried", ("filter",)): "streams of a group that has ended, once",
    Access("received", ("session",)): "the receive maximum",
    Access("fan_out", ("message", "session")): "filters of one session that match one message",
    Access("fan_out", ("message",)): "rows of a message that are still to be stored; or a look whether there is one",
    Access("fan_out", ("session",), index="fan_out_by_session"): "rows for one session that are under way",
    Access("fan_out", ("topic",), index="fan_out_by_topic"): "subscriptions of a topic whose retained message comes",
    Access("retained", (), "topic"): "topics that begin as a filter does (route_rows.RETAINED_MAX)",
    Access("retained", (), "until_ns", "retained_by_end"): "those that are over, which are deleted by it",
    Access("wills", ("session",), index="wills_by_session"): "of each connection of a session that was not sent yet",
    Access("nodes", ()): "names of nodes",
}
"""What is read by less than a whole key -> why that is few."""

PAGED = {
    Access("session_rows", ("session", "writer"), "epoch"),
    Access("session_rows", (), "session"),
    Access("messages", (), "time_ns", "messages_by_time"),
    Access("session_rows", ("session", "writer", "epoch"), "number"),
    Access("session_rows", ("session", "writer", "epoch"), "number", "marks"),
    Access("clients", (), "client"),
    Access("clients", (), "client", "clients_alone"),
    Access("sessions", (), "expr", "sessions_left"),
    Access("sessions", (), "client", "sessions_held"),
    Access("fan_out", (), "time_ns", "fan_out_by_time"),
    Access("wills", ("due_ns", "node"), "life", "wills_by_due"),
    Access("wills", (), "due_ns", "wills_by_due"),
}
"""What is read in pages, in the order of its key, from a place on."""

MODULES = (
    collector_requests, group_rows, host_requests, life_requests, machine_requests, operator_requests,
    route_rows, session_row, sql, store,
)  # fmt: skip


async def drive(opened, clock, steady):
    """Every request that there is, so that each statement is asked."""
    ask, do = opened.ask, opened.do
    life = await opened.begin_life("n1", 10_000)
    await opened.begin_life("n2", 10_000)
    session = await connect(opened, "s1", "c", expiry_ms=1)
    token = session.token
    for topic_filter in ("a/+", "b", "$share/g/x"):
        await do(Subscribe("s1", token, topic_filter, 1))
        await do(SubscribeFront("s1", token, topic_filter, 1, 0, RetainHandling.NEVER))
    await do(Unsubscribe("s1", token, "b"))
    for number in range(1, 5):
        await do(PutMessage(f"m{number}", "a/x", b"x", 1, None if number % 2 else 60_000))
    await share(opened)
    await fan_out(opened, life)
    await opened.store_ahead(life, 1, [PutMessage("m9", "a/x", b"x", 1)])
    await do(PutCarried("s1", token, "$share/g/x", (("g1", Payload("x", b"x")),)))
    for writer in ("n1", "n2"):
        await ask(BeginEpoch("s1", writer))
        for number in (1, 2, 3, 3):
            await do(
                StoreRows(PutRows("s1", writer, 1, (queued(number),)), {queued(number).message: Payload("a/x", b"x")})
            )
        await ask(ReadRow("s1", writer, 1, 3))
        await ask(PutMarker("s1", writer, 1, 4, token, 1))
    await do(ReadFilters("s1"))
    await do(ReadOptions("s1"))
    await do(DropRows("s1", "n2", 1, 3, 3))
    await ask(LoadSession("c", "owner", token))
    await ask(SubscribeLive("s1", "owner", token))
    await ask(FindOwner("s1"))
    await ask(ReadPending("s1"))
    await do(ReadPage(ReadPending("s1", "n2", 2, (1, 1)), 1_000))
    await do(ReadPage(Fence("s1", "n2", (1, 0), 0, token, 1, 2), 1_000))
    await ask(ConfirmRows("s1", token, (EpochRows("n2", 1, (queued(1), queued(2))),)))
    packets = Map({1: InFlightRecord(1, "c", queued(1), 0, TAKEN), 2: InFlightRecord(2, "c", queued(2), 1, TAKEN)})
    state = SessionState(Map({"n1": (1, 2)}), packets, (queued(3), queued(4)), 2)
    await ask(CommitState("s1", token, change_to(state)))
    left = SessionState(state.taken, Map({2: packets[2]}), (queued(4),), 2)
    await ask(CommitState("s1", token, change_to(left, state)))
    marks = [MarkDelivered("s1", "n1", 1, number) for number in (1, 2, 3)]
    await opened.carry_out(life, 2, [*marks, Beat("n1", 10_000)])
    await opened.read(life, [ReadNodes(), ReadGroups("s1"), CountWaiting("s1", "a/+", 9)])
    await do(Look("n1", (WatchedSession("s1", token, (("n2", 1, 0),)),)))
    await do(ReadPayloads(("m1", "m2"), 1_000))
    await ask(KeepAlive("c", "s1", token))
    await ask(UnsubscribeLive("s1", token))
    await publish_once(opened, token)
    await retain_beyond(opened, clock, steady)
    await ask(LockClient("c", "other", 1, instance="i", attempt=1))
    await ask(LockClient("c", "third", 1, instance="i", attempt=1))
    await ask(UnlockClient("c", "other"))
    await do(DropRows("s1", "n2", 1, 1, 1))
    await do(ListSessions("", 10))
    await do(DescribeSession("c"))
    await opened.last_commit_ns()
    await collect(opened)
    left = await connect(opened, "s2", "c2")
    await ask(LeaveSession("c2", "s2", left.token, 5))
    await connect(opened, "s3", "c2", clean=True)
    await operate(opened)
    await connect_beyond(opened)
    for one in (clock, steady):
        one.now += 3_600 * SECOND
    await collect(opened)
    clock.now += 3_600 * SECOND  # it leaps
    await ask(KeepAlive("c2", "s3", token))
    await opened.accept_clock()
    await ask(collector.ForgetClient("c", 1))


async def fan_out(opened, life):
    """Two messages for so many sessions that one statement has all their rows."""
    sessions = [f"f{number}" for number in range(machine_requests.SESSIONS_MIN)]
    for session in sessions:
        await connect(opened, session, session)
        await opened.ask(BeginEpoch(session, "n1"))
    rows = [PutRows(one, "n1", 1, (queued(1), queued(2))) for one in sessions]
    await opened.carry_out(life, 1, [*rows, Beat("n1", 10_000)])  # beside it, it is no batch of rows alone


async def share(opened):
    """Messages of a group: of its stream, of a session that is gone, and once more; and a group that ends."""
    do = opened.do
    assert await do(DeclareGroup("s1", "$share/g/x")) == ""
    for number, (session, offset) in enumerate((("s1", 1), ("s1", 1), ("none", 2)), 1):
        message = f"g{number}"
        rows = (replace(queued(number, message), filter="$share/g/x"),)
        origins = {message: SharedOrigin("g/x", "0.0/x", offset)}
        await do(StoreRows(PutRows(session, "n3", 0, rows), {message: Payload("x", b"x")}, origins=origins))
    assert list(await do(ReadReturned(("g/x",)))) == ["g/x"]
    origins = {"g4": SharedOrigin("g/x", "", 0, "g3")}
    await do(StoreRows(PutRows("s1", "n3", 0, (queued(3, "g4"),)), {"g4": Payload("x", b"x")}, origins=origins))
    assert await do(ReadReturned(("g/x",))) == {}
    assert await do(DeclareGroup("s1", "$share/idle/x")) == ""
    assert [await do(ListIdleGroups(0)) for _ in range(2)] == [(), ("$share/idle/x",)]
    await do(ForgetGroup("$share/idle/x"))


async def publish_once(opened, token):
    """Packet ids of publishers, and wills."""
    kept = PublisherPacket("s1", token, 1)
    await opened.do(PutMessage("r1", "a/x", b"x", 2, retain=True))
    await opened.do(SubscribeFront("s1", token, "a/x", 1, 0, RetainHandling.ALWAYS))
    await opened.do(PutMessage("v1", "a/x", b"x", 0))
    await opened.do(PutMessage("r2", "a/x", b"y", 2, retain=True))
    await opened.do(PutMessage("q1", "a/x", b"x", 2, packet=kept))
    for _ in range(2):
        row = replace(queued(4), message="q1", filter="a/+")
        put = StoreRows(PutRows("s1", "n1", 1, (row,)), {"q1": Payload("a/x", b"x")}, frozenset({"q1"}))
        await opened.do(put)
    await opened.do(ReadPackets("s1"))
    await opened.do(ReleasePacket(kept))
    await opened.do(ReadUnfinished(1))
    (locked,) = await opened.ask(LockClient("c5", "n2~1/1", 1))
    for number, delay_ms in ((3, 0), (2, 5_000), (1, 5)):
        will = SessionWill("a/x", b"", 1, False, None, b"", delay_ms, Identity())
        await opened.do(OpenWithWill(OpenSession("c5", f"n2~1/{number}", locked.token, "s5", "", 10), will))
    await opened.begin_life("n2", 10_000)
    await opened.do(EndWills())
    await opened.do(FindDueWills())
    await opened.do(OpenWithWill(OpenSession("c5", "n2~2/1", locked.token, "s5", "", 10), will))
    await opened.ask(LeaveSession("c5", "s5", locked.token, 10))
    await opened.do(PutMessage("q2", "a/x", b"", 1, will="n2~1/1"))
    await opened.do(DropWill("n2~1/1"))


async def retain_beyond(opened, clock, steady):
    """One retained message more than may be, until the one of before is over."""
    first = PutMessage("r3", "b/x", b"x", 1, 5, retain=True)
    second = PutMessage("r4", "c/x", b"x", 1, retain=True)
    await opened.do(PutMessage("r5", "a/x", b"", 1, retain=True))
    assert [isinstance(await opened.do(one), RetainedFull) for one in (first, second)] == [False, True]
    for one in (clock, steady):
        one.now += SECOND
    assert not isinstance(await opened.do(second), RetainedFull)


async def operate(opened):
    """A client is kicked, and one is purged."""
    await connect(opened, "s4", "c4", owner="n1~1/1")
    await opened.ask(BeginEpoch("s4", "n1"))
    for number in (1, 2, 3):
        await opened.ask(PutRows("s4", "n1", 1, (queued(number),)))
    await opened.do(KickClient("c4"))
    await opened.do(PurgeClient("c4"))
    for _ in range(2):
        await opened.do(DeleteRows("s4", 2))


async def connect_beyond(opened):
    """The store keeps as many as it may."""

    (locked,) = await opened.ask(LockClient("c9", "h", 500))
    await opened.ask(OpenSession("c9", "h", locked.token, "s9", "", 5, 1))


async def collect(opened):
    """Pages, and each kind of deletion."""
    for after in ("", "a"):
        await opened.ask(collector.ReadClients(after, 10, 1_000))
    (found,) = await opened.ask(collector.ReadRows(None, 10))
    await opened.ask(collector.ReadRows(found.rows[0].key, 10))
    opened.bound_sessions(SessionBounds())
    await opened.ask(collector.ReadRows(None, 10, waiting=False))
    for _ in range(2):
        after, is_over = "", False
        while not is_over:
            (messages,) = await opened.ask(collector.ReadMessages(after, 10))
            after, is_over = messages.place, not messages.messages
    for only in (collector.Only.ALWAYS, collector.Only.UNPAIRED, collector.Only.ALONE):
        await opened.ask(collector.DeletePage((collector.RowDeletion(found.rows[-1].key, only),)))
    await opened.ask(collector.ReadMessages("", 10))
    for only in (
        collector.Only.UNREFERENCED, collector.Only.OVER, collector.Only.UNHELD, collector.Only.ALWAYS,
    ):  # fmt: skip
        await opened.ask(collector.DeletePage(messages=(collector.MessageDeletion("m1", only),)))


async def test_PS_289_no_statement_of_the_session_store_reads_what_grows(url, monkeypatch):
    """On both databases, as each says itself that it would find the rows."""
    monkeypatch.setattr(route_rows, "FORGET", 0)  # routes that are gone are forgotten at once
    monkeypatch.setattr(machine_requests, "SESSIONS_MIN", 2)
    monkeypatch.setattr(resume_record, "SHARE", 0)
    monkeypatch.setattr(route_rows, "RETAINED_MAX", 1)

    with watched() as plans:
        clock, steady = Clock(), Clock()
        opened = open_session_store(url, clock=clock, steady=steady, boot="one")
        try:
            await drive(opened, clock, steady)
        finally:
            await opened.close()
    database = sqlite if url.startswith("sqlite") else postgres
    assert plans.never_asked(*MODULES, database) == []
    assert plans.unbounded(ONE_ROW, BOUNDED, PAGED) == {}
    assert (postgres.CHECK_ROUTES.text.decode() in plans.plans) == (database is postgres)


async def fill(store, count):
    """The session `s1` of the client `c` at the node n1, for which so many messages wait."""
    one = await connect(store, "s1", owner="n1~1/1", expiry_ms=60_000)
    await store.do(Subscribe("s1", one.token, "t/#", 1))
    await store.ask(BeginEpoch("s1", "n1"))
    for number in range(1, count + 1):
        await store.do(PutMessage(f"m{number}", "t/1", b"x", 1))
        await store.ask(PutRows("s1", "n1", 1, (queued(number),)))
    return one


def test_PS_424_of_a_client_without_a_session_no_age_and_no_expiry_is_said():
    ended = operator_requests.SessionSummary("c", "", "away", "", 0.0, None, 0)
    assert session_command._words(ended) == ("c", "no session")


async def begin_again(store, first, last):
    """The node n1 has ended and stores these for s1, under the next epoch; the owner has not taken those before."""
    (begun,) = await store.ask(BeginEpoch("s1", "n1"))
    for number in range(first, last + 1):
        message = f"m{number}"
        row = replace(queued(number - first + 1), message=message)
        put = PutRows("s1", "n1", begun.epoch, (row,))
        await store.do(StoreRows(put, {message: Payload("t/1", b"x")}))


async def test_PS_730_what_waits_is_found_by_keys_and_is_never_less_than_there_is(url):
    """Rows of several lives of a node wait; what an owner has taken does not."""

    async with open_node_store(url) as (store, _clock):
        one = await fill(store, 5)
        await begin_again(store, 6, 9)
        await begin_again(store, 10, 10)
        await connect(store, "s2", "d")
        found = [await store.do(operator_requests.ListSessions("", 9))]
        for place in ((1, 2), (2, 1), (2, 4), (3, 1)):
            await store.ask(CommitState("s1", one.token, change_to(SessionState(Map({"n1": place})))))
            found.append(await store.do(operator_requests.ListSessions("", 9)))
        assert [[(one.client, one.waiting_max) for one in page] for page in found] == [
            [("c", count), ("d", 0)] for count in (10, 8, 4, 1, 0)
        ]


def sessions(capsys, *arguments):
    """Exit code and output of the command."""
    code = cli.run(["sessions", *arguments])
    said = capsys.readouterr()
    return code, said.out + said.err


@pytest.mark.parametrize("command", ["kick", "purge"])
async def test_PS_425_PS_426_a_client_ends_beside_a_running_node(tmp_path, capsys, command):
    """And connects again: its messages wait for it, or are gone with its session."""
    store = str(tmp_path / "s.db")
    import asyncio

    async with node_of(store) as one, SessionPublisher(nodes=where(one)) as publisher:
        session = PersistentSession("tablet", nodes=where(one))
        async with session:
            await session.subscribe("t")
            await publisher.publish("t", b"1")
            assert await take(session, 1, acknowledge=False) == ["1"]
            code, said = await asyncio.to_thread(sessions, capsys, command, "tablet", "--store", store)
            assert code == cli.Exit.HELD, said
            assert "tablet: was connected" in said
            with pytest.raises(SessionTaken):
                await anext(session)
        await until_async(lambda: not one.machines.owners)
        async with PersistentSession("tablet", nodes=where(one)) as again:
            assert again.present is (command == "kick")
            if again.present:
                assert await take(again, 1) == ["1"]
            else:
                assert again.session != session.session


def test_PS_424_the_commands_say_what_there_is_and_bad_input_is_one_line(tmp_path, sqlite_url, capsys):
    async def fill_both():
        async with open_node_store(sqlite_url) as (store, _):
            await fill(store, 1)
            await connect(store, "s2", "d\x1b[2J")

    run_async(fill_both())
    code, said = sessions(capsys, "list", "--store", sqlite_url)
    assert code == cli.Exit.HELD
    assert [line.split("\t")[:2] for line in said.splitlines()] == [["c", "s1"], ["d\\x1b[2J", "s2"]]
    code, said = sessions(capsys, "list", "--store", sqlite_url, "--limit", "1")
    assert said.splitlines()[1:] == ["... there are more; go on with --after 'c'"]
    code, said = sessions(capsys, "list", "--store", sqlite_url, "--limit", "1", "--json")
    assert [one["client"] for one in json.loads(said)["sessions"]] == ["c"]
    assert json.loads(said)["after"] == "c"
    code, said = sessions(capsys, "describe", "c", "--store", sqlite_url)
    assert "0 in flight, 0 queued, 1 waiting" in said
    code, said = sessions(capsys, "describe", "c", "--store", sqlite_url, "--json")
    assert json.loads(said)["summary"]["session"] == "s1"
    for command in ("describe", "kick", "purge"):
        code, said = sessions(capsys, command, "nobody", "--store", sqlite_url)
        assert code == cli.Exit.USAGE
        assert "client = 'nobody': has no session there" in " ".join(said.split())
        nowhere = tmp_path / "none.db"
        code, said = sessions(capsys, command, "c", "--store", str(nowhere))
        assert code == cli.Exit.USAGE
        assert not nowhere.exists()
    code, said = sessions(capsys, "purge", "c", "--store", sqlite_url, "--json")
    assert json.loads(said) == {"client": "c", "session": "s1", "node": "n1", "rows": 1}
    code, said = sessions(capsys, "kick", "c", "--store", sqlite_url)
    assert code == cli.Exit.USAGE


async def test_PS_147_a_node_hears_that_another_can_send_it_nothing_any_more(store):
    async with node_of(store) as one:
        lost = []
        one.machines.lose_link = lambda writer, now_ns: lost.append(writer) or []
        async with node_of(store, "b", peers=[one.address]) as other:
            await until_async(lambda: "peer:1" in other._transport._peers)
            assert lost == []
        await until_async(lambda: lost)
        assert lost == ["b"]


async def test_PS_153_a_node_lives_as_long_as_it_says_so_and_not_behind_its_end(store):
    async with node_of(store, "b") as other:
        async with node_of(store, lease_ms=2_000):
            await pause_async(4.2, "twice its lease, which has room for a slow machine")
            assert await other.request_queue.ask(ReadNodes()) == ("a", "b")
        assert await other.request_queue.ask(ReadNodes()) == ("b",)
        async with node_of(store, "c", lease_ms=60_000):
            assert await other.request_queue.ask(ReadNodes()) == ("b", "c")
        assert await other.request_queue.ask(ReadNodes()) == ("b",)


async def test_PS_154_a_node_whose_name_a_newer_process_has_ends(store):
    async with node_of(store) as older, node_of(store) as newer:
        with pytest.raises(Superseded, match="another process has this name now"):
            await older.wait_for_failure()
        assert newer.life.startswith("a~2.")


async def test_PS_163_a_session_of_a_node_that_is_gone_is_not_waited_for(store):
    seen = []
    observe = lambda node, event, before, step, now_ns: seen.append(type(event))  # noqa: E731
    async with node_of(store, "a", lease_ms=600_000) as node:
        session = PersistentSession("tablet", nodes=where(node))
        await session.__aenter__()
        await session.subscribe("t")
        await node.abort()
        async with (
            node_of(store, "b", observe=observe) as other,
            PersistentSession("tablet", nodes=where(other)) as again,
        ):
            assert again.present
        assert TakeoverRefused in seen
        assert BeginTimeout not in seen


async def test_PS_166_a_node_whose_loop_stood_still_says_so_and_goes_on(store, caplog):
    async with (
        node_of(store, lease_ms=200) as node,
        PersistentSession("tablet", nodes=where(node)) as session,
        SessionPublisher(nodes=where(node)) as publisher,
    ):
        await session.subscribe("t")
        pause(0.5, "the application computes")
        await publisher.publish("t", b"1")
        assert await take(session, 1) == ["1"]
    assert "node a: its loop stood still for 0." in caplog.text
    assert "and its leases last 0.2 s: its clients go to other nodes meanwhile" in caplog.text


NORMAL, FULL = 1, 2


def read_setting(store):
    return store._database._database.connection.execute("PRAGMA synchronous").fetchone()[0]


@pytest.mark.parametrize(("durability", "flushed"), [(Durability.PROCESS, NORMAL), (Durability.POWER, FULL)])
def test_D_510_with_power_a_commit_is_flushed_unless_its_rows_come_later(tmp_path, durability, flushed):
    async def test():
        store = open_session_store(tmp_path / "s.db", durability=durability)
        try:
            life = await store.begin_life("n", 1)
            found = [await store._database.run(lambda: read_setting(store))]
            for batch, request in enumerate(
                (
                    PutMessage("m1", "t", b"x", 1),
                    PutMessage("m2", "t", b"x", 1, retain=True),
                    PutMessage("m3", "t", b"x", 1),
                    PutMessage("m4", "t", b"x", 1, is_appended=True),
                    BeginEpoch("nobody", "n"),
                ),
                1,
            ):
                await store.carry_out(life, batch, [request])
                found.append(await store._database.run(lambda: read_setting(store)))
            return found
        finally:
            await store.close()

    assert asyncio.run(test()) == [flushed, NORMAL, flushed, NORMAL, flushed, flushed]


def test_D_510_a_server_that_does_not_flush_is_refused(postgres_url):
    mark = "&" if "?" in postgres_url else "?"
    lazy = f"{postgres_url}{mark}options=-c%20synchronous_commit%3Doff"
    with pytest.raises(ConfigurationError, match="synchronous_commit = off"):
        open_session_store(lazy, durability=Durability.POWER)
    for url, durability in ((lazy, Durability.PROCESS), (postgres_url, Durability.POWER)):
        asyncio.run(open_session_store(url, durability=durability).close())
