"""A door: a machine small enough to read, its role, and an implementation that can be told to misbehave."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Call,
    Event,
    Fsm,
    Ignore,
    Message,
    Row,
    Send,
    Status,
    Stop,
    Tell,
    Timer,
    TimerFired,
)
from statemachines.testing.conformance.interface import Alphabet
from statemachines.testing.conformance.relation import Relation
from statemachines.testing.conformance.role import ConformanceRole, Start
from statemachines_spec.explorer.actor import Timing

IMPLEMENTATION = Path(__file__).with_name("door_child.py")
COMMAND = (sys.executable, str(IMPLEMENTATION))
SECOND = 1_000_000_000


class Knock(Message, frozen=True):
    n: int


class Opened(Message, frozen=True):
    n: int


class Shut(Message, frozen=True):
    times: int


class Lock(Call, frozen=True):
    pass


class Creaked(Event, frozen=True):
    pass


class CloseTimer(TimerFired, frozen=True):
    pass


class DoorStatus(Status):
    CLOSED = "closed"
    OPEN = "open"
    LOCKED = "locked"


class DoorRecord(msgspec.Struct, frozen=True):
    peer: str
    status: DoorStatus = DoorStatus.CLOSED
    times: int = 0


def open_door(record, event, now_ns):
    return replace(record, times=record.times + 1), (Send(record.peer, Opened(event.n)), Tell(Creaked()))


def answer(record, event, now_ns):
    return record, (Send(record.peer, Opened(event.n)),)


def close(record, event, now_ns):
    return record, (Send(record.peer, Shut(record.times)),)


def lock(record, event, now_ns):
    return record, (Stop(),)


DOOR = Fsm(
    "door",
    record=DoorRecord,
    states=DoorStatus,
    initial=DoorStatus.CLOSED,
    final=(DoorStatus.LOCKED,),
    rows=(
        Row(Knock, DoorStatus.CLOSED, DoorStatus.OPEN, open_door, None, "TD-01"),
        Row(Knock, DoorStatus.OPEN, STAY, answer, None, "TD-02"),
        Row(CloseTimer, DoorStatus.OPEN, DoorStatus.CLOSED, close, None, "TD-03"),
        Row(Lock, DoorStatus.CLOSED, DoorStatus.LOCKED, lock, None, "TD-04"),
        Ignore((Lock,), DoorStatus.OPEN, "TD-04"),
        Ignore((CloseTimer,), DoorStatus.CLOSED, "TD-03"),
    ),
    timers=(Timer("close", CloseTimer, (DoorStatus.OPEN,), lambda record: 2 * SECOND),),
)

STARTS = (
    Start("door", DoorRecord("peer"), lambda record: (Knock(1), Knock(2), Lock()), lambda record: record.times < 3),
)


def role(relation=Relation()):  # noqa: B008 (it is frozen)
    return ConformanceRole(
        DOOR,
        STARTS,
        Timing(SECOND, ("close",)),
        relation,
        alphabet=Alphabet((Knock, Lock), (Opened, Shut), (), (Creaked,)),
    )
