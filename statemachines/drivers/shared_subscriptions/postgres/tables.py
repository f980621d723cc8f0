"""Tables: what the schema `gapless` of a PostgreSQL database holds: both stores.

All text is kept as the bytes of its UTF-8: it sorts as Python sorts it, whatever encoding and collation the database
has.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from statemachines.drivers.shared_subscriptions.old_keys import LEFT, say_left, translate
from statemachines.drivers.sql.postgres import Layout

VERSION: Final = 4

CHANCE: Final = "replace(CAST(gen_random_uuid() AS text), '-', '')"
"""A new identity."""

STATEMENTS: Final = (
    "CREATE SCHEMA IF NOT EXISTS gapless",
    # One row.  `time_ns`: the time of the last commit; `shards` is 0 until a stream store has said how many there are;
    # `generation` is appended to, all before `oldest` are gone; `identity` tells it from every other store.
    "CREATE TABLE gapless.store (one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL,"
    " time_ns bigint NOT NULL, shards integer NOT NULL, generation integer NOT NULL, oldest integer NOT NULL,"
    " identity text NOT NULL)",
    "CREATE TABLE gapless.group_records (key bytea PRIMARY KEY, value bytea NOT NULL, time_ns bigint NOT NULL)",
    "CREATE TABLE gapless.streams (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id bytea NOT NULL UNIQUE,"
    " topic bytea NOT NULL, shard integer NOT NULL, generation integer NOT NULL, count bigint NOT NULL,"
    " ended boolean NOT NULL)",
    # When each append happened: the offset of its first message.  Time grows with the offset.  By `mark` an appender
    # whose connection was lost finds out whether it was committed.
    "CREATE TABLE gapless.appends (stream bigint NOT NULL, time_ns bigint NOT NULL, first bigint NOT NULL,"
    " mark uuid NOT NULL, PRIMARY KEY (stream, time_ns))",
    # `place` is the number of the stream and the offset in one integer.  `head`: headers, key and timestamp
    # (`message_head`); NULL: the message has none.
    "CREATE TABLE gapless.messages (place bigint PRIMARY KEY, payload bytea NOT NULL, head bytea)",
    "ALTER TABLE gapless.messages ALTER COLUMN payload SET STORAGE EXTERNAL",
    "INSERT INTO gapless.store (version, time_ns, shards, generation, oldest, identity)"
    f" VALUES ({VERSION}, 0, 0, 0, 0, {CHANCE})",
)

NEEDED: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "group store": {"store": ("SELECT", "UPDATE"), "group_records": ("SELECT", "INSERT", "UPDATE", "DELETE")},
    "stream store": {"store": ("SELECT",), "streams": ("SELECT",), "messages": ("SELECT",), "appends": ("SELECT",)},
}
"""What whoever opens a store must be allowed; appending needs more, and says so."""


def lengthen_keys(connection: Connection) -> tuple[str, ...]:
    """From version 1: keys of records say how long their names are.  The table has another name since, so that a
    program of before, which is still connected, is refused."""
    connection.execute(text("ALTER TABLE gapless.records RENAME TO group_records"))
    rows = connection.execute(text("SELECT key, value FROM gapless.group_records"))
    translated = translate({key.decode(): value for key, value in rows})
    for old, new in translated.keys.items():
        moved = {"new": new.encode(), "old": old.encode()}
        connection.execute(text("UPDATE gapless.group_records SET key = :new WHERE key = :old"), moved)
    if translated.left:
        left = {"keys": [key.encode() for key in translated.left]}
        of_those = "WHERE key = ANY(CAST(:keys AS bytea[]))"
        connection.execute(text(f"CREATE TABLE gapless.{LEFT} (LIKE gapless.group_records)"))
        connection.execute(text(f"INSERT INTO gapless.{LEFT} SELECT * FROM gapless.group_records {of_those}"), left)
        connection.execute(text(f"DELETE FROM gapless.group_records {of_those}"), left)
    return say_left(translated.left)


def identify(connection: Connection) -> tuple[str, ...]:
    """From version 2: the store has an identity."""
    connection.execute(text("ALTER TABLE gapless.store ADD COLUMN identity text NOT NULL DEFAULT ''"))
    connection.execute(text(f"UPDATE gapless.store SET identity = {CHANCE}"))
    return ()


def add_heads(connection: Connection) -> tuple[str, ...]:
    """From version 3: messages have a head."""
    connection.execute(text("ALTER TABLE gapless.messages ADD COLUMN head bytea"))
    return ()


LAYOUT: Final = Layout(
    schema="gapless",
    version=VERSION,
    lock=0x67617031,
    statements=STATEMENTS,
    known_by=("store", "streams"),
    needed=NEEDED,
    upgrades={1: lengthen_keys, 2: identify, 3: add_heads},
)
