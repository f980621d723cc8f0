"""The row about persistent sessions on PostgreSQL: what a node stores there beside plain inserts of as many clients.

Both sides have the same server, a private one with fsync on, and as many clients, each of which waits for its answer.
"""

from __future__ import annotations

import asyncio
import atexit
import re
import subprocess
import tempfile
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Final

from statemachines.testing.postgres import PostgresServer, find_binaries, run_as
from statemachines_bench.alone import run_alone
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

PUBLISHERS: Final = 16
PUBLISHED: Final = 8_000
PAYLOAD: Final = b"x" * 100
INSERT: Final = "INSERT INTO plain (payload) VALUES ('" + PAYLOAD.decode() + "');\n"


async def measure_publishes(url: str, messages: int) -> float:
    """Messages a second of publishers that wait for each answer, for one absent session."""
    from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode, SessionPublisher

    async def publish(publisher: SessionPublisher, number: int) -> None:
        for _ in range(number):
            await publisher.publish("t", PAYLOAD, qos=1)

    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(SessionNode(url, name="n0"))
        async with PersistentSession("c", node=node) as session:
            await session.subscribe("t", qos=1)
        publishers = [await stack.enter_async_context(SessionPublisher(node=node)) for _ in range(PUBLISHERS)]
        await asyncio.gather(*(publish(one, 2) for one in publishers))
        began = perf_counter()
        await asyncio.gather(*(publish(one, messages // PUBLISHERS) for one in publishers))
        return messages / (perf_counter() - began)


def rate_publishes(url: str, messages: int) -> float:
    """The same, on a loop of its own."""
    return asyncio.run(measure_publishes(url, messages))


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


def prepare_publish(size: Size) -> TurnPair:
    """A server for both sides; a database for each turn of ours."""
    messages = size.pick(PUBLISHED, 2 * PUBLISHERS)
    server = PostgresServer()
    server.__enter__()
    atexit.register(server.__exit__, None, None, None)
    numbers = count()
    plain = server.database("plain")
    return TurnPair(
        lambda: run_alone(rate_publishes, server.database(f"ours{next(numbers)}"), messages),
        lambda: rate_inserts(server, plain, messages),
    )


ROWS: Final = (
    BenchRow(
        name="session-publish-postgres",
        about=f"messages of {PUBLISHERS} publishers, each of which waits for its answer, for one absent session, over "
        "1 node on PostgreSQL",
        unit="messages / s",
        baseline_name=f"pgbench -c {PUBLISHERS}, one INSERT a transaction",
        prepare=prepare_publish,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=0.5,
    ),
)
