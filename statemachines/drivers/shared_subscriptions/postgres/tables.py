"""Tables: what the schema `gapless` of a PostgreSQL database holds: both stores.

All text is kept as the bytes of its UTF-8: it sorts as Python sorts it, whatever encoding and collation the database
has.
"""

from __future__ import annotations

from typing import Final

from statemachines.drivers.sql.postgres import PostgresLayout

VERSION: Final = 1

CHANCE: Final = "replace(CAST(gen_random_uuid() AS text), '-', '')"
"""A new identity."""

STATEMENTS: Final = (
    "CREATE SCHEMA IF NOT EXISTS gapless",
    # One row.  `version`, `oldest_reader`: a `StoreVersion`; `time_ns`: the time of the last commit; `shards` is 0
    # until a stream store has said how many there are; `generation` is appended to, all before `oldest` are gone;
    # `identity` tells it from every other store.
    "CREATE TABLE gapless.store (one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL,"
    " oldest_reader integer NOT NULL DEFAULT 1, time_ns bigint NOT NULL, shards integer NOT NULL,"
    " generation integer NOT NULL, oldest integer NOT NULL, identity text NOT NULL)",
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


LAYOUT: Final = PostgresLayout(
    schema="gapless",
    version=VERSION,
    lock=0x67617031,
    statements=STATEMENTS,
    known_by=("store", "streams"),
    needed=NEEDED,
)
