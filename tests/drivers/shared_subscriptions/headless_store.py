"""A database of both stores as the version before heads made it: its tables, written down, with three messages."""

from __future__ import annotations

import sqlite3
from contextlib import closing

SQLITE = (
    "CREATE TABLE store (one INTEGER PRIMARY KEY CHECK (one = 1), time_ns INTEGER NOT NULL, shards INTEGER NOT NULL,"
    " generation INTEGER NOT NULL, oldest INTEGER NOT NULL, identity TEXT NOT NULL)",
    "INSERT INTO store VALUES (1, 5, 4, 0, 0, 'before')",
    "CREATE TABLE group_records (key TEXT PRIMARY KEY, value BLOB NOT NULL, time_ns INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE streams (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, topic TEXT NOT NULL,"
    " shard INTEGER NOT NULL, generation INTEGER NOT NULL, count INTEGER NOT NULL, ended INTEGER NOT NULL)",
    "INSERT INTO streams VALUES (1, ?, 'a', ?, 0, 3, 0)",
    "CREATE TABLE appends (stream INTEGER NOT NULL, time_ns INTEGER NOT NULL, first INTEGER NOT NULL,"
    " PRIMARY KEY (stream, time_ns)) WITHOUT ROWID",
    "INSERT INTO appends VALUES (1, 5, 0)",
    "CREATE TABLE messages (place INTEGER PRIMARY KEY, payload BLOB NOT NULL)",
    f"INSERT INTO messages VALUES ({1 << 36}, x'30'), ({(1 << 36) + 1}, x'31'), ({(1 << 36) + 2}, x'32')",
    f"PRAGMA application_id = {0x67617031}",
    "PRAGMA user_version = 4",
)

POSTGRES = (
    "CREATE SCHEMA gapless",
    "CREATE TABLE gapless.store (one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL,"
    " time_ns bigint NOT NULL, shards integer NOT NULL, generation integer NOT NULL, oldest integer NOT NULL,"
    " identity text NOT NULL)",
    "CREATE TABLE gapless.group_records (key bytea PRIMARY KEY, value bytea NOT NULL, time_ns bigint NOT NULL)",
    "CREATE TABLE gapless.streams (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id bytea NOT NULL UNIQUE,"
    " topic bytea NOT NULL, shard integer NOT NULL, generation integer NOT NULL, count bigint NOT NULL,"
    " ended boolean NOT NULL)",
    "INSERT INTO gapless.streams (id, topic, shard, generation, count, ended)"
    " VALUES (convert_to('{id}', 'UTF8'), 'a', {shard}, 0, 3, false)",
    "CREATE TABLE gapless.appends (stream bigint NOT NULL, time_ns bigint NOT NULL, first bigint NOT NULL,"
    " mark uuid NOT NULL, PRIMARY KEY (stream, time_ns))",
    "INSERT INTO gapless.appends VALUES (1, 5, 0, gen_random_uuid())",
    "CREATE TABLE gapless.messages (place bigint PRIMARY KEY, payload bytea NOT NULL)",
    "ALTER TABLE gapless.messages ALTER COLUMN payload SET STORAGE EXTERNAL",
    f"INSERT INTO gapless.messages VALUES ({1 << 36}, '0'), ({(1 << 36) + 1}, '1'), ({(1 << 36) + 2}, '2')",
    "INSERT INTO gapless.store (version, time_ns, shards, generation, oldest, identity)"
    " VALUES (3, 5, 4, 0, 0, 'before')",
)


def make_headless(database, stream, shard):
    """The tables, with messages 0, 1 and 2 of the topic "a" in `stream` of `shard`."""
    if database.kind == "postgres":
        for statement in POSTGRES:
            database.sql(statement.format(id=stream, shard=shard))
        return
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        for statement in SQLITE:
            connection.execute(statement, (stream, shard) if "?" in statement else ())


def forget_heads(database):
    """Take the column of heads from the tables of today; their version is the caller's."""
    if database.kind == "postgres":
        database.sql("ALTER TABLE gapless.messages DROP COLUMN head")
        return
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        connection.execute("ALTER TABLE messages DROP COLUMN head")
