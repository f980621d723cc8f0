"""A machine of your own, and its test: `pytest examples/test_latch.py`."""

import msgspec
from msgspec.structs import replace

from statemachines.kernel import STAY, Call, Event, Fsm, Ignore, Invariant, Row, Status, Tell, Timer, TimerFired
from statemachines.testing.machine import MachineTest


class Latch(Status):
    OPEN = "open"
    SHUT = "shut"


class Shut(Call, frozen=True):
    """From the host."""


class Knock(Call, frozen=True):
    """Somebody is there."""


class Unlock(TimerFired, frozen=True):
    """It has been shut for long enough."""


class Knocked(Event, frozen=True):
    """To the host: how often, while it was shut."""

    times: int


class LatchRecord(msgspec.Struct, frozen=True):
    status: Latch = Latch.OPEN
    knocks: int = 0


def forget(record, event, now_ns):
    return replace(record, knocks=0), ()


def count(record, event, now_ns):
    return replace(record, knocks=record.knocks + 1), ()


def tell(record, event, now_ns):
    return record, (Tell(Knocked(record.knocks)),)


LATCH = Fsm(
    "latch",
    record=LatchRecord,
    states=Latch,
    initial=Latch.OPEN,
    rows=(
        Row(Shut, Latch.OPEN, Latch.SHUT, forget, None, "L-1"),
        Row(Knock, Latch.SHUT, STAY, count, None, "L-2"),
        Row(Unlock, Latch.SHUT, Latch.OPEN, tell, None, "L-3"),
        Ignore((Shut,), Latch.SHUT, "L-1"),
        Ignore((Knock, Unlock), Latch.OPEN, "L-2"),
    ),
    timers=(Timer("unlock", Unlock, (Latch.SHUT,), lambda record: 1_000_000_000),),
    invariants=(Invariant("knocks-count-up", "L-2", lambda record: record.knocks >= 0),),
)

TestLatch = MachineTest.of(LATCH).TestCase
