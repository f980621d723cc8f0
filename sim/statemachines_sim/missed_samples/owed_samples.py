"""Owed samples: what caches had when queries reached them, and what therefore has to come before these end.

Whoever carries a query looks into the cache, and not at its answer: everything that the subscriber is interested in and
has asked for is owed, whatever it was answered.  What the network loses of that is owed no longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from statemachines.missed_samples.cache import CacheRecord
from statemachines.missed_samples.message import EVERY_SOURCE, Query
from statemachines.missed_samples.recovery import MS
from statemachines.missed_samples.sample_queue import SampleQueue
from statemachines.missed_samples.serial_number import unwrap_number, wrap_number
from statemachines_sim.missed_samples.cache_judge import NumberOf
from statemachines_sim.missed_samples.section import SampleSection

Numbers = dict[str, set[int]]
"""By source: numbers that the publisher has counted."""


class OwedSamples:
    """Of the queries that are under way, by subscriber, source and number.  `number(source, sn)`: which of the
    publisher's numbers one of the wire is."""

    def __init__(self, own: SampleSection, number: NumberOf) -> None:
        self._own = own
        self.number = number
        self._open: dict[tuple[str, str, int], Numbers] = {}

    def reach(self, party: str, node: str, query: Query, record: CacheRecord, now_ns: int) -> None:
        """A query of `party`, on `node`, is at a cache."""
        owed = self._open.setdefault((party, query.source, query.n), {})
        for source, queue in self.interesting(node, record):
            if query.source in (source, EVERY_SOURCE):
                if query.source == EVERY_SOURCE:
                    found = self._of_history(self.numbers(source, queue), queue, now_ns)
                else:
                    found = self._of_window(query, queue)
                owed.setdefault(source, set()).update(self.number(source, sn) for sn in found)

    def lose(self, party: str, query: Query, source: str, first: int, last: int) -> None:
        """A reply, with numbers of the wire, does not come, or too late."""
        number = self.number(source, first)
        owed = self._open.get((party, query.source, query.n), {})
        owed.get(source, set()).difference_update(range(number, number + last - first + 1))

    def forgive(self, party: str, query: Query) -> None:
        """Not every cache could answer: nothing is owed."""
        self._open.pop((party, query.source, query.n), None)

    def end(self, party: str, source: str, n: int) -> Numbers:
        """The query has ended: all this should have come."""
        return self._open.pop((party, source, n), {})

    def observe_death(self, party: str) -> None:
        """The subscriber is gone."""
        for query in [one for one in self._open if one[0] == party]:
            del self._open[query]

    def interesting(self, node: str, record: CacheRecord) -> Iterator[tuple[str, SampleQueue]]:
        """What a cache has under keys that the subscriber on `node` is interested in."""
        expression = self._own.expression_of(node)
        for (source, key), queue in sorted(record.queues.items()):
            if expression in ("demo/*", key):
                yield source, queue

    def numbers(self, source: str, queue: SampleQueue) -> list[int]:
        """All numbers in a queue, as the wire has them, in their order."""
        width = self._own.width
        return [wrap_number(number, width) for first, last in queue.kept for number in range(first, last + 1)]

    def _of_window(self, query: Query, queue: SampleQueue) -> list[int]:
        """Those that a query is about, from the highest on: a queue may be long."""
        width = self._own.width
        low = unwrap_number(wrap_number(query.first, width), queue.top, width)
        high = low + query.last - query.first if query.has_end else queue.top
        parts = (range(min(last, high), max(first, low) - 1, -1) for first, last in reversed(queue.kept))
        numbers = islice(chain.from_iterable(parts), query.newest or None)
        return [wrap_number(number, width) for number in numbers]

    def _of_history(self, sns: list[int], queue: SampleQueue, now_ns: int) -> list[int]:
        """Those that the scenario says a subscriber wants at first."""
        wanted = self._own.history
        if wanted is None:
            return []
        if wanted.age_ms:
            kept = (number for first, last in queue.kept for number in range(first, last + 1))
            since = now_ns - wanted.age_ms * MS
            sns = [sn for sn, number in zip(sns, kept, strict=True) if queue.times.get(number, -1) >= since]
        return sns[-wanted.newest :] if wanted.newest else sns
