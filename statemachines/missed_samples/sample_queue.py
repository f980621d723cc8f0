"""SampleQueue: the samples that a cache has of one key and source (source: "The `ReliabilityCache`").

In the order of their numbers, each once.  Full, the lowest goes; what is below a full queue is not taken in: a
retransmission must not push out what is newer.  The cost of a change grows with the number of holes in the queue, and
not with its length.
"""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from statemachines.kernel import Map
from statemachines.missed_samples.ranges import Range, Ranges, add, overlap
from statemachines.missed_samples.selector import Selector
from statemachines.missed_samples.serial_number import origin, unwrap_number


class SampleQueue(msgspec.Struct, frozen=True, gc=False):
    """`kept`: which numbers, `count` of them; `times`: when each was published, in nanoseconds since 1970, where that
    is known."""

    kept: Ranges = ()
    count: int = 0
    times: Map[int, int] = Map()

    @property
    def top(self) -> int:
        """The highest number, of a queue that is not empty."""
        return self.kept[-1][1]


def take_in(queue: SampleQueue, sn: int, count: int, *, history: int, width: int, t_ns: int) -> SampleQueue:
    """With `count` samples from the wire's number `sn` on, published at `t_ns` (0: nobody says), and no more than
    `history` of them all."""
    first = unwrap_number(sn, queue.top, width) if queue.kept else origin(width) + sn
    last = first + count - 1
    first = max(first, last - history + 1)  # of a range that is longer than the queue the rest would go at once
    if queue.count >= history:
        first = max(first, queue.kept[0][0])
    if first > last:
        return queue
    times = queue.times
    if t_ns:
        for number in range(first, last + 1):
            times = times if _has(queue, number) else times.set(number, t_ns)
    new = last - first + 1 - overlap(queue.kept, first, last)
    return _within(SampleQueue(add(queue.kept, first, last), queue.count + new, times), history)


def select_ranges(queue: SampleQueue, selector: Selector, width: int) -> tuple[Range, ...]:
    """What the selector is about, in the order of numbers."""
    if not queue.kept:
        return ()
    low = queue.kept[0][0] if selector.first is None else unwrap_number(selector.first, queue.top, width)
    high = queue.top if selector.last is None else unwrap_number(selector.last, queue.top, width)
    found = [(max(first, low), min(last, high)) for first, last in queue.kept if first <= high and last >= low]
    if selector.begin_ns is not None or selector.end_ns is not None:
        found = [part for one in found for part in _timely(queue, one, selector)]
    return tuple(found) if selector.newest is None else _newest(found, selector.newest)


def _has(queue: SampleQueue, number: int) -> bool:
    place = bisect_left(queue.kept, number, key=lambda one: one[1])
    return place < len(queue.kept) and queue.kept[place][0] <= number


def _within(queue: SampleQueue, history: int) -> SampleQueue:
    """Without the lowest, as long as there are more than `history`."""
    kept, count, times = queue.kept, queue.count, queue.times
    while count > history:
        first, last = kept[0]
        gone = min(count - history, last - first + 1)
        for number in range(first, first + gone) if times else ():
            times = times.delete(number) if number in times else times
        kept = kept[1:] if first + gone > last else ((first + gone, last), *kept[1:])
        count -= gone
    return SampleQueue(kept, count, times)


def _timely(queue: SampleQueue, one: Range, selector: Selector) -> Ranges:
    """Of a range those whose time is known, and in the range of times."""
    begin, end = selector.begin_ns, selector.end_ns
    found: Ranges = ()
    for number in range(one[0], one[1] + 1):
        t_ns = queue.times.get(number)
        if t_ns is not None and (begin is None or t_ns >= begin) and (end is None or t_ns <= end):
            found = add(found, number, number)
    return found


def _newest(found: list[Range], newest: int) -> tuple[Range, ...]:
    left: list[Range] = []
    for first, last in reversed(found):
        if newest <= 0:
            break
        left.append((max(first, last - newest + 1), last))
        newest -= left[-1][1] - left[-1][0] + 1
    return tuple(reversed(left))
