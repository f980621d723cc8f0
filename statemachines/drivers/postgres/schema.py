"""Schema: the tables of both stores in PostgreSQL, and how a database becomes ours.

All text is kept as the bytes of its UTF-8: it sorts as Python sorts it, whatever encoding and collation the database
has.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

VERSION: Final = 1

LOCK: Final = 0x67617031
"""The advisory lock under which the tables are made."""

TABLES: Final = (
    "CREATE SCHEMA IF NOT EXISTS gapless",
    # One row.  `time_ns`: the time of the last commit; `shards` is 0 until a stream store has said how many there are;
    # `generation` is appended to, all before `oldest` are gone.
    "CREATE TABLE gapless.store (one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL,"
    " time_ns bigint NOT NULL, shards integer NOT NULL, generation integer NOT NULL, oldest integer NOT NULL)",
    "CREATE TABLE gapless.records (key bytea PRIMARY KEY, value bytea NOT NULL, time_ns bigint NOT NULL)",
    "CREATE TABLE gapless.streams (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id bytea NOT NULL UNIQUE,"
    " topic bytea NOT NULL, shard integer NOT NULL, generation integer NOT NULL, count bigint NOT NULL,"
    " ended boolean NOT NULL)",
    # When each append happened: the offset of its first message.  Time grows with the offset.  By `mark` an appender
    # whose connection was lost finds out whether it was committed.
    "CREATE TABLE gapless.appends (stream bigint NOT NULL, time_ns bigint NOT NULL, first bigint NOT NULL,"
    " mark uuid NOT NULL, PRIMARY KEY (stream, time_ns))",
    # `place` is the number of the stream and the offset in one integer.
    "CREATE TABLE gapless.messages (place bigint PRIMARY KEY, payload bytea NOT NULL)",
    "ALTER TABLE gapless.messages ALTER COLUMN payload SET STORAGE EXTERNAL",
    f"INSERT INTO gapless.store (version, time_ns, shards, generation, oldest) VALUES ({VERSION}, 0, 0, 0, 0)",
)

NEEDED: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "group store": {"store": ("SELECT", "UPDATE"), "records": ("SELECT", "INSERT", "UPDATE", "DELETE")},
    "stream store": {"store": ("SELECT",), "streams": ("SELECT",), "messages": ("SELECT",), "appends": ("SELECT",)},
}
"""What whoever opens a store must be allowed; appending needs more, and says so."""


def tables(connection: Connection) -> set[str]:
    """The names of the tables in the schema `gapless`."""
    found = connection.execute(
        text("SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('gapless') AND relkind IN ('r', 'v')")
    )
    return {name for (name,) in found}


def make_tables(connection: Connection) -> None:
    """Make them, unless somebody else has meanwhile."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    if not tables(connection):
        for statement in TABLES:
            connection.execute(text(statement))


def version_of(connection: Connection) -> int:
    """The version of the tables."""
    return int(connection.execute(text("SELECT version FROM gapless.store")).scalar_one())


def missing_privileges(connection: Connection, store: str) -> list[str]:
    """What we are not allowed and need: `SELECT on gapless.records`, ..."""
    return [
        f"{privilege} on gapless.{table}"
        for table, privileges in NEEDED[store].items()
        for privilege in privileges
        if not connection.execute(
            text("SELECT has_table_privilege(:table, :privilege)"),
            {"table": f"gapless.{table}", "privilege": privilege},
        ).scalar_one()
    ]
