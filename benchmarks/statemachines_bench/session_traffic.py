"""Rows about the traffic of persistent sessions, on SQLite: what publishing costs, and how long publishers wait while
many sessions resume at once.  Each turn is in a process of its own.

`session-publish` is the row `mqtt-publish` with our own client: over TCP to a node in a process of its own, with as
many messages in flight.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from statemachines.testing.mqtt_connections.mqtt_broker import KINDS
from statemachines.testing.mqtt_connections.mqtt_socket import IN_FLIGHT
from statemachines_bench.alone import run_alone
from statemachines_bench.kept_store import KeptStore
from statemachines_bench.mqtt_traffic import (
    PUBLISHERS,
    ROUNDS,
    TOPIC,
    WAITING_MAX,
    rate_publishes,
)
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair
from statemachines_bench.session_failover import run_node

PAYLOAD: Final = b"x" * 64
BROKER_PAYLOAD: Final = b"x" * 100
AUTOSAVE: Final = KINDS["mosquitto-autosave"]

STORM_SESSIONS: Final = 1_000
STORM_PENDING: Final = 10
STORM_PUBLISHERS: Final = 10
STORM_CALM_S: Final = 2.0

# -- beside a broker --------------------------------------------------------------------------------------------------


async def measure_stored(rounds: int, messages: int) -> float:
    """Messages a second of several publishers that are stored for one absent session, and answered; the session takes
    what waits for it after each round."""
    from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher

    async def publish(publisher: SessionPublisher, waiting: Iterator[int]) -> None:
        for _ in waiting:
            await publisher.publish(TOPIC, BROKER_PAYLOAD, qos=1)

    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gapless-bench-"))
        node = await stack.enter_async_context(run_node(Path(folder) / "s.db", "a", "", "--durability", "power"))
        nodes = [node.address]
        async with PersistentSession("c0", nodes=nodes) as session:
            await session.subscribe(TOPIC, qos=1)
        opened = [await stack.enter_async_context(SessionPublisher(nodes=nodes)) for _ in range(PUBLISHERS)]
        await asyncio.gather(*(publish(one, iter(range(1))) for one in opened))  # the session has a writer from now on
        spent, left = 0.0, PUBLISHERS
        for _ in range(rounds):
            waiting, began = iter(range(messages)), perf_counter()
            await asyncio.gather(*(publish(one, waiting) for one in opened for _ in range(IN_FLIGHT)))
            spent += perf_counter() - began
            await drain(nodes, left + messages)
            left = 0
        return rounds * messages / spent


async def drain(nodes: Sequence[str], messages: int) -> None:
    """The session takes everything that waits for it."""
    from statemachines.drivers.persistent_sessions import PersistentSession

    async with PersistentSession("c0", nodes=nodes) as session:
        async for message in session:
            message.acknowledge()
            messages -= 1
            if not messages:
                return


def rate_stored(rounds: int, messages: int) -> float:
    """The same, on a loop of its own."""
    return asyncio.run(measure_stored(rounds, messages))


def prepare_stored(size: Size) -> TurnPair:
    """Both in as many rounds."""
    rounds, messages = size.pick((ROUNDS, WAITING_MAX), (1, 2 * PUBLISHERS))
    ours = partial(run_alone, rate_stored, rounds, messages)
    return TurnPair(ours, partial(rate_publishes, "mosquitto-autosave", PUBLISHERS, rounds, messages))


# -- resumes at once --------------------------------------------------------------------------------------------------


@cache
def open_stormy_store(sessions: int, pending: int) -> KeptStore:
    """A database in which so many messages wait for each of so many sessions, of the clients `c0`, `c1`, ..., and
    `other` has a session that nothing waits for; made once."""
    return KeptStore(partial(fill, sessions=sessions, pending=pending))


async def fill(path: Path, sessions: int, pending: int) -> None:
    """All subscribe at once."""
    from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode, SessionPublisher

    async def subscribe(client: str, topic: str) -> None:
        async with PersistentSession(client, node=node) as session:
            await session.subscribe(topic, qos=1)

    async with SessionNode(path, name="n") as node, SessionPublisher(node=node) as publisher:
        await subscribe("other", "other")
        await asyncio.gather(*(subscribe(f"c{number}", "t") for number in range(sessions)))
        for _ in range(pending):
            await publisher.publish("t", PAYLOAD, qos=1)


async def p99_of_publishers(path: Path, sessions: int, pending: int, calm_s: float) -> float:
    """Milliseconds until 99 of 100 messages of ten publishers are stored: while so many sessions resume at once, each
    with messages that wait for it, or (0 sessions) for `calm_s` while none does."""
    from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode, SessionPublisher

    took: list[float] = []

    async def resume(node: Any, number: int) -> None:
        async with PersistentSession(f"c{number}", node=node) as session:
            taken = 0
            async for message in session:
                message.acknowledge()
                taken += 1
                if taken == pending:
                    return

    async def publish(publisher: Any) -> None:
        while True:
            began = perf_counter()
            await publisher.publish("other", PAYLOAD, qos=1)
            took.append(perf_counter() - began)

    async with SessionNode(path, name="n") as node, SessionPublisher(node=node) as publisher:
        publishers = [asyncio.ensure_future(publish(publisher)) for _ in range(STORM_PUBLISHERS)]
        if sessions:
            await asyncio.gather(*(resume(node, number) for number in range(sessions)))
        else:
            await asyncio.sleep(calm_s)
        for one in publishers:
            one.cancel()
        await asyncio.gather(*publishers, return_exceptions=True)
    return find_p99(took) * 1e3


def find_p99(values: Sequence[float]) -> float:
    """99 of 100 are at most this."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]


def measure_latency(path: Path, sessions: int, pending: int, calm_s: float) -> float:
    """The same, on a loop of its own."""
    return asyncio.run(p99_of_publishers(path, sessions, pending, calm_s))


def prepare_storm(size: Size) -> TurnPair:
    sessions, pending, calm_s = size.pick((STORM_SESSIONS, STORM_PENDING, STORM_CALM_S), (3, 2, 0.2))
    kept = open_stormy_store(sessions, pending)

    def turn(at_once: int) -> float:
        with kept.copy_store() as path:
            return run_alone(measure_latency, path, at_once, pending, calm_s)

    return TurnPair(partial(turn, sessions), partial(turn, 0))


ROWS: Final = (
    BenchRow(
        name="session-publish",
        about=f"messages of 100 bytes of {PUBLISHERS} publishers for one absent session, at most {WAITING_MAX} "
        "waiting; --durability power, our own client",
        unit="messages / s",
        baseline_name=f"{AUTOSAVE.title} (fsync {AUTOSAVE.fsync})",
        prepare=prepare_stored,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=3,
    ),
    BenchRow(
        name="resume-storm",
        about=f"{STORM_PUBLISHERS} publishers while {STORM_SESSIONS} sessions resume at once: 99 of 100 messages are "
        "stored within",
        unit="ms",
        baseline_name="while none resumes",
        prepare=prepare_storm,
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
)
