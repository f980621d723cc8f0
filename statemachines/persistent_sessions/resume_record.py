"""ResumeRecord: a session in its owner's hands, from the first look at the database on."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from statemachines.kernel import Call, Effects, Event, Map, Status, TimerFired, TraceColumns
from statemachines.kernel.row import ChildStep
from statemachines.persistent_sessions.delivery_record import DeliveryRecord
from statemachines.persistent_sessions.request import EpochRows
from statemachines.persistent_sessions.times import Times
from statemachines.persistent_sessions.writer_flow_record import WriterFlowRecord


class ResumeSession(Call, frozen=True, gc=False):
    """A client connects, its client id is locked, and its session is not live anywhere."""


class ConnectionLost(Call, frozen=True, gc=False):
    """The client is gone; its session stays."""


class Discarded(Call, frozen=True, gc=False):
    """The client starts clean elsewhere, or the session is taken over."""


class ResumeTimeout(TimerFired, frozen=True, gc=False):
    """The resume has taken too long."""


class Resumed(Event, frozen=True, gc=False):
    """To the host: the session is in normal operation."""

    columns: ClassVar = TraceColumns(key="session")

    session: str


class ResumeEnded(Event, frozen=True, gc=False):
    """To the host: it is over.  `why`: absent, superseded, timeout, lost, discarded."""

    session: str
    why: str


class ResumeStatus(Status):
    """`loading`, `reading` and `subscribing` wait for the database; `syncing` for the writers."""

    NEW = "new"
    LOADING = "loading"
    READING = "reading"
    SUBSCRIBING = "subscribing"
    SYNCING = "syncing"
    NORMAL = "normal"
    STOPPED = "stopped"


NEW, LOADING, READING, SUBSCRIBING, SYNCING, NORMAL, STOPPED = ResumeStatus


class ResumeRecord(msgspec.Struct, frozen=True, gc=False):
    """The session of `client` at the owner `id`, under the fencing `token` of its lock.  `pending`: what was visible
    in the database before it subscribed; `flows` by writer."""

    id: str
    client: str
    token: int
    times: Times
    status: ResumeStatus = NEW
    session: str = ""
    delivery: DeliveryRecord | None = None
    pending: tuple[EpochRows, ...] = ()
    flows: Map[str, WriterFlowRecord] = Map()


Done = tuple[ResumeRecord, Effects]
Delegated = tuple[ResumeRecord, Effects, tuple[ChildStep, ...]]
