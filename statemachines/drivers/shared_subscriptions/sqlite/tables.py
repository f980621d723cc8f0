"""Tables: what a SQLite file of both stores holds."""

from __future__ import annotations

from typing import Final

from statemachines.drivers.sql.sqlite import Layout

STATEMENTS: Final = (
    # One row.  `shards` is 0 until a stream store has said how many there are; `generation` is appended to, all before
    # `oldest` are gone.
    "CREATE TABLE store (one INTEGER PRIMARY KEY CHECK (one = 1), time_ns INTEGER NOT NULL, shards INTEGER NOT NULL,"
    " generation INTEGER NOT NULL, oldest INTEGER NOT NULL)",
    "INSERT INTO store VALUES (1, 0, 0, 0, 0)",
    "CREATE TABLE records (key TEXT PRIMARY KEY, value BLOB NOT NULL, time_ns INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE streams (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, topic TEXT NOT NULL,"
    " shard INTEGER NOT NULL, generation INTEGER NOT NULL, count INTEGER NOT NULL, ended INTEGER NOT NULL)",
    # When each append happened: the offset of its first message.  Time grows with the offset.
    "CREATE TABLE appends (stream INTEGER NOT NULL, time_ns INTEGER NOT NULL, first INTEGER NOT NULL,"
    " PRIMARY KEY (stream, time_ns)) WITHOUT ROWID",
    # `place` is the number of the stream and the offset in one integer: rows are clustered by it.  A primary key of two
    # columns without a rowid does the same, but moves every payload above a quarter of a page to pages of its own.
    "CREATE TABLE messages (place INTEGER PRIMARY KEY, payload BLOB NOT NULL)",
)

LAYOUT: Final = Layout(application=0x67617031, version=2, statements=STATEMENTS)
"""The application_id is "gap1"."""
