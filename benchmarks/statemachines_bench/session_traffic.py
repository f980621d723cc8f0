"""Rows about the traffic of persistent sessions, on SQLite: what publishing costs, and how long publishers wait while
many sessions resume at once.  Each turn is in a process of its own.

`session-publish*` and `session-fan-out` are the rows `mqtt-publish*` and `mqtt-fan-out-absent` with our own client:
over TCP to a node in a process of its own, with as many messages in flight.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, closing
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
    SUBSCRIBERS,
    TOPIC,
    WAITING_MAX,
    rate_fan_out_absent,
    rate_publishes,
)
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair
from statemachines_bench.session_failover import run_node

PAGE: Final = 500
"""Messages that the baseline inserts in a transaction."""

PAYLOAD: Final = b"x" * 64
PUBLISHED: Final = 5_000
AT_ONCE: Final = 1_000
BROKER_PAYLOAD: Final = b"x" * 100
MEMORY: Final = "mosquitto-memory"
BESIDE: Final = (
    ("session-publish", "power", "mosquitto-autosave", 3),
    ("session-publish-memory", "process", MEMORY, None),
    ("session-publish-nats", "process", "nats", None),
    ("session-publish-rabbitmq", "power", "rabbitmq", None),
)
"""Name, durability of ours, the broker beside it, and how many times as many ours stores at least."""

STORM_SESSIONS: Final = 1_000
STORM_PENDING: Final = 10
STORM_PUBLISHERS: Final = 10
STORM_CALM_S: Final = 2.0

# -- publishing -------------------------------------------------------------------------------------------------------


async def measure_publishes(sessions: int, count: int) -> float:
    """Messages a second that a node stores for so many sessions each, and answers; the publisher has many in flight."""
    from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode, SessionPublisher

    with tempfile.TemporaryDirectory(prefix="gapless-bench-") as folder:
        async with SessionNode(Path(folder) / "s.db", name="n") as node:
            for number in range(sessions):
                async with PersistentSession(f"c{number}", node=node) as session:
                    await session.subscribe("t", qos=1)
            async with SessionPublisher(node=node) as publisher:
                await publisher.publish("t", PAYLOAD, qos=1)
                began = perf_counter()
                for begin in range(0, count, AT_ONCE):
                    some = range(begin, min(count, begin + AT_ONCE))
                    await asyncio.gather(*(publisher.publish("t", PAYLOAD, qos=1) for _ in some))
                return count / (perf_counter() - began)


def measure_inserts(sessions: int, count: int) -> float:
    """Messages a second: one row for the message and one for each session, in transactions of so many messages."""
    with (
        tempfile.TemporaryDirectory(prefix="gapless-bench-") as folder,
        closing(sqlite3.connect(Path(folder) / "plain.db", isolation_level=None)) as connection,
    ):
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, topic BLOB, payload BLOB)")
        connection.execute("CREATE TABLE rows (session INTEGER, number INTEGER, PRIMARY KEY (session, number))")
        began = perf_counter()
        for begin in range(0, count, PAGE):
            some = range(begin, min(count, begin + PAGE))
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO messages VALUES (?, ?, ?)", [(one, b"t", PAYLOAD) for one in some])
            rows = [(session, one) for one in some for session in range(sessions)]
            connection.executemany("INSERT INTO rows VALUES (?, ?)", rows)
            connection.execute("COMMIT")
        return count / (perf_counter() - began)


def run_publishes(sessions: int, count: int) -> float:
    """The same, on a loop of its own."""
    return asyncio.run(measure_publishes(sessions, count))


def prepare_publish(sessions: int, size: Size) -> TurnPair:
    count = size.pick(max(PUBLISHED // (10 if sessions > 1 else 1) // max(1, sessions // 100), 1), 20)
    ours = partial(run_alone, run_publishes, sessions, count)
    return TurnPair(ours, partial(run_alone, measure_inserts, sessions, count))


# -- beside a broker --------------------------------------------------------------------------------------------------


async def measure_stored(durability: str, sessions: int, rounds: int, messages: int) -> float:
    """Messages a second of several publishers that are stored for so many absent sessions each, and answered; the
    sessions take what waits for them after each round."""
    from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher

    async def publish(publisher: SessionPublisher, waiting: Iterator[int]) -> None:
        for _ in waiting:
            await publisher.publish(TOPIC, BROKER_PAYLOAD, qos=1)

    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gapless-bench-"))
        node = await stack.enter_async_context(run_node(Path(folder) / "s.db", "a", "", "--durability", durability))
        nodes = [node.address]
        for number in range(sessions):
            async with PersistentSession(f"c{number}", nodes=nodes) as session:
                await session.subscribe(TOPIC, qos=1)
        opened = [await stack.enter_async_context(SessionPublisher(nodes=nodes)) for _ in range(PUBLISHERS)]
        await asyncio.gather(*(publish(one, iter(range(1))) for one in opened))  # each session has a writer from now on
        spent, left = 0.0, PUBLISHERS
        for _ in range(rounds):
            waiting, began = iter(range(messages)), perf_counter()
            await asyncio.gather(*(publish(one, waiting) for one in opened for _ in range(IN_FLIGHT)))
            spent += perf_counter() - began
            left += messages
            if rounds > 1:
                await drain(nodes, left)
                left = 0
        return rounds * messages / spent


async def drain(nodes: Sequence[str], messages: int) -> None:
    """The first session takes everything that waits for it."""
    from statemachines.drivers.persistent_sessions import PersistentSession

    async with PersistentSession("c0", nodes=nodes) as session:
        async for message in session:
            message.acknowledge()
            messages -= 1
            if not messages:
                return


def rate_stored(durability: str, sessions: int, rounds: int, messages: int) -> float:
    """The same, on a loop of its own."""
    return asyncio.run(measure_stored(durability, sessions, rounds, messages))


def prepare_stored(durability: str, baseline: str, size: Size) -> TurnPair:
    """Both in as many rounds, for one absent session."""
    rounds, messages = size.pick((ROUNDS, WAITING_MAX), (1, 2 * PUBLISHERS))
    ours = partial(run_alone, rate_stored, durability, 1, rounds, messages)
    return TurnPair(ours, partial(rate_publishes, baseline, PUBLISHERS, rounds, messages))


def prepare_fan_out(size: Size) -> TurnPair:
    """Both with as many sessions."""
    sessions, messages = size.pick((SUBSCRIBERS, 320), (5, PUBLISHERS))
    ours = partial(run_alone, rate_stored, "process", sessions, 1, messages)
    return TurnPair(ours, partial(rate_fan_out_absent, MEMORY, sessions, messages))


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
    *(
        BenchRow(
            name=f"session-publish-{sessions}",
            about=f"messages that are for {sessions} sessions each, stored and answered",
            unit="messages / s",
            baseline_name=f"the same rows inserted in transactions of {PAGE} messages",
            prepare=partial(prepare_publish, sessions),
            ratio=RatioKind.OURS_OVER_BASELINE,
        )
        for sessions in (0, 1, 100)
    ),
    *(
        BenchRow(
            name=name,
            about=f"messages of 100 bytes of {PUBLISHERS} publishers for one absent session, at most {WAITING_MAX} "
            f"waiting; --durability {durability}, our own client",
            unit="messages / s",
            baseline_name=f"{KINDS[baseline].title} (fsync {KINDS[baseline].fsync})",
            prepare=partial(prepare_stored, durability, baseline),
            ratio=RatioKind.OURS_OVER_BASELINE,
            at_least=at_least,
        )
        for name, durability, baseline, at_least in BESIDE
    ),
    BenchRow(
        name="session-fan-out",
        about=f"messages of {PUBLISHERS} publishers for {SUBSCRIBERS} absent sessions each, our own client",
        unit="messages / s",
        baseline_name=KINDS[MEMORY].title,
        prepare=prepare_fan_out,
        ratio=RatioKind.OURS_OVER_BASELINE,
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
