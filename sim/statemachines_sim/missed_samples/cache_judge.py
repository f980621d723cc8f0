"""CacheJudge: feeds what came to the caches of a run, and what they told, to their observers.

Of a cache's record only its queues and its count are read.
"""

from __future__ import annotations

from collections.abc import Callable

from statemachines.kernel import Event
from statemachines.missed_samples.cache import CacheRecord, CrowdedOver, LetGo, NotKept, Published
from statemachines.missed_samples.properties import Broken, ObservedCache, judge_room
from statemachines.missed_samples.ranges import Ranges, size

Report = Callable[[str, Broken], None]
"""Takes where it was, and what is broken."""
NumberOf = Callable[[str, int], int]
"""Of a source and a number of the wire, which of the publisher's it is."""


class CacheJudge:
    """BOUND, QUEUES, REPLIES and COUNT of every cache; `seen` by party."""

    def __init__(self, report: Report, number: NumberOf) -> None:
        self._report = report
        self._number = number
        self.seen: dict[str, ObservedCache] = {}

    def step(self, party: str, event: Event, record: CacheRecord) -> None:
        """A cache made a step."""
        seen = self.seen.setdefault(party, ObservedCache())
        self._report(party, seen.judge_silence())
        if isinstance(event, Published):
            self._publish(seen, party, event, record)
        elif isinstance(event, CrowdedOver):
            self.seen[party] = seen = seen.observe_retention()
            self._report(party, seen.judge_queues(set(record.queues)))

    def tell(self, party: str, event: NotKept | LetGo) -> None:
        """A cache told its host something."""
        self.seen[party], broken = self.seen.setdefault(party, ObservedCache()).observe_told(event)
        self._report(party, broken)

    def observe_death(self, life: str) -> None:
        """Nothing is left of the caches of this life."""
        for party in [one for one in self.seen if one.partition("/")[0] == life]:
            del self.seen[party]

    def _publish(self, before: ObservedCache, party: str, event: Published, record: CacheRecord) -> None:
        place = (event.source, event.key)
        queue = record.queues.get(place)
        kept: Ranges = () if queue is None else queue.kept
        count = size(kept)
        self._report(party, judge_room(count, len(record.queues), record))
        if not event.source or (record.local and not event.local):
            return
        seen = before.observe_published(event, self._number(event.source, event.first), record)
        self.seen[party] = seen
        if seen.not_kept != before.not_kept:
            self._report(party, seen.judge_queues(set(record.queues)) + seen.judge_count(record.not_kept))
            return
        last = self._number(event.source, kept[-1][1]) if kept else -1
        first = last - (kept[-1][1] - kept[0][0]) if kept else 0
        self._report(f"{party}, after {event}", seen.judge_contents(place, count, first, last))
