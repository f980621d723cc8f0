"""PublisherWindow: what a publisher keeps of one subject: the last number (source: "Publish sequence window").

`absent -> current <-> old -> absent`: a subject stands in the current generation of the window, or in the old one,
or is not kept.  Time comes as data: two clocks matter here, the wall's for numbers and the host's for windows, and
neither may decide a row unseen.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec.structs import replace

from statemachines.kernel import STAY, Call, Effects, Event, Fsm, Ignore, Invariant, Row, Status, Tell
from statemachines.sequence_windows.message import OF_FRAME
from statemachines.sequence_windows.sequence import (
    BASE_MAX,
    FIRST_FRAME,
    FRAME_MAX,
    base_of,
    frame_at,
    frame_of,
    is_number,
    number_of,
    start_of,
)


class Publish(Call, frozen=True, gc=False):
    """From the host: number `count` messages at `t_ns` of the wall's clock.  `converged_ns`: when the network converged
    last (0: nobody said); `floor`: a stream that begins has at least this frame.  ValueError for less than a message.
    """

    count: int = 1
    t_ns: int = 0
    converged_ns: int = 0
    floor: int = FIRST_FRAME

    def __post_init__(self) -> None:
        if self.count < 1 or self.floor < FIRST_FRAME:
            raise ValueError(f"publish {self.count} from frame {self.floor}: expected at least 1 of each")


class Flip(Call, frozen=True, gc=False):
    """The window rotates: the current generation becomes the old one, which is dropped.  `floor`: one more than the
    highest frame that was ever dropped, as far as the host counts it."""

    floor: int = FIRST_FRAME


class Stamped(Event, frozen=True, gc=False):
    """To the host: the messages are `first`..`last` of `frame`; `time_ns` and `chain` go with the first (0: do not)."""

    columns: ClassVar = OF_FRAME

    frame: int
    first: int
    last: int
    time_ns: int = 0
    chain: int = 0

    @property
    def number(self) -> int:
        """The first number."""
        return number_of(self.frame, self.first)


class Exhausted(Event, frozen=True, gc=False):
    """To the host: there is no frame left for a stream; nothing was numbered."""


class Generation(Status):
    """Where the subject stands."""

    ABSENT = "absent"
    CURRENT = "current"
    OLD = "old"


ABSENT, CURRENT, OLD = Generation
KEPT = (CURRENT, OLD)


class PublisherWindowRecord(msgspec.Struct, frozen=True, gc=False):
    """One subject; `last`: its last number (0: none)."""

    subject: str
    status: Generation = ABSENT
    last: int = 0


Done = tuple[PublisherWindowRecord, Effects]


def frame_for(record: PublisherWindowRecord, event: Publish) -> int:
    """The frame of a stream that begins now: never one that this subject has had."""
    if record.status is ABSENT:
        return max(frame_at(event.t_ns), event.floor)
    return max(frame_at(event.t_ns), frame_of(record.last) + 1, frame_at(event.converged_ns))


# -- guards ---------------------------------------------------------------------------------------------------------


def is_restart_due(record: PublisherWindowRecord, event: Publish) -> bool:
    """No base is left, or the network has converged since the stream began."""
    return base_of(record.last) == BASE_MAX or frame_of(record.last) < frame_at(event.converged_ns)


def has_no_frame(record: PublisherWindowRecord, event: Publish) -> bool:
    return frame_for(record, event) > FRAME_MAX


def must_restart_and_cannot(record: PublisherWindowRecord, event: Publish) -> bool:
    return is_restart_due(record, event) and has_no_frame(record, event)


# -- actions --------------------------------------------------------------------------------------------------------


def tell_exhausted(record: PublisherWindowRecord, event: Publish, now_ns: int) -> Done:
    return record, (Tell(Exhausted()),)


def begin(record: PublisherWindowRecord, event: Publish, now_ns: int) -> Done:
    return new_stream(record, event, 0)


def restart(record: PublisherWindowRecord, event: Publish, now_ns: int) -> Done:
    return new_stream(record, event, record.last)


def new_stream(record: PublisherWindowRecord, event: Publish, chain: int) -> Done:
    frame = frame_for(record, event)
    last = min(event.count, BASE_MAX)
    told = Stamped(frame, 1, last, max(event.t_ns, start_of(frame)), chain)
    return replace(record, last=number_of(frame, last)), (Tell(told),)


def go_on(record: PublisherWindowRecord, event: Publish, now_ns: int) -> Done:
    frame, base = frame_of(record.last), base_of(record.last)
    last = min(base + event.count, BASE_MAX)
    return replace(record, last=number_of(frame, last)), (Tell(Stamped(frame, base + 1, last)),)


def forget(record: PublisherWindowRecord, event: Flip, now_ns: int) -> Done:
    return replace(record, last=0), ()


# fmt: off
ROWS = (
    #   on       from     to       do              when                     clause
    Row(Publish, ABSENT,  STAY,    tell_exhausted, has_no_frame,            "SW-09"),
    Row(Publish, ABSENT,  CURRENT, begin,          None,                    "SW-03"),
    Row(Publish, KEPT,    STAY,    tell_exhausted, must_restart_and_cannot, "SW-09"),
    Row(Publish, KEPT,    CURRENT, restart,        is_restart_due,          "SW-05"),
    Row(Publish, KEPT,    CURRENT, go_on,          None,                    "SW-04"),
    Row(Flip,    CURRENT, OLD,     None,           None,                    "SW-11"),
    Row(Flip,    OLD,     ABSENT,  forget,         None,                    "SW-12"),
    Ignore((Flip,), ABSENT,                                                 "SW-12"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def keeps_a_number_where_it_is_kept(record: PublisherWindowRecord) -> bool:
    """A subject that is kept has a number that can be sent; one that is absent has none."""
    return is_number(record.last) if record.status in KEPT else record.last == 0


PUBLISHER_WINDOW = Fsm(
    "publisher_window",
    protocol="sequence_windows",
    record=PublisherWindowRecord,
    states=Generation,
    initial=ABSENT,
    rows=ROWS,
    key=lambda record: record.subject,
    invariants=(Invariant("keeps-a-number-where-it-is-kept", "SW-02", keeps_a_number_where_it_is_kept),),
)
