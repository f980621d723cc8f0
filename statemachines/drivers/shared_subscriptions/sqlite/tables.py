"""Tables: what a SQLite file of both stores holds."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from statemachines.drivers.sql.sqlite import SqliteLayout, has_table

CHANCE: Final = "lower(hex(randomblob(16)))"
"""A new identity."""

STATEMENTS: Final = (
    # One row.  `shards` is 0 until a stream store has said how many there are; `generation` is appended to, all before
    # `oldest` are gone; `identity` tells it from every other store.
    "CREATE TABLE @store (one INTEGER PRIMARY KEY CHECK (one = 1), time_ns INTEGER NOT NULL, shards INTEGER NOT NULL,"
    " generation INTEGER NOT NULL, oldest INTEGER NOT NULL, identity TEXT NOT NULL)",
    f"INSERT INTO @store VALUES (1, 0, 0, 0, 0, {CHANCE})",
    "CREATE TABLE @group_records (key TEXT PRIMARY KEY, value BLOB NOT NULL, time_ns INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE @streams (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, topic TEXT NOT NULL,"
    " shard INTEGER NOT NULL, generation INTEGER NOT NULL, count INTEGER NOT NULL, ended INTEGER NOT NULL)",
    # When each append happened: the offset of its first message.  Time grows with the offset.
    "CREATE TABLE @appends (stream INTEGER NOT NULL, time_ns INTEGER NOT NULL, first INTEGER NOT NULL,"
    " PRIMARY KEY (stream, time_ns)) WITHOUT ROWID",
    # `place` is the number of the stream and the offset in one integer: rows are clustered by it.  A primary key of two
    # columns without a rowid does the same, but moves every payload above a quarter of a page to pages of its own.
    # `head`: headers, key and timestamp (`message_head`); NULL: the message has none.
    "CREATE TABLE @messages (place INTEGER PRIMARY KEY, payload BLOB NOT NULL, head BLOB)",
)


LAYOUT: Final = SqliteLayout(
    title="groups and streams",
    application=0x67617031,
    version=1,
    statements=STATEMENTS,
    has_prefixes=True,
)
"""The application_id is "gap1"."""

GUEST_PREFIX: Final = "shared_"

HOST: Final = 0x67707331
"""The application_id of files that take these tables in: those of persistent sessions."""

GUEST: Final = SqliteLayout(
    title=LAYOUT.title,
    application=HOST,
    version=LAYOUT.version,
    statements=(
        *STATEMENTS,
        # The declarations of groups, found without a look at what they have read.
        "CREATE INDEX @declared ON @group_records (time_ns) WHERE substr(key, -11) = ':properties'",
    ),
    has_prefixes=True,
    prefix=GUEST_PREFIX,
    is_guest=True,
)
"""Both stores in a file of sessions, so that one transaction writes to all of them."""


def layout_of(path: Path) -> SqliteLayout:
    """How a file has both stores: `GUEST` where `take_in_guest` has put them into one of sessions."""
    if not path.is_file():
        return LAYOUT
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error:
        return LAYOUT  # opening it says why
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        is_guest = application == HOST and has_table(connection, f"{GUEST_PREFIX}store")
    except sqlite3.Error:
        return LAYOUT
    finally:
        connection.close()
    return GUEST if is_guest else LAYOUT
