"""TimedSource: what the watch knows of one source at one subscriber, and when it came to know it.

Numbers are those that the publisher has counted, whatever they are on the wire.
"""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from statemachines.missed_samples.message import PARTLY
from statemachines.missed_samples.properties import AskedNumbers, Broken, ObservedSource
from statemachines.missed_samples.recovery import MS, Recovery


class TimedSource:
    """`seen`: what has come, was asked for, and was told; `heard_ns`: when something came of it; `moved_ns`: when
    something came that was missing; `rests_until_ns`: how long a pause lasts."""

    def __init__(self, source: str, waits: bool, recovery: Recovery) -> None:
        self.source = source
        self.recovery = recovery
        self.seen = ObservedSource(waits=waits)
        self.heard_ns = 0
        self.moved_ns = 0
        self.rests_until_ns = 0
        self._rests = False
        self._is_over = self._has_failed = False
        self._again_ns = -1
        self._over_ns = 0
        self._known_since: deque[tuple[int, int]] = deque()

    # -- what comes ---------------------------------------------------------------------------------------------------

    def beat(self, last: int, now_ns: int) -> None:
        """A heartbeat came."""
        self.heard_ns = now_ns
        self._note(self.seen.observe_heartbeat(last, self.recovery), now_ns)

    def take(self, first: int, last: int, now_ns: int) -> None:
        """Samples came."""
        before = self.seen
        after = before.observe_samples(first, last, self.recovery)
        if first != last or not before.is_doubted(first, 1, self.recovery):
            self.heard_ns = now_ns
        if first < before.top and before.missing & before.select(first, last):
            self.moved_ns = now_ns
        self._note(after, now_ns)
        if after.waits and after.held_count > self.recovery.history_limit:
            self.end_history()

    def _note(self, after: ObservedSource, now_ns: int) -> None:
        if after.top > (self.seen.top if self.seen.began >= 0 else after.next):
            self._known_since.append((after.top, now_ns))
        self.seen = after

    def end_history(self) -> None:
        """The first query is over, or more is held than may be meanwhile."""
        if self.seen.waits:
            self.seen = replace(self.seen, waits=False)

    def end_query(self, n: int, brought: int, now_ns: int) -> None:
        """A query has ended; `brought` as in `QueryEnded`."""
        self._again_ns = now_ns if brought == PARTLY else self._again_ns
        closed = self.seen.close_query(n, brought, self.recovery)
        if closed is self.seen:
            return
        self._is_over, self._over_ns, self._has_failed = True, now_ns, closed.failed
        self.seen = closed if closed.open else closed.end_round(self.recovery)

    def time_out(self, now_ns: int) -> None:
        """Nobody has answered for so long that something is asked for again."""
        failed, self._again_ns = self.seen.failed, now_ns
        self.seen = self.seen.observe_timeout(self.recovery)
        self._is_over, self._over_ns, self._has_failed = not self.seen.open, now_ns, failed

    def give_up(self, now_ns: int) -> None:
        """The deadline of some has passed."""
        late = [
            top for top, since_ns in self._known_since if since_ns <= now_ns - self.recovery.deadline_ms * MS * 7 // 8
        ]
        self.seen = self.seen.observe_overdue(self.seen.select(self.seen.next, max(late, default=0) - 1))

    # -- what is asked for and told -----------------------------------------------------------------------------------

    def ask(self, asked: AskedNumbers, now_ns: int) -> Broken:
        """A query was sent; what breaks.  All that happens at once comes before it."""
        self.seen, broken = self.seen.observe_query(replace(asked, again=self._again_ns == now_ns), self.recovery)
        return broken

    def deliver(self, first: int, last: int) -> Broken:
        """The application was given samples; what breaks."""
        self.seen, broken = self.seen.observe_delivered(first, last)
        self._settle()
        return broken

    def miss(self, first: int, last: int) -> Broken:
        """The application was told of a loss; what breaks."""
        self.seen, broken = self.seen.observe_missed(first, last, self.recovery)
        self._settle()
        return broken

    def _settle(self) -> None:
        while self._known_since and self._known_since[0][0] <= self.seen.next:
            self._known_since.popleft()

    # -- reading it ---------------------------------------------------------------------------------------------------

    def judge_idle(self) -> Broken:
        """ASKED, once after each step.  There is a pause if the first number that is missing was asked for in vain,
        until the next query."""
        self.seen = replace(self.seen, late=0) if self.seen.late else self.seen
        self._begin_pause()
        self._rests = self._rests and self.seen.is_missing_any and not self.seen.open
        return self.seen.judge_idle(self._rests)

    def is_hasty(self, now_ns: int) -> bool:
        """To ask now is to ask in a pause."""
        self._begin_pause()
        return self._rests and now_ns < self.rests_until_ns

    def _begin_pause(self) -> None:
        if self._is_over:
            self._rests = self.seen.attempts > 0 and self._has_failed
            self.rests_until_ns = self._over_ns + self.seen.pause_ms(self.recovery) * MS
            self._is_over = False

    def waiting_ns(self, now_ns: int, since_ns: int) -> int:
        """How long it has been known that `next` exists; not from before `since_ns`."""
        return now_ns - max(self._known_since[0][1], since_ns) if self.seen.has_hole and self._known_since else 0
