"""What a subscriber owes its application where nothing is lost: what bears no number, what no number of the wire is,
and its end (MS-51, MS-52, MS-54, MS-55, MS-58).  What it owes where something is lost, `receiver` judges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import Stop, Tell
from statemachines.missed_samples.message import Deliver, DeliverUnnumbered, Heartbeat, Sample, Unnumbered
from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines.missed_samples.subscriber_record import Subscribe, SubscriberRecord, Unsubscribe
from statemachines_spec.contract import Machine, contract
from statemachines_spec.explorer.system import System
from statemachines_spec.table_contract import Duty, TableContract, TableFacts

P: Final = "p"
WIDTH: Final = 2
TURN: Final = 2**WIDTH
"""So many numbers the wire has; of a source that is met its 0 is called so."""
COUNT: Final = 5
"""Samples, at most."""


class SubscriberFacts(TableFacts, frozen=True, gc=False):
    """How many samples have come."""

    came: int = 0


class Quiet(TableContract):
    """a publisher of which nothing is lost, others that say what nobody can number, and an application that leaves"""

    def says(self, known: SubscriberFacts) -> Iterator[Any]:
        yield from super().says(known)
        if known.phase == "begun" and known.came < COUNT:
            yield Sample(P, known.came % TURN, known.came % TURN)
        if known.came:
            yield from (Heartbeat(P, -1), Heartbeat(P, (known.came - 1) % TURN))


BEYOND: Final = (Sample(P, TURN, TURN), Sample("q", TURN + 1, TURN + 1), Heartbeat(P, TURN), Heartbeat("q", TURN + 2))
"""No number of this width."""


def is_of_wire(known: SubscriberFacts, event: Any) -> bool:
    """The wire has a number like this."""
    return event not in BEYOND


def deliver(known: SubscriberFacts, event: Sample) -> tuple[Any, ...]:
    number = TURN + known.came - 1
    return (Tell(Deliver(P, number, number)),)


# fmt: off
ROWS: Final = (
    Duty("begins", "MS-51", "without history nothing is asked", Subscribe, "new", to="begun"),
    Duty("delivers", "MS-01, MS-03", "what comes in order is delivered at once",
         Sample, "begun", deliver, when=is_of_wire, then=lambda known, event: replace(known, came=known.came + 1)),
    Duty("knows nothing of it", "MS-52", "what no number of the wire is, is nothing",
         Sample | Heartbeat, "begun", when=lambda known, event: event in BEYOND),
    Duty("passes on", "MS-54", "what bears no number is passed on as it comes",
         Unnumbered, "begun", lambda known, event: (Tell(DeliverUnnumbered()),)),
    Duty("is told nothing", "MS-12, MS-55", "a heartbeat that shows no loss changes nothing", Heartbeat, "begun"),
    Duty("leaves", "MS-58", "who has left ends, and says nothing more",
         Unsubscribe, said=lambda known, event: (Stop(),)),
)
# fmt: on
WORDS: Final = (Unsubscribe(), Subscribe(), Unnumbered(), *BEYOND)

NAME: Final = "nothing is lost"
ABOUT: Final = {NAME: "a subscriber to whom everything comes, and much that nobody can number"}


def build(name: str) -> System:
    """A subscriber, a publisher, and others."""
    machine = Machine(
        SUBSCRIBER, SubscriberRecord(Recovery(sources=1), width=WIDTH), silent=("retention",), says_so=False
    )
    return contract(name, ABOUT[name], machine, Quiet(ROWS, (), WORDS, SubscriberFacts(), mute="new"))
