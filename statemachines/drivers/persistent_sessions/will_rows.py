"""Will rows: the wills of connections, in the transactions that open, leave and end their sessions."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from statemachines.drivers.identity import Identity
from statemachines.drivers.persistent_sessions.front_message import SessionWill
from statemachines.drivers.persistent_sessions.host_request import DueWill, DueWills
from statemachines.drivers.persistent_sessions.sql import Sql
from statemachines.kernel import life_number, life_of, node_of
from statemachines.persistent_sessions.life_request import OpenSession
from statemachines.persistent_sessions.message import StoredWill, due_after, due_at_end

DUE_MAX: Final = 100
"""Wills that are read at once to be sent."""

PUT: Final = (
    "INSERT INTO @wills VALUES (:connection, :session, :client, :identity, :topic, :payload, :qos, :retain,"
    " :expiry_ms, :head, :delay_ms, 0, :node, :life)"
)
OF_SESSION: Final = "SELECT connection, delay_ms, due_ns FROM @wills WHERE session = :session"
SET_DUE: Final = "UPDATE @wills SET due_ns = :due_ns WHERE connection = :connection"
DELETE: Final = "DELETE FROM @wills WHERE connection = :connection"
DROP_EARLY: Final = "DELETE FROM @wills WHERE session = :session AND due_ns > :now_ns"
TAKE: Final = f"{DELETE} AND due_ns > 0"
OF_NODE: Final = (
    "SELECT wills.connection, wills.delay_ms, sessions.expiry_ms, sessions.seen_ns FROM @wills AS wills"
    " JOIN @sessions AS sessions ON sessions.session = wills.session"
    f" WHERE wills.due_ns = 0 AND wills.node = :node AND wills.life < :life LIMIT {DUE_MAX}"
)
DUE: Final = (
    "SELECT connection, client, identity, topic, payload, qos, retain, expiry_ms, head FROM @wills"
    f" WHERE due_ns > 0 AND due_ns <= :now_ns ORDER BY due_ns LIMIT {DUE_MAX}"
)
NODES: Final = "SELECT name, life, until_ns FROM @nodes"


def put_will(sql: Sql, opened: OpenSession, will: SessionWill) -> None:
    """The will of the connection that takes the session."""
    party = opened.owner
    sql.run(
        PUT,
        connection=party.encode(), session=opened.session.encode(), client=opened.client.encode(),
        identity=msgspec.json.encode(will.identity), topic=will.topic.encode(), payload=will.payload, qos=will.qos,
        retain=int(will.retain), expiry_ms=will.expiry_ms, head=will.head or None, delay_ms=will.delay_ms,
        node=node_of(party).encode(), life=life_number(life_of(party)),
    )  # fmt: skip


def settle_wills(sql: Sql, session: bytes) -> None:
    """A connection takes the session, and the one before has ended: a will that is not due is not sent."""
    sql.run(DROP_EARLY, session=session, now_ns=sql.now_ns)


def end_wills(sql: Sql, session: bytes, expiry_ms: int, ended_ns: int) -> None:
    """The connection of the session ended then, and the session outlives it by so long (0: not at all)."""
    for row in sql.all(OF_SESSION, session=session):
        will = StoredWill(*row)
        sql.run(SET_DUE, connection=will.connection, due_ns=due_at_end(will, expiry_ms, ended_ns))


def drop_will(sql: Sql, connection: bytes) -> None:
    """It is not sent."""
    sql.run(DELETE, connection=connection)


def take_will(sql: Sql, connection: bytes) -> bool:
    """It is sent in this transaction; False: it was, or is not due."""
    return bool(sql.count(TAKE, connection=connection))


def find_ended(sql: Sql) -> list[tuple[bytes, int]]:
    """(connection, when its will is due) of some of those at nodes that have ended, or begun anew."""
    return [
        (connection, due_after(delay_ms, expiry_ms, seen_ns))
        for name, life, until_ns in sql.all(NODES)
        for connection, delay_ms, expiry_ms, seen_ns in sql.all(
            OF_NODE, node=name, life=life + (until_ns <= sql.now_ns)
        )
    ]


def end_wills_of_nodes(sql: Sql) -> None:
    """Say when they are due."""
    for connection, due_ns in find_ended(sql):
        sql.run(SET_DUE, connection=connection, due_ns=due_ns)


def find_due(sql: Sql) -> DueWills:
    """Some of the wills that are due."""
    return DueWills(tuple(_due_will(row) for row in sql.all(DUE, now_ns=sql.now_ns)), bool(find_ended(sql)))


def _due_will(row: tuple[Any, ...]) -> DueWill:
    connection, client, identity, topic, payload, qos, retain, expiry_ms, head = row
    known = msgspec.json.decode(bytes(identity), type=Identity)
    will = SessionWill(topic.decode(), bytes(payload), qos, bool(retain), expiry_ms, bytes(head or b""), 0, known)
    return DueWill(connection.decode(), client.decode(), will)
