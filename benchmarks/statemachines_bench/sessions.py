"""Rows about persistent sessions: how soon a session has what waits for it, what publishing costs, and what a topic
costs to be matched.

Of the row `resume` a session whose rows wait is made once and copied for each turn: a node of its own begins on the
copy, in a process of its own.  Their writer is dead then, and they are read under a fence.  A session that comes back
to the node that has stored its messages, over TCP, reads them page by page, beside the markers of a writer that lives:
that is `resume-scale`.  Of `resume-million` and of the rows on PostgreSQL an earlier life of the node has stored them.

`session-publish` is the row `mqtt-publish` with our own client: over TCP to a node in a process of its own, with as
many messages in flight.  `session-publish-postgres` and pgbench have the same server, a private one with fsync on, and
as many clients, each of which waits for its answer.
"""

from __future__ import annotations

import asyncio
import atexit
import re
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, closing
from functools import cache, partial
from itertools import count, islice
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final

from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode, SessionPublisher
from statemachines.testing.mqtt_connections.mqtt_broker import KINDS
from statemachines.testing.mqtt_connections.mqtt_socket import IN_FLIGHT
from statemachines.testing.postgres import PostgresServer, find_binaries, run_as
from statemachines_bench import mqtt_traffic
from statemachines_bench.harness import compare, compare_sizes, copy_store, fill_store, open_folder, run_alone, run_node
from statemachines_bench.mqtt_traffic import PUBLISHERS, ROUNDS, TOPIC, WAITING_MAX, rate_publishes
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

PENDING: Final = 100_000
"""Rows that wait for a session."""

PENDING_MANY: Final = 1_000_000
PENDING_FEW: Final = 10_000
ON_POSTGRES: Final = 20_000
ON_POSTGRES_FEW: Final = 2_000
LITTLE: Final = ((200,), (100,))
AT_ONCE: Final = 1_000
"""Messages that are handed to a node before the first is answered."""

RECEIVE_MAXIMUM: Final = 1_000
PAGE: Final = 500
"""Rows that the baseline reads at a time, and inserts in a transaction."""

PAYLOAD: Final = b"x" * 64
FILTERS: Final = 1_000_000
FILTERS_FEW: Final = 1_000
LOOKUPS: Final = 20_000
STORM_SESSIONS: Final = 1_000
STORM_PUBLISHERS: Final = 10
AUTOSAVE: Final = KINDS["mosquitto-autosave"]
MARK: Final = "INSERT INTO session_rows VALUES (?, ?, ?, ?, 1, ?, ?, 1, 0, 0, 0, 0, 0, NULL)"
INSERT: Final = "INSERT INTO plain (payload) VALUES ('" + mqtt_traffic.PAYLOAD.decode() + "');\n"


# -- what waits -------------------------------------------------------------------------------------------------------


async def fill(path: Path | str, rows: int) -> None:
    """So many rows wait for the session of the client `c`, stored as the node's writer would: a message and a row each,
    in batches."""
    from statemachines.drivers.persistent_sessions.route_rows import PutMessage
    from statemachines.drivers.persistent_sessions.store import open_session_store
    from statemachines.persistent_sessions.message import Queued
    from statemachines.persistent_sessions.request import BeginEpoch, PutRows

    async with SessionNode(path, name="n") as node:
        await subscribe("c", "t", node=node)
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


async def subscribe(client: str, topic: str, **where: Any) -> None:
    """The client has a session with one subscription, and leaves."""
    async with PersistentSession(client, **where) as session:
        await session.subscribe(topic, qos=1)


async def take(session: PersistentSession, messages: int) -> None:
    """So many messages come, and are acknowledged."""
    async for message in session:
        message.acknowledge()
        messages -= 1
        if not messages:
            return


# -- a resume ---------------------------------------------------------------------------------------------------------


def fill_waiting(rows: int) -> tuple[Path, int]:
    """A database in which so many rows wait; made once."""
    return fill_store(fill, rows), rows


