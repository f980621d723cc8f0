"""Book: what a judge knows of one source at one subscriber, from what came, what was asked, and what was told.

Numbers are those that the publisher has counted, whatever they are on the wire.
"""

from __future__ import annotations

from collections import deque

from statemachines.missed_samples.recovery import MS, Recovery


class Book:
    """`begin`: the first number that is ours (-1: no contact yet); `next`: the first that is not settled; `top`: the
    first never heard of; `arrived`: what has come and is not settled.  `open`: the number of the query that is waited
    for (0: none), which asks for what is missing below `asked_top`.  `tries`: the same of those that ended and brought
    nothing; everything below `answered` was asked for by one that came back.  `alive`: its token; `heard_ns`: when
    something came of it; `dropped`: so many samples had come before, or were older; `rests_until_ns`: how long a pause
    lasts."""

    def __init__(self, source: str, waits: bool, recovery: Recovery) -> None:
        self.source = source
        self.recovery = recovery
        self.waits = waits
        self.begin = -1
        self.next = 0
        self.top = 0
        self.arrived: set[int] = set()
        self.open = 0
        self.asked_top = 0
        self.tries: list[int] = []
        self.answered = 0
        self.alive = False
        self.new = False
        self.heard_ns = 0
        self.ended = self.timed_out = False
        self.rests = False
        self.rests_until_ns = 0
        self.dropped = 0
        self._over_ns = 0
        self._known_since: deque[tuple[int, int]] = deque()

    # -- what comes ---------------------------------------------------------------------------------------------------

    def hear(self, first: int, last: int, now_ns: int) -> None:
        """Numbers up to `last` exist; at first contact they decide where it begins."""
        self.heard_ns = now_ns
        if self.begin < 0:
            from_start = self.new or (self.recovery.past and not self.waits)
            self.begin = self.next = self.top = 0 if from_start else first
        if last + 1 > self.top:
            self.top = last + 1
            self._known_since.append((self.top, now_ns))

    def take(self, first: int, last: int, now_ns: int) -> None:
        """Samples came."""
        self.hear(first, last, now_ns)
        if self.waits and first < self.next:
            self.begin = self.next = first
        before = len(self.arrived)
        self.arrived.update(range(max(first, self.next), last + 1))
        self.dropped += last - first + 1 - (len(self.arrived) - before)
        if not self.missing:
            self.open = 0

    def query_over(self, n: int, replied: bool, now_ns: int, timed_out: bool = False) -> None:
        """A query has ended, or its time has run out."""
        if not self.open or n != self.open:
            return
        self.open = 0
        self.ended, self.timed_out, self._over_ns = True, timed_out, now_ns
        if replied and self.recovery.reliable:
            self.answered = max(self.answered, self.asked_top)
        else:
            self.tries = [top for top in (*self.tries, self.asked_top) if top > self.next]

    def ask(self, n: int) -> None:
        """A query was sent."""
        self.open, self.asked_top = n, self.top

    # -- what is told -------------------------------------------------------------------------------------------------

    def settle(self, first: int, last: int) -> None:
        """So far everything is delivered or reported."""
        self.arrived.difference_update(range(first, last + 1))
        self.next = last + 1
        while self._known_since and self._known_since[0][0] <= self.next:
            self._known_since.popleft()
        if not self.missing:
            self.open = 0  # holes that are given up are not waited for

    def is_convicted(self, number: int) -> bool:
        """It was asked for often enough, or a query for it came back."""
        return number < self.answered or sum(top > number for top in self.tries) > self.recovery.retries

    # -- reading it ---------------------------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """Something is missing, and neither is a query waited for nor a pause; asked once after each step.  There is a
        pause after a query whose time ran out, or if the first number that is missing was asked for in vain, until the
        next query."""
        if self.ended:
            self._begin_pause()
        self.rests = self.rests and self.missing and not self.open
        return self.missing and not self.waits and not self.open and not self.rests

    def is_hasty(self, now_ns: int) -> bool:
        """To ask now is to ask in a pause."""
        if self.ended:
            self._begin_pause()
        return self.rests and now_ns < self.rests_until_ns

    def _begin_pause(self) -> None:
        """It doubles with the queries for the first missing number that brought nothing."""
        one = self.recovery
        attempts = sum(top > self.next for top in self.tries)
        self.rests = self.timed_out or attempts > 0
        doubled = one.backoff_ms * 2 ** min(max(attempts - 1, 0), 20)
        self.rests_until_ns = self._over_ns + min(doubled, one.backoff_max_ms) * MS
        self.ended = False

    @property
    def missing(self) -> bool:
        """Numbers that are known to exist have not come."""
        return self.begin >= 0 and self.top - self.next > len(self.arrived)

    @property
    def has_hole(self) -> bool:
        """Something is not settled."""
        return self.begin >= 0 and self.next < self.top

    def waited_ns(self, now_ns: int, since_ns: int) -> int:
        """How long it has been known that `next` exists; not from before `since_ns`."""
        return now_ns - max(self._known_since[0][1], since_ns) if self.has_hole and self._known_since else 0

    @property
    def longest_ns(self) -> int:
        """So long a hole may last."""
        one = self.recovery
        return (one.retries + 2) * (one.timeout_ms + one.backoff_max_ms) * MS
