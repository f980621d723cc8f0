"""What an operator does with a store of sessions, beside the nodes that use it."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from session_databases import connect
from session_databases import run as run_store
from session_moves import queued
from session_nodes import node_of, take, until, where
from state_changes import change_to

from statemachines import cli
from statemachines.drivers.persistent_sessions import (
    PersistentSession,
    SessionPublisher,
    operator_requests,
    session_command,
)
from statemachines.drivers.persistent_sessions.machine_requests import StoreRows
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.persistent_session import SessionTaken
from statemachines.drivers.persistent_sessions.route_rows import PutMessage, Subscribe
from statemachines.kernel import Map
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    CommitState,
    PutRows,
    SessionState,
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


def test_PS_730_what_waits_is_found_by_keys_and_is_never_less_than_there_is(url):
    """Rows of several lives of a node wait; what an owner has taken does not."""

    async def play(store, clock):
        one = await fill(store, 5)
        await begin_again(store, 6, 9)
        await begin_again(store, 10, 10)
        await connect(store, "s2", "d")
        found = [await store.do(operator_requests.ListSessions("", 9))]
        for place in ((1, 2), (2, 1), (2, 4), (3, 1)):
            await store.ask(CommitState("s1", one.token, change_to(SessionState(Map({"n1": place})))))
            found.append(await store.do(operator_requests.ListSessions("", 9)))
        return [[(one.client, one.waiting_max) for one in page] for page in found]

    assert run_store(url, play) == [[("c", count), ("d", 0)] for count in (10, 8, 4, 1, 0)]


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
