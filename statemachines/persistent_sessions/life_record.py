"""LifeRecord: one connection of a client, from the first packet to the end."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from statemachines.kernel import Call, Effects, Event, Status, TimerFired, TraceColumns
from statemachines.persistent_sessions.life_times import LifeTimes

KEEP = -1
"""As the expiry of a disconnect: as it was said when the client connected."""


class Connect(Call, frozen=True, gc=False):
    """A client connects; `clean`: with no session of before; its session outlives the connection by `expiry_ms`;
    `attempt` counts those of this `instance`."""

    clean: bool
    expiry_ms: int
    instance: str = ""
    attempt: int = 0


class Attach(Call, frozen=True, gc=False):
    """The session is live here: it was resumed, taken over, or has begun."""


class Disconnect(Call, frozen=True, gc=False):
    """The client says good-bye, and perhaps how long its session is to outlive that (`KEEP`: as it was said)."""

    expiry_ms: int = KEEP


class LockDue(TimerFired, frozen=True, gc=False):
    """Time to ask for the client id again."""


class AliveDue(TimerFired, frozen=True, gc=False):
    """Time to say that the session lives."""


class ConnectTimeout(TimerFired, frozen=True, gc=False):
    """The lease of the client id, asked for after this was set, is about to end."""


class SessionOpened(Event, frozen=True, gc=False):
    """To the host: the session is the client's, under `token`.  One that was `present` is resumed from the database, or
    taken over where it is `live` ("": nowhere), and its client has `left` that owner; then `Attach` is due."""

    columns: ClassVar = TraceColumns(key="session", term="token")

    session: str
    token: int
    present: bool
    live: str
    left: bool = False


class Accepted(Event, frozen=True, gc=False):
    """To the host: the client may be told that it is connected, and whether its session was present."""

    columns: ClassVar = TraceColumns(key="session")

    session: str
    present: bool


class SessionClosed(Event, frozen=True, gc=False):
    """To the host: the connection is over.  `why`: left, refused (an expiry that cannot be), superseded, discarded,
    lost, timeout, failed, full (the store keeps as many sessions as it may)."""

    columns: ClassVar = TraceColumns(key="session")

    session: str
    why: str


class LifeStatus(Status):
    """`locking`, `looking`, `opening` and `leaving` wait for the database, `settling` for the host."""

    NEW = "new"
    LOCKING = "locking"
    LOOKING = "looking"
    OPENING = "opening"
    SETTLING = "settling"
    CONNECTED = "connected"
    LEAVING = "leaving"
    CLOSED = "closed"


NEW, LOCKING, LOOKING, OPENING, SETTLING, CONNECTED, LEAVING, CLOSED = LifeStatus


class LifeRecord(msgspec.Struct, frozen=True, gc=False):
    """The connection `id` of `client`; no other has ever had this id.  `clean`, `expiry_ms`: as the client said;
    `session` and `token`, once it has them; `present`: the session was there before, `live` at this owner; `why`: how
    it ends ("": not yet); `met`: the token of the lock that it waits for, first met at `met_ns`; `most`: so many
    sessions are kept (0: any number); `instance`, `attempt`: which connection this is of those its client has made;
    `again`: the client has left an earlier one for it."""

    id: str
    client: str
    times: LifeTimes
    status: LifeStatus = NEW
    clean: bool = False
    expiry_ms: int = 0
    token: int = 0
    session: str = ""
    present: bool = False
    live: str = ""
    why: str = ""
    met: int = 0
    met_ns: int = 0
    most: int = 0
    instance: str = ""
    attempt: int = 0
    again: bool = False


Done = tuple[LifeRecord, Effects]
