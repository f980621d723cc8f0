"""Rows about the traffic of persistent sessions, on SQLite: what publishing costs, and how long publishers wait while
many sessions resume at once.  Each turn is in a process of its own."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from statemachines_bench.alone import alone
from statemachines_bench.kept_store import KeptStore
from statemachines_bench.row import Pair, Ratio, Row, Size

PAGE: Final = 500
"""Messages that the baseline inserts in a transaction."""

PAYLOAD: Final = b"x" * 64
PUBLISHED: Final = 5_000
AT_ONCE: Final = 1_000
PUBLISHERS: Final = 16
STORM_SESSIONS: Final = 1_000
STORM_PENDING: Final = 10
STORM_PUBLISHERS: Final = 10
STORM_CALM_S: Final = 2.0

# -- publishing -------------------------------------------------------------------------------------------------------


async def measure_publishes(sessions: int, count: int, publishers: int) -> float:
    """Messages a second that a node stores for so many sessions each, and answers: of one publisher that has many on
    their way (0 `publishers`), or of several that each wait for an answer before the next."""
    from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode, SessionPublisher

    with tempfile.TemporaryDirectory(prefix="gapless-bench-") as folder:
        async with SessionNode(Path(folder) / "s.db", name="n") as node:
            for number in range(sessions):
                async with PersistentSession(f"c{number}", node=node) as session:
                    await session.subscribe("t", qos=1)
            async with SessionPublisher(node=node) as publisher:
                await publisher.publish("t", PAYLOAD, qos=1)
                if publishers:
                    return await measure_awaited(node, count, publishers)
                began = perf_counter()
                for begin in range(0, count, AT_ONCE):
                    some = range(begin, min(count, begin + AT_ONCE))
                    await asyncio.gather(*(publisher.publish("t", PAYLOAD, qos=1) for _ in some))
                return count / (perf_counter() - began)


async def measure_awaited(node: Any, count: int, publishers: int) -> float:
    """Messages a second of so many publishers, each of which waits for an answer before the next."""
    from statemachines.drivers.persistent_sessions import SessionPublisher

    async def publish(publisher: SessionPublisher) -> None:
        for _ in range(count // publishers):
            await publisher.publish("t", PAYLOAD, qos=1)

    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(SessionPublisher(node=node)) for _ in range(publishers)]
        began = perf_counter()
        await asyncio.gather(*map(publish, opened))
        return count // publishers * publishers / (perf_counter() - began)


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


def run_publishes(sessions: int, count: int, publishers: int) -> float:
    """The same, on a loop of its own."""
    return asyncio.run(measure_publishes(sessions, count, publishers))


def prepare_publish(sessions: int, publishers: int, size: Size) -> Pair:
    count = size.pick(max(PUBLISHED // (10 if sessions > 1 else 1) // max(1, sessions // 100), publishers), 20)
    ours = partial(alone, run_publishes, sessions, count, publishers)
    return Pair(ours, partial(alone, measure_inserts, sessions, count))


# -- resumes at once --------------------------------------------------------------------------------------------------


@cache
def stormy(sessions: int, pending: int) -> KeptStore:
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
    return p99(took) * 1e3


def p99(values: Sequence[float]) -> float:
    """99 of 100 are at most this."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]


def latency(path: Path, sessions: int, pending: int, calm_s: float) -> float:
    """The same, on a loop of its own."""
    return asyncio.run(p99_of_publishers(path, sessions, pending, calm_s))


def prepare_storm(size: Size) -> Pair:
    sessions, pending, calm_s = size.pick((STORM_SESSIONS, STORM_PENDING, STORM_CALM_S), (3, 2, 0.2))
    kept = stormy(sessions, pending)

    def turn(at_once: int) -> float:
        with kept.copy_store() as path:
            return alone(latency, path, at_once, pending, calm_s)

    return Pair(partial(turn, sessions), partial(turn, 0))


ROWS: Final = (
    *(
        Row(
            name=f"session-publish-{sessions}",
            about=f"messages that are for {sessions} sessions each, stored and answered",
            unit="messages / s",
            baseline_name=f"the same rows inserted in transactions of {PAGE} messages",
            prepare=partial(prepare_publish, sessions, 0),
            ratio=Ratio.OURS_OVER_BASELINE,
        )
        for sessions in (0, 1, 100)
    ),
    *(
        Row(
            name=name,
            about=f"messages of {PUBLISHERS} publishers, each of which waits for its answer, for {sessions} absent "
            "sessions each",
            unit="messages / s",
            baseline_name=f"the same rows inserted in transactions of {PAGE} messages",
            prepare=partial(prepare_publish, sessions, PUBLISHERS),
            ratio=Ratio.OURS_OVER_BASELINE,
        )
        for name, sessions in (("session-publish", 1), ("session-fan-out", 1_000))
    ),
    Row(
        name="resume-storm",
        about=f"{STORM_PUBLISHERS} publishers while {STORM_SESSIONS} sessions resume at once: 99 of 100 messages are "
        "stored within",
        unit="ms",
        baseline_name="while none resumes",
        prepare=prepare_storm,
        ratio=Ratio.OURS_OVER_BASELINE,
    ),
)
