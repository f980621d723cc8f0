"""Rows about persistent sessions: how soon a session has what waits for it, and what a topic costs to be
matched.

Of the row `resume` a session whose rows wait is made once and copied for each turn: a node of its own begins on the
copy, in a process of its own.  Their writer is dead then, and they are read under a fence.  A session that comes back
to the node that has stored its messages, over TCP, reads them page by page, beside the markers of a writer that lives:
that is `resume-scale`.  Of `resume-million` and of the rows on PostgreSQL an earlier life of the node has stored them.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import cache, partial
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final

from statemachines_bench.alone import run_alone
from statemachines_bench.kept_store import KeptStore
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

PENDING: Final = 100_000
"""Rows that wait for a session."""

PENDING_MANY: Final = 1_000_000
PENDING_FEW: Final = 10_000
ON_POSTGRES: Final = 20_000
ON_POSTGRES_FEW: Final = 2_000
AT_ONCE: Final = 1_000
"""Messages that are handed to a node before the first is answered."""

RECEIVE_MAXIMUM: Final = 1_000
PAGE: Final = 500
"""Rows that the baseline reads at a time, and inserts in a transaction."""

PAYLOAD: Final = b"x" * 64
FILTERS: Final = 1_000_000
FILTERS_FEW: Final = 1_000
LOOKUPS: Final = 20_000

MARK: Final = "INSERT INTO session_rows VALUES (?, ?, ?, ?, 1, ?, ?, 1, 0, 0, 0, 0, 0, NULL)"


# -- what waits -------------------------------------------------------------------------------------------------------


@cache
def open_waiting_store(rows: int) -> KeptStore:
    """A database in which so many rows wait for the session of the client `c`; made once."""
    return KeptStore(partial(fill, rows=rows))


async def fill(path: Path | str, rows: int) -> None:
    """As the node's writer would: a message and a row each, stored in batches."""
    from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode
    from statemachines.drivers.persistent_sessions.host_request import PutMessage
    from statemachines.drivers.persistent_sessions.store import open_session_store
    from statemachines.persistent_sessions.message import Queued
    from statemachines.persistent_sessions.request import BeginEpoch, PutRows

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
            stored = [PutRows(route.session, "n", begun.epoch, (Queued(one, f"m{one}", "t", 1),)) for one in some]
            await store.carry_out(life, batch, [*messages, *stored])
    finally:
        await store.close()


# -- a resume ---------------------------------------------------------------------------------------------------------


def measure_resume(rows: int) -> float:
    """Microseconds a row, from the connect to the last acknowledgement."""
    with open_waiting_store(rows).copy_store() as path:
        return run_alone(resume_of, path, rows) / rows * 1e6


def resume_of(path: Path, rows: int) -> float:
    """Seconds."""
    return asyncio.run(take_all(path, rows))


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
    with open_waiting_store(rows).copy_store() as path:
        return run_alone(read_and_mark, path) / rows * 1e6


