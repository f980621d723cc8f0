"""Rows about persistent sessions, on SQLite: how soon a session has what waits for it, what publishing costs, and what
a topic costs to be matched.

A session whose rows wait is made once and copied for each turn: a node of its own begins on the copy.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from functools import cache, partial
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from statemachines_bench.row import Pair, Ratio, Row, Size

PENDING: Final = 100_000
"""Rows that wait for a session; the row `resume-scale` has twice as many."""

RECEIVE_MAXIMUM: Final = 1_000
PAGE: Final = 500
"""Rows that the baseline reads at a time, and inserts in a transaction."""

PAYLOAD: Final = b"x" * 64
PUBLISHED: Final = 5_000
AT_ONCE: Final = 1_000
FILTERS: Final = 1_000_000
FILTERS_FEW: Final = 1_000
LOOKUPS: Final = 20_000
STORM_SESSIONS: Final = 200
STORM_PENDING: Final = 10
STORM_PUBLISHERS: Final = 10
STORM_CALM_S: Final = 2.0


# -- what waits -------------------------------------------------------------------------------------------------------


class Waiting:
    """A database in which `rows` wait for the session of the client `c`; it goes with this object."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._folder = tempfile.TemporaryDirectory(prefix="gapless-bench-")
        self._path = Path(self._folder.name) / "kept.db"
        asyncio.run(fill(self._path, rows))

    def copied(self) -> Path:
        """A copy of its own for one turn."""
        return Path(shutil.copy(self._path, Path(self._folder.name) / "turn.db"))

    def dropped(self, path: Path) -> None:
        """The turn is over."""
        for one in path.parent.glob(f"{path.name}*"):
            one.unlink()


@cache
def waiting(rows: int) -> Waiting:
    """Made once."""
    return Waiting(rows)


async def fill(path: Path, rows: int) -> None:
    """As the node's writer would: a message and a row each, stored in batches."""
    from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode
    from statemachines.drivers.persistent_sessions.host_request import PutMessage
    from statemachines.drivers.persistent_sessions.store import open_session_store
    from statemachines.persistent_sessions.message import Queued
    from statemachines.persistent_sessions.request import BeginEpoch, PutRow

    async with SessionNode(path, name="n") as node, PersistentSession("c", node=node) as session:
        await session.subscribe("t", qos=1)
    store = open_session_store(path)
    try:
        life = await store.begin_life("n", 1)
        ((route,),) = await store.carry_out(life, 1, [PutMessage("m0", "t", PAYLOAD, 1)])
        ((begun,),) = await store.carry_out(life, 2, [BeginEpoch(route.session, "n")])
        numbers = iter(range(1, rows + 1))
        batch = 2
        while some := list(islice(numbers, PAGE)):
            batch += 1
            messages: list[Any] = [PutMessage(f"m{one}", "t", PAYLOAD, 1) for one in some]
            stored = [PutRow(route.session, "n", begun.epoch, Queued(one, f"m{one}", "t", 1)) for one in some]
            await store.carry_out(life, batch, [*messages, *stored])
    finally:
        await store.close()


# -- a resume ---------------------------------------------------------------------------------------------------------


def resumed(rows: int) -> float:
    """Microseconds a row, from the connect to the last acknowledgement."""
    kept = waiting(rows)
    path = kept.copied()
    try:
        return asyncio.run(take_all(path, rows)) / rows * 1e6
    finally:
        kept.dropped(path)


async def take_all(path: Path, rows: int) -> float:
    """Seconds until the client has acknowledged everything that waits."""
    from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode

    async with SessionNode(path, name="n") as node:
        began = perf_counter()
        async with PersistentSession("c", node=node, receive_maximum=RECEIVE_MAXIMUM) as session:
            taken = 0
            async for message in session:
                message.acknowledge()
                taken += 1
                if taken == rows:
                    break
            return perf_counter() - began


def read_and_marked(rows: int) -> float:
    """Microseconds a row: select them and their messages in pages, insert for each the row that marks it."""
    kept = waiting(rows)
    path = kept.copied()
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            key = connection.execute(
                "SELECT DISTINCT session, writer, epoch FROM session_rows WHERE tag = 0"
            ).fetchone()
            began = perf_counter()
            last = 0
            while page := connection.execute(
                "SELECT number, message, filter, topic, payload FROM session_rows JOIN messages ON id = message WHERE"
                f" session = ? AND writer = ? AND epoch = ? AND number > ? AND tag = 0 ORDER BY number LIMIT {PAGE}",
                (*key, last),
            ).fetchall():
                connection.execute("BEGIN IMMEDIATE")
                for number, message, topic_filter, *_ in page:
                    values = (*key, number, message, topic_filter)
                    connection.execute("INSERT INTO session_rows VALUES (?, ?, ?, ?, 1, ?, ?, 1, 0, 0, 0, 0)", values)
                connection.execute("COMMIT")
                last = page[-1][0]
            return (perf_counter() - began) / rows * 1e6
    finally:
        kept.dropped(path)


