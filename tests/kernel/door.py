"""A door with a lock and a bell: the smallest machine that uses every kind of row."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines import kernel
from statemachines.kernel.effect import Effect
from statemachines.kernel.event import Event


class Door(kernel.Status):
    OPEN = "open"
    CLOSED = "closed"
    GONE = "gone"


class Push(kernel.Call, frozen=True):
    force: int = 1


class Pull(kernel.Call, frozen=True):
    pass


class Knock(kernel.Message, frozen=True):
    who: str


class Remove(kernel.Call, frozen=True):
    pass


class Draught(kernel.TimerFired, frozen=True):
    pass


class Bell(kernel.TimerFired, frozen=True):
    pass


class Rang(Event, frozen=True):
    count: int


class DoorRecord(msgspec.Struct, frozen=True):
    status: Door = Door.OPEN
    knocks: int = 0
    pushes: int = 0


def count_push(record: DoorRecord, event: Push, now_ns: int) -> tuple[DoorRecord, kernel.Effects]:
    return replace(record, pushes=record.pushes + 1), ()


def answer(record: DoorRecord, event: Knock, now_ns: int) -> tuple[DoorRecord, kernel.Effects]:
    record = replace(record, knocks=record.knocks + 1)
    return record, (kernel.Send(event.who, Knock("door")), kernel.SetTimer("bell", now_ns + 5))


def ring(record: DoorRecord, event: Bell, now_ns: int) -> tuple[DoorRecord, kernel.Effects]:
    return record, (kernel.Tell(Rang(record.knocks)),)


def stop(record: DoorRecord, event: Remove, now_ns: int) -> tuple[DoorRecord, kernel.Effects]:
    effect: Effect = kernel.Stop()
    return record, (effect,)


def is_strong(record: DoorRecord, event: Push) -> bool:
    return event.force > 1


# fmt: off
ROWS = (
    #   on       from         to           do          when       clause
    kernel.Row(Push,    Door.OPEN,   Door.CLOSED, count_push, is_strong, "T-1"),
    kernel.Row(Push,    Door.OPEN,   kernel.STAY,        count_push, None,      "T-2"),
    kernel.Row(Pull,    Door.OPEN,   Door.OPEN,   None,       None,      "T-3"),
    kernel.Row(Pull,    Door.CLOSED, Door.OPEN,   None,       None,      "T-4"),
    kernel.Row(Draught, Door.OPEN,   Door.CLOSED, None,       None,      "T-5"),
    kernel.Row(Knock,   Door.CLOSED, kernel.STAY,        answer,     None,      "T-6"),
    kernel.Row(Bell,    Door.CLOSED, kernel.STAY,        ring,       None,      "T-7"),
    kernel.Row(Remove,  kernel.ANY,         Door.GONE,   stop,       None,      "T-8"),
    kernel.Ignore((Bell, Knock),     Door.OPEN,   "T-9"),
    kernel.Ignore((Draught,),        Door.CLOSED, "T-9"),
    kernel.Refuse((Push,),           Door.CLOSED, "T-10"),
)
# fmt: on

DOOR = kernel.Fsm(
    "door",
    record=DoorRecord,
    states=Door,
    initial=Door.OPEN,
    final=(Door.GONE,),
    rows=ROWS,
    timers=(
        kernel.Timer("draught", Draught, (Door.OPEN,), lambda record: 100),
        kernel.Timer("bell", Bell, (Door.CLOSED,)),
    ),
    invariants=(kernel.Invariant("few-knocks", "T-6", lambda record: record.knocks < 3),),
)
