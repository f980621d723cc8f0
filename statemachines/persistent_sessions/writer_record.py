"""WriterRecord: what a writer keeps of one session, and what may happen to it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import msgspec

from statemachines.kernel import Call, Effects, Event, Map, Status, TraceColumns
from statemachines.persistent_sessions.message import MarkerWanted
from statemachines.persistent_sessions.request import Mark


class Start(Call, frozen=True, gc=False):
    """The writer begins to serve the session."""


class Hand(Call, frozen=True, gc=False):
    """A publisher's connection hands over a message that matches a subscription of the session; `since_ns` as of
    `Live`; `more` as of `Queued`."""

    columns: ClassVar = TraceColumns(key="message", term="copies", grant="qos", first="since_ns", last="until_ns")

    message: str
    filter: str = ""
    qos: int = 1
    until_ns: int = 0
    since_ns: int = 0
    more: tuple[str, ...] = ()

    @property
    def copies(self) -> int:
        """How often the message comes."""
        return 1 + len(self.more)


class HandRange(Call, frozen=True, gc=False):
    """Messages that were stored together are handed over together, in this order."""

    hands: Annotated[tuple[Hand, ...], msgspec.Meta(min_length=2)]

    @property
    def parts(self) -> tuple[Hand, ...]:  # type: ignore[override]
        """A trace has a row for each."""
        return self.hands


class RangeWritten(Event, frozen=True, gc=False):
    """To the publishers' connections: the rows of several messages are stored, and each may be acknowledged."""

    hands: tuple[Hand, ...]


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


RANGE_MAX: Final = 128
"""Rows that a writer stores in one request."""


class WriterJob(msgspec.Struct, frozen=True, gc=False):
    """What is under way: the messages of a range of rows, or a marker."""

    hands: tuple[Hand, ...] = ()
    marker: MarkerWanted | None = None


class WriterRecord(msgspec.Struct, frozen=True, gc=False):
    """One session at one writer."""

    session: str
    writer: str
    status: WriterStatus = NEW
    epoch: int = 0
    last: int = 0
    """The number of the last row that is stored under `epoch`."""
    job: WriterJob | None = None
    """What is under way (None: nothing)."""
    inbox: Map[int, Hand] = Map()
    """Messages that wait, by their places: one behind the other from `head` on."""
    head: int = 0
    waiting: MarkerWanted | None = None
    """The marker that waits (None: none does)."""
    place: int = 0
    """That of the message before which the marker that waits has its turn."""
    to: str = ""
    """Where the session is live ("": nowhere)."""
    token: int = 0
    """That of the owner of whose live subscription the writer has heard last."""
    mark: Mark = (0, 0)
    """The latest marker that was asked for."""
    k: int = 0
    """The number that this marker shows (0: it is not stored under this epoch)."""
    range_max: int = RANGE_MAX

    @property
    def end(self) -> int:
        """The place behind the last message that waits."""
        return self.head + len(self.inbox)


Done = tuple[WriterRecord, Effects]