def measure_copy(measure: Callable[[Path, int], Any], kept: Path, rows: int) -> float:
    """Microseconds a row of a measure that gives seconds, on a copy of the database, in a process of its own."""
    with copy_store(kept) as path:
        return float(run_alone(measure, path, rows)) / rows * 1e6


async def resume_all(path: Path, rows: int) -> float:
    """Seconds from the connect to the last acknowledgement, in the process of the node."""
    async with SessionNode(path, name="n") as node:
        began = perf_counter()
        async with PersistentSession("c", node=node, receive_maximum=RECEIVE_MAXIMUM) as session:
            await take(session, rows)
            return perf_counter() - began


def read_and_mark(path: Path, rows: int) -> float:
    """Seconds to select the rows and their messages in pages, and to insert for each the row that marks it."""
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


async def take_over_tcp(address: str, messages: int, clock: Callable[[], float] = perf_counter) -> float:
    """Microseconds a message, from the connect to the last acknowledgement; the client receives as many at a time as
    one does by default."""
    began = clock()
    async with PersistentSession("c", nodes=(address,)) as session:
        await take(session, messages)
        return (clock() - began) / messages * 1e6


async def measure_return(messages: int) -> float:
    """The same, where the node that has stored them still runs."""
    with open_folder() as folder:
        async with SessionNode(folder / "s.db", name="n", listen=("127.0.0.1", 0)) as node:
            await subscribe("c", "t", node=node)
            async with SessionPublisher(node=node) as publisher:
                for begin in range(0, messages, AT_ONCE):
                    some = range(begin, min(messages, begin + AT_ONCE))
                    await asyncio.gather(*(publisher.publish("t", PAYLOAD, qos=1) for _ in some))
            return await take_over_tcp("{}:{}".format(*node.address), messages)


async def resume_backlog(store: Path | str, messages: int, clock: Callable[[], float] = perf_counter) -> float:
    """Microseconds a message of a backlog that an earlier life of the node has stored."""
    async with SessionNode(store, name="n", listen=("127.0.0.1", 0)) as node:
        return await take_over_tcp("{}:{}".format(*node.address), messages, clock)


def measure_backlog(messages: int) -> float:
    """The same of the processor time of node and client, which are one process, of a file that is filled before."""
    with copy_store(fill_store(fill, messages)) as path:
        return float(run_alone(resume_backlog, path, messages, process_time))


async def measure_on_postgres(messages: int) -> float:
    """The same, on a server of its own."""
    with PostgresServer() as server:
        url = server.database("bench")
        await fill(url, messages)
        return await resume_backlog(url, messages)


# -- resumes at once --------------------------------------------------------------------------------------------------


async def fill_stormy(path: Path, sessions: int, pending: int) -> None:
    """So many messages wait for each of so many sessions, of the clients `c0`, `c1`, ..., and `other` has a session
    that nothing waits for."""
    async with SessionNode(path, name="n") as node, SessionPublisher(node=node) as publisher:
        await subscribe("other", "other", node=node)
        await asyncio.gather(*(subscribe(f"c{number}", "t", node=node) for number in range(sessions)))
        for _ in range(pending):
            await publisher.publish("t", PAYLOAD, qos=1)


async def p99_of_publishers(path: Path, sessions: int, pending: int, calm_s: float) -> float:
    """Milliseconds until 99 of 100 messages of ten publishers are stored: while so many sessions resume at once, each
    with messages that wait for it, or (0 sessions) for `calm_s` while none does."""
    took: list[float] = []

    async def resume(node: SessionNode, number: int) -> None:
        async with PersistentSession(f"c{number}", node=node) as session:
            await take(session, pending)

    async def publish(publisher: SessionPublisher) -> None:
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
    return mqtt_traffic.pick_share(sorted(took), 0.99) * 1e3


