"""Publisher: whoever stamps samples under one id (source: "The `SourceInfo` metadata", "The `ReliablePublisher`").

`new -> silent | periodic | unchanged <-> changed -> closed`, by how it sends heartbeats: never, always, or once after
something was published.  It knows no subscriber, and does the same whatever their number.  A publisher that starts
again has another id, or goes on counting where it stopped: whoever makes its record sees to that.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Call,
    ConfigurationError,
    Effects,
    Event,
    Fsm,
    Ignore,
    Invariant,
    Refuse,
    Row,
    Send,
    SetTimer,
    Status,
    Tell,
    Timer,
    TimerFired,
)
from statemachines.missed_samples.message import OF_SOURCE, Heartbeat, Sample
from statemachines.missed_samples.recovery import MS
from statemachines.missed_samples.serial_number import WIDTH_MAX, check_width, wrap_number


class Declare(Call, frozen=True, gc=False):
    """Begin."""


class Publish(Call, frozen=True, gc=False):
    """Publish the next `count` samples; raises ValueError for less than one."""

    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"publish {self.count}: expected at least 1")


class Undeclare(Call, frozen=True, gc=False):
    """Nothing is published any more."""


class HeartbeatDue(TimerFired, frozen=True, gc=False):
    """Time for a heartbeat."""


class Stamped(Event, frozen=True, gc=False):
    """To the host: the samples are `first`..`last`.  A cache of its own takes them before they are sent."""

    columns: ClassVar = OF_SOURCE

    source: str
    first: int
    last: int


class Beats(Status):
    """When heartbeats are sent: never, every period, or once in a period in which something was published."""

    OFF = "off"
    PERIODIC = "periodic"
    SPORADIC = "sporadic"


class PublisherStatus(Status):
    """By its heartbeats."""

    NEW = "new"
    SILENT = "silent"
    PERIODIC = "periodic"
    UNCHANGED = "unchanged"
    CHANGED = "changed"
    CLOSED = "closed"


NEW, SILENT, PERIODIC, UNCHANGED, CHANGED, CLOSED = PublisherStatus
DECLARED = (SILENT, PERIODIC, UNCHANGED, CHANGED)


class PublisherRecord(msgspec.Struct, frozen=True, gc=False):
    """One publisher: `source`, its id; `to`: the key that it publishes on; `next`: how many it has published in all its
    lives under this id; `width` of the numbers on the wire, in bits; `period_ms` of heartbeats in milliseconds.
    `ConfigurationError` names the value that cannot be."""

    source: str
    to: str
    beats: Beats = Beats.OFF
    period_ms: int = 1_000
    width: int = WIDTH_MAX
    status: PublisherStatus = NEW
    next: int = 0

    def __post_init__(self) -> None:
        check_width(self.width)
        for key, least in (("period_ms", 1), ("next", 0)):
            if getattr(self, key) < least:
                raise ConfigurationError(key, getattr(self, key), f"at least {least}")


Done = tuple[PublisherRecord, Effects]


# -- guards ---------------------------------------------------------------------------------------------------------


def never_beats(record: PublisherRecord, event: Declare) -> bool:
    return record.beats is Beats.OFF


def always_beats(record: PublisherRecord, event: Declare) -> bool:
    return record.beats is Beats.PERIODIC


def has_published(record: PublisherRecord, event: HeartbeatDue) -> bool:
    return record.next > 0


# -- actions --------------------------------------------------------------------------------------------------------


def stamp(record: PublisherRecord, event: Publish, now_ns: int) -> Done:
    """The next numbers: kept first, then sent."""
    first, last = record.next, record.next + event.count - 1
    sn = wrap_number(first, record.width)
    sample = Sample(record.source, sn, sn + event.count - 1)
    kept = Tell(Stamped(record.source, first, last))
    return replace(record, next=last + 1), (kept, Send(record.to, sample))


def beat(record: PublisherRecord, event: HeartbeatDue, now_ns: int) -> Done:
    return record, (Send(record.to, Heartbeat(record.source, wrap_number(record.next - 1, record.width))),)


def beat_again(record: PublisherRecord, event: HeartbeatDue, now_ns: int) -> Done:
    record, effects = beat(record, event, now_ns)
    return record, (*effects, *again(record, now_ns))


def wait_again(record: PublisherRecord, event: HeartbeatDue, now_ns: int) -> Done:
    return record, again(record, now_ns)


def again(record: PublisherRecord, now_ns: int) -> Effects:
    return (SetTimer("heartbeat", now_ns + period_ns(record), record.source),)


def period_ns(record: PublisherRecord) -> int:
    return record.period_ms * MS


# fmt: off
ROWS = (
    #   on            from       to         do          when           clause
    Row(Declare,      NEW,       SILENT,    None,       never_beats,   "MS-30"),
    Row(Declare,      NEW,       PERIODIC,  None,       always_beats,  "MS-31"),
    Row(Declare,      NEW,       UNCHANGED, None,       None,          "MS-32"),
    Row(Publish, (SILENT, PERIODIC, CHANGED), STAY, stamp, None,       "MS-33"),
    Row(Publish,      UNCHANGED, CHANGED,   stamp,      None,          "MS-33"),
    Row(HeartbeatDue, PERIODIC,  STAY,      beat_again, has_published, "MS-31"),
    Row(HeartbeatDue, PERIODIC,  STAY,      wait_again, None,          "MS-34"),
    Row(HeartbeatDue, CHANGED,   UNCHANGED, beat,       None,          "MS-32"),
    Row(Undeclare,    (NEW, *DECLARED), CLOSED, None,   None,          "MS-35"),
    Ignore((HeartbeatDue,), (NEW, SILENT, UNCHANGED),                  "MS-30"),
    Refuse((Publish,), NEW,                                            "MS-35"),
    Refuse((Declare,), DECLARED,                                       "MS-35"),
)
# fmt: on


def has_published_where_it_changed(record: PublisherRecord) -> bool:
    return record.status is not CHANGED or record.next > 0


PUBLISHER = Fsm(
    "publisher",
    protocol="missed_samples",
    record=PublisherRecord,
    states=PublisherStatus,
    initial=NEW,
    final=(CLOSED,),
    rows=ROWS,
    timers=(Timer("heartbeat", HeartbeatDue, (PERIODIC, CHANGED), period_ns),),
    key=lambda record: record.source,
    invariants=(Invariant("has-published-where-it-changed", "MS-32", has_published_where_it_changed),),
)
