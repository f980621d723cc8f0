"""The collector that an application runs: rounds over a real store, one that fails, and one that is stopped."""

import asyncio
import subprocess
import sys
import time

import pytest
from session_databases import MS, change_to, connect, open_node_store
from waiting import HANG_S, pause_async

from statemachines.drivers.persistent_sessions.operator_requests import ListSessions
from statemachines.drivers.persistent_sessions.route_rows import PutMessage, Subscribe
from statemachines.drivers.persistent_sessions.upkeep import run_collector
from statemachines.drivers.sql.failure import StoreUnavailable
from statemachines.kernel import Map
from statemachines.persistent_sessions.collector import (
    DeletePage,
    Graces,
    MessageLost,
    ReadClients,
    ReadMessages,
    ReadRows,
    RoundEnded,
)
from statemachines.persistent_sessions.life_request import LeaveSession, LockClient, UnlockClient
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    CommitState,
    LoadSession,
    PutRows,
    ReadPending,
    SessionAbsent,
    SessionState,
)

GRACES = Graces(retention_ms=3_600_000, round_ms=20, page=2)


async def rounds(store, count, *, is_whole=True, graces=GRACES):
    """Everything that is told until so many rounds have ended."""
    told, ended = [], asyncio.Event()

    def hear(event):
        told.append(event)
        if sum(isinstance(one, RoundEnded) and one.whole is is_whole for one in told) >= count:
            ended.set()

    task = asyncio.create_task(run_collector(store, graces, told=hear))
    waiting = asyncio.create_task(ended.wait())
    done, _ = await asyncio.wait((task, waiting), timeout=HANG_S, return_when=asyncio.FIRST_COMPLETED)
    for one in (task, waiting):
        one.cancel()
    if task in done:
        task.result()
    assert waiting in done, told
    return told


async def stored(store):
    """A session with four rows, two of them taken, and one that its client has left."""
    one = await connect(store, "s1", "c1")
    await store.do(Subscribe("s1", one.token, "a/+", 1))
    await store.ask(BeginEpoch("s1", "n1"))
    for number in range(1, 5):
        await store.do(PutMessage(f"m{number}", "a/b", b"", 1))
        await store.ask(PutRows("s1", "n1", 1, (Queued(number, f"m{number}", "a/+", 1),)))
    await store.ask(CommitState("s1", one.token, change_to(SessionState(Map({"n1": (1, 2)})))))
    other = await connect(store, "s2", "c2")
    await store.ask(LeaveSession("c2", "s2", other.token, 400))
    await store.ask(UnlockClient("c2", "h"))
    return other


async def read(store):
    """Keys of rows, messages, clients."""
    (rows,), (messages,) = await store.ask(ReadRows(None, 99)), await store.ask(ReadMessages("", 99))
    clients = await store.do(ListSessions("", 99))
    kept = [(row.key.session, row.key.writer, row.key.number) for row in rows.rows]
    return kept, [one.message for one in messages.messages], [one.client for one in clients]


async def test_garbage_goes_and_what_is_pending_stays(url):
    async with open_node_store(url) as (store, clock):
        other = await stored(store)
        first = await rounds(store, 1)
        begun = await read(store)
        clock.now += 70_000 * MS
        second = await rounds(store, 2)
        later = await read(store)
        clock.now += 300_000 * MS
        await rounds(store, 2)
        absent = await store.ask(LoadSession("c2", "o", other.token))
        pending = await store.ask(ReadPending("s1"))
        last = await read(store)
    pending_rows = [("s1", "n1", 3), ("s1", "n1", 4)]
    assert first == [RoundEnded(2, 0, True, 0)], "taken rows; the client that left may come back"
    assert begun == (pending_rows, ["m1", "m2", "m3", "m4"], ["c1", "c2"])
    assert second == [RoundEnded(0, 2, True, 1), RoundEnded(0, 0, True, 0)]
    assert later == ([*pending_rows, ("s2", "", 0)], ["m3", "m4"], ["c1"])
    assert last == (pending_rows, ["m3", "m4"], ["c1"])
    assert absent == (SessionAbsent(),)
    assert [row.message for part in pending[0].found for row in part.rows] == ["m3", "m4"]


async def leave_session(store, name, expiry_ms):
    one = await connect(store, f"s-{name}", name)
    await store.ask(LeaveSession(name, f"s-{name}", one.token, expiry_ms))
    await store.ask(UnlockClient(name, "h"))


