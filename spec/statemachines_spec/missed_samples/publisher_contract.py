"""What a publisher owes those who hear it, and its host, whatever it is asked to publish: MS-30 to MS-35."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Send, Stop, Tell
from statemachines.missed_samples.message import Heartbeat, Sample
from statemachines.missed_samples.publisher import (
    PUBLISHER,
    Beats,
    Declare,
    HeartbeatDue,
    Publish,
    PublisherRecord,
    Stamped,
    Undeclare,
)
from statemachines_spec.contract import Counterpart, Machine, Rule, contract
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.explorer.timing import Timing

ID: Final = "p"
KEY: Final = "k"
WIDTH: Final = 2
"""Of the numbers on the wire: they come round within a run."""
LAST: Final = 5
"""So many samples are published at most."""
PERIOD: Final = 2
"""Of heartbeats, in ticks."""
TICK_NS: Final = 1_000_000


class PublisherFacts(msgspec.Struct, frozen=True, gc=False):
    """How many samples were `stamped`; `rested`: ticks since the next heartbeat is waited for (-1: none is)."""

    stamped: int = 0
    declared: bool = False
    rested: int = -1
    ended: bool = False


Said = tuple[Any, ...]


def on_the_wire(number: int) -> int:
    """Of `WIDTH` bits."""
    return number % 2**WIDTH


class PublisherApplication(Counterpart):
    """an application that publishes one sample or two, whenever it likes, and stops"""

    def __init__(self, beats: Beats, idle: tuple[str, ...]) -> None:
        super().__init__(RULES, idle)
        self.beats = beats

    def begins(self) -> PublisherFacts:
        return PublisherFacts()

    def says(self, known: PublisherFacts) -> Iterator[Any]:
        if known.ended:
            return
        yield Undeclare()
        if not known.declared:
            yield Declare()
            return
        yield from (Publish(count) for count in (1, 2) if known.stamped + count <= LAST)

    def learns(self, known: PublisherFacts, event: Any, said: Said) -> PublisherFacts:
        match event:
            case Declare():
                return replace(known, declared=True, rested=0 if self.beats is Beats.PERIODIC else -1)
            case Publish(count):
                waits = known.rested < 0 and self.beats is Beats.SPORADIC
                return replace(known, stamped=known.stamped + count, rested=0 if waits else known.rested)
            case HeartbeatDue():
                return replace(known, rested=0 if self.beats is Beats.PERIODIC else -1)
            case _:
                return PublisherFacts(ended=True)

    def ages(self, known: PublisherFacts, ticks: int) -> PublisherFacts:
        return known if known.rested < 0 else replace(known, rested=min(PERIOD + 1, known.rested + ticks))

    def is_late(self, known: PublisherFacts) -> int:
        return RULES.index(BEATS) + 1 if known.rested > PERIOD else 0


def stamps(known: PublisherFacts, event: Publish, said: Said) -> bool:
    """The host first, so that its cache has them when somebody asks; a range is not wrapped in itself."""
    first = known.stamped
    sn = on_the_wire(first)
    sample = Sample(ID, sn, sn + event.count - 1)
    return said == (Tell(Stamped(ID, first, first + event.count - 1)), Send(KEY, sample))


def beats(known: PublisherFacts, event: HeartbeatDue, said: Said) -> bool:
    """The last number that was published, in time; before anything was, nothing."""
    if known.rested != PERIOD:
        return False
    return said == ((Send(KEY, Heartbeat(ID, on_the_wire(known.stamped - 1))),) if known.stamped else ())


BEATS: Final = Rule("beats", "MS-31, MS-32, MS-34", "a period after it is to, it says which number was the last",
                    lambda known, event: isinstance(event, HeartbeatDue), beats)  # fmt: skip
RULES: Final = (
    Rule("begins", "MS-30", "who is declared says nothing yet",
         lambda known, event: isinstance(event, Declare), lambda known, event, said: said == ()),
    Rule("stamps", "MS-33", "samples are numbered without a gap, kept, and then sent",
         lambda known, event: isinstance(event, Publish), stamps),
    BEATS,
    Rule("leaves", "MS-35", "who is undeclared ends, and says nothing more",
         lambda known, event: isinstance(event, Undeclare), lambda known, event, said: said == (Stop(),)),
)  # fmt: skip

ABOUT: Final = {
    "alone, silent": "a publisher without heartbeats, which is asked to publish whatever its application likes",
    "alone, periodic": "a publisher with a heartbeat each period, and nobody else",
    "alone, sporadic": "a publisher with a heartbeat after each change, and nobody else",
}
KINDS: Final = dict(zip(ABOUT, (Beats.OFF, Beats.PERIODIC, Beats.SPORADIC), strict=True))


def build(name: str) -> System:
    """A publisher and its application."""
    kind = KINDS[name]
    record = PublisherRecord(ID, KEY, kind, PERIOD * TICK_NS // 1_000_000, WIDTH)
    machine = Machine(PUBLISHER, record, timing=Timing(TICK_NS, ("heartbeat",)), says_so=False)
    idle = ("beats",) if kind is Beats.OFF else ()
    return contract(name, ABOUT[name], machine, PublisherApplication(kind, idle), TickClock(TICK_NS))
