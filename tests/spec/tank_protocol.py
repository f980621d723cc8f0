"""A protocol from outside the tree: a tank that is filled and drained, cup by cup, and a meter that is told.

Its mutants come to every verdict there is, so it shows what the tool says of each.

A protocol from outside the tree, whose mutants eat all the memory there is, or end their process.

Machines of a state or two: one with two timers, one that stamps with the time it is told.

A process of one party, for comparisons: whatever arrives goes to it, and it does nothing else.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    OUTSIDE,
    STAY,
    Arrived,
    Begin,
    Call,
    CancelTimer,
    Event,
    EventRoute,
    Fsm,
    Ignore,
    Invariant,
    Message,
    PartyKind,
    Process,
    Protocol,
    Refuse,
    Row,
    SetTimer,
    Status,
    Tell,
    Timer,
    TimerFired,
)
from statemachines.kernel import Fsm as Machine
from statemachines_spec import Always, CheckProtocol, Eventually, FsmActor, Network, Sometimes, System
from statemachines_spec.explorer.process_actor import ProcessActor

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


PORTION = 1 << 24


class GluttonStatus(Status):
    HUNGRY = "hungry"
    SATED = "sated"


HUNGRY, SATED = GluttonStatus


def eat(record, event, now_ns):
    portions, left = [], 3
    while left != 0:
        portions.append(bytes(PORTION))
        left = left - 1
    return replace(record, meals=record.meals + 1), ()


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


class ShellStatus(Status):
    OPEN = "open"


class ShellRecord(msgspec.Struct, frozen=True):
    id: str
    status: ShellStatus = ShellStatus.OPEN


def make_shell(record):
    """A machine that drops all that arrives."""
    rows = (Ignore((Arrived,), ShellStatus.OPEN, "T-1"),)
    return Machine("shell", record=record, states=ShellStatus, initial=ShellStatus.OPEN, rows=rows)


SHELL = make_shell(ShellRecord)


def with_id(record: Any, party: str) -> Any:
    """The record, and the id of who has it."""
    kind = type(record)
    if "id" in kind.__struct_fields__:
        return replace(record, id=party)
    named = msgspec.defstruct(kind.__name__, [("id", str, "")], bases=(kind,), frozen=True)
    values = {field: getattr(record, field) for field in kind.__struct_fields__}
    return named(id=party, **values)


def wrap(fsm: Machine) -> Process:
    """A process that hands all that arrives to its one party; `first` in its record is what that begins with."""
    first = ("first", fsm.record_type)
    record = msgspec.defstruct("WrapRecord", [first], bases=(ShellRecord,), frozen=True, kw_only=True)
    messages = tuple(one for one in fsm.alphabet if issubclass(one, Message))
    routes = (EventRoute(messages, (OUTSIDE,), "one", "T-1"),) if messages else ()
    kinds = (PartyKind("one", fsm, most=1, number=1),)
    return Process("shell", make_shell(record), kinds=kinds, routes=routes,
                   begin=lambda record: (Begin(f"{record.id}/1", "one", record.first),))  # fmt: skip


def make_single(name, fsm, record, *, calls=None, timing=None, bound=None, disk=None, **options):
    """What `FsmActor(name, fsm, record, ...)` is, as a process."""
    process = wrap(fsm)
    return ProcessActor(
        name,
        process,
        lambda life: process.fsm.record_type(life, first=with_id(record, f"{life}/1")),
        inputs_of={} if calls is None else {"one": calls},
        timings={} if timing is None else {"one": timing},
        bound=None if bound is None else lambda parts: bound(party_of(parts)),
        disk=None if disk is None else lambda crashed, fresh: fresh,
        **options,
    )


def party_of(parts):
    """The record of its party."""
    return parts.of_kind("one").record
