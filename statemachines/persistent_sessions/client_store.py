"""What the store decides of a client, in one transaction: who has its client id, and what becomes of its session.

The tables are somewhere else: in SQL, or in the components of an explored system.  Both ask here.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from statemachines.persistent_sessions.life_request import ClientBusy, LeaveSession, LockClient, OpenSession, StoreFull
from statemachines.persistent_sessions.request import NotOwner


class LastLock(msgspec.Struct, frozen=True, gc=False):
    """Who had the client id last: under this `token`, in this `attempt` of the `instance` of a client ("": none)."""

    token: int
    instance: str = ""
    attempt: int = 0

    def count_ahead(self, asked: LockClient) -> int:
        """How many attempts the asker is ahead of the one that had it last; 0: it is another client, or the same
        attempt."""
        return asked.attempt - self.attempt if asked.instance and self.instance == asked.instance else 0


def refuse_lock(last: LastLock | None, asked: LockClient, is_held: Callable[[], bool]) -> NotOwner | ClientBusy | None:
    """Why the client id is not given to the asker (None: it is), PS-101.

    Args:
        last: who had it last (None: nobody yet).
        is_held: whether somebody else has it whose lease has not ended, and whose node has not either.
    """
    ahead = 0 if last is None else last.count_ahead(asked)
    if ahead < 0:
        return NotOwner()
    is_busy = last is not None and ahead == 0 and last.token != asked.aged and is_held()
    return ClientBusy(last.token) if last is not None and is_busy else None


def is_superseded(highest: int | None, token: int) -> bool:
    """A higher token was given; or (None) the client was forgotten since, and whoever had a token with it."""
    return highest is None or token < highest


def refuse_session(before: str, asked: OpenSession, count_sessions: Callable[[], int]) -> StoreFull | None:
    """Why a session of `before` ("": the client has none) is not opened, PS-212; `count_sessions` that are kept."""
    if before or not asked.most:
        return None
    kept = count_sessions()
    return StoreFull(kept) if kept >= asked.most else None


def find_abandoned(before: str, asked: OpenSession) -> str:
    """The session that another one is opened in place of ("": none)."""
    return before if before != asked.session else ""


def is_left(session: str, asked: LeaveSession) -> bool:
    """The client leaves the session that it has; one that was left already, or is gone, is left alone."""
    return bool(session) and session == asked.session
