"""CacheJudge: what caches should have, reckoned from what came to them: which queues, and which numbers in each.

Numbers are those that the publisher has counted.  Of a cache's record only its queues and its count are read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from statemachines.kernel import Event
from statemachines.missed_samples.cache import CacheRecord, CrowdedOver, LetGo, NotKept, Place, Published

Check = Callable[[str, bool, str], None]
"""Takes a property, whether it holds, and what happened."""
NumberOf = Callable[[str, int], int]
"""Of a source and a number of the wire, which of the publisher's it is."""


class CachedSource:
    """One life of a cache.  `queues`: the numbers of each, in order; `heard`: those into which something came since the
    cache is `crowded`; `turning`: what it must say that it does not keep, `going`: whom it must say that it lets go."""

    def __init__(self) -> None:
        self.queues: dict[Place, list[int]] = {}
        self.crowded = False
        self.heard: set[Place] = set()
        self.turning: NotKept | None = None
        self.going: list[LetGo] = []
        self.not_kept = 0

    def take(self, place: Place, first: int, last: int, history: int) -> None:
        """The highest `history` numbers that ever came are kept."""
        queue = self.queues.setdefault(place, [])
        at = bisect_left(queue, first)
        if at == len(queue):
            queue.extend(range(first, last + 1))
        else:
            queue[:] = sorted({*queue, *range(first, last + 1)})
        del queue[: max(len(queue) - history, 0)]
        if self.crowded:
            self.heard.add(place)

    def turn_away(self, event: Published) -> None:
        """There is no place for it."""
        if not self.crowded:
            self.crowded, self.heard = True, set()
        self.not_kept += event.last - event.first + 1
        self.turning = NotKept(event.key, event.source, event.first, event.last)

    def let_go(self) -> None:
        """The silent queues go."""
        silent = sorted(self.queues.keys() - self.heard) if self.crowded else []
        self.going = [LetGo(key, source) for source, key in silent]
        for place in silent:
            del self.queues[place]
        self.crowded, self.heard = False, set()


class CacheJudge:
    """BOUND, QUEUES, REPLIES and COUNT of every cache, by party."""

    def __init__(self, check: Check, number: NumberOf) -> None:
        self._check = check
        self._number = number
        self.shelves: dict[str, CachedSource] = {}

    def step(self, party: str, event: Event, record: CacheRecord) -> None:
        """A cache made a step."""
        shelf = self.shelves.setdefault(party, CachedSource())
        self._judge_last(shelf, party)
        if isinstance(event, Published):
            self._publish(shelf, party, event, record)
        elif isinstance(event, CrowdedOver):
            shelf.let_go()
            self._judge_queues(shelf, party, record)

    def tell(self, party: str, event: NotKept | LetGo) -> None:
        """A cache told its host something."""
        shelf = self.shelves.setdefault(party, CachedSource())
        if isinstance(event, NotKept):
            self._check("QUEUES", event == shelf.turning, f"{party} tells {event}, expected {shelf.turning}")
            shelf.turning = None
        else:
            self._check("QUEUES", event in shelf.going, f"{party} lets {event} go, expected {shelf.going}")
            shelf.going.remove(event)

    def observe_death(self, life: str) -> None:
        """Nothing is left of the caches of this life."""
        for party in [one for one in self.shelves if one.partition("/")[0] == life]:
            del self.shelves[party]

    def _publish(self, shelf: CachedSource, party: str, event: Published, record: CacheRecord) -> None:
        place = (event.source, event.key)
        kept = record.queues.get(place)
        count = 0 if kept is None else sum(last - first + 1 for first, last in kept.kept)
        self._check("BOUND", count <= record.history, f"{count} samples of {place} in a cache of {record.history}")
        queues = len(record.queues)
        self._check("BOUND", queues <= record.places, f"{queues} queues in a cache with {record.places} places")
        if not event.source or (record.local and not event.local):
            return
        if place not in shelf.queues and len(shelf.queues) >= record.places:
            shelf.turn_away(event)
            self._judge_queues(shelf, party, record)
            self._check("COUNT", record.not_kept == shelf.not_kept, f"{party} counts {record.not_kept}")
            return
        first = self._number(event.source, event.first)
        shelf.take(place, first, first + event.last - event.first, record.history)
        self._judge_contents(shelf.queues[place], event.source, kept, f"{party}, after {event}")

    def _judge_contents(self, wanted: list[int], source: str, kept: Any, where: str) -> None:
        """As many as there should be, from the lowest to the highest of them."""
        ranges = () if kept is None else kept.kept
        count = sum(last - first + 1 for first, last in ranges)
        low, high = (ranges[0][0], ranges[-1][1]) if ranges else (0, -1)
        same = count == len(wanted) and high - low == wanted[-1] - wanted[0]
        same = same and self._number(source, high) == wanted[-1]
        detail = f"{where}: {count} samples, {low}..{high}, in place of {len(wanted)}, {wanted[0]}..{wanted[-1]}"
        self._check("REPLIES", same, detail)

    def _judge_queues(self, shelf: CachedSource, party: str, record: CacheRecord) -> None:
        names, wanted = sorted(record.queues), sorted(shelf.queues)
        self._check("QUEUES", names == wanted, f"{party} has queues {names} in place of {wanted}")

    def _judge_last(self, shelf: CachedSource, party: str) -> None:
        """What the step before should have told."""
        self._check("QUEUES", shelf.turning is None, f"{party} does not tell {shelf.turning}")
        self._check("QUEUES", not shelf.going, f"{party} does not tell {shelf.going}")
