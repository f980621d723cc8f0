"""What a subscriber owes its application where nothing is lost: what bears no number, what no number of the wire is,
and its end (MS-51, MS-52, MS-54, MS-55, MS-58).  What it owes where something is lost, `receiver` judges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Stop, Tell
from statemachines.missed_samples.message import Deliver, DeliverUnnumbered, Heartbeat, Sample, Unnumbered
from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines.missed_samples.subscriber_record import Subscribe, SubscriberRecord, Unsubscribe
from statemachines_spec.contract import Counterpart, Machine, Rule, contract
from statemachines_spec.explorer.system import System

P: Final = "p"
WIDTH: Final = 2
TURN: Final = 2**WIDTH
"""So many numbers the wire has; of a source that is met its 0 is called so."""
COUNT: Final = 5
"""Samples, at most."""

Said = tuple[Any, ...]


class SubscriberFacts(msgspec.Struct, frozen=True, gc=False):
    """How many samples have come."""

    came: int = 0
    begun: bool = False
    ended: bool = False


class Quiet(Counterpart):
    """a publisher of which nothing is lost, others that say what nobody can number, and an application that leaves"""

    def __init__(self) -> None:
        super().__init__(RULES)

    def begins(self) -> SubscriberFacts:
        return SubscriberFacts()

    def says(self, known: SubscriberFacts) -> Iterator[Any]:
        if known.ended:
            return
        yield Unsubscribe()
        if not known.begun:
            yield Subscribe()
            return
        yield from (Unnumbered(), *BEYOND)
        if known.came < COUNT:
            yield Sample(P, known.came % TURN, known.came % TURN)
        if known.came:
            yield Heartbeat(P, -1)
            yield Heartbeat(P, (known.came - 1) % TURN)

    def learns(self, known: SubscriberFacts, event: Any, said: Said) -> SubscriberFacts:
        match event:
            case Subscribe():
                return replace(known, begun=True)
            case Unsubscribe():
                return SubscriberFacts(ended=True)
            case Sample() if event not in BEYOND:
                return replace(known, came=known.came + 1)
        return known


BEYOND: Final = (Sample(P, TURN, TURN), Sample("q", TURN + 1, TURN + 1), Heartbeat(P, TURN), Heartbeat("q", TURN + 2))
"""No number of this width."""


def is_heartbeat(known: SubscriberFacts, event: Any) -> bool:
    return isinstance(event, Heartbeat) and event not in BEYOND


def delivers(known: SubscriberFacts, event: Sample, said: Said) -> bool:
    number = TURN + known.came
    return said == (Tell(Deliver(P, number, number)),)


def _says_nothing(known: SubscriberFacts, event: Any, said: Said) -> bool:
    return said == ()


RULES: Final = (
    Rule("begins", "MS-51", "without history nothing is asked",
         lambda known, event: isinstance(event, Subscribe), _says_nothing),
    Rule("delivers", "MS-01, MS-03", "what comes in order is delivered at once",
         lambda known, event: isinstance(event, Sample) and event not in BEYOND, delivers),
    Rule("knows nothing of it", "MS-52", "what no number of the wire is, is nothing",
         lambda known, event: event in BEYOND, _says_nothing),
    Rule("passes on", "MS-54", "what bears no number is passed on as it comes",
         lambda known, event: isinstance(event, Unnumbered),
         lambda known, event, said: said == (Tell(DeliverUnnumbered()),)),
    Rule("is told nothing", "MS-12, MS-55", "a heartbeat that shows no loss changes nothing",
         is_heartbeat, _says_nothing),
    Rule("leaves", "MS-58", "who has left ends, and says nothing more",
         lambda known, event: isinstance(event, Unsubscribe), lambda known, event, said: said == (Stop(),)),
)  # fmt: skip

NAME: Final = "nothing is lost"
ABOUT: Final = {NAME: "a subscriber to whom everything comes, and much that nobody can number"}


def build(name: str) -> System:
    """A subscriber, a publisher, and others."""
    machine = Machine(
        SUBSCRIBER, SubscriberRecord(Recovery(sources=1), width=WIDTH), silent=("retention",), says_so=False
    )
    return contract(name, ABOUT[name], machine, Quiet())
