"""Faults of real processes, of their store and of the network between them: how each hurts, and how it heals.

    async with FAULTS["kill"](node):      # it is dead in the block, and lives again behind it
        await asyncio.sleep(1)

A process that may be hurt is a `NodeProcess`, or has its methods; a store is a file or an URL of PostgreSQL; a way
is a `FaultProxy`.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
from urllib.parse import urlsplit

import psycopg
from still import standing_still

from statemachines.testing import fault_proxy


@contextlib.asynccontextmanager
async def kill(process):
    """SIGKILL, and another life."""
    await process.end(signal.SIGKILL)
    yield
    await process.start()


@contextlib.asynccontextmanager
async def stop(*processes):
    """SIGSTOP, and SIGCONT."""
    for process in processes:
        process.stop()
    yield
    for process in processes:
        process.resume()


@contextlib.asynccontextmanager
async def lock(store, timeout_s=0.5):
    """Somebody keeps a file locked; PostgreSQL stands still."""
    if store.startswith("postgresql"):
        with standing_still(store):
            yield
        return
    with contextlib.closing(sqlite3.connect(store, timeout=timeout_s, isolation_level=None)) as connection:
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("BEGIN IMMEDIATE")
        yield


@contextlib.asynccontextmanager
async def lock_tables(store):
    """Somebody stops inside a transaction that has those of groups locked."""
    with psycopg.connect(store) as connection:
        connection.execute("SET lock_timeout = '3s'")
        with contextlib.suppress(psycopg.errors.LockNotAvailable):
            connection.execute("LOCK TABLE gapless.group_records, gapless.messages IN ACCESS EXCLUSIVE MODE")
        yield


@contextlib.asynccontextmanager
async def cut(way):
    """Every connection is gone; others may be made."""
    way.cut()
    yield


@contextlib.asynccontextmanager
async def silence(way, direction="both"):
    """Nothing arrives, in a direction or in both."""
    way.block(direction)
    yield
    way.heal()


@contextlib.asynccontextmanager
async def busy(processes):
    """So many processes compute all the time."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in spinning:
            one.kill()
            one.wait()


FAULTS = {
    "kill": kill,
    "stop": stop,
    "lock": lock,
    "lock tables": lock_tables,
    "cut": cut,
    "silence": silence,
    "busy": busy,
}
HOLDS_S = {"kill": (0, 0.1, 0.6), "stop": (0.1, 0.5, 1.5, 4.0), "cut": (0,)}
STORE_S = (0.2, 1.0, 2.5)
"""How long each lasts: below and beyond a node's lease."""


async def hurt(kind, chance, *victims, holds_s=None):
    """Hurt them, and heal them after a while."""
    async with FAULTS[kind](*victims):
        await asyncio.sleep(chance.choice(holds_s or HOLDS_S.get(kind, STORE_S)))


@contextlib.contextmanager
def reach_by_proxy(store):
    """(The URL of the same store behind a proxy, the proxy); a file has none."""
    if not store.startswith("postgresql"):
        yield store, None
        return
    port = urlsplit(store).port
    with fault_proxy.run_in_thread(("127.0.0.1", port)) as way:
        yield store.replace(f":{port}/", f":{way.address[1]}/"), way
