"""Tables: what a database of sessions holds, for SQLite and PostgreSQL alike (page: "Parties and tables").

All text is kept as the bytes of its UTF-8: it is compared and sorted alike everywhere, whatever encoding and collation
a database has.  In a statement `@` stands for where the tables are.  `until_ns`: from when on a message is over (0: it
does not expire).
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from statemachines.drivers.sql import sqlite

VERSION: Final = 1

UNDELIVERED: Final = 0
DELIVERED: Final = 1
MARKER: Final = 2
ABANDONED: Final = 3
"""What a row of a session says (`session_rows.tag`)."""

END_MS: Final = "seen_ns / 1000000 + expiry_ms"
IS_LEFT: Final = "length(connection) = 0 AND expiry_ms >= 0"
IS_HELD: Final = "length(connection) > 0 AND expiry_ms >= 0"
"""When a session is over that nobody has in hand, in ms; which sessions those are; and those that somebody has in hand,
and that may be over if they are not heard of."""

_FOUND_ALONE: Final = (
    # Few rows among many: without an index of their own a look for them reads all the others.
    f"CREATE INDEX markers ON @session_rows (session, writer, epoch, token, n) WHERE tag = {MARKER}",
    f"CREATE INDEX marks ON @session_rows (session, writer, epoch, number) WHERE tag = {DELIVERED}",
    "CREATE INDEX gone_routes ON @routes (version) WHERE gone = 1",
    "CREATE INDEX nodes_by_end ON @nodes (until_ns)",
    "CREATE INDEX retained_by_end ON @retained (until_ns) WHERE until_ns > 0",
    f"CREATE INDEX sessions_left ON @sessions (({END_MS})) WHERE {IS_LEFT}",
    f"CREATE INDEX sessions_held ON @sessions (client) WHERE {IS_HELD}",
    "CREATE INDEX clients_alone ON @clients (client) WHERE session IS NULL",
)

_RETAINED: Final = (
    "CREATE TABLE @retained (topic BYTES PRIMARY KEY, payload BYTES NOT NULL, qos NUMBER NOT NULL,"
    " until_ns NUMBER NOT NULL, head BYTES)"
)
"""The last message of a topic that was published to be retained; the columns of `store` count them and their
bytes."""

_PUBLISHED_ONCE: Final = (
    # A packet id of QoS 2 that the client of a session has published and not released; its message.
    "CREATE TABLE @received (session BYTES NOT NULL, packet NUMBER NOT NULL, message BYTES NOT NULL,"
    " PRIMARY KEY (session, packet))",
    # A row that is still to be stored, of a message that comes to a subscription once; since when.  `topic` of a
    # retained message, for which a newer one takes the place of the row.
    "CREATE TABLE @fan_out (message BYTES NOT NULL, session BYTES NOT NULL, filter BYTES NOT NULL, qos NUMBER NOT NULL,"
    " until_ns NUMBER NOT NULL, time_ns NUMBER NOT NULL, topic BYTES, PRIMARY KEY (message, session, filter))",
    "CREATE INDEX fan_out_by_time ON @fan_out (time_ns, message)",
    "CREATE INDEX fan_out_by_session ON @fan_out (session)",
    "CREATE INDEX fan_out_by_topic ON @fan_out (topic)",
)

_WILLS: Final = (
    # The will of a connection, at this `node` in this `life`; `due_ns`: when it is sent (0: its connection may live),
    # `delay_ms` after the connection ended, or at the end of its session; `identity`: of its client, for permissions.
    "CREATE TABLE @wills (connection BYTES PRIMARY KEY, session BYTES NOT NULL, client BYTES NOT NULL,"
    " identity BYTES NOT NULL, topic BYTES NOT NULL, payload BYTES NOT NULL, qos NUMBER NOT NULL,"
    " retain NUMBER NOT NULL, expiry_ms NUMBER, head BYTES, delay_ms NUMBER NOT NULL, due_ns NUMBER NOT NULL,"
    " node BYTES NOT NULL, life NUMBER NOT NULL)",
    "CREATE INDEX wills_by_session ON @wills (session)",
    "CREATE INDEX wills_by_due ON @wills (due_ns, node, life)",
)

_SHARES: Final = (
    # Groups that only SUBSCRIBE of a front declared; `idle_ns`: since when no session subscribes them (0: one does,
    # -1: they are being destroyed).
    "CREATE TABLE @declared_groups (filter BYTES PRIMARY KEY, idle_ns NUMBER NOT NULL)",
    # Of a group and a stream: the offset behind the last message that was stored for a session.
    "CREATE TABLE @carried (filter BYTES NOT NULL, stream BYTES NOT NULL, next NUMBER NOT NULL,"
    " PRIMARY KEY (filter, stream))",
    # Messages of a group that sessions which have ended never acknowledged.
    "CREATE TABLE @returned (filter BYTES NOT NULL, time_ns NUMBER NOT NULL, part NUMBER NOT NULL,"
    " message BYTES NOT NULL, topic BYTES NOT NULL, payload BYTES NOT NULL, head BYTES,"
    " PRIMARY KEY (filter, time_ns, part))",
    "CREATE UNIQUE INDEX returned_by_message ON @returned (message)",
)
"""Of groups whose streams are in the same database."""

_TABLES: Final = (
    # One row.  `time_ns`: of the last commit; `identity`: of this store and no other; `routes`: how often routes have
    # changed, `forgotten`: up to which of these changes those that removed something are not kept any more; `tokens`:
    # the highest that was given; `sessions`: how many there are; `before_ns`: time of the commit before; `ahead_ns`,
    # `stopped_ns`: as in `StoreTime`.
    "CREATE TABLE @store (one NUMBER PRIMARY KEY CHECK (one = 1), version NUMBER NOT NULL, time_ns NUMBER NOT NULL,"
    " identity BYTES, routes NUMBER NOT NULL, forgotten NUMBER NOT NULL, tokens NUMBER NOT NULL,"
    " sessions NUMBER NOT NULL DEFAULT 0, before_ns NUMBER NOT NULL DEFAULT 0, ahead_ns NUMBER NOT NULL DEFAULT 0,"
    " stopped_ns NUMBER NOT NULL DEFAULT 0, retained NUMBER NOT NULL DEFAULT 0,"
    " retained_bytes NUMBER NOT NULL DEFAULT 0)",
    f"INSERT INTO @store VALUES (1, {VERSION}, 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0)",
    # A process that serves sessions: its `life`, until when it is thought to live, and the number of the last batch of
    # requests that it has committed.
    "CREATE TABLE @nodes (name BYTES PRIMARY KEY, life NUMBER NOT NULL, until_ns NUMBER NOT NULL,"
    " batch NUMBER NOT NULL)",
    # A client id: its session, its highest token, and which connection has it locked ("": none) until when; who locked
    # it last, of those with this id (NULL, "": unknown), in which attempt.
    "CREATE TABLE @clients (client BYTES PRIMARY KEY, session BYTES, token NUMBER NOT NULL, holder BYTES NOT NULL,"
    " until_ns NUMBER NOT NULL, instance BYTES, attempt NUMBER NOT NULL DEFAULT 0)",
    # `owner`: who is live ("": nobody); `connection`: in whose hands it is ("": nobody's), which was said last at
    # `seen_ns`; `expiry_ms` (-1: never) counts from then.  `revision` counts commits of the state, `places` what ever
    # was in flight.
    "CREATE TABLE @sessions (session BYTES PRIMARY KEY, client BYTES NOT NULL, token NUMBER NOT NULL,"
    " owner BYTES NOT NULL, connection BYTES NOT NULL, expiry_ms NUMBER NOT NULL, seen_ns NUMBER NOT NULL,"
    " revision NUMBER NOT NULL, places NUMBER NOT NULL)",
    # The state: of each writer the last that was taken; what is in flight; what is queued behind it.
    "CREATE TABLE @taken (session BYTES NOT NULL, writer BYTES NOT NULL, epoch NUMBER NOT NULL, number NUMBER NOT NULL,"
    " PRIMARY KEY (session, writer))",
    "CREATE TABLE @packets (session BYTES NOT NULL, packet NUMBER NOT NULL, place NUMBER NOT NULL,"
    " status BYTES NOT NULL, number NUMBER NOT NULL, message BYTES NOT NULL, filter BYTES NOT NULL,"
    " qos NUMBER NOT NULL, until_ns NUMBER NOT NULL DEFAULT 0, PRIMARY KEY (session, packet))",
    "CREATE TABLE @queued (session BYTES NOT NULL, place NUMBER NOT NULL, number NUMBER NOT NULL,"
    " message BYTES NOT NULL, filter BYTES NOT NULL, qos NUMBER NOT NULL, until_ns NUMBER NOT NULL DEFAULT 0,"
    " PRIMARY KEY (session, place))",
    # `version`: of the store's routes when this one changed; one that is `gone` is kept for those who know it still;
    # `options`: of a front, as it numbers them.
    "CREATE TABLE @routes (session BYTES NOT NULL, filter BYTES NOT NULL, qos NUMBER NOT NULL, version NUMBER NOT NULL,"
    " gone NUMBER NOT NULL, options NUMBER NOT NULL DEFAULT 0, PRIMARY KEY (session, filter))",
    "CREATE UNIQUE INDEX routes_by_version ON @routes (version)",
    # Of a writer and session: its epochs, of which the greatest is its own, and the number of the last row under each.
    "CREATE TABLE @epochs (session BYTES NOT NULL, writer BYTES NOT NULL, epoch NUMBER NOT NULL, last NUMBER NOT NULL,"
    " PRIMARY KEY (session, writer, epoch))",
    # A marker has the number 0, and `token`, `n` and `k` of its own.  `more`: as of `Queued`, in MessagePack (NULL, or
    # empty: no more).
    "CREATE TABLE @session_rows (session BYTES NOT NULL, writer BYTES NOT NULL, epoch NUMBER NOT NULL,"
    " number NUMBER NOT NULL, tag NUMBER NOT NULL, message BYTES NOT NULL, filter BYTES NOT NULL, qos NUMBER NOT NULL,"
    " token NUMBER NOT NULL, n NUMBER NOT NULL, k NUMBER NOT NULL, time_ns NUMBER NOT NULL,"
    " until_ns NUMBER NOT NULL DEFAULT 0, more BYTES, PRIMARY KEY (session, writer, epoch, number, tag))",
    # Who refers to a message, for the collector.
    f"CREATE INDEX rows_by_message ON @session_rows (message) WHERE tag = {UNDELIVERED}",
    "CREATE INDEX packets_by_message ON @packets (message)",
    "CREATE INDEX queued_by_message ON @queued (message)",
    # `head`: headers, key and timestamp (`message_head`); NULL: the message has none.
    "CREATE TABLE @messages (id BYTES PRIMARY KEY, topic BYTES NOT NULL, payload BYTES NOT NULL, qos NUMBER NOT NULL,"
    " time_ns NUMBER NOT NULL, head BYTES)",
    "CREATE INDEX messages_by_time ON @messages (time_ns, id)",
    _RETAINED,
    *_FOUND_ALONE,
    *_PUBLISHED_ONCE,
    *_WILLS,
    *_SHARES,
)

NAMES: Final = tuple(one.split("@")[1].split(" ")[0] for one in _TABLES if one.startswith("CREATE TABLE"))


FENCE: Final = "UPDATE @nodes SET life = life + 1"
"""A node that stood still while the store was upgraded finds that it was superseded."""

_INSERT: Final = re.compile(r"INSERT INTO @(\w+) (?=VALUES|SELECT)")


def _list_columns(table: str) -> tuple[str, ...]:
    """The names in a CREATE TABLE."""
    parts = re.sub(r"\([^()]*\)", "", table.partition(" (")[2][:-1]).split(", ")
    return tuple(one.split(" ")[0] for one in parts if not one.startswith("PRIMARY KEY"))


COLUMNS: Final = dict(
    zip(NAMES, (_list_columns(one) for one in _TABLES if one.startswith("CREATE TABLE")), strict=True)
)


@cache
def name_columns(statement: str) -> str:
    """The statement, which says which columns it inserts: tables of a newer version may have more (PS-542)."""
    return _INSERT.sub(lambda found: f"{found[0]}({', '.join(COLUMNS[found[1]])}) ", statement)


def _on_sqlite(statement: str) -> str:
    statement = statement.replace("@", "").replace("NUMBER", "INTEGER").replace("BYTES", "BLOB")
    clustered = statement.startswith(("CREATE TABLE session_rows", "CREATE TABLE queued", "CREATE TABLE packets"))
    return f"{statement} WITHOUT ROWID" if clustered else statement


SQLITE: Final = sqlite.SqliteLayout(
    title="persistent sessions",
    application=0x67707331,
    version=VERSION,
    statements=tuple(_on_sqlite(one) for one in _TABLES),
    users="SELECT name FROM nodes WHERE until_ns > ? ORDER BY name",
    fence=FENCE.replace("@", ""),
)
"""The application_id is "gps1"."""

SCHEMA: Final = "gapless_sessions"


@cache
def on_postgres(statement: str) -> str:
    """The statement with our schema."""
    return name_columns(statement).replace("@", f"{SCHEMA}.")


def _made_on_postgres(statement: str) -> str:
    return on_postgres(statement).replace("NUMBER", "bigint").replace("BYTES", "bytea")


TURN: Final = "turns"
"""The sequence that numbers transactions on PostgreSQL: its last value is the highest store time that was given."""

TURN_LOCK: Final = 0x67707332
"""The advisory lock by which transactions of PostgreSQL take their turn."""

FRESH_NS: Final = 200_000_000
"""So far a number that was taken in a shared turn may lie behind the clock: ages are exact to this."""

IS_EXPECTED: Final = {
    "its node and its routes": (
        f"SELECT nextval('@{TURN}'), coalesce(clock, CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
        " * 1000) - store.ahead_ns FROM @store AS store, @nodes AS nodes WHERE nodes.name = node AND nodes.life = life_"
        " AND nodes.batch = batch_ - 1 AND store.identity = identity_ AND store.stopped_ns = 0"
        " AND store.routes = coalesce(routes_, store.routes)"
    ),
    "its writer": (
        "SELECT count(*) FROM unnest(sessions_, epochs_, firsts) AS asked (session, epoch, first)"
        " WHERE (SELECT 1 FROM @sessions AS there WHERE there.session = asked.session) = 1"
        " AND (SELECT array_agg((found.epoch, found.last)) FROM @epochs AS found WHERE found.session = asked.session"
        " AND found.writer = node) = ARRAY[(asked.epoch, asked.first - 1)]"
    ),
    "its messages": "SELECT count(*) FROM @messages WHERE id = ANY (needed)",
}
"""What a batch expects to find -> how that is looked for, as the function names its arguments."""

IS_STORED: Final = (
    "INSERT INTO @messages (id, topic, payload, qos, time_ns, head) SELECT id, topic, payload, qos, number, head"
    " FROM unnest(ids, topics, payloads, qualities, heads) AS given (id, topic, payload, qos, head)"
    " ON CONFLICT DO NOTHING",
    "INSERT INTO @session_rows SELECT given.session, node, given.epoch, given.first + hand.place, 0, hand.message,"
    " hand.filter, hand.qos, 0, 0, 0, number, hand.until_ns, hand.more"
    " FROM unnest(sessions_, epochs_, firsts, kinds) AS given (session, epoch, first, kind)"
    " JOIN unnest(hand_kinds, places, of_messages, filters, hand_qualities, untils, mores)"
    " AS hand (kind, place, message, filter, qos, until_ns, more) ON hand.kind = given.kind",
    "INSERT INTO @epochs SELECT given.session, node, given.epoch, given.last"
    " FROM unnest(sessions_, epochs_, lasts) AS given (session, epoch, last)"
    " ON CONFLICT (session, writer, epoch) DO UPDATE SET last = excluded.last",
    "UPDATE @nodes SET batch = batch_ WHERE name = node",
)
"""How it is stored."""

ARGUMENTS: Final = (
    "clock NUMBER", "identity_ BYTES", "node BYTES", "life_ NUMBER", "batch_ NUMBER", "routes_ NUMBER",
    "ids BYTES[]", "topics BYTES[]", "payloads BYTES[]", "qualities NUMBER[]", "heads BYTES[]", "needed BYTES[]",
    "sessions_ BYTES[]", "epochs_ NUMBER[]", "firsts NUMBER[]", "lasts NUMBER[]", "kinds NUMBER[]",
    "hand_kinds NUMBER[]", "places NUMBER[]", "of_messages BYTES[]", "filters BYTES[]", "hand_qualities NUMBER[]",
    "untils NUMBER[]", "mores BYTES[]",
)  # fmt: skip

PLANNED_ONCE: Final = (
    "SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_nestloop = off SET jit = off"
)
"""Planning cost as much as storing.  A plan that is made while tables are empty serves when they are full, so what is
fast for few rows alone is forbidden; by that a plan counts as dear, and is not worth compiling for that (D-712)."""

_NODE, _WRITER, _MESSAGES = IS_EXPECTED.values()

BATCH_FUNCTION: Final = f"""
CREATE FUNCTION @store_batch({", ".join(ARGUMENTS)}) RETURNS bigint LANGUAGE plpgsql
{PLANNED_ONCE} AS $$
#variable_conflict use_column
DECLARE
    number bigint;
    shown_ns bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared({TURN_LOCK});
    {_NODE.replace(" FROM @store", " INTO number, shown_ns FROM @store")};
    IF number IS NULL OR shown_ns - number > {FRESH_NS}
        OR ({_WRITER}) <> cardinality(sessions_)
        OR ({_MESSAGES}) <> cardinality(needed)
    THEN
        RETURN NULL;
    END IF;
    {";".join(IS_STORED)};
    RETURN number;
END $$
"""

_TURNS: Final = (
    f"CREATE SEQUENCE @{TURN} MINVALUE 0",
    f"SELECT setval('@{TURN}', time_ns) FROM @store",
    # Of a file alone.
    "ALTER TABLE @store DROP COLUMN before_ns",
    "ALTER TABLE @store ADD COLUMN oldest_reader integer NOT NULL DEFAULT 1",
    BATCH_FUNCTION,
)

POSTGRES_STATEMENTS: Final = (
    f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}",
    *map(_made_on_postgres, (*_TABLES, *_TURNS)),
)
