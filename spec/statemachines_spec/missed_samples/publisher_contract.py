"""What a publisher owes those who hear it, and its host, whatever it is asked to publish: MS-30 to MS-35."""

from __future__ import annotations

from typing import Any, Final

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
from statemachines_spec.contract import Machine, contract
from statemachines_spec.explorer.actor import Timing
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.table_contract import Duty, PhaseClock, TableContract, TableFacts

ID: Final = "p"
KEY: Final = "k"
WIDTH: Final = 2
"""Of the numbers on the wire: they come round within a run."""
LAST: Final = 5
"""So many samples are published at most."""
PERIOD: Final = 2
"""Of heartbeats, in ticks."""
TICK_NS: Final = 1_000_000


class PublisherFacts(TableFacts, frozen=True, gc=False):
    """When it `beats`, and how many samples were `stamped`."""

    beats: Beats = Beats.OFF
    stamped: int = 0


Said = tuple[Any, ...]


def on_the_wire(number: int) -> int:
    """Of `WIDTH` bits."""
    return number % 2**WIDTH


class PublisherApplication(TableContract):
    """an application that publishes one sample or two, whenever it likes, and stops"""

    def can_say(self, known: PublisherFacts, word: Any) -> bool:
        """So many samples are published."""
        return super().can_say(known, word) and known.stamped + getattr(word, "count", 0) <= LAST


def beat(known: PublisherFacts, beats: Beats) -> PublisherFacts:
    """A heartbeat is due a period after this, if the publisher beats so."""
    return replace(known, phase="beats") if known.beats is beats else known


def stamp(known: PublisherFacts, event: Publish) -> Said:
    """The host first, so that its cache has them when somebody asks; a range is not wrapped in itself."""
    first, last = known.stamped - event.count, known.stamped - 1
    sn = on_the_wire(first)
    return (Tell(Stamped(ID, first, last)), Send(KEY, Sample(ID, sn, sn + event.count - 1)))


def say_last(known: PublisherFacts, event: HeartbeatDue) -> Said:
    """The last number that was published; before anything was, nothing."""
    return (Send(KEY, Heartbeat(ID, on_the_wire(known.stamped - 1))),) if known.stamped else ()


# fmt: off
ROWS: Final = (
    Duty("begins", "MS-30", "who is declared says nothing yet",
         Declare, "new", then=lambda known, event: beat(replace(known, phase="rests"), Beats.PERIODIC)),
    Duty("stamps", "MS-33", "samples are numbered without a gap, kept, and then sent",
         Publish, "rests beats", stamp,
         then=lambda known, event: beat(replace(known, stamped=known.stamped + event.count), Beats.SPORADIC)),
    Duty("beats", "MS-31, MS-32, MS-34", "a period after it is to, it says which number was the last",
         HeartbeatDue, "", say_last,
         then=lambda known, event: beat(replace(known, phase="rests"), Beats.PERIODIC)),
    Duty("leaves", "MS-35", "who is undeclared ends, and says nothing more",
         Undeclare, said=lambda known, event: (Stop(),)),
)
# fmt: on
CLOCKS: Final = (PhaseClock(HeartbeatDue, "beats", PERIOD, "beats"),)
WORDS: Final = (Undeclare(), Declare(), Publish(1), Publish(2))

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
    counterpart = PublisherApplication(ROWS, CLOCKS, WORDS, PublisherFacts(beats=kind), idle=idle)
    return contract(name, ABOUT[name], machine, counterpart, TickClock(TICK_NS))
