"""What a client that connects asks of the database, and what it answers (page: "Connect, clean start, expiry")."""

from __future__ import annotations

from typing import ClassVar

from statemachines.kernel import Answer, Request, TraceColumns

NEVER = -1
"""The expiry of a session that does not expire."""


class LockClient(Request, frozen=True, gc=False):
    """Lock the client id for `lease_ms`, unless somebody else has it locked; whose lease has ended has not, nor has the
    one under the token `aged` (0: none), which the asker has met unchanged for as long as a lease lasts, nor an earlier
    `attempt` of the same `instance`, nor an owner whose node has ended.  An attempt of the instance that locked it
    last, and in a later attempt, is superseded ("": of nobody's)."""

    columns: ClassVar = TraceColumns(key="client")

    client: str
    owner: str
    lease_ms: int
    aged: int = 0
    instance: str = ""
    attempt: int = 0


class ClientLocked(Answer, frozen=True, gc=False):
    """To `LockClient`: `token` is greater than every one before; whatever is asked under those is refused.  `again`: an
    earlier attempt of the same instance locked it last, and its client has left that connection."""

    columns: ClassVar = TraceColumns(term="token")

    token: int
    again: bool = False


class ClientBusy(Answer, frozen=True, gc=False):
    """To `LockClient`: somebody else has it, under this token."""

    columns: ClassVar = TraceColumns(term="token")

    token: int


class UnlockClient(Request, frozen=True, gc=False):
    """Unlock the client id, if this owner has it locked; it needs no answer.  Asked behind a `LockClient`, it takes
    back what that has locked, whether the owner has heard of it or not."""

    columns: ClassVar = TraceColumns(key="client")

    client: str
    owner: str


class LookUp(Request, frozen=True, gc=False):
    """Which session has the client?  An owner that has not said for `dead_ms` that it lives is none any more."""

    columns: ClassVar = TraceColumns(key="client", term="token")

    client: str
    token: int
    dead_ms: int


class ClientFound(Answer, frozen=True, gc=False):
    """To `LookUp`: the session ("": none), whether it has `expired` by the clock of the database, and the owner in
    whose hands it is (`live`; "": nobody's)."""

    columns: ClassVar = TraceColumns(key="session")

    session: str
    expired: bool
    live: str


class OpenSession(Request, frozen=True, gc=False):
    """The client has this session, at `owner`, from now on; the one that it `replaces` ("": none) is abandoned: its
    state and routes are gone, and a row says so.  A session that nobody had before, of a client that has none, makes
    `most` at most (0: any number).  One transaction."""

    columns: ClassVar = TraceColumns(key="session", term="token")

    client: str
    owner: str
    token: int
    session: str
    replaces: str
    expiry_ms: int
    most: int = 0


class SessionOpen(Answer, frozen=True, gc=False):
    """To `OpenSession`."""


class StoreFull(Answer, frozen=True, gc=False):
    """To `OpenSession`: as many `sessions` are kept as may be; nothing is left of the client."""

    columns: ClassVar = TraceColumns(first="sessions")

    sessions: int


class KeepAlive(Request, frozen=True, gc=False):
    """The session lives at its owner; it needs no answer, unless that is the owner no more."""

    columns: ClassVar = TraceColumns(key="session", term="token")

    client: str
    session: str
    token: int


class LeaveSession(Request, frozen=True, gc=False):
    """The client has gone; the session expires `expiry_ms` from now on, or (0) is abandoned in this transaction."""

    columns: ClassVar = TraceColumns(key="session", term="token")

    client: str
    session: str
    token: int
    expiry_ms: int


class SessionLeft(Answer, frozen=True, gc=False):
    """To `LeaveSession`."""


class LifeFailed(Answer, frozen=True, gc=False):
    """To whatever is asked: perhaps it was done, perhaps not."""
