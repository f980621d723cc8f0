"""A door: a machine small enough to read, its role, and an implementation that can be told to misbehave."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from msgspec.structs import replace

from statemachines import kernel
from statemachines.testing.conformance.interface import Alphabet
from statemachines.testing.conformance.relation import Relation
from statemachines.testing.conformance.role import ConformanceRole, Start
from statemachines_spec.explorer.timing import Timing

IMPLEMENTATION = Path(__file__).with_name("door_child.py")
COMMAND = (sys.executable, str(IMPLEMENTATION))
SECOND = 1_000_000_000


class Knock(kernel.Message, frozen=True):
    n: int


class Opened(kernel.Message, frozen=True):
    n: int


class Shut(kernel.Message, frozen=True):
    times: int


class Lock(kernel.Call, frozen=True):
    pass


class Creaked(kernel.Event, frozen=True):
    pass


class CloseTimer(kernel.TimerFired, frozen=True):
    pass


class DoorStatus(kernel.Status):
    CLOSED = "closed"
    OPEN = "open"
    LOCKED = "locked"


class DoorRecord(msgspec.Struct, frozen=True):
    peer: str
    status: DoorStatus = DoorStatus.CLOSED
    times: int = 0


def open_door(record, event, now_ns):
    return replace(record, times=record.times + 1), (kernel.Send(record.peer, Opened(event.n)), kernel.Tell(Creaked()))


def answer(record, event, now_ns):
    return record, (kernel.Send(record.peer, Opened(event.n)),)


def close(record, event, now_ns):
    return record, (kernel.Send(record.peer, Shut(record.times)),)


def lock(record, event, now_ns):
    return record, (kernel.Stop(),)


DOOR = kernel.Fsm(
    "door",
    record=DoorRecord,
    states=DoorStatus,
    initial=DoorStatus.CLOSED,
    final=(DoorStatus.LOCKED,),
    rows=(
        kernel.Row(Knock, DoorStatus.CLOSED, DoorStatus.OPEN, open_door, None, "TD-01"),
        kernel.Row(Knock, DoorStatus.OPEN, kernel.STAY, answer, None, "TD-02"),
        kernel.Row(CloseTimer, DoorStatus.OPEN, DoorStatus.CLOSED, close, None, "TD-03"),
        kernel.Row(Lock, DoorStatus.CLOSED, DoorStatus.LOCKED, lock, None, "TD-04"),
        kernel.Ignore((Lock,), DoorStatus.OPEN, "TD-04"),
        kernel.Ignore((CloseTimer,), DoorStatus.CLOSED, "TD-03"),
    ),
    timers=(kernel.Timer("close", CloseTimer, (DoorStatus.OPEN,), lambda record: 2 * SECOND),),
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
