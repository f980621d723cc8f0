"""WriterRecord: what a writer keeps of one session, and what may happen to it."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from statemachines.kernel import Call, Effects, Status, TraceColumns
from statemachines.persistent_sessions.message import MarkerWanted
from statemachines.persistent_sessions.request import Mark


class Start(Call, frozen=True, gc=False):
    """The writer begins to serve the session."""


class Hand(Call, frozen=True, gc=False):
    """A publisher's connection hands over a message that matches a subscription of the session."""

    columns: ClassVar = TraceColumns(key="message")

    message: str
    filter: str = ""
    qos: int = 1
    until_ns: int = 0


class LiveKnown(Call, frozen=True, gc=False):
    """It is known on this node that the session is subscribed live, at `to`, by the owner with this token."""

    columns: ClassVar = TraceColumns(key="to", term="token")

    to: str
    token: int


class LiveGone(Call, frozen=True, gc=False):
    """It is known on this node that the owner with this token is not subscribed any more."""

    columns: ClassVar = TraceColumns(term="token")

    token: int


class WriterStatus(Status):
    """`storing`, `reading` and `marking` wait for the database."""

    NEW = "new"
    BEGINNING = "beginning"
    IDLE = "idle"
    STORING = "storing"
    READING = "reading"
    MARKING = "marking"


NEW, BEGINNING, IDLE, STORING, READING, MARKING = WriterStatus
BUSY = (STORING, READING, MARKING)


class Job(msgspec.Struct, frozen=True, gc=False):
    """What waits for its turn: a message, or a marker."""

    hand: Hand | None = None
    marker: MarkerWanted | None = None


class WriterRecord(msgspec.Struct, frozen=True, gc=False):
    """One session at one writer.  `last`: the number of the last row that is stored under `epoch`; `job` under way,
    `inbox` behind it; `to` (with `token`): where the session is live ("": nowhere); `mark`: the latest marker that
    was asked for, and `k` of it (0: it is not stored under this epoch)."""

    session: str
    writer: str
    status: WriterStatus = NEW
    epoch: int = 0
    last: int = 0
    job: Job | None = None
    inbox: tuple[Job, ...] = ()
    to: str = ""
    token: int = 0
    mark: Mark = (0, 0)
    k: int = 0


Done = tuple[WriterRecord, Effects]
