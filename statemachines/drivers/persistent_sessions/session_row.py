"""SessionRow: a session as its table has it: in whose hands it is, and when it is over."""

from __future__ import annotations

from typing import Final, NamedTuple

from statemachines.drivers.persistent_sessions.front_message import FRONT_INSTANCE
from statemachines.drivers.persistent_sessions.sql import Sql, read_one
from statemachines.persistent_sessions.life_request import NEVER
from statemachines.persistent_sessions.times import MS

PUT_SESSION: Final = (
    "INSERT INTO @sessions VALUES (:session, :client, :token, :nobody, :connection, :expiry_ms, :seen_ns, 0, 0)"
    " ON CONFLICT (session) DO UPDATE SET token = excluded.token, connection = excluded.connection,"
    " expiry_ms = excluded.expiry_ms, seen_ns = excluded.seen_ns"
)


class SessionRow(NamedTuple):
    """`connection`: in whose hands it is (b"": nobody's, its client has left); `seen_ns`: when that was said last, or
    when the client left; `expiry_ms`: how long it outlives that (`NEVER`: it does not end)."""

    session: bytes
    connection: bytes
    expiry_ms: int
    seen_ns: int
    instance: bytes | None = None
    """Of the client that had the lock of its client id last."""

    @property
    def ends_for_front(self) -> bool:
        """For the clients of a front a session without expiry ends with its connection, so a connection that takes its
        place finds none (PS-440)."""
        return self.expiry_ms == 0 and (self.instance or b"").startswith(FRONT_INSTANCE.encode())

    def is_live(self, now_ns: int, dead_ms: int) -> bool:
        """It is in the hands of somebody who has said so within `dead_ms`."""
        return bool(self.connection) and now_ns - self.seen_ns < dead_ms * MS

    def is_over(self, sql: Sql, dead_ms: int) -> bool:
        """Its expiry has passed, since its client left or its owner was heard of last."""
        if self.is_live(sql.now_ns, dead_ms) or self.expiry_ms == NEVER:
            return False
        return sql.aged_ns - self.seen_ns >= self.expiry_ms * MS


def session_of(sql: Sql, client: bytes) -> SessionRow | None:
    """The client's session."""
    found = read_one(
        sql,
        "SELECT sessions.session, sessions.connection, sessions.expiry_ms, sessions.seen_ns, clients.instance"
        " FROM @clients AS clients JOIN @sessions AS sessions ON sessions.session = clients.session"
        " WHERE clients.client = :client",
        client=client,
    )
    return None if found is None else SessionRow(*found)