def measure_storm(kept: Path, *given: float) -> float:
    """The same, on a copy of the database, in a process of its own."""
    with copy_store(kept) as path:
        return float(run_alone(p99_of_publishers, path, *given))


def prepare_storm(size: Size) -> TurnPair:
    sessions, pending, calm_s = size.pick((STORM_SESSIONS, 10, 2.0), (3, 2, 0.2))
    measure = partial(measure_storm, fill_store(fill_stormy, sessions, pending))
    return TurnPair(partial(measure, sessions, pending, calm_s), partial(measure, 0, pending, calm_s))


# -- publishing -------------------------------------------------------------------------------------------------------


async def measure_stored(rounds: int, messages: int) -> float:
    """Messages a second of several publishers that are stored for one absent session, and answered; the session takes
    what waits for it after each round."""

    async def publish(publisher: SessionPublisher, waiting: Iterator[int]) -> None:
        for _ in waiting:
            await publisher.publish(TOPIC, mqtt_traffic.PAYLOAD, qos=1)

    async with AsyncExitStack() as stack:
        store = stack.enter_context(open_folder()) / "s.db"
        _, address = stack.enter_context(run_node("sessions", "a", store, "--durability", "power"))
        nodes = [address]
        await subscribe("c0", TOPIC, nodes=nodes)
        opened = [await stack.enter_async_context(SessionPublisher(nodes=nodes)) for _ in range(PUBLISHERS)]
        await asyncio.gather(*(publish(one, iter(range(1))) for one in opened))  # the session has a writer from now on
        spent, left = 0.0, PUBLISHERS
        for _ in range(rounds):
            waiting, began = iter(range(messages)), perf_counter()
            await asyncio.gather(*(publish(one, waiting) for one in opened for _ in range(IN_FLIGHT)))
            spent += perf_counter() - began
            async with PersistentSession("c0", nodes=nodes) as session:
                await take(session, left + messages)
            left = 0
        return rounds * messages / spent


