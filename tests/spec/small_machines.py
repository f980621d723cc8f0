"""Machines of a state or two: one with two timers, one that stamps with the time it is told."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import STAY, Call, CancelTimer, Fsm, Row, SetTimer, Status, Timer, TimerFired


class One(TimerFired, frozen=True):
    pass


class Two(TimerFired, frozen=True):
    pass


class End(Call, frozen=True):
    pass


class Stamp(Call, frozen=True):
    pass


class Phase(Status):
    ON = "on"
    OVER = "over"


ON, OVER = Phase


class TwoRecord(msgspec.Struct, frozen=True):
    status: Phase = ON
    fired: str = ""
    id: str = ""


class StampRecord(msgspec.Struct, frozen=True):
    status: Phase = ON
    at: int = 0


def note_one(record, event, now_ns):
    return replace(record, fired=record.fired + "1"), ()


def note_two(record, event, now_ns):
    one = SetTimer("one", now_ns + 1) if record.fired.startswith("again") else CancelTimer("one")
    return replace(record, fired=record.fired + "2"), (one, SetTimer("two", now_ns + 2))


def stamp(record, event, now_ns):
    return replace(record, at=now_ns), ()


TWO_TIMERS = Fsm(
    "two",
    record=TwoRecord,
    states=Phase,
    initial=ON,
    rows=(
        Row(One, ON, STAY, note_one, None, "T-01"),
        Row(Two, ON, STAY, note_two, None, "T-02"),
        Row(End, ON, OVER, None, None, "T-03"),
    ),
    final=(OVER,),
    timers=(
        Timer("one", One, (ON,), lambda record: 1, once=True),
        Timer("two", Two, (ON,), lambda record: 2, once=True),
    ),
)

STAMPER = Fsm(
    "stamper",
    record=StampRecord,
    states=Phase,
    initial=ON,
    rows=(Row(Stamp, ON, STAY, stamp, None, "T-10"), Row(End, ON, OVER, None, None, "T-11")),
    final=(OVER,),
)
