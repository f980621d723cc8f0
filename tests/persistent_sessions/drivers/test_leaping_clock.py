"""A database whose clock is set ahead by a day while nodes run: nothing is gone early, and an operator is asked."""

from __future__ import annotations

import asyncio
import json

import pytest
from session_databases import SECOND, Clock, connect
from session_moves import queued

from statemachines import cli
from statemachines.drivers.persistent_sessions.machine_requests import StoreRows
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.route_rows import PutMessage, Subscribe
from statemachines.drivers.persistent_sessions.sql import TimeWatch
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.persistent_sessions.collector_actions import garbage_messages
from statemachines.persistent_sessions.collector_record import CollectorRecord
from statemachines.persistent_sessions.collector_request import ReadClients, ReadMessages
from statemachines.persistent_sessions.graces import Graces
from statemachines.persistent_sessions.life_request import LeaveSession, LockClient, LookUp
from statemachines.persistent_sessions.request import BeginEpoch, PutRows
from statemachines.persistent_sessions.store_time import ClockState

DAY = 86_400 * SECOND
HOUR_MS = 3_600_000


def run(url, play):
    """`await play(store, clock, steady)`: a session of `c` that outlives its connection by an hour, and a message for
    it, which expires in an hour, too."""

    async def body():
        clock, steady = Clock(), Clock()
        store = open_session_store(url, clock=clock, steady=steady)
        try:
            connected = await connect(store, "s1", "c", expiry_ms=HOUR_MS)
            await store.do(Subscribe("s1", connected.token, "a/+", 1))
            (route,) = await store.do(PutMessage("m1", "a/x", b"x", 1, HOUR_MS))
            await store.ask(BeginEpoch("s1", "n1"))
            row = queued(1, "m1")
            await store.do(StoreRows(PutRows("s1", "n1", 1, (row,)), {row.message: Payload("a/x", b"x")}))
            assert route.until_ns > 0
            await store.ask(LeaveSession("c", "s1", connected.token, HOUR_MS))
            return await play(store, clock, steady)
        finally:
            await store.close()

    return asyncio.run(body())


async def gone(store):
    """What a collector would forget, and delete for its age; whether the session has expired for who connects."""
    (clients,) = await store.ask(ReadClients("", 10, 1_000))
    (messages,) = await store.ask(ReadMessages("", 10))
    unneeded = garbage_messages(CollectorRecord(Graces(retention_ms=3_600_000)), messages)
    (locked,) = await store.ask(LockClient("c", "h", 1))
    (found,) = await store.ask(LookUp("c", locked.token, 1_000))
    return [one.client for one in clients.clients if one.over], [one.message for one in unneeded], found.expired


def test_PS_464_time_in_which_nothing_ran_is_said_before_anything_is_deleted(url, caplog):
    clock = Clock()
    clock.now = DAY

    async def use(request):
        store = open_session_store(url, clock=clock, steady=Clock())
        try:
            await (store.do if isinstance(request, Subscribe) else store.ask)(request)
        finally:
            await store.close()

    for request in (Subscribe("s1", 1, "a", 1), ReadClients("", 10, 1_000)):
        asyncio.run(use(Subscribe("s1", 1, "a", 1)))
        clock.now += 3_600 * SECOND
        asyncio.run(use(request))
        assert "nobody has written to it" not in caplog.text
        clock.now += DAY
        asyncio.run(use(request))
        assert caplog.text.count("nobody has written to it for") == 1
        assert "for 2" in caplog.text
        caplog.clear()


@pytest.mark.parametrize(("unused_ns", "apart_ns", "follows"), [
    (SECOND, DAY, False), (2 * DAY, DAY, False), (SECOND, 3_500 * SECOND, True), (2 * DAY, 0, True),
])  # fmt: skip
def test_PS_702_a_process_that_sees_a_leap_first_compares_the_clock_with_its_own(
    url, caplog, unused_ns, apart_ns, follows
):
    """Others run, and stand still at that moment."""

    async def play(store, clock, steady):
        passes(clock, steady, unused_ns)
        own, clock.now = clock.now, clock.now + apart_ns
        first = open_session_store(url, clock=clock, steady=Clock(), wall=lambda: own)
        try:
            clients, _, expired = await gone(first)
            last_ns = await first.last_commit_ns()
        finally:
            await first.close()
        assert (clients, expired) == ((["c"], True) if unused_ns > DAY else ([], False))
        assert abs(last_ns - (clock.now if follows else own)) < SECOND
        assert ("set ahead by 86400 s" in caplog.text) == (not follows)

    run(url, play)


def test_PS_524_time_in_which_nothing_ran_counts_in_the_same_boot(sqlite_url, caplog):
    clock, steady = Clock(), Clock()

    async def use(work):
        store = open_session_store(sqlite_url, clock=clock, steady=steady, boot="one")
        try:
            return await work(store)
        finally:
            await store.close()

    asyncio.run(use(lambda store: connect(store, "s1", "c", expiry_ms=HOUR_MS)))
    passes(clock, steady, 7_200 * SECOND)
    assert asyncio.run(use(gone))[0] == ["c"]
    assert "nobody has written to it for 2" in caplog.text
    assert "set ahead" not in caplog.text


def passes(clock, steady, nanoseconds):
    clock.now += nanoseconds
    steady.now += nanoseconds


def test_PS_293_the_command_accepts_a_clock_once(sqlite_url, capsys, tmp_path):
    async def play(store, clock, steady):
        clock.now += DAY
        await store.begin_life("n1", 1_000)

    run(sqlite_url, play)
    for words in ("ages count again", "ages count already"):
        assert words in ask_clock(capsys, sqlite_url, "--accept")
        found = json.loads(ask_clock(capsys, sqlite_url, "--accept", "--json"))
        assert (found["accepted"], found["stopped"]) == (False, False)
    nowhere = tmp_path / "none.db"
    assert cli.run(["sessions", "clock", "--accept", "--store", str(nowhere)]) == cli.Exit.USAGE
    assert "is not there" in capsys.readouterr().err
    assert not nowhere.exists()


def ask_clock(capsys, url, *options):
    """What the command says."""
    assert cli.run(["sessions", "clock", "--store", url, *options]) == cli.Exit.HELD
    return capsys.readouterr().out


def test_PS_732_the_command_shows_the_clock(sqlite_url, capsys, monkeypatch):
    async def play(store, clock, steady):
        return None

    run(sqlite_url, play)
    state = ClockState(2 * DAY, 2 * DAY, 0)
    monkeypatch.setattr(TimeWatch, "describe_clock", lambda self: state)
    where = sqlite_url.removeprefix("sqlite:///")
    assert ask_clock(capsys, sqlite_url).splitlines() == [
        f"/{where.lstrip('/')}: its clock shows 1970-01-03T00:00:00Z", "ages count"
    ]  # fmt: skip
    state = ClockState(2 * DAY, DAY, DAY - 5 * SECOND)
    assert ask_clock(capsys, sqlite_url).splitlines()[0].endswith("00Z, 86400 s ahead of store time")
    assert "ages stand still for 5 s" in ask_clock(capsys, sqlite_url)
    assert json.loads(ask_clock(capsys, sqlite_url, "--json")) == {
        "clock": "1970-01-03T00:00:00Z", "store_time": "1970-01-02T00:00:00Z", "ahead_s": 86_400.0, "stopped": True,
        "stopped_s": 5.0,
    }  # fmt: skip
    state = ClockState(DAY, 2 * DAY, 0)
    assert "86400 s behind store time" in ask_clock(capsys, sqlite_url)
