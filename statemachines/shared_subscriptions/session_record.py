"""What a session knows: the readings of its owners, their leases, whose turn it is; and what it is asked and tells."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Call, Event, Fifo, Map, Status, TimerFired, TraceColumns, in_order
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.message import Ranges
from statemachines.shared_subscriptions.stream import Finish, Install, Uninstall
from statemachines.shared_subscriptions.stream_store import Slice

# -- from and to the Handler, the application and the driver -----------------------------------------------------------


class Admit(Call, frozen=True, gc=False):
    """From the Handler: `owner` will have streams read.  `held`: it needs no lease; `at_delivery`: its messages are
    acknowledged when they are handed over."""

    owner: str
    held: bool = False
    at_delivery: bool = False


class Dismiss(Call, frozen=True, gc=False):
    """From the Handler: forget the owner and all that is read for it.  `subscription`: it ended with this owner ("" =
    it goes on with another)."""

    owner: str
    subscription: str = ""


class Take(Call, frozen=True, gc=False):
    """From the application: hand over at most `limit` messages, of one stream."""

    limit: int


class Ack(Call, frozen=True, gc=False):
    """From the application: messages `first`..`last` of this owner and grant are dealt with."""

    columns: ClassVar = TraceColumns(key="stream")

    owner: str
    stream: str
    grant: int
    first: int
    last: int


class Nack(Call, frozen=True, gc=False):
    """From the application: message `offset` of this owner and grant was not dealt with; hand it over again, before
    anything behind it, after `delay_ns`.  `reason`: why, in its own words."""

    columns: ClassVar = TraceColumns(key="stream", first="offset")

    owner: str
    stream: str
    grant: int
    offset: int
    delay_ns: int = 0
    reason: str = ""


class Deliver(Event, frozen=True, gc=False):
    """To the application: messages `first`..`last`, read for `owner` (grant 0: a private subscription).  `failed`: how
    often `first` was handed over before, by anybody; `handed`: those below were, or may have been."""

    columns: ClassVar = TraceColumns(key="stream")

    owner: str
    stream: str
    grant: int
    first: int
    last: int
    failed: int = 0
    handed: int = 0


class CountedBatch(msgspec.Struct, frozen=True, gc=False):
    """For the driver: of an answer the batch number `part` is counted, as messages `first`..`last` of the reading `key`
    under `grant`; its payloads are wanted until they are delivered.  `again`: it is one message that was given back."""

    part: int
    key: str
    grant: int
    first: int
    last: int
    again: bool = False


class Acknowledged(Event, frozen=True, gc=False):
    """To whoever keeps account: `first`..`last` are acknowledged under the grant that delivered them."""

    columns: ClassVar = TraceColumns(key="stream")

    owner: str
    stream: str
    grant: int
    first: int
    last: int


class Progressed(Event, frozen=True, gc=False):
    """To the owner: all below `progress` is acknowledged; `finished`: and nothing more will come; `failed`: how often
    the message there was handed over and given back or lost; `in_hand`: such a one is handed over again now; `acked`:
    what is acknowledged behind it, where the group's order is relaxed; `reason`: why it was given back last."""

    columns: ClassVar = TraceColumns(key="stream", first="progress")

    owner: str
    stream: str
    grant: int
    progress: int
    finished: bool = False
    failed: int = 0
    in_hand: bool = False
    acked: Ranges = ()
    reason: str = ""


class Ready(Event, frozen=True, gc=False):
    """To the driver: something can be taken."""


class Ended(Event, frozen=True, gc=False):
    """To the application: of `subscription` nothing will be delivered any more."""

    subscription: str


class ReadsFailed(Event, frozen=True, gc=False):
    """To the Handler: no read has succeeded for the patience of the session; `stream`: one that could not be read."""

    columns: ClassVar = TraceColumns(key="stream")

    stream: str


class ReadsSucceed(Event, frozen=True, gc=False):
    """To the Handler, after `ReadsFailed`: what could not be read was read."""


class AcknowledgementLate(Event, frozen=True, gc=False):
    """To the Handler: the message was in hand for the acknowledgement wait, and counts as given back."""

    columns: ClassVar = TraceColumns(key="stream", first="offset")

    owner: str
    stream: str
    grant: int
    offset: int


class ApplicationReturned(Event, frozen=True, gc=False):
    """To the Handler, after `AcknowledgementLate`: the application asks for messages again."""


class AcknowledgementWaitEnd(TimerFired, frozen=True, gc=False):
    """A stream of which something is in hand has made no progress for the acknowledgement wait; the key is that of its
    reading."""


class PollTimer(TimerFired, frozen=True, gc=False):
    """Look again whether there is something new."""


class DelayEnd(TimerFired, frozen=True, gc=False):
    """A message that was given back may be handed over again; the key is that of its reading."""


class ReturnEnd(TimerFired, frozen=True, gc=False):
    """The delay of one message is over, in a group whose order is relaxed; the key is that of its reading, a space and
    its offset."""


class UnreadableTimer(TimerFired, frozen=True, gc=False):
    """A read has failed, and none has succeeded since."""


# -- record ---------------------------------------------------------------------------------------------------------


