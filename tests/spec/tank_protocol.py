"""A protocol from outside the tree: a tank that is filled and drained, cup by cup, and a meter that is told.

Its mutants come to every verdict there is, so it shows what the tool says of each.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Call,
    Event,
    Fsm,
    Ignore,
    Invariant,
    Protocol,
    Refuse,
    Row,
    SetTimer,
    Status,
    Tell,
    Timer,
    TimerFired,
)
from statemachines_spec import Always, CheckProtocol, Eventually, FsmActor, Network, Sometimes, System

CUPS = 2


class Fill(Call, frozen=True):
    """A cup more."""


class Drain(Call, frozen=True):
    """A cup less."""


class Scour(Call, frozen=True):
    """Nobody ever calls for it."""


class LeakTimer(TimerFired, frozen=True):
    """A cup has run out by itself."""


class Level(Event, frozen=True):
    """To the meter: so many cups are in it."""

    cups: int


class TankStatus(Status):
    EMPTY = "empty"
    SOME = "some"
    FULL = "full"


S = TankStatus
EMPTY, SOME, FULL = S


class TankRecord(msgspec.Struct, frozen=True):
    """`cups` in it; `turns`: fills less drains since it was empty; `label` is not looked at."""

    cups: int = 0
    turns: int = 0
    label: int = 0
    status: TankStatus = EMPTY


def is_last(record, event):
    return record.cups + 1 == CUPS


def is_only(record, event):
    return record.cups == 1


def fill(record, event, now_ns):
    record = replace(record, cups=record.cups + 1, turns=record.turns + 1)
    return record, (Tell(Level(record.cups)),)


def drain(record, event, now_ns):
    record = replace(record, cups=record.cups - 1, turns=record.turns - 1)
    return record, (Tell(Level(record.cups)), SetTimer("leak", now_ns + 5))


def empty(record, event, now_ns):
    return replace(record, cups=0, turns=0), (Tell(Level(0)),)


def label(record, event, now_ns):
    return replace(record, label=0), ()


ROWS = (
    Row(Fill, (EMPTY, SOME), FULL, fill, is_last, "TA-1"),
    Row(Fill, (EMPTY, SOME), SOME, fill, None, "TA-1"),
    Row(Drain, (SOME, FULL), EMPTY, empty, is_only, "TA-2"),
    Row(Drain, (SOME, FULL), SOME, drain, None, "TA-2"),
    Row(LeakTimer, (SOME, FULL), EMPTY, empty, None, "TA-3"),
    Row(Scour, EMPTY, STAY, label, None, "TA-4"),
    Ignore((Fill,), FULL, "TA-5"),
    Ignore((LeakTimer,), EMPTY, "TA-5"),
    Refuse((Drain,), EMPTY, "TA-5"),
    Refuse((Scour,), (SOME, FULL), "TA-5"),
)


def has_its_cups(record):
    return (record.cups == 0) == (record.status is EMPTY)


TANK = Fsm(
    "tank",
    protocol="tank",
    record=TankRecord,
    states=TankStatus,
    initial=EMPTY,
    rows=ROWS,
    timers=(Timer("leak", LeakTimer, (SOME, FULL), lambda record: 7),),
    invariants=(Invariant("has-its-cups", "TA-6", has_its_cups),),
)

PROTOCOL = Protocol(
    name="tank",
    prefix="TA",
    about="a tank",
    machines={"tank": "tank_protocol:TANK"},
    areas={"spec": "tank_protocol:SPEC"},
)


def system(name="filling", size="small", variant="settled", without=()):
    """A tank, and whoever fills and drains it."""

    def calls(record):
        return (Fill(),) if record.status is EMPTY else (Fill(), Drain())

    tank = FsmActor("tank", TANK, TankRecord(), calls=calls)
    holds = Always(
        "CUPS", "no more than there is room for", (tank.view(lambda record: min(record.cups, 3), 4),), at_most
    )
    full = Sometimes("full", "it is full", (tank.is_in(FULL),), bool)
    never = (Sometimes("overflow", "nobody sees it", (tank.is_in(FULL),), not_at_all),) if never_seen else ()
    left = Eventually("DRY", "it runs out", (tank.view(lambda record: int(record.cups > 0)),), bool)
    return System(name, "a tank", (tank,), Network(1), (holds, full, *never), obligations=(left,))


never_seen = False


def not_at_all(full):
    return False


def at_most(cups):
    return cups <= CUPS


SPEC = CheckProtocol(systems={"filling": "a tank is filled and drained"}, build=system)
