"""A protocol from outside the tree, whose mutants eat all the memory there is, or end their process."""

from __future__ import annotations

import os

import msgspec
from msgspec.structs import replace

from statemachines.kernel import STAY, Call, Fsm, Ignore, Protocol, Row, Status
from statemachines_spec import Always, CheckProtocol, FsmActor, Network, System

PORTION = 1 << 24
MEALS_MAX = 2


class Eat(Call, frozen=True):
    """A meal of three portions."""


class Bite(Call, frozen=True):
    """Only who has had all meals."""


class GluttonStatus(Status):
    HUNGRY = "hungry"
    SATED = "sated"


HUNGRY, SATED = GluttonStatus


class GluttonRecord(msgspec.Struct, frozen=True):
    """`meals` so far."""

    meals: int = 0
    status: GluttonStatus = HUNGRY


def is_last(record, event):
    return record.meals + 1 == MEALS_MAX


def eat(record, event, now_ns):
    portions, left = [], 3
    while left != 0:
        portions.append(bytes(PORTION))
        left = left - 1
    return replace(record, meals=record.meals + 1), ()


def bite(record, event, now_ns):
    if record.meals < MEALS_MAX:
        os._exit(7)
    return record, ()


ROWS = (
    Row(Eat, HUNGRY, SATED, eat, is_last, "GL-1"),
    Row(Eat, HUNGRY, STAY, eat, None, "GL-1"),
    Row(Bite, (HUNGRY, SATED), STAY, bite, None, "GL-2"),
    Ignore((Eat,), SATED, "GL-1"),
)

GLUTTON = Fsm(
    "glutton",
    protocol="glutton",
    record=GluttonRecord,
    states=GluttonStatus,
    initial=HUNGRY,
    rows=ROWS,
)

PROTOCOL = Protocol(
    name="glutton",
    prefix="GL",
    about="a glutton",
    machines={"glutton": "glutton_protocol:GLUTTON"},
    areas={"spec": "glutton_protocol:SPEC"},
)


def system(name="feast", size="small", variant="settled", without=()):
    """A glutton, and what is on the table."""
    glutton = FsmActor(
        "glutton", GLUTTON, GluttonRecord(), calls=lambda record: (Bite(),) if record.status is SATED else (Eat(),)
    )
    fed = Always("FED", "who is sated has eaten", (glutton.view(is_fed),), bool)
    return System(name, "a feast", (glutton,), Network(1), (fed,))


def is_fed(record):
    return record.status is HUNGRY or record.meals > 0


SPEC = CheckProtocol(systems={"feast": "a glutton eats"}, build=system)
