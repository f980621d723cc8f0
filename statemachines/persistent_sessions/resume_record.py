"""ResumeRecord: a session in its owner's hands, from the first look at the database on."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from statemachines.kernel import Call, Effects, Event, Map, Status, TimerFired, TraceColumns
from statemachines.kernel.row import ChildStep
from statemachines.persistent_sessions.blocked_queue import BlockedQueue
from statemachines.persistent_sessions.delivery_record import DeliveryRecord
from statemachines.persistent_sessions.request import EpochRows
from statemachines.persistent_sessions.takeover_record import TakeoverRecord
from statemachines.persistent_sessions.times import Times
from statemachines.persistent_sessions.writer_flow_record import WriterFlowRecord


class ResumeSession(Call, frozen=True, gc=False):
    """A client connects, its client id is locked, and its session was present."""


class ConnectionLost(Call, frozen=True, gc=False):
    """The client is gone; its session stays."""


class Discarded(Call, frozen=True, gc=False):
    """The client starts clean elsewhere, or the session is taken over."""


class ResumeTimeout(TimerFired, frozen=True, gc=False):
    """The resume has taken too long."""


class OrphanTimeout(TimerFired, frozen=True, gc=False):
    """Whoever we have yielded to has not ended the takeover."""


class Lull(TimerFired, frozen=True, gc=False):
    """For a while the client has had room for a few rows: it may be waiting for them."""


class Yielded(Event, frozen=True, gc=False):
    """To the host: somebody else has the session; nothing is sent to this client any more, so its connection is to be
    closed.  `ResumeEnded` follows."""

    columns: ClassVar = TraceColumns(key="session")

    session: str


class Resumed(Event, frozen=True, gc=False):
    """To the host: the session is in normal operation."""

    columns: ClassVar = TraceColumns(key="session")

    session: str


class ResumeEnded(Event, frozen=True, gc=False):
    """To the host: it is over.  `why`: absent, superseded, timeout, lost, discarded, taken over, orphaned (it has
    yielded, and nobody came)."""

    session: str
    why: str


class ResumeStatus(Status):
    """`loading`, `reading` and `subscribing` wait for the database; `taking` for the owner of before, `syncing` for
    the writers, `yielding` for the owner that comes after."""

    NEW = "new"
    LOADING = "loading"
    TAKING = "taking"
    READING = "reading"
    SUBSCRIBING = "subscribing"
    SYNCING = "syncing"
    NORMAL = "normal"
    YIELDING = "yielding"
    STOPPED = "stopped"


NEW, LOADING, TAKING, READING, SUBSCRIBING, SYNCING, NORMAL, YIELDING, STOPPED = ResumeStatus


class CatchUpDue(TimerFired, frozen=True, gc=False):
    """Time to read all writers again: what a replica has shown was too old."""


class ResumeRecord(msgspec.Struct, frozen=True, gc=False):
    """The session of `client` at the owner `id`, under the fencing `token` of its lock; `old`: the owner in whose
    hands it is ("": nobody's), which its client has `left`, and the `takeover` from it; `silent`: the node of an owner
    of before that did not begin.  `pending`: what was visible in the database before it
    subscribed, and while it yields what is handed over; `flows` by writer; `claim`: the token of whom it yields to (0:
    of nobody yet).  `blocked_rows` by writer wait for older ones of other writers, for whose
    sake all are read (`reads`); `complete_ns` of what is pending.  Writers that are not in `flows` have stored nothing
    before `known_ns`."""

    id: str
    client: str
    token: int
    times: Times
    old: str = ""
    status: ResumeStatus = NEW
    session: str = ""
    delivery: DeliveryRecord | None = None
    pending: tuple[EpochRows, ...] = ()
    flows: Map[str, WriterFlowRecord] = Map()
    takeover: TakeoverRecord | None = None
    claim: int = 0
    left: bool = False
    silent: str = ""
    blocked_rows: Map[str, BlockedQueue] = Map()
    complete_ns: int = 0
    known_ns: int = 0
    reads: bool = False


Done = tuple[ResumeRecord, Effects]
Delegated = tuple[ResumeRecord, Effects, tuple[ChildStep, ...]]
