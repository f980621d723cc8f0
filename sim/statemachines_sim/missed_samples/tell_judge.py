"""Tell judge: whether a subscriber may tell its application what it tells: samples and losses, in order, each once."""

from __future__ import annotations

from collections.abc import Callable

from statemachines.kernel import BrokenProperty
from statemachines.missed_samples.message import Deliver, Missed
from statemachines.missed_samples.properties import Broken, judge_hole
from statemachines.missed_samples.recovery import MS
from statemachines_sim.missed_samples.reader import Reader
from statemachines_sim.missed_samples.section import Section
from statemachines_sim.missed_samples.timed_source import TimedSource
from statemachines_sim.node_life import NodeLife


class ToldJudge:
    """`report(where, broken)` takes what is broken; `counts`: "delivered", "missed" and "longest_ms"."""

    def __init__(self, own: Section, report: Callable[[str, Broken], None], counts: dict[str, int]) -> None:
        self._own = own
        self._report = report
        self._counts = counts

    def tell(
        self, reader: Reader, process: NodeLife, party: str, told: Deliver | Missed, first: int, last: int, now_ns: int
    ) -> None:
        """Numbers `first` to `last`, as the publisher counts them, are told."""
        one = reader.sources.get(told.source)
        if one is None:
            self._report(party, (BrokenProperty("INVENTED", f"{told}, and nothing is known of its source"),))
            return
        self.judge_wait(reader, process, one, now_ns)
        if isinstance(told, Deliver):
            broken = one.deliver(first, last)
            self._counts["delivered"] += last - first + 1
        else:
            broken = one.miss(first, last)
            if self._own.whole:
                broken += (BrokenProperty("WHOLE", f"{first}..{last} is missed, where nothing may be"),)
            self._counts["missed"] += last - first + 1
        if broken:
            self._report(f"{party}, {told.source}", broken)

    def judge_wait(self, reader: Reader, process: NodeLife, one: TimedSource, now_ns: int) -> None:
        """LIVE, from when something that was missing has come; who stands still, or holds what is ahead of the first
        query's end, is given that time."""
        waited = one.waiting_ns(now_ns, reader.free_since_ns)
        self._counts["longest_ms"] = max(self._counts["longest_ms"], waited // MS)
        if not process.is_paused:
            self._report(process.life, judge_hole(min(waited, now_ns - one.moved_ns), one.recovery))
