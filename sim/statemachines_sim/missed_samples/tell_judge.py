"""Tell judge: whether a subscriber may tell its application what it tells: samples and losses, in order, each once."""

from __future__ import annotations

from collections.abc import Callable

from statemachines.missed_samples.message import Deliver, Missed
from statemachines.missed_samples.properties import Broken, ObservedSource, judge_hole, judge_whole
from statemachines.missed_samples.recovery import MS
from statemachines_sim.missed_samples.reader import SampleReader
from statemachines_sim.missed_samples.section import SampleSection
from statemachines_sim.missed_samples.timed_source import TimedSource
from statemachines_sim.node_life import NodeLife


class ToldJudge:
    """`report(where, broken)` takes what is broken; `counts`: "delivered", "missed" and "longest_ms"."""

    def __init__(self, own: SampleSection, report: Callable[[str, Broken], None], counts: dict[str, int]) -> None:
        self._own = own
        self._report = report
        self._counts = counts

    def tell(
        self,
        reader: SampleReader,
        process: NodeLife,
        party: str,
        told: Deliver | Missed,
        first: int,
        last: int,
        now_ns: int,
    ) -> None:
        """Numbers `first` to `last`, as the publisher counts them, are told."""
        one = reader.sources.get(told.source)
        if one is None:
            broken = ObservedSource().observe_delivered(first, last)[1]
        else:
            self.judge_wait(reader, process, one, now_ns)
            broken = one.deliver(first, last) if isinstance(told, Deliver) else one.miss(first, last)
        missed = isinstance(told, Missed)
        if self._own.whole:
            broken += judge_whole(missed)
        self._counts["missed" if missed else "delivered"] += last - first + 1
        if broken:
            self._report(f"{party}, {type(told).__name__} of {told.source}", broken)

    def judge_wait(self, reader: SampleReader, process: NodeLife, one: TimedSource, now_ns: int) -> None:
        """LIVE, from when something that was missing has come; who stands still, or holds what is ahead of the first
        query's end, is given that time."""
        waited = one.waiting_ns(now_ns, reader.free_since_ns)
        self._counts["longest_ms"] = max(self._counts["longest_ms"], waited // MS)
        if not process.is_paused:
            self._report(process.life, judge_hole(min(waited, now_ns - one.moved_ns), one.recovery))