class SessionStatus(Status):
    """Whether a fetch is open."""

    WAITING = "waiting"
    FETCHING = "fetching"


WAITING, FETCHING = SessionStatus


class ReturnTurn(Status):
    """Of a message that was given back while its stream goes on: it waits for its delay, is to be fetched, was fetched,
    is in hand again, or failed too often."""

    DELAYED = "delayed"
    DUE = "due"
    FETCHED = "fetched"
    IN_HAND = "in_hand"
    SPENT = "spent"


DELAYED, DUE, FETCHED, IN_HAND, SPENT = ReturnTurn


class ReturnedDelivery(msgspec.Struct, frozen=True, gc=False):
    """A message that was given back `failed` times, the last time for `reason`, and what is next with it."""

    failed: int
    turn: ReturnTurn
    reason: str = ""


class StreamReading(msgspec.Struct, frozen=True, gc=False):
    """One stream being read for one owner.  progress <= delivered <= fetched are next offsets: all below is
    acknowledged, handed over, buffered by the driver.  `acked`: ranges acknowledged out of order, first -> last.
    `queued`: its turn to be fetched will come, or it is in the open fetch; `waiting`: its turn to be delivered will.

    Where messages were given back, `delivered` and `fetched` went back with them.  `handed`: all below it was handed
    over (0: as `delivered`); `suspect`: the message that failed last, `failed` so often; `most` as in a `Grant`;
    `delayed`: nothing is delivered for a while, or, where it failed `most` times, for ever.

    `relaxed`: the stream goes on where messages are given back: those are `returned`, by offset, until they are
    acknowledged, and nothing goes back.  `repeats` as in a `Grant`, and no more than was stored when it was read
    first: what came afterwards nobody was handed."""

    owner: str
    stream: str
    grant: int
    progress: int
    delivered: int
    fetched: int
    acked: Map[int, int] = Map()
    finishing: bool = False
    ended: bool = False
    queued: bool = False
    waiting: bool = False
    handed: int = 0
    suspect: int = 0
    failed: int = 0
    most: int = 0
    delayed: bool = False
    reason: str = ""
    """Why `suspect` was given back last."""
    relaxed: bool = False
    returned: Map[int, ReturnedDelivery] = Map()
    repeats: int = 0

    @property
    def is_lone(self) -> bool:
        """It failed before, and who has it in hand is to have nothing else: what fails then is this message."""
        return self.lone_offset is not None

    @property
    def lone_offset(self) -> int | None:
        """Which message that is."""
        if not self.most:
            return None
        if self.failed > 0 and self.progress <= self.suspect and not self.delayed:
            return self.suspect
        return next((offset for offset, one in in_order(self.returned) if one.turn in (FETCHED, IN_HAND)), None)


class OwnerLease(msgspec.Struct, frozen=True, gc=False):
    """What is known of an owner: whether its lease holds, how its messages are acknowledged, what is read for it."""

    held: bool = False
    at_delivery: bool = False
    streams: Map[str, bool] = Map()


class SessionRecord(msgspec.Struct, frozen=True):
    """The scheduler.  `leases` by owner, `readings` by `reading_key`.  `to_fetch`, `to_take`: keys of readings whose
    turn it is to be fetched, delivered; what has no right to it any more is passed by.  `idle`: keys of readings that
    had nothing new when they were fetched last.  `buffer`: how far (messages per reading) it may fetch ahead of what is
    acknowledged.  `asked`: the keys of the open fetch, a slice each.
    `patience_ns`: from the first read that fails to when the streams are given back; `retry_ns`: between two reads
    after that.  `failing`: what the first read asked for that failed since one succeeded; `trial`: the same, since the
    streams were given back.  `lone`: the key of a reading whose next message is handed over alone; until that is dealt
    with, nothing else is ("").  `ack_wait_ns`: how long a message may be in hand (0: for ever); `is_late`: it was for
    so long, and the application has asked for nothing since."""

    id: str
    poll_ns: int = 20 * MS
    buffer: int = 256
    patience_ns: int = 5_000 * MS
    retry_ns: int = 1_000 * MS
    status: SessionStatus = WAITING
    fetch_n: int = 0
    asked: tuple[str, ...] = ()
    failing: tuple[Slice, ...] = ()
    trial: tuple[Slice, ...] = ()
    leases: Map[str, OwnerLease] = Map()
    readings: Map[str, StreamReading] = Map()
    to_fetch: Fifo = Fifo()
    idle: Fifo = Fifo()
    to_take: Fifo = Fifo()
    lone: str = ""
    ack_wait_ns: int = 0
    is_late: bool = False


def reading_key(owner: str, stream: str) -> str:
    """Under what a reading is kept; the id of an owner has no space in it."""
    return f"{owner} {stream}"


def reading_of(record: SessionRecord, event: Install | Finish | Uninstall | Ack | Nack) -> StreamReading | None:
    """What is read of the event's stream for its owner."""
    return record.readings.get(f"{event.owner} {event.stream}")


def keep(record: SessionRecord, reading: StreamReading) -> SessionRecord:
    """With the reading as it is now."""
    return replace(record, readings=record.readings.set(f"{reading.owner} {reading.stream}", reading))