def prepare_resume(size: Size) -> Pair:
    rows = size.pick(PENDING, 100)
    waiting(rows)
    return Pair(partial(resumed, rows), partial(read_and_marked, rows))


def prepare_twice(size: Size) -> Pair:
    rows = size.pick(PENDING, 100)
    waiting(rows), waiting(2 * rows)
    return Pair(lambda: 2 * rows * resumed(2 * rows) / 1e6, lambda: rows * resumed(rows) / 1e6)


# -- publishing -------------------------------------------------------------------------------------------------------


async def published(sessions: int, count: int) -> float:
    """Messages a second that a node stores for so many sessions each, and answers."""
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


def inserted(sessions: int, count: int) -> float:
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


def prepare_publish(sessions: int, size: Size) -> Pair:
    count = size.pick(PUBLISHED // (10 if sessions > 1 else 1), 20)
    return Pair(lambda: asyncio.run(published(sessions, count)), partial(inserted, sessions, count))


# -- resumes at once --------------------------------------------------------------------------------------------------


async def p99_of_publishers(sessions: int, pending: int, calm_s: float, storm: bool) -> float:
    """Milliseconds until 99 of 100 messages of ten publishers are stored: while so many sessions resume at once, each
    with messages that wait for it, or for so long while none does."""
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

    with tempfile.TemporaryDirectory(prefix="gapless-bench-") as folder:
        async with SessionNode(Path(folder) / "s.db", name="n") as node, SessionPublisher(node=node) as publisher:
            async with PersistentSession("other", node=node) as session:
                await session.subscribe("other", qos=1)
            for number in range(sessions):
                async with PersistentSession(f"c{number}", node=node) as session:
                    await session.subscribe("t", qos=1)
            for _ in range(pending):
                await publisher.publish("t", PAYLOAD, qos=1)
            publishers = [asyncio.ensure_future(publish(publisher)) for _ in range(STORM_PUBLISHERS)]
            if storm:
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


def prepare_storm(size: Size) -> Pair:
    sessions, pending, calm_s = size.pick((STORM_SESSIONS, STORM_PENDING, STORM_CALM_S), (3, 2, 0.2))
    return Pair(
        lambda: asyncio.run(p99_of_publishers(sessions, pending, calm_s, True)),
        lambda: asyncio.run(p99_of_publishers(sessions, pending, calm_s, False)),
    )


# -- routes -----------------------------------------------------------------------------------------------------------


@cache
def trie_of(filters: int) -> Any:
    """Filters of three shapes: without a wildcard, with one in the middle, with one at the end."""
    from statemachines.drivers.persistent_sessions.route_trie import RouteTrie

    trie = RouteTrie()
    for number in range(filters):
        shape = ("a/{}/b", "a/{}/+/c", "a/{}/#")[number % 3]
        trie.put(f"s{number}", shape.format(number // 3), 1)
    return trie


def matched(filters: int, lookups: int) -> float:
    """Nanoseconds a look-up of a topic, each of which matches two or three filters."""
    trie = trie_of(filters)
    step = max(1, filters // 3 // lookups)
    topics = [f"a/{one * step % (filters // 3)}/b" for one in range(lookups)]
    began = perf_counter()
    for topic in topics:
        trie.match(topic)
    return (perf_counter() - began) / lookups * 1e9


def prepare_match(size: Size) -> Pair:
    many, lookups = size.pick((FILTERS, LOOKUPS), (3_000, 100))
    trie_of(many), trie_of(FILTERS_FEW)
    return Pair(lambda: matched(many, lookups), lambda: matched(FILTERS_FEW, lookups))


ROWS: Final = (
    Row(
        name="resume",
        about=f"a session resumes with {PENDING:,} rows that wait, receive maximum {RECEIVE_MAXIMUM:,}, until the last "
        "is acknowledged",
        unit="us / row",
        baseline_name=f"select them in pages, insert a mark for each in transactions of {PAGE}",
        prepare=prepare_resume,
        ratio=Ratio.OURS_OVER_BASELINE,
        at_most=4.0,
    ),
    Row(
        name="resume-scale",
        about=f"the same with {2 * PENDING:,} rows",
        unit="s",
        baseline_name=f"with {PENDING:,} rows",
        prepare=prepare_twice,
        ratio=Ratio.OURS_OVER_BASELINE,
        at_most=2.2,
    ),
    *(
        Row(
            name=f"session-publish-{sessions}",
            about=f"messages that are for {sessions} sessions each, stored and answered",
            unit="messages / s",
            baseline_name=f"the same rows inserted in transactions of {PAGE} messages",
            prepare=partial(prepare_publish, sessions),
            ratio=Ratio.OURS_OVER_BASELINE,
        )
        for sessions in (0, 1, 100)
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
    Row(
        name="route-match",
        about=f"what a topic costs to be matched with {FILTERS:,} filters",
        unit="ns / topic",
        baseline_name=f"with {FILTERS_FEW:,} filters",
        prepare=prepare_match,
        ratio=Ratio.OURS_OVER_BASELINE,
        at_most=3.0,
    ),
)
