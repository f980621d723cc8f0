"""Rows about the fail-over of a session: its node is killed or stopped, and the first message comes from another node.

Two nodes are processes over one SQLite file, the client and the publisher run here.  A stopped process keeps a file
that it has locked, and nobody can write then, whatever the protocol; so each node is struck between its transactions.
On PostgreSQL a node is stopped at any moment of its work.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import subprocess
from contextlib import AsyncExitStack, closing
from functools import partial
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines_bench.harness import compare, open_folder, run_alone, run_node
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair
from statemachines_bench.sessions import serve_postgres

PATIENCE_S: Final = 60.0
BACKLOG: Final = 100
"""Messages that wait where a node is struck amid a resume."""

CLIENT: Final = "tablet"
TARGET_S: Final = 3.5
WORK_S: Final = 0.08
"""So long a node on PostgreSQL has delivered when it is stopped, at most."""

STRIKES: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
LOCKED: Final = (
    "SELECT 1 FROM clients JOIN sessions USING (session) WHERE substr(holder, 1, 2) = x'617e' AND connection = holder"
)
"""A row: node a resumes the session of a client, and has opened it."""


Node = subprocess.Popen[str]


def strike_node(node: Node, blow: signal.Signals) -> float:
    """When it was struck; a stopped one stands still when this returns, with each of its threads."""
    node.send_signal(blow)
    struck = monotonic()
    while blow == signal.SIGSTOP and not stands_still(node):
        sleep(0)
    return struck


def stands_still(node: Node) -> bool:
    """Each of its threads is stopped."""
    return all(
        (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"
        for thread in Path(f"/proc/{node.pid}/task").iterdir()
    )


def start_nodes(stack: AsyncExitStack, store: Path | str) -> tuple[Node, tuple[str, str]]:
    """Two nodes over a store: the first of them, and where both listen."""
    first, address = stack.enter_context(run_node("sessions", "a", store, "--max-connections", "2000"))
    _, other = stack.enter_context(run_node("sessions", "b", store, "--max-connections", "2000", "--peers", address))
    return first, (address, other)


def is_writable(connection: sqlite3.Connection) -> bool:
    """Nobody has the file locked."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return False
    connection.execute("ROLLBACK")
    return True


def strike(store: Path, node: Node, blow: signal.Signals, amid_resume: bool) -> float:
    """When the node was struck; `amid_resume`: it had opened the session and not yet accepted its client, or (0) was
    too fast for that."""
    end = monotonic() + PATIENCE_S
    with closing(sqlite3.connect(store, timeout=0, isolation_level=None)) as connection:
        while amid_resume and connection.execute(LOCKED).fetchone() is None:
            if monotonic() > end:
                return 0.0
            sleep(0)
        while True:
            struck = strike_node(node, blow)
            if blow == signal.SIGKILL:
                return struck
            is_there = not amid_resume or connection.execute(LOCKED).fetchone() is not None
            if is_there and is_writable(connection):
                return struck
            node.send_signal(signal.SIGCONT)
            if not is_there:
                return 0.0
            sleep(0)


async def fail_over_at_rest(blow: signal.Signals) -> float:
    """Seconds until a message that is published right after the blow has come."""
    async with AsyncExitStack() as stack:
        store = stack.enter_context(open_folder()) / "s.db"
        first, nodes = start_nodes(stack, store)
        session = await stack.enter_async_context(PersistentSession(CLIENT, nodes=nodes))
        publisher = await stack.enter_async_context(SessionPublisher(nodes=nodes[1:]))
        await session.subscribe("t")
        for topic in ("1", "2"):
            await publisher.publish("t", topic.encode())
            (await anext(session)).acknowledge()
        struck = await asyncio.to_thread(strike, store, first, blow, False)
        await publisher.publish("t", b"3")
        while (await anext(session)).payload != b"3":
            pass
        return monotonic() - struck


async def fill_session(nodes: tuple[str, str], messages: int) -> None:
    """So many messages wait for a session."""
    async with PersistentSession(CLIENT, nodes=nodes) as session:
        await session.subscribe("t")
    async with SessionPublisher(nodes=nodes[1:]) as publisher:
        await asyncio.gather(*(publisher.publish("t", b"x") for _ in range(messages)))


async def fail_over_amid_resume(blow: signal.Signals) -> float:
    """Seconds until the first message has come of those that waited."""
    async with AsyncExitStack() as stack:
        store = stack.enter_context(open_folder()) / "s.db"
        first, nodes = start_nodes(stack, store)
        await fill_session(nodes, BACKLOG)
        while True:
            striking = asyncio.ensure_future(asyncio.to_thread(strike, store, first, blow, True))
            async with PersistentSession(CLIENT, nodes=nodes) as session:
                struck = await striking
                while struck:
                    if (await anext(session)).connection:  # not the first one, which was to the node that is gone
                        return monotonic() - struck


async def fail_over_amid_work(url: str, after_s: float) -> float:
    """Seconds until the first message comes of another node, after one was stopped that delivers what waited."""
    async with AsyncExitStack() as stack:
        first, nodes = start_nodes(stack, url)
        await fill_session(nodes, 10 * BACKLOG)
        async with PersistentSession(CLIENT, nodes=nodes) as session:
            (await anext(session)).acknowledge()
            striking = asyncio.get_running_loop().call_later(after_s, strike_node, first, signal.SIGSTOP)
            while (message := await anext(session)).connection == 0:
                message.acknowledge()
            return asyncio.get_running_loop().time() - striking.when()


def prepare_amid_work(size: Size) -> TurnPair:
    """A database for each turn, and another moment."""
    chance, numbers = random.Random(1), count()
    return TurnPair(
        lambda: run_alone(
            fail_over_amid_work, serve_postgres().database(f"f{next(numbers)}"), chance.uniform(0, WORK_S)
        ),
        leave_time_s,
    )


def leave_time_s() -> float:
    """The longest time after which a client leaves a node that says nothing."""
    from statemachines.drivers.persistent_sessions.node_link import PING_S, SILENT_PINGS

    return PING_S * (SILENT_PINGS + 1)


ROWS: Final = (
    *(
        BenchRow(
            name=f"session-failover-{name}{suffix}",
            about=f"SIG{name.upper()} of the node of a session {when}, until its first message comes from another node",
            unit="s",
            baseline_name="the longest time after which a client leaves a silent node",
            prepare=compare(partial(run_alone, measure, blow), leave_time_s),
            ratio=RatioKind.OURS_OVER_BASELINE,
            at_most=1.4,
            aim=f"at most {TARGET_S:g} s",
        )
        for suffix, when, measure in (
            ("", "at rest", fail_over_at_rest),
            ("-resume", "amid a resume", fail_over_amid_resume),
        )
        for name, blow in STRIKES.items()
    ),
    BenchRow(
        name="session-failover-stop-postgres",
        about=f"SIGSTOP of the node of a session on PostgreSQL in its first {WORK_S * 1e3:g} ms of deliveries, within "
        "a transaction or between two, until a message comes from another node",
        unit="s",
        baseline_name="the longest time after which a client leaves a silent node",
        prepare=prepare_amid_work,
        ratio=RatioKind.OURS_OVER_BASELINE,
        aim=f"at most {TARGET_S:g} s",
    ),
)
