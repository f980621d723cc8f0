"""Book: what a judge knows of one source at one subscriber, from what came, what was asked, and what was told.

Numbers are those that the publisher has counted, whatever they are on the wire.
"""

from __future__ import annotations

from collections import deque

import msgspec

from statemachines.missed_samples.recovery import MS, Recovery


class AskedWindow(msgspec.Struct):
    """A query for `first`..`last` (`last` below `first`: for the newest there are), of those for the `newest` so many
    (0: all), sent when nothing from `top` on was known; `filled`: so many that were missing have come since."""

    first: int
    last: int
    newest: int
    top: int
    filled: int = 0

    @property
    def is_whole(self) -> bool:
        """All that a cache has of it fits into what it asks for."""
        return not self.newest or self.filled < self.newest - 1


class Book:
    """`begin`: the first number that is ours (-1: no contact yet); `next`: the first that is not settled; `top`: the
    first never heard of; `arrived`: what has come and is not settled.  `open`: the queries that are waited for, by
    number.  `answered`: ranges of what an answer would have brought; `tops`: a round of queries brought nothing of what
    is below.  `alive`: its token; `heard_ns`: when something came of it; `moved_ns`: when something came that was
    missing; `dropped`: so many samples had come before, were older, or not to be believed; `rests_until_ns`: how long a
    pause lasts."""

    def __init__(self, source: str, waits: bool, recovery: Recovery) -> None:
        self.source = source
        self.recovery = recovery
        self.waits = waits
        self.begin = -1
        self.next = 0
        self.top = 0
        self.arrived: set[int] = set()
        self.open: dict[int, AskedWindow] = {}
        self.answered: list[tuple[int, int]] = []
        self.tops: list[int] = []
        self.doubt = -1
        self.alive = False
        self.new = False
        self.heard_ns = 0
        self.moved_ns = 0
        self.ended = self.timed_out = False
        self.rests = False
        self.rests_until_ns = 0
        self.dropped = 0
        self._over_ns = 0
        self._failed: list[AskedWindow] = []
        self._has_failed = False
        self._round_top: int | None = None
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

    def beat(self, last: int, now_ns: int) -> None:
        """A heartbeat came."""
        if self._is_doubted(last, 0):
            self.heard_ns = now_ns
        else:
            self.hear(last + 1, last, now_ns)

    def take(self, first: int, last: int, now_ns: int) -> None:
        """Samples came."""
        if first == last and self._is_doubted(first, 1):
            self.dropped += 1
            return
        self._fill(first, min(last, self.top - 1), now_ns)
        self.hear(first, last, now_ns)
        if self.waits and first < self.next:
            self.begin = self.next = first
        before = len(self.arrived)
        self.arrived.update(range(max(first, self.next), last + 1))
        self.dropped += last - first + 1 - (len(self.arrived) - before)
        self.doubt = self.doubt if len(self.arrived) == before else -1
        self._forget_queries()

    def _is_doubted(self, number: int, least: int) -> bool:
        """It is far ahead, and nothing so far ahead was said shortly before."""
        jump = self.recovery.jump
        if self.begin < 0 or number - self.top <= jump:
            return False
        if self.doubt >= 0 and least <= number - self.doubt <= jump:
            return False
        self.doubt = number
        return True

    def _fill(self, first: int, last: int, now_ns: int) -> None:
        new = [number for number in range(max(first, self.next), last + 1) if number not in self.arrived]
        if new and self.begin >= 0:
            self.moved_ns = now_ns
        for one in self.open.values():
            one.filled += sum(one.first <= number <= one.last for number in new)

    def _forget_queries(self) -> None:
        """With nothing missing no query is waited for."""
        if not self.missing:
            self.open.clear()
            self._failed.clear()
            self._round_top = None

    def query_over(self, n: int, brought: int, now_ns: int) -> None:
        """A query has ended; `brought` as in `QueryEnded`."""
        one = self.open.pop(n, None)
        if one is None:
            return
        self.ended, self.timed_out, self._over_ns = True, False, now_ns
        if brought and self.recovery.reliable and one.is_whole:
            self.answered.append((one.first, one.first + brought))
        elif not one.filled and one.first <= one.last:
            self._failed.append(one)
        if not self.open:
            self._end_round(silent=False)

    def silence(self, now_ns: int) -> None:
        """Nobody has said a word for so long that no query is waited for any more."""
        if not self.open:
            return
        self.ended, self.timed_out, self._over_ns = True, True, now_ns
        self._failed += [one for one in self.open.values() if not one.filled and one.first <= one.last]
        silent = not any(one.filled for one in self.open.values())
        self.open.clear()
        self._end_round(silent=silent)

    def _end_round(self, silent: bool) -> None:
        """What the first queries of it have not brought was asked for in vain."""
        number = top = self._missing_from(self.next)
        for one in sorted(self._failed, key=lambda one: one.first):
            if not one.first <= number <= one.last:
                break
            top = min(one.last + 1, one.top)
            number = self._missing_from(top)
        if silent and self._failed and self._round_top is not None:
            top = max(top, self._round_top)
        self.tops = sorted(one for one in (*self.tops, top) if one > self.next)[-self.recovery.retries - 1 :]
        self._has_failed = bool(self._failed)
        self._failed.clear()
        self._round_top = None

    def _missing_from(self, number: int) -> int:
        while number in self.arrived or self._is_answered(number):
            number += 1
        return number

    def is_askable(self, first: int) -> bool:
        """It is missing, and nobody is asked for it; the first that is missing comes first."""
        asked = any(one.first <= first <= one.last for one in self.open.values())
        missing = self.next <= first < self.top and first not in self.arrived
        return missing and not asked and (bool(self.open) or first == self.next)

    def ask(self, n: int, first: int, last: int, newest: int = 0) -> None:
        """A query was sent."""
        if self._round_top is None:
            self._round_top = self.top
        self.open[n] = AskedWindow(first, last, newest, self.top)

    # -- what is told -------------------------------------------------------------------------------------------------

    def settle(self, first: int, last: int) -> None:
        """So far everything is delivered or reported."""
        self.arrived.difference_update(range(first, last + 1))
        self.next = last + 1
        while self._known_since and self._known_since[0][0] <= self.next:
            self._known_since.popleft()
        self.answered = [one for one in self.answered if one[1] > self.next]
        self._forget_queries()  # holes that are given up are not waited for

    def is_convicted(self, number: int) -> bool:
        """It was asked for often enough, or an answer would have brought it."""
        return self._is_answered(number) or sum(top > number for top in self.tops) > self.recovery.retries

    def _is_answered(self, number: int) -> bool:
        return any(first <= number < below for first, below in self.answered)

    # -- reading it ---------------------------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """Something is missing, and neither is a query waited for nor a pause; asked once after each step.  There is a
        pause after silence, or if the first number that is missing was asked for in vain, until the next query."""
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
        attempts = sum(top > self.next for top in self.tops)
        self.rests = self.timed_out or (attempts > 0 and self._has_failed)
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

    def waiting_ns(self, now_ns: int, since_ns: int) -> int:
        """How long it has been known that `next` exists; not from before `since_ns`."""
        return now_ns - max(self._known_since[0][1], since_ns) if self.has_hole and self._known_since else 0

    @property
    def longest_ns(self) -> int:
        """So long a hole may last."""
        one = self.recovery
        return (one.retries + 2) * (max(one.timeout_ms, one.timeout_max_ms) + one.backoff_max_ms) * MS