async def publish_on_postgres(url: str, messages: int) -> float:
    """Messages a second of publishers that wait for each answer, for one absent session."""

    async def publish(publisher: SessionPublisher, number: int) -> None:
        for _ in range(number):
            await publisher.publish("t", mqtt_traffic.PAYLOAD, qos=1)

    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(SessionNode(url, name="n0"))
        await subscribe("c", "t", node=node)
        publishers = [await stack.enter_async_context(SessionPublisher(node=node)) for _ in range(PUBLISHERS)]
        await asyncio.gather(*(publish(one, 2) for one in publishers))
        began = perf_counter()
        await asyncio.gather(*(publish(one, messages // PUBLISHERS) for one in publishers))
        return messages / (perf_counter() - began)


def rate_inserts(server: PostgresServer, url: str, messages: int) -> float:
    """Rows a second that pgbench inserts with as many clients, each row a transaction."""
    name = url.rpartition("/")[2]
    server.sql("DROP TABLE IF EXISTS plain", name)
    server.sql("CREATE TABLE plain (id bigserial PRIMARY KEY, payload bytea NOT NULL)", name)
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        Path(script.name).chmod(0o644)
        script.write(INSERT)
        script.flush()
        done = subprocess.run(
            [str(find_binaries() / "pgbench"), "-n", "-M", "prepared", "-f", script.name, "-c", str(PUBLISHERS),
             "-t", str(messages // PUBLISHERS), "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", name],
            capture_output=True, text=True, check=True, cwd="/", **run_as(),
        )  # fmt: skip
    found = re.search(r"tps = ([\d.]+)", done.stdout)
    assert found is not None, done.stdout
    return float(found[1])


@cache
def serve_postgres() -> PostgresServer:
    """A private one, with fsync on, until this process ends."""
    server = PostgresServer()
    server.__enter__()
    atexit.register(server.__exit__, None, None, None)
    return server


def prepare_on_postgres(size: Size) -> TurnPair:
    """A server for both sides; a database for each turn of ours."""
    messages = size.pick(8_000, 2 * PUBLISHERS)
    server, numbers = serve_postgres(), count()
    plain = server.database("plain")
    return TurnPair(
        lambda: run_alone(publish_on_postgres, server.database(f"ours{next(numbers)}"), messages),
        lambda: rate_inserts(server, plain, messages),
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


def measure_matching(filters: int, lookups: int) -> float:
    """Nanoseconds a look-up of a topic, each of which matches two or three filters."""
    trie = trie_of(filters)
    step = max(1, filters // 3 // lookups)
    topics = [f"a/{one * step % (filters // 3)}/b" for one in range(lookups)]
    began = perf_counter()
    for topic in topics:
        trie.match(topic)
    return (perf_counter() - began) / lookups * 1e9


ROWS: Final = (
    BenchRow(
        name="resume",
        about=f"a session resumes with {PENDING:,} rows that wait, receive maximum {RECEIVE_MAXIMUM:,}, until the last "
        "is acknowledged",
        unit="us / row",
        baseline_name=f"select them in pages, insert a mark for each in transactions of {PAGE}",
        prepare=compare(
            partial(measure_copy, resume_all), partial(measure_copy, read_and_mark), (PENDING,), (100,), fill_waiting
        ),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=4.0,
    ),
    BenchRow(
        name="resume-scale",
        about=f"a session comes back, over TCP, to the node that has stored {PENDING:,} messages for it",
        unit="us / message",
        baseline_name=f"with {PENDING_FEW:,} messages",
        prepare=compare_sizes(partial(run_alone, measure_return), ((PENDING,), (PENDING_FEW,)), LITTLE),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.1,
    ),
    BenchRow(
        name="resume-scale-postgres",
        about=f"the same on PostgreSQL, where an earlier life of the node has stored {ON_POSTGRES:,} messages",
        unit="us / message",
        baseline_name=f"with {ON_POSTGRES_FEW:,} messages",
        prepare=compare_sizes(partial(run_alone, measure_on_postgres), ((ON_POSTGRES,), (ON_POSTGRES_FEW,)), LITTLE),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.1,
    ),
    BenchRow(
        name="resume-million",
        about="processor time of node and client: a session resumes over TCP, where an earlier life of the node has "
        f"stored {PENDING_MANY:,} messages",
        unit="us / message",
        baseline_name=f"with {PENDING:,} messages",
        prepare=compare_sizes(measure_backlog, ((PENDING_MANY,), (PENDING,)), LITTLE, ready=partial(fill_store, fill)),
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
        prepare=compare_sizes(partial(run_alone, measure_on_postgres), ((PENDING,), (PENDING_FEW,)), LITTLE),
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
        prepare=compare_sizes(
            measure_matching,
            ((FILTERS, LOOKUPS), (FILTERS_FEW, LOOKUPS)),
            ((3_000, 100), (FILTERS_FEW, 100)),
            ready=lambda filters, lookups: trie_of(filters),
        ),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=3.0,
    ),
    BenchRow(
        name="session-publish",
        about=f"messages of 100 bytes of {PUBLISHERS} publishers for one absent session, at most {WAITING_MAX} "
        "waiting; --durability power, our own client",
        unit="messages / s",
        baseline_name=f"{AUTOSAVE.title} (fsync {AUTOSAVE.fsync})",
        prepare=compare(
            partial(run_alone, measure_stored),
            partial(rate_publishes, "mosquitto-autosave", PUBLISHERS),
            (ROUNDS, WAITING_MAX),
            (1, 2 * PUBLISHERS),
        ),
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
    BenchRow(
        name="session-publish-postgres",
        about=f"messages of {PUBLISHERS} publishers, each of which waits for its answer, for one absent session, over "
        "1 node on PostgreSQL",
        unit="messages / s",
        baseline_name=f"pgbench -c {PUBLISHERS}, one INSERT a transaction",
        prepare=prepare_on_postgres,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=0.5,
    ),
)
