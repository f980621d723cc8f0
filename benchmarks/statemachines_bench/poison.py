"""The row about poison: a message that kills whoever deals with it, and what the other streams lose by that."""

from __future__ import annotations

import asyncio
import atexit
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec

from statemachines_bench.failover import configuration, run_meanwhile
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair
from statemachines_bench.throughput import list_parts

MEMBERS: Final = 2
OTHERS: Final = 7
"""Streams beside the one with the poison."""
MESSAGES: Final = 10_000
"""Of each other stream: more than is read meanwhile."""
POISON: Final = "poison"
MAX_DELIVER: Final = 3
WINDOW_S: Final = 10.0
PATIENCE_S: Final = 60.0


def fill(path: Path, messages: int) -> None:
    """The poison, alone in its stream, and the other streams; the group begins before them."""
    from statemachines.drivers.shared_subscriptions.groups import declare
    from statemachines.drivers.shared_subscriptions.sqlite import SqliteStreamStore

    async def work() -> None:
        store = SqliteStreamStore(path)
        await store.append(POISON, [POISON.encode()])
        for payloads in list_parts(messages):
            for stream in range(OTHERS):
                await store.append(f"s{stream}", payloads)
        await store.close()
        await declare("$shared/bench/#", store=path, start="beginning", configuration=configuration())

    asyncio.run(work())


async def count_others(groups: Any) -> int:
    """How far the other streams are acknowledged, as the group store has it."""
    from statemachines.shared_subscriptions.group_store import Scan, Scanned
    from statemachines.shared_subscriptions.names import record_name

    (scanned,) = await groups.ask(Scan(1, "", "", 1_000))
    assert isinstance(scanned, Scanned)
    streams = ((record_name(key).stream, one.value) for key, one in scanned.records)
    return sum(value for name, value in streams if isinstance(value, int) and name and not name.endswith(POISON))


async def keep_running(*arguments: str) -> None:
    """A member, started again whenever it has died."""
    while True:
        command = (sys.executable, "-m", "statemachines_bench.poison_consumer", *arguments)
        child = await asyncio.create_subprocess_exec(*command)
        try:
            await child.wait()
        finally:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()


async def others_per_s(filled: Path, poison: str, window_s: float) -> float:
    """Messages a second of the other streams, from when all members take part; `poison`: the payload that kills."""
    from contextlib import AsyncExitStack

    from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
    from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore

    times = msgspec.structs.replace(configuration(), max_deliver=MAX_DELIVER)
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store, given = directory / "messages.db", directory / "times.json"
        shutil.copy(filled, store)
        given.write_bytes(msgspec.json.encode(times))
        node = await stack.enter_async_context(LeaderNode(listen=("127.0.0.1", 0), store=store, configuration=times))
        groups = SqliteGroupStore(store)
        stack.push_async_callback(groups.close)
        leader = "{}:{}".format(*node.address)
        for number in range(MEMBERS):
            member = keep_running(leader, str(store), f"member-{number + 1}", str(given), poison)
            await stack.enter_async_context(run_meanwhile(member))
        async with asyncio.timeout(PATIENCE_S):
            while not (before := await count_others(groups)):
                await asyncio.sleep(0.05)
        began = monotonic()
        await asyncio.sleep(window_s)
        return (await count_others(groups) - before) / (monotonic() - began)


def prepare(size: Size) -> TurnPair:
    directory = Path(tempfile.mkdtemp(prefix="gapless-bench-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    filled = directory / "messages.db"
    fill(filled, size.pick(MESSAGES, 2_000))
    window_s = size.pick(WINDOW_S, 1.0)

    def run(poison: str) -> float:
        return asyncio.run(others_per_s(filled, poison, window_s))

    return TurnPair(lambda: run(POISON), lambda: run("nothing dies of this"))


ROWS = (
    BenchRow(
        name="poison",
        about="7 streams, 2 members, and a message that kills its member until it is parked; a tenth of the times",
        unit="messages / s",
        baseline_name="the same, and nobody dies of it",
        prepare=prepare,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=0.8,
    ),
)
