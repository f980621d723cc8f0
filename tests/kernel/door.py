"""A door with a lock and a bell: the smallest machine that uses every kind of row."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    ANY,
    STAY,
    Call,
    Effects,
    Fsm,
    Ignore,
    Invariant,
    Message,
    Refuse,
    Row,
    Send,
    SetTimer,
    Status,
    Stop,
    Tell,
    Timer,
    TimerFired,
)
from statemachines.kernel.effect import Effect
from statemachines.kernel.event import Event


class Door(Status):
    OPEN = "open"
    CLOSED = "closed"
    GONE = "gone"


class Push(Call, frozen=True):
    force: int = 1


class Pull(Call, frozen=True):
    pass


class Knock(Message, frozen=True):
    who: str


class Remove(Call, frozen=True):
    pass


class Draught(TimerFired, frozen=True):
    pass


class Bell(TimerFired, frozen=True):
    pass


class Rang(Event, frozen=True):
    count: int


class DoorRecord(msgspec.Struct, frozen=True):
    status: Door = Door.OPEN
    knocks: int = 0
    pushes: int = 0


def count_push(record: DoorRecord, event: Push, now_ns: int) -> tuple[DoorRecord, Effects]:
    return replace(record, pushes=record.pushes + 1), ()


def answer(record: DoorRecord, event: Knock, now_ns: int) -> tuple[DoorRecord, Effects]:
    record = replace(record, knocks=record.knocks + 1)
    return record, (Send(event.who, Knock("door")), SetTimer("bell", now_ns + 5))


def ring(record: DoorRecord, event: Bell, now_ns: int) -> tuple[DoorRecord, Effects]:
    return record, (Tell(Rang(record.knocks)),)


def stop(record: DoorRecord, event: Remove, now_ns: int) -> tuple[DoorRecord, Effects]:
    effect: Effect = Stop()
    return record, (effect,)


def is_strong(record: DoorRecord, event: Push) -> bool:
    return event.force > 1


# fmt: off
ROWS = (
    #   on       from         to           do          when       clause
    Row(Push,    Door.OPEN,   Door.CLOSED, count_push, is_strong, "T-1"),
    Row(Push,    Door.OPEN,   STAY,        count_push, None,      "T-2"),
    Row(Pull,    Door.OPEN,   Door.OPEN,   None,       None,      "T-3"),
    Row(Pull,    Door.CLOSED, Door.OPEN,   None,       None,      "T-4"),
    Row(Draught, Door.OPEN,   Door.CLOSED, None,       None,      "T-5"),
    Row(Knock,   Door.CLOSED, STAY,        answer,     None,      "T-6"),
    Row(Bell,    Door.CLOSED, STAY,        ring,       None,      "T-7"),
    Row(Remove,  ANY,         Door.GONE,   stop,       None,      "T-8"),
    Ignore((Bell, Knock),     Door.OPEN,   "T-9"),
    Ignore((Draught,),        Door.CLOSED, "T-9"),
    Refuse((Push,),           Door.CLOSED, "T-10"),
)
# fmt: on

DOOR = Fsm(
    "door",
    record=DoorRecord,
    states=Door,
    initial=Door.OPEN,
    final=(Door.GONE,),
    rows=ROWS,
    timers=(
        Timer("draught", Draught, (Door.OPEN,), lambda record: 100),
        Timer("bell", Bell, (Door.CLOSED,)),
    ),
    invariants=(Invariant("few-knocks", "T-6", lambda record: record.knocks < 3),),
)