async def test_PS_600_a_client_whose_session_stays_is_not_read(url):
    """Whatever the order of their names: seven go, two by two, in one round."""

    async with open_node_store(url) as (store, clock):
        for number in range(5):
            await leave_session(store, f"c{number}-stays", 86_400_000)
            await leave_session(store, f"c{number}-over", 1_000)
        await leave_session(store, "never", -1)
        await leave_session(store, "gone", 0)
        await connect(store, "s-lost", "a-lost", expiry_ms=1_000)  # its owner is not heard of again
        (before,) = await store.ask(ReadClients("", 99, GRACES.dead_ms))
        clock.now += 2_000 * MS
        await connect(store, "s-held", "held", expiry_ms=1_000)
        await store.ask(LockClient("c4-over", "h", 60_000))
        clock.now += GRACES.dead_ms * MS // 2
        (begun,) = await store.ask(ReadClients("", 99, GRACES.dead_ms))
        first = await rounds(store, 1)
        clock.now += GRACES.dead_ms * MS
        second, last = await rounds(store, 1), await store.do(ListSessions("", 99))
    assert [one.client for one in before.clients if one.over] == ["gone"]
    assert [one.client for one in before.clients if not one.over] == ["a-lost"]
    assert [one.client for one in begun.clients if one.over] == [f"c{number}-over" for number in range(4)]
    assert not [one.client for one in begun.clients if "stays" in one.client]
    assert [first[-1].clients, second[-1].clients] == [5, 2]
    assert [one.client for one in last] == [*sorted([*(f"c{n}-stays" for n in range(5)), "c4-over"]), "never"]


async def test_what_retention_removes_is_told_and_logged(sqlite_url, caplog):
    async with open_node_store(sqlite_url) as (store, clock):
        await stored(store)
        clock.now += 3_600_001 * MS
        told, pending = await rounds(store, 1), await store.ask(ReadPending("s1"))
    assert [one for one in told if isinstance(one, MessageLost)] == [MessageLost("m3", 1), MessageLost("m4", 1)]
    assert [row.message for part in pending[0].found for row in part.rows] == ["", ""]
    assert "message m3 is lost to 1 subscriptions" in caplog.text


class Failing:
    """A store that fails at the `count`-th request of this kind."""

    def __init__(self, store, kind, error):
        self.store, self.kind, self.error = store, kind, error

    def __getattr__(self, name):
        return getattr(self.store, name)

    async def ask(self, request):
        if isinstance(request, self.kind) and self.error is not None:
            error, self.error = self.error, None
            raise error
        return await self.store.ask(request)


@pytest.mark.parametrize("kind", [ReadClients, DeletePage, ReadMessages])
async def test_a_store_that_is_unavailable_ends_a_round_and_the_next_goes_on(sqlite_url, kind, caplog):
    async with open_node_store(sqlite_url) as (store, _clock):
        await stored(store)
        told, (rows, _, _) = await rounds(Failing(store, kind, StoreUnavailable("it is busy")), 2), await read(store)
    assert [one.whole for one in told] == [False, True, True]
    assert rows == [("s1", "n1", 3), ("s1", "n1", 4)]
    assert "it is busy" in caplog.text


# -- as a process ---------------------------------------------------------------------------------------------------


ROW_BY_ROW = """
import asyncio, sys
from statemachines.drivers.persistent_sessions.upkeep import run_collector
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.persistent_sessions.collector import Graces

async def main():
    await run_collector(open_session_store(sys.argv[1]), Graces(page=1))

asyncio.run(main())
"""
"""A collector whose pages have one row, so that it can be killed between two."""


def process(*words):
    return subprocess.Popen((sys.executable, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def collector(url, *options):
    return process("-m", "statemachines", "node", "session-collector", "--store", url, *options)


async def taken(store, count):
    """So many rows that the state of their session has taken."""
    one = await connect(store, "s1", "c1")
    await store.do(Subscribe("s1", one.token, "a/+", 1))
    await store.ask(BeginEpoch("s1", "n1"))
    for number in range(1, count + 1):
        await store.do(PutMessage(f"m{number:03}", "a/b", b"", 1))
        await store.ask(PutRows("s1", "n1", 1, (Queued(number, f"m{number:03}", "a/+", 1),)))
    await store.ask(CommitState("s1", one.token, change_to(SessionState(Map({"n1": (1, count - 1)})))))


async def left(store):
    return (await read(store))[0]


async def test_a_collector_that_is_killed_leaves_the_rest_to_the_next(sqlite_url):
    async with open_node_store(sqlite_url) as (store, clock):
        clock.now = time.time_ns()  # that of the other process
        await taken(store, 60)
        with process("-c", ROW_BY_ROW, sqlite_url) as first:
            while len(await left(store)) > 50:
                assert first.poll() is None, first.stderr.read()
                await pause_async(0.001, "between two looks")
            first.kill()
        begun = await left(store)
        with collector(sqlite_url, "--metrics", "127.0.0.1:0") as second:
            assert (await asyncio.to_thread(second.stdout.readline)).startswith("metrics at http://127.0.0.1:")
            said = await asyncio.to_thread(second.stdout.readline)
            second.terminate()
            errors = await asyncio.to_thread(second.stderr.read)
        code, last = second.returncode, await left(store)
    assert last == [("s1", "n1", 60)], "the one that is not taken"
    assert last[0] in begun
    assert said == f"{len(begun) - 1} rows and 0 messages deleted, 0 clients forgotten\n"
    assert (code, errors) == (0, "")
