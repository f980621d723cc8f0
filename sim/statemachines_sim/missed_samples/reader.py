"""Reader: what a judge knows of one life of a subscriber, from what came to it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from statemachines.kernel import Event
from statemachines.missed_samples.message import EVERY_SOURCE, Heartbeat, QueryEnded, Sample, Unnumbered
from statemachines.missed_samples.properties import ObservedStrangers
from statemachines.missed_samples.source_record import Appeared, Disappeared, PeriodOver, QueryTimeout
from statemachines.missed_samples.subscriber_record import HistoryTimeout
from statemachines_sim.missed_samples.section import SampleSection
from statemachines_sim.missed_samples.timed_source import TimedSource


class SampleReader:
    """`number(source, sn)`: what the wire's number stands for.  `sources` by name; `touched`: those of them that the
    last step was about; `history`: the first query is open, or sent again soon, after so many `tries`; `strangers`:
    what is turned away, or has no source; `gone`: who was turned away, or forgotten; `periodic`: who is asked
    unprompted; `met`: how many first contacts there were; `free_since_ns`: holes last from then on at most."""

    def __init__(self, own: SampleSection, number: Callable[[str, int], int]) -> None:
        self.sources: dict[str, TimedSource] = {}
        self.history = own.history is not None
        self.touched: set[str] = set()
        self.strangers = ObservedStrangers()
        self.gone: set[str] = set()
        self.periodic = ""
        self.met = 0
        self.free_since_ns = 0
        self.tries = 0
        self._own = own
        self._number = number

    def note(self, event: Event, now_ns: int) -> None:
        """It came."""
        match event:
            case Sample(source, first, last):
                one = self._meet(event, source)
                if one is not None:
                    number = self._number(source, first)
                    one.take(number, number + last - first, now_ns)
                    self.touched.add(source)
            case Heartbeat(source, last):
                one = self._meet(event, source)
                if one is not None and last >= 0:
                    number = self._number(source, last)
                    one.beat(number, now_ns)
                    self.touched.add(source)
            case Appeared(source, new):
                one = self._meet(event, source)
                if one is not None:
                    one.seen = replace(one.seen, alive=True, new=new if one.seen.began < 0 else one.seen.new)
            case Disappeared(source):
                if source in self.sources:
                    one = self.sources[source]
                    one.seen = replace(one.seen, alive=False)
            case QueryEnded(source, n, brought):
                if source == EVERY_SOURCE:
                    if brought or (n == self.tries and self._was_last_try):
                        self._end_history(now_ns)
                elif source in self.sources:
                    self.sources[source].end_query(n, brought, now_ns)
                    self.touched.add(source)
            case QueryTimeout(key):
                if key in self.sources:
                    self.sources[key].time_out(now_ns)
                    self.touched.add(key)
            case HistoryTimeout():
                if self._was_last_try:
                    self._end_history(now_ns)
            case PeriodOver(key):
                self.periodic = key
            case Unnumbered():
                self.strangers = self.strangers.observe_unnumbered()

    @property
    def _was_last_try(self) -> bool:
        return self.tries > self._own.recovery.retries

    def forget(self, source: str) -> None:
        """It is not known any more."""
        self.gone.add(source)
        del self.sources[source]

    def _meet(self, event: Event, source: str) -> TimedSource | None:
        """What is known of its source, where that has a place."""
        one = self.sources.get(source)
        if one is None and len(self.sources) < self._own.recovery.sources:
            one = self.sources[source] = TimedSource(source, self.history, self._own.recovery)
            self.met += 1
        elif one is None:
            self.strangers = self.strangers.observe_stranger(event, self._own.width)
            if isinstance(event, Sample):
                self.gone.add(source)
        return one

    def _end_history(self, now_ns: int) -> None:
        """Holes last from now on."""
        if self.history:
            self.history = False
            self.free_since_ns = now_ns
        for source, one in self.sources.items():
            one.end_history()
            self.touched.add(source)
