"""Programs that use the stores: here, and in processes of their own, spoken to by lines."""

import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager

# What programs begin with: `groups` and `streams` of the database at the first argument; a transaction waits a minute.
OPEN = """
import asyncio, os, sys
from statemachines.drivers.shared_subscriptions.open_stores import path_of
from statemachines.drivers.shared_subscriptions.postgres import PostgresGroupStore, PostgresStreamStore
from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore, SqliteStreamStore
from statemachines.shared_subscriptions.group_store import Claim, Commit, Committed, Read

def open_both(url=sys.argv[1]):
    if path_of(url) is None:
        return PostgresGroupStore(url, busy_s=60), PostgresStreamStore(url, busy_s=60)
    return SqliteGroupStore(path_of(url), busy_s=60), SqliteStreamStore(path_of(url), busy_s=60)
"""


@asynccontextmanager
async def close_afterwards(*stores):
    """The stores are closed when this is left."""
    try:
        yield
    finally:
        for store in stores:
            await store.close()


@contextmanager
def process(program, *arguments):
    """A Python process that is spoken to by lines, and gone afterwards."""
    child = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def tell(child, line):
    child.stdin.write(f"{line}\n")
    child.stdin.flush()
