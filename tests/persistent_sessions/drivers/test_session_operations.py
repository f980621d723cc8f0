"""What an operator does with a store of sessions, beside the nodes that use it."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from session_databases import SECOND, connect
from session_databases import run as run_store
from session_moves import queued
from session_nodes import node_of, take, until, where
from state_changes import change_to

from statemachines import cli
from statemachines.drivers.persistent_sessions import (
    PersistentSession,
    SessionPublisher,
    operator_request,
    session_command,
)
from statemachines.drivers.persistent_sessions.host_request import PutMessage, StoreRows, Subscribe
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.persistent_session import SessionTaken
from statemachines.kernel import Map
from statemachines.persistent_sessions.collector_request import ReadRows, Tag
from statemachines.persistent_sessions.life_request import KeepAlive, LeaveSession, LockClient
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    CommitState,
    LoadSession,
    NotOwner,
    PutRows,
    RowStored,
    SessionLoaded,
    SessionState,
    StateChange,
)


async def fill(store, count):
    """The session `s1` of the client `c` at the node n1, for which so many messages wait."""
    one = await connect(store, "s1", owner="n1~1/1", expiry_ms=60_000)
    await store.do(Subscribe("s1", one.token, "t/#", 1))
    await store.ask(BeginEpoch("s1", "n1"))
    for number in range(1, count + 1):
        await store.do(PutMessage(f"m{number}", "t/1", b"x", 1))
        await store.ask(PutRows("s1", "n1", 1, (queued(number),)))
    return one


def test_PS_424_sessions_are_listed_in_pages_and_say_where_they_are(url):
    async def play(store, clock):
        await connect(store, "s1", "a", owner="n1~1/1", expiry_ms=1_000)
        left = await connect(store, "s2", "b", owner="n1~1/2")
        await store.ask(LeaveSession("b", "s2", left.token, -1))
        await store.do(LockClient("c", "n1~1/3", 60_000))
        clock.now += 2 * SECOND // 1000
        first = await store.do(operator_request.ListSessions("", 2))
        rest = await store.do(operator_request.ListSessions(first[-1].client, 2))
        clock.now += 2 * SECOND
        return [*first, *rest], await store.do(operator_request.ListSessions("", 1))

    found, (lost,) = run_store(url, play)
    assert [(one.client, one.session, one.state, one.node, one.expiry_s) for one in found] == [
        ("a", "s1", "connecting", "n1", 1.0), ("b", "s2", "connecting", "n1", None), ("c", "", "connecting", "n1", None)
    ]  # fmt: skip
    assert (lost.client, lost.state, lost.node) == ("a", "lost", "n1")
    assert lost.seen_s >= 2


def test_PS_424_of_a_client_without_a_session_no_age_and_no_expiry_is_said():
    ended = operator_request.SessionSummary("c", "", "away", "", 0.0, None, 0)
    assert session_command._words(ended) == ("c", "no session")


def test_PS_424_a_session_is_described_and_nothing_is_counted_without_a_bound(url):
    async def play(store, clock):
        await fill(store, 3)
        return await store.do(operator_request.DescribeSession("c")), await store.do(
            operator_request.DescribeSession("nobody")
        )

    found, nobody = run_store(url, play)
    assert nobody is None
    assert (found.in_flight, found.queued, found.waiting, found.waiting_more) == (0, 0, 3, False)
    assert found.summary.waiting_max == 3
    assert (found.filters, found.filters_more) == ((operator_request.SubscribedFilter("t/#", 1),), False)


async def begin_again(store, first, last):
    """The node n1 has ended and stores these for s1, under the next epoch; the owner has not taken those before."""
    (begun,) = await store.ask(BeginEpoch("s1", "n1"))
    for number in range(first, last + 1):
        message = f"m{number}"
        row = replace(queued(number - first + 1), message=message)
        put = PutRows("s1", "n1", begun.epoch, (row,))
        await store.do(StoreRows(put, {message: Payload("t/1", b"x")}))


def test_PS_730_what_waits_is_found_by_keys_and_is_never_less_than_there_is(url):
    """Rows of several lives of a node wait; what an owner has taken does not."""

    async def play(store, clock):
        one = await fill(store, 5)
        await begin_again(store, 6, 9)
        await begin_again(store, 10, 10)
        await connect(store, "s2", "d")
        found = [await store.do(operator_request.ListSessions("", 9))]
        for place in ((1, 2), (2, 1), (2, 4), (3, 1)):
            await store.ask(CommitState("s1", one.token, change_to(SessionState(Map({"n1": place})))))
            found.append(await store.do(operator_request.ListSessions("", 9)))
        return [[(one.client, one.waiting_max) for one in page] for page in found]

    assert run_store(url, play) == [[("c", count), ("d", 0)] for count in (10, 8, 4, 1, 0)]


def test_PS_425_whatever_a_kicked_owner_asks_is_refused_and_the_session_stays(url):
    async def play(store, clock):
        one = await fill(store, 2)
        await store.ask(LoadSession("c", "n1~1/1", one.token))
        kicked = await store.do(operator_request.KickClient("c"))
        refused = [
            await store.ask(request)
            for request in (KeepAlive("c", "s1", one.token), CommitState("s1", one.token, StateChange()),
                            LeaveSession("c", "s1", one.token, 0))
        ]  # fmt: skip
        again = await store.do(operator_request.KickClient("c"))
        nobody = await store.do(operator_request.KickClient("nobody"))
        comes = await connect(store, "s2", owner="n1~1/2")
        (loaded,) = await store.ask(LoadSession("c", "n1~1/2", comes.token))
        return kicked, refused, again, nobody, comes, loaded

    kicked, refused, again, nobody, comes, loaded = run_store(url, play)
    assert (kicked.session, kicked.node) == ("s1", "n1")
    assert refused == [(NotOwner(),)] * 3
    assert again.state == "away"
    assert nobody is None
    assert (comes.session, comes.present) == ("s1", True)
    assert isinstance(loaded, SessionLoaded)


def test_PS_426_a_purged_session_is_gone_with_its_rows_and_nothing_is_stored_for_it_any_more(url):
    async def play(store, clock):
        one = await fill(store, 5)
        purged = await store.do(operator_request.PurgeClient("c"))
        deleted = [await store.do(operator_request.DeleteRows("s1", 2)) for _ in range(4)]
        refused = await store.ask(KeepAlive("c", "s1", one.token))
        late = await store.ask(PutRows("s1", "n1", 1, (queued(6),)))
        (found,) = await store.ask(ReadRows(None, 10))
        comes = await connect(store, "s2", owner="n1~1/2")
        return purged.session, deleted, refused, late, [row.key.tag for row in found.rows], comes, one

    session, deleted, refused, late, tags, comes, before = run_store(url, play)
    assert session == "s1"
    assert deleted == [2, 2, 1, 0]
    assert refused == (NotOwner(),)
    assert late == (RowStored(),)
    assert tags == [Tag.ABANDONED], "what a collector deletes last"
    assert (comes.session, comes.present) == ("s2", False)
    assert comes.token > before.token


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
        await until(lambda: not one.machines.owners)
        async with PersistentSession("tablet", nodes=where(one)) as again:
            assert again.present is (command == "kick")
            if again.present:
                assert await take(again, 1) == ["1"]
            else:
                assert again.session != session.session


def test_PS_424_the_commands_say_what_there_is_and_bad_input_is_one_line(tmp_path, sqlite_url, capsys):
    async def play(store, clock):
        await fill(store, 1)
        await connect(store, "s2", "d\x1b[2J")

    run_store(sqlite_url, play)
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
