"""Rows about the fail-over of a session: its node is killed or stopped, and the first message comes from another node.

Two nodes are processes over one SQLite file, the client and the publisher run here.  A stopped process keeps a file
that it has locked, and nobody can write then, whatever the protocol; so each node is struck between its transactions.
On PostgreSQL a node is stopped at any moment of its work.
"""

from __future__ import annotations

import asyncio
import atexit
import random
import signal
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from functools import cache, partial
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from statemachines.testing.postgres import PostgresServer
from statemachines_bench.alone import run_alone
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

PATIENCE_S: Final = 60.0
BACKLOG: Final = 100
"""Messages that wait where a node is struck amid a resume."""

CLIENT: Final = "tablet"
TARGET_S: Final = 3.5
STRIKES: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
LOCKED: Final = (
    "SELECT 1 FROM clients JOIN sessions USING (session) WHERE substr(holder, 1, 2) = x'617e' AND connection = holder"
)
"""A row: node a resumes the session of a client, and has opened it."""


class StruckNode:
    """A node as a process, where it listens, and what others do to it."""

    def __init__(self, child: asyncio.subprocess.Process, address: str) -> None:
        self.address = address
        self._child = child

    def strike(self, blow: signal.Signals) -> float:
        """When it was struck; a stopped one stands still when this returns, with each of its threads."""
        self._child.send_signal(blow)
        struck = monotonic()
        while blow == signal.SIGSTOP and not self._stands_still():
            sleep(0)
        return struck

    def _stands_still(self) -> bool:
        return all(
            (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"
            for thread in Path(f"/proc/{self._child.pid}/task").iterdir()
        )


@asynccontextmanager
async def run_node(store: Path | str, name: str, peers: str, *options: str) -> AsyncIterator[StruckNode]:
    """It runs until this is left."""
    command = [sys.executable, "-m", "statemachines", "node", "sessions", "--store", str(store), "--name", name]
    command += ["--listen", "127.0.0.1:0", "--max-connections", "2000", "--peers", peers, *options]
    child = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        assert child.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            while b"listening on " not in (line := await child.stdout.readline()):
                assert line, "a node ended"
        yield StruckNode(child, line.split()[-1].decode())
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()


def is_writable(connection: sqlite3.Connection) -> bool:
    """Nobody has the file locked."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return False
    connection.execute("ROLLBACK")
    return True


def strike(store: Path, node: StruckNode, blow: signal.Signals, amid_resume: bool) -> float:
    """When the node was struck; `amid_resume`: it had opened the session and not yet accepted its client, or (0) was
    too fast for that."""
    end = monotonic() + PATIENCE_S
    with closing(sqlite3.connect(store, timeout=0, isolation_level=None)) as connection:
        while amid_resume and connection.execute(LOCKED).fetchone() is None:
            if monotonic() > end:
                return 0.0
            sleep(0)
        while True:
            struck = node.strike(blow)
            if blow == signal.SIGKILL:
                return struck
            is_there = not amid_resume or connection.execute(LOCKED).fetchone() is not None
            if is_there and is_writable(connection):
                return struck
            node.strike(signal.SIGCONT)
            if not is_there:
                return 0.0
            sleep(0)


async def fail_over_at_rest(directory: Path, blow: signal.Signals) -> float:
    """Seconds until a message that is published right after the blow has come."""
    from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher

    store = directory / "s.db"
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(run_node(store, "a", ""))
        second = await stack.enter_async_context(run_node(store, "b", first.address))
        session = PersistentSession(CLIENT, nodes=(first.address, second.address))
        await stack.enter_async_context(session)
        publisher = await stack.enter_async_context(SessionPublisher(nodes=(second.address,)))
        await session.subscribe("t")
        for topic in ("1", "2"):
            await publisher.publish("t", topic.encode())
            (await anext(session)).acknowledge()
        struck = await asyncio.to_thread(strike, store, first, blow, False)
        await publisher.publish("t", b"3")
        while (await anext(session)).payload != b"3":
            pass
        return monotonic() - struck


async def fail_over_amid_resume(directory: Path, blow: signal.Signals) -> float:
    """Seconds until the first message has come of those that waited."""
    from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher

    store = directory / "s.db"
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(run_node(store, "a", ""))
        second = await stack.enter_async_context(run_node(store, "b", first.address))
        nodes = (first.address, second.address)
        async with PersistentSession(CLIENT, nodes=nodes) as session:
            await session.subscribe("t")
        async with SessionPublisher(nodes=nodes[1:]) as publisher:
            await asyncio.gather(*(publisher.publish("t", b"x") for _ in range(BACKLOG)))
        while True:
            striking = asyncio.ensure_future(asyncio.to_thread(strike, store, first, blow, True))
            async with PersistentSession(CLIENT, nodes=nodes) as session:
                struck = await striking
                while struck:
                    if (await anext(session)).connection:  # not the first one, which was to the node that is gone
                        return monotonic() - struck


WORK_S: Final = 0.08
"""So long a node on PostgreSQL has delivered when it is stopped, at most."""


async def fail_over_amid_work(url: str, after_s: float) -> float:
    """Seconds until the first message comes of another node, after one was stopped that delivers what waited."""
    from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher

    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(run_node(url, "a", ""))
        second = await stack.enter_async_context(run_node(url, "b", first.address))
        nodes = (first.address, second.address)
        async with PersistentSession(CLIENT, nodes=nodes) as session:
            await session.subscribe("t")
        async with SessionPublisher(nodes=nodes[1:]) as publisher:
            await asyncio.gather(*(publisher.publish("t", b"x") for _ in range(10 * BACKLOG)))
        async with PersistentSession(CLIENT, nodes=nodes) as session:
            (await anext(session)).acknowledge()
            striking = asyncio.get_running_loop().call_later(after_s, first.strike, signal.SIGSTOP)
            while (message := await anext(session)).connection == 0:
                message.acknowledge()
            return asyncio.get_running_loop().time() - striking.when()


@cache
def serve_postgres() -> PostgresServer:
    """A private one, with fsync on, until this process ends."""
    server = PostgresServer()
    server.__enter__()
    atexit.register(server.__exit__, None, None, None)
    return server


def run_amid_work(url: str, after_s: float) -> float:
    """The same, on a loop of its own."""
    return asyncio.run(fail_over_amid_work(url, after_s))


def prepare_amid_work(size: Size) -> TurnPair:
    """A database for each turn, and another moment."""
    chance, numbers = random.Random(1), count()
    return TurnPair(
        lambda: run_alone(run_amid_work, serve_postgres().database(f"f{next(numbers)}"), chance.uniform(0, WORK_S)),
        leave_time_s,
    )


def fail_over(measure: Callable[[Path, signal.Signals], object], blow: signal.Signals) -> float:
    """The seconds of one fail-over, on a loop of its own."""
    with tempfile.TemporaryDirectory(prefix="gapless-bench-") as folder:
        seconds: float = asyncio.run(measure(Path(folder), blow))  # type: ignore[arg-type]
        return seconds


def leave_time_s() -> float:
    """The longest time after which a client leaves a node that says nothing."""
    from statemachines.drivers.persistent_sessions.node_guide import PING_S, SILENT_PINGS

    return PING_S * (SILENT_PINGS + 1)


def prepare(measure: Callable[[Path, signal.Signals], object], blow: signal.Signals, size: Size) -> TurnPair:
    """Both sizes are one: periods are what they are."""
    return TurnPair(partial(run_alone, fail_over, measure, blow), leave_time_s)


STRUCK_ROWS: Final = tuple(
    BenchRow(
        name=f"session-failover-{name}{suffix}",
        about=f"SIG{name.upper()} of the node of a session {when}, until its first message comes from another node",
        unit="s",
        baseline_name="the longest time after which a client leaves a silent node",
        prepare=partial(prepare, measure, blow),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.4,
        aim=f"at most {TARGET_S:g} s",
    )
    for suffix, when, measure in (
        ("", "at rest", fail_over_at_rest),
        ("-resume", "amid a resume", fail_over_amid_resume),
    )
    for name, blow in STRIKES.items()
)
ROWS: Final = (
    *STRUCK_ROWS,
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
