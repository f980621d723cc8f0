"""ObservedStrangers: what of a subscriber's samples belongs to no source that it keeps, and must be told at once.

seen = seen.observe_stranger(event, width)      of a source for which there is no place
seen = seen.observe_unnumbered()                a sample without source information
seen, broken = seen.observe_told(event)         the application is told
broken = seen.judge_silence()                   nothing more is told of the step
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import msgspec
from msgspec.structs import replace

from statemachines.kernel import BrokenProperty, Event
from statemachines.missed_samples.message import DeliverUnnumbered, Sample, TurnedAway
from statemachines.missed_samples.properties.settled_numbers import Broken
from statemachines.missed_samples.serial_number import WIDTH_MAX


class ObservedStrangers(msgspec.Struct, frozen=True, gc=False):
    """`turning`: what is turned away now; `unnumbered`: so many samples without source information are to be passed
    on; `turned_away`: so many samples, heartbeats and tokens found no place."""

    turning: TurnedAway | None = None
    unnumbered: int = 0
    turned_away: int = 0

    def observe_stranger(self, event: Event, width: int) -> ObservedStrangers:
        """A sample, heartbeat or token comes of a source that is not kept, and as many as may be are."""
        if not isinstance(event, Sample):
            return replace(self, turned_away=self.turned_away + 1)
        more = event.last - event.first
        first = event.first + (0 if width == WIDTH_MAX else 1 << width)  # as the application would count them
        turning = TurnedAway(event.source, first, first + more)
        return replace(self, turning=turning, turned_away=self.turned_away + more + 1)

    def observe_unnumbered(self) -> ObservedStrangers:
        """A sample without source information comes."""
        return replace(self, unnumbered=self.unnumbered + 1)

    def observe_told(self, event: TurnedAway | DeliverUnnumbered) -> tuple[ObservedStrangers, Broken]:
        """PLACES and INVENTED: the application is told what it should be."""
        if isinstance(event, DeliverUnnumbered):
            left = replace(self, unnumbered=max(0, self.unnumbered - 1))
            what = "a sample without source information is delivered, and none has come"
            return left, () if self.unnumbered else (BrokenProperty("INVENTED", what),)
        left = replace(self, turning=None)
        detail = f"{event} is told, expected {self.turning}"
        return left, () if event == self.turning else (BrokenProperty("PLACES", detail),)

    def judge_silence(self) -> Broken:
        """PLACES and INVENTED: nothing is left that should have been told."""
        broken: Broken = ()
        if self.turning is not None:
            broken = (BrokenProperty("PLACES", f"{self.turning} is not told"),)
        if self.unnumbered:
            broken += (BrokenProperty("INVENTED", "a sample without source information is not passed on"),)
        return broken

    def judge_count(self, counted: int) -> Broken:
        """COUNT: so many are counted that found no place."""
        if counted == self.turned_away:
            return ()
        return (BrokenProperty("COUNT", f"{counted} are counted as turned away in place of {self.turned_away}"),)


def judge_places(kept: int, known: int, strange: AbstractSet[str] = frozenset()) -> Broken:
    """PLACES: as many sources are kept as were met and not forgotten, and none of them is `strange`."""
    if kept == known and not strange:
        return ()
    return (BrokenProperty("PLACES", f"{kept} sources are kept in place of {known}, strange: {sorted(strange)}"),)