def read_and_mark(path: Path) -> float:
    """Seconds."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        key = connection.execute("SELECT DISTINCT session, writer, epoch FROM session_rows WHERE tag = 0").fetchone()
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
                connection.execute(MARK, values)
            connection.execute("COMMIT")
            last = page[-1][0]
        return perf_counter() - began


def prepare_resume(size: Size) -> TurnPair:
    rows = size.pick(PENDING, 100)
    open_waiting_store(rows)
    return TurnPair(partial(measure_resume, rows), partial(read_and_marked, rows))


async def take_over_tcp(address: str, messages: int, clock: Callable[[], float] = perf_counter) -> float:
    """Microseconds a message, from the connect to the last acknowledgement; the client receives as many at a time as
    one does by default."""
    from statemachines.drivers.persistent_sessions import PersistentSession

    began = clock()
    async with PersistentSession("c", nodes=(address,)) as session:
        taken = 0
        async for message in session:
            message.acknowledge()
            taken += 1
            if taken == messages:
                break
        return (clock() - began) / messages * 1e6


async def come_back(store: Path | str, messages: int) -> float:
    """The same, where the node that has stored them still runs."""
    from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode, SessionPublisher

    async with SessionNode(store, name="n", listen=("127.0.0.1", 0)) as node:
        async with PersistentSession("c", node=node) as session:
            await session.subscribe("t", qos=1)
        async with SessionPublisher(node=node) as publisher:
            for begin in range(0, messages, AT_ONCE):
                some = range(begin, min(messages, begin + AT_ONCE))
                await asyncio.gather(*(publisher.publish("t", PAYLOAD, qos=1) for _ in some))
        return await take_over_tcp("{}:{}".format(*node.address), messages)


def measure_return(messages: int) -> float:
    """The same, on a loop and a database of its own."""
    with tempfile.TemporaryDirectory(prefix="gapless-bench-") as folder:
        return asyncio.run(come_back(Path(folder) / "s.db", messages))


def prepare_scale(size: Size) -> TurnPair:
    many, few = size.pick((PENDING, PENDING_FEW), (200, 100))
    return TurnPair(partial(run_alone, measure_return, many), partial(run_alone, measure_return, few))


async def resume_backlog(store: Path | str, messages: int, clock: Callable[[], float] = perf_counter) -> float:
    """Microseconds a message of a backlog that an earlier life of the node has stored."""
    from statemachines.drivers.persistent_sessions import SessionNode

    async with SessionNode(store, name="n", listen=("127.0.0.1", 0)) as node:
        return await take_over_tcp("{}:{}".format(*node.address), messages, clock)


def run_backlog(store: Path | str, messages: int) -> float:
    """The same of the processor time of node and client, which are one process."""
    return asyncio.run(resume_backlog(store, messages, process_time))


def measure_backlog(messages: int) -> float:
    """The same, of a file that is filled before, in a process of its own."""
    with open_waiting_store(messages).copy_store() as path:
        return run_alone(run_backlog, path, messages)


def prepare_million(size: Size) -> TurnPair:
    many, few = size.pick((PENDING_MANY, PENDING), (200, 100))
    open_waiting_store(many), open_waiting_store(few)
    return TurnPair(partial(measure_backlog, many), partial(measure_backlog, few))


def measure_on_postgres(messages: int) -> float:
    """The same, on a server of its own."""
    from statemachines.testing.postgres import PostgresServer

    async def main(url: str) -> float:
        await fill(url, messages)
        return await resume_backlog(url, messages)

    with PostgresServer() as server:
        return asyncio.run(main(server.database("bench")))


def prepare_on_postgres(full: tuple[int, int], size: Size) -> TurnPair:
    """`full`: the many and the few messages."""
    many, few = size.pick(full, (200, 100))
    return TurnPair(partial(run_alone, measure_on_postgres, many), partial(run_alone, measure_on_postgres, few))


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


def measure_matching(filters: int, lookups: int) -> float:
    """Nanoseconds a look-up of a topic, each of which matches two or three filters."""
    trie = trie_of(filters)
    step = max(1, filters // 3 // lookups)
    topics = [f"a/{one * step % (filters // 3)}/b" for one in range(lookups)]
    began = perf_counter()
    for topic in topics:
        trie.match(topic)
    return (perf_counter() - began) / lookups * 1e9


def prepare_match(size: Size) -> TurnPair:
    many, lookups = size.pick((FILTERS, LOOKUPS), (3_000, 100))
    trie_of(many), trie_of(FILTERS_FEW)
    return TurnPair(lambda: measure_matching(many, lookups), lambda: measure_matching(FILTERS_FEW, lookups))


ROWS: Final = (
    BenchRow(
        name="resume",
        about=f"a session resumes with {PENDING:,} rows that wait, receive maximum {RECEIVE_MAXIMUM:,}, until the last "
        "is acknowledged",
        unit="us / row",
        baseline_name=f"select them in pages, insert a mark for each in transactions of {PAGE}",
        prepare=prepare_resume,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=4.0,
    ),
    BenchRow(
        name="resume-scale",
        about=f"a session comes back, over TCP, to the node that has stored {PENDING:,} messages for it",
        unit="us / message",
        baseline_name=f"with {PENDING_FEW:,} messages",
        prepare=prepare_scale,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.1,
    ),
    BenchRow(
        name="resume-scale-postgres",
        about=f"the same on PostgreSQL, where an earlier life of the node has stored {ON_POSTGRES:,} messages",
        unit="us / message",
        baseline_name=f"with {ON_POSTGRES_FEW:,} messages",
        prepare=partial(prepare_on_postgres, (ON_POSTGRES, ON_POSTGRES_FEW)),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.1,
    ),
    BenchRow(
        name="resume-million",
        about="processor time of node and client: a session resumes over TCP, where an earlier life of the node has "
        f"stored {PENDING_MANY:,} messages",
        unit="us / message",
        baseline_name=f"with {PENDING:,} messages",
        prepare=prepare_million,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.25,
        aim="1.1",
        is_long=True,
    ),
    BenchRow(
        name="resume-postgres-100000",
        about=f"a session resumes over TCP, where {PENDING:,} messages wait on PostgreSQL",
        unit="us / message",
        baseline_name=f"with {PENDING_FEW:,} messages",
        prepare=partial(prepare_on_postgres, (PENDING, PENDING_FEW)),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.25,
        aim="1.1",
        is_long=True,
    ),
    BenchRow(
        name="route-match",
        about=f"what a topic costs to be matched with {FILTERS:,} filters",
        unit="ns / topic",
        baseline_name=f"with {FILTERS_FEW:,} filters",
        prepare=prepare_match,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=3.0,
    ),
)
