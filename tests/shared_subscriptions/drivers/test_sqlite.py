"""What the SQLite stores add to their meaning: limits, failures, worker threads, the cost of a look-up."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing, contextmanager

import pytest
from store_programs import run

from statemachines.drivers.shared_subscriptions.sqlite import (
    SqliteStreamStore,
    StoreDamaged,
    StoreUnavailable,
)
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.stream_store import (
    Fetch,
    ListStreams,
    Slice,
    StreamsListed,
    stream_id,
)

STREAM = stream_id("a", 4, 0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.db"


# -- both stores of a file ------------------------------------------------------------------------------------------


# -- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "payload", "says"),
    [
        ("a/+", b"", "topic = 'a/.': must have no"),
        ("a/#", b"", "topic = 'a/#': must have no"),
        ("a\0", b"", "must have no control characters"),
        ("a\x9b2J", b"", "must have no control characters"),
        ("", b"", "topic = '': must have 1 to 1024 bytes in UTF-8, and has 0"),
        ("\ud800", b"", "topic = .*UTF-8 can express"),
        ("é" * 513, b"", "topic = .*must have 1 to 1024 bytes in UTF-8, and has 1026"),
        ("a", b"x" * (2**20 + 1), "payload = '1048577 bytes': must have at most 1048576"),
        ("a", "text", "payload = 'text': must be bytes, not str"),
    ],
)
def test_what_cannot_be_appended_is_named_and_nothing_is_written(path, topic, payload, says):
    store = SqliteStreamStore(path)

    async def test():
        with pytest.raises(ConfigurationError, match=says):
            await store.append(topic, [b"good", payload])
        assert await store.ask(ListStreams(1, "#", 0, "", 9)) == (StreamsListed(1, (), False),)

    run(test(), store)


# -- failures -------------------------------------------------------------------------------------------------------


def by(process):
    """What is said of who has it locked, as a pattern."""
    if sys.platform != "linux":
        return ""
    return rf" by process {process} \(.*\)(?:, which is stopped)?, for \d+\.\d s or more"


@contextmanager
def locked(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


async def fill(store, batch):
    count = 0
    while True:
        try:
            count = (await store.append("a", batch)).last + 1
        except StoreUnavailable as error:
            return count, str(error)


def damage(path, keep):
    with path.open("r+b") as file:
        file.seek(keep)
        file.write(b"\xff" * (path.stat().st_size - keep))


def test_a_damaged_file_is_no_passing_failure(path):
    filled = SqliteStreamStore(path)
    run(filled.append("a", [b"x" * 1000] * 500), filled)
    store = SqliteStreamStore(path)
    damage(path, 10 * 4096)

    async def test():
        with pytest.raises(StoreDamaged, match="malformed; restore the file from a copy"):
            await store.fetch(Fetch(1, (Slice(STREAM, 1, 0, 1000),)))

    run(test(), store)
    damage(path, 4096)
    with pytest.raises(StoreDamaged, match="restore the file from a copy"):
        SqliteStreamStore(path)


# -- cost -----------------------------------------------------------------------------------------------------------
