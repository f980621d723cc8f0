"""What writers, sessions and clients say to each other."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from statemachines.kernel import Event, Message, TraceColumns

Count = Annotated[int, msgspec.Meta(ge=0, le=2**61)]
"""An epoch, a number, a token: what a peer may say of them; no database counts so far."""
Qos = Annotated[int, msgspec.Meta(ge=0, le=2)]
Instant = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Nanoseconds, by the clock of the database; 0: never."""


class Queued(msgspec.Struct, frozen=True, gc=False):
    """A message for a session under its number; `message` is its id ("": retention has removed it), `filter` a
    subscription that it matches, and `more` the others by which it comes under this number.  From `until_ns` on it is
    over (0: it does not expire).  `stored_ns`: when its row was committed, later than that of every row that was
    committed before (0: unknown)."""

    number: Count
    message: str
    filter: str = ""
    qos: Qos = 1
    until_ns: Instant = 0
    stored_ns: Instant = 0
    more: tuple[str, ...] = ()

    @property
    def copies(self) -> int:
        """How often the message comes: once for each subscription."""
        return 1 + len(self.more)


def unfold_row(row: Queued) -> tuple[Queued, ...]:
    """Its copies, each by one subscription, as a session state has them: `stored_ns` is of the row alone."""
    return tuple(Queued(row.number, row.message, one, row.qos, row.until_ns) for one in (row.filter, *row.more))


def is_over(queued: Queued, now_ns: int) -> bool:
    """Its time is over, where the clock of the database shows this."""
    return 0 < queued.until_ns <= now_ns


def time_left(queued: Queued, now_ns: int) -> int | None:
    """Nanoseconds until it is over, 0 where it is; None: it does not expire."""
    return max(queued.until_ns - now_ns, 0) if queued.until_ns else None


class MarkerWanted(Message, frozen=True, gc=False):
    """To a writer: show a marker, live to `to` and in the database.  `token` of the owner of the session, and which of
    its markers to this writer it is: later ones are greater."""

    columns: ClassVar = TraceColumns(key="session", term="token", first="n")

    session: str
    to: str
    token: Count
    n: Count


class Live(Message, frozen=True, gc=False):
    """From a writer: a message whose row it has stored.  Its publisher has published at this node since `since_ns`, by
    the clock of the database (0: unknown): what it published elsewhere is older."""

    columns: ClassVar = TraceColumns(key="writer", term="epoch", first="number")

    session: str
    writer: str
    epoch: Count
    queued: Queued
    since_ns: Instant = 0

    @property
    def number(self) -> int:
        """The number of its row."""
        return self.queued.number


class LiveMarker(Message, frozen=True, gc=False):
    """From a writer: what follows has the number `k`, and more."""

    columns: ClassVar = TraceColumns(key="writer", term="epoch", first="k")

    session: str
    writer: str
    epoch: Count
    k: Count
    token: Count
    n: Count


class Publish(Message, frozen=True, gc=False):
    """To the client; a `packet` of 0 is QoS 0.  `left_ns`: so long it goes on to be of use (None: for ever)."""

    columns: ClassVar = TraceColumns(key="message", grant="again", first="packet")

    packet: int
    message: str
    filter: str
    qos: int
    dup: bool
    left_ns: int | None = None

    @property
    def again(self) -> int:
        """1: it is a repetition."""
        return int(self.dup)


class Pubrel(Message, frozen=True, gc=False):
    """To the client: it may forget the packet."""

    columns: ClassVar = TraceColumns(first="packet")

    packet: int


class Puback(Message, frozen=True, gc=False):
    """From the client: QoS 1, it has the message; within a node, which folds what comes together, also those under the
    packets behind it, up to `last` (0: it alone)."""

    columns: ClassVar = TraceColumns(first="packet", last="until")

    packet: int
    last: int = 0

    @property
    def until(self) -> int:
        """The last packet that it is about."""
        return self.last or self.packet


class Pubrec(Message, frozen=True, gc=False):
    """From the client: QoS 2, it has the message, and keeps its packet in mind."""

    columns: ClassVar = TraceColumns(first="packet")

    packet: int


class Pubcomp(Message, frozen=True, gc=False):
    """From the client: QoS 2, it has forgotten the packet."""

    columns: ClassVar = TraceColumns(first="packet")

    packet: int


class MessageExpired(Event, frozen=True, gc=False):
    """Of a session: at `time_ns`, by the clock of the database, a message was over that had not been sent yet.  It
    counts as done, and is not sent."""

    columns: ClassVar = TraceColumns(key="message", grant="qos", first="until_ns", last="time_ns")

    message: str
    filter: str
    qos: int
    until_ns: int
    time_ns: int


class Written(Event, frozen=True, gc=False):
    """To the publisher's connection: the row is stored, and this message may be acknowledged."""

    columns: ClassVar = TraceColumns(key="message")

    message: str
    filter: str
