"""A database of sessions as the first version made it: its tables, written down, with a session that has something in
each of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from statemachines.drivers.persistent_sessions.store import path_of
from statemachines.testing.postgres import run_sql

TABLES = (
    "CREATE TABLE @store (one NUMBER PRIMARY KEY CHECK (one = 1), version NUMBER NOT NULL, time_ns NUMBER NOT NULL,"
    " identity BYTES, routes NUMBER NOT NULL, forgotten NUMBER NOT NULL, tokens NUMBER NOT NULL)",
    "CREATE TABLE @nodes (name BYTES PRIMARY KEY, life NUMBER NOT NULL, until_ns NUMBER NOT NULL,"
    " batch NUMBER NOT NULL)",
    "CREATE TABLE @clients (client BYTES PRIMARY KEY, session BYTES, token NUMBER NOT NULL, holder BYTES NOT NULL,"
    " until_ns NUMBER NOT NULL)",
    "CREATE TABLE @sessions (session BYTES PRIMARY KEY, client BYTES NOT NULL, token NUMBER NOT NULL,"
    " owner BYTES NOT NULL, connection BYTES NOT NULL, expiry_ms NUMBER NOT NULL, seen_ns NUMBER NOT NULL,"
    " revision NUMBER NOT NULL, places NUMBER NOT NULL)",
    "CREATE TABLE @taken (session BYTES NOT NULL, writer BYTES NOT NULL, epoch NUMBER NOT NULL, number NUMBER NOT NULL,"
    " PRIMARY KEY (session, writer))",
    "CREATE TABLE @packets (session BYTES NOT NULL, packet NUMBER NOT NULL, place NUMBER NOT NULL,"
    " status BYTES NOT NULL, number NUMBER NOT NULL, message BYTES NOT NULL, filter BYTES NOT NULL,"
    " qos NUMBER NOT NULL, PRIMARY KEY (session, packet))",
    "CREATE TABLE @queued (session BYTES NOT NULL, place NUMBER NOT NULL, number NUMBER NOT NULL,"
    " message BYTES NOT NULL, filter BYTES NOT NULL, qos NUMBER NOT NULL, PRIMARY KEY (session, place))",
    "CREATE TABLE @routes (session BYTES NOT NULL, filter BYTES NOT NULL, qos NUMBER NOT NULL, version NUMBER NOT NULL,"
    " gone NUMBER NOT NULL, PRIMARY KEY (session, filter))",
    "CREATE UNIQUE INDEX routes_by_version ON @routes (version)",
    "CREATE TABLE @epochs (session BYTES NOT NULL, writer BYTES NOT NULL, epoch NUMBER NOT NULL, last NUMBER NOT NULL,"
    " PRIMARY KEY (session, writer, epoch))",
    "CREATE TABLE @session_rows (session BYTES NOT NULL, writer BYTES NOT NULL, epoch NUMBER NOT NULL,"
    " number NUMBER NOT NULL, tag NUMBER NOT NULL, message BYTES NOT NULL, filter BYTES NOT NULL, qos NUMBER NOT NULL,"
    " token NUMBER NOT NULL, n NUMBER NOT NULL, k NUMBER NOT NULL, time_ns NUMBER NOT NULL,"
    " PRIMARY KEY (session, writer, epoch, number, tag))",
    "CREATE INDEX rows_by_message ON @session_rows (message) WHERE tag = 0",
    "CREATE INDEX packets_by_message ON @packets (message)",
    "CREATE INDEX queued_by_message ON @queued (message)",
    "CREATE TABLE @messages (id BYTES PRIMARY KEY, topic BYTES NOT NULL, payload BYTES NOT NULL, qos NUMBER NOT NULL,"
    " time_ns NUMBER NOT NULL)",
)
CLUSTERED = ("CREATE TABLE session_rows", "CREATE TABLE queued", "CREATE TABLE packets")

ROWS = (
    ("store", (1, 1, 5, b"0123456789abcdef", 1, 0, 1)),
    ("nodes", (b"n1", 1, 0, 0)),
    ("clients", (b"c", b"s1", 1, b"", 0)),
    ("sessions", (b"s1", b"c", 1, b"", b"", -1, 5, 1, 1)),
    ("taken", (b"s1", b"n1", 1, 2)),
    ("packets", (b"s1", 1, 0, b"taken", 1, b"m1", b"a", 1)),
    ("queued", (b"s1", 0, 2, b"m2", b"a", 1)),
    ("routes", (b"s1", b"a", 1, 1, 0)),
    ("epochs", (b"s1", b"n1", 1, 3)),
    ("session_rows", (b"s1", b"n1", 1, 3, 0, b"m3", b"a", 1, 0, 0, 0, 5)),
    ("session_rows", (b"s1", b"n1", 1, 2, 0, b"m2", b"a", 1, 0, 0, 0, 5)),
    ("messages", (b"m1", b"a", b"one", 1, 5)),
    ("messages", (b"m2", b"a", b"two", 1, 5)),
    ("messages", (b"m3", b"a", b"three", 1, 5)),
)


def make_version_1(url):
    """Make it where nothing is yet."""
    path = path_of(url)
    if path is None:
        made = [one.replace("@", "gapless_sessions.") for one in TABLES]
        made = [one.replace("NUMBER", "bigint").replace("BYTES", "bytea") for one in made]
        made += [f"INSERT INTO gapless_sessions.{table} VALUES ({_values(row, pg=True)})" for table, row in ROWS]
        for statement in ("CREATE SCHEMA gapless_sessions", *made):
            run_sql(url, statement)
        return
    with closing(sqlite3.connect(path)) as connection:
        for one in TABLES:
            statement = one.replace("@", "").replace("NUMBER", "INTEGER").replace("BYTES", "BLOB")
            connection.execute(f"{statement} WITHOUT ROWID" if statement.startswith(CLUSTERED) else statement)
        for table, row in ROWS:
            connection.execute(f"INSERT INTO {table} VALUES ({_values(row)})")
        connection.execute(f"PRAGMA application_id = {0x67707331}")
        connection.execute("PRAGMA user_version = 1")
        connection.commit()


def _values(row, pg=False):
    def shown(value):
        if not isinstance(value, bytes):
            return str(value)
        return f"'\\x{value.hex()}'" if pg else f"x'{value.hex()}'"

    return ", ".join(map(shown, row))
