"""Will: the message that is sent for a client when its connection has ended, and when it is due."""

from __future__ import annotations

from typing import NamedTuple

from statemachines.persistent_sessions.life_request import NEVER
from statemachines.persistent_sessions.times import MS


class StoredWill(NamedTuple):
    """The will of a connection: it is sent `delay_ms` after that ended, or when the session ends.  `due_ns`: when, by
    the clock of the database (0: the connection has not ended)."""

    connection: bytes
    delay_ms: int
    due_ns: int


def due_after(delay_ms: int, expiry_ms: int, ended_ns: int) -> int:
    """When a will is due whose connection ended then, of a session that outlives it by `expiry_ms`."""
    is_shorter = expiry_ms != NEVER and expiry_ms < delay_ms
    return ended_ns + (expiry_ms if is_shorter else delay_ms) * MS


def due_at_end(will: StoredWill, expiry_ms: int, ended_ns: int) -> int:
    """When the will is due whose connection, or session, ended then: no later than it was."""
    due_ns = due_after(will.delay_ms, expiry_ms, ended_ns)
    return min(due_ns, will.due_ns or due_ns)
