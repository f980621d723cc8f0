"""Stream: what came of one source to one life of a subscriber, what was asked for, and what its application was told.

It follows from the rows alone, without a record of a machine.  Numbers are those of the Source, which never come round.
A stream begins anew where a source was forgotten.

HeldNumbers: the numbers of a stream that have come and were not told yet, with the row in which each came.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple


class NumberRange(NamedTuple):
    """Numbers `first`..`last` came in `row`."""

    first: int
    last: int
    row: int


class HeldNumbers:
    """Parts that do not overlap, in order."""

    def __init__(self) -> None:
        self.parts: list[NumberRange] = []

    def __len__(self) -> int:
        return sum(part.last - part.first + 1 for part in self.parts)

    def add(self, first: int, last: int, row: int) -> int:
        """They came; how many of them are new."""
        parts = self.parts
        if not parts or parts[-1].last < first:
            parts.append(NumberRange(first, last, row))
            return last - first + 1
        at = max(bisect_right(parts, (first, first, row)) - 1, 0)
        new: list[NumberRange] = []
        begin = first
        for part in parts[at:]:
            if part.first > last:
                break
            if begin < part.first:
                new.append(NumberRange(begin, part.first - 1, row))
            begin = max(begin, part.last + 1)
        if begin <= last:
            new.append(NumberRange(begin, last, row))
        if new:
            self.parts = sorted([*parts, *new])
        return sum(part.last - part.first + 1 for part in new)

    def take(self, first: int, last: int) -> Iterator[NumberRange]:
        """Those of a range that have come; they and everything below are held no more."""
        kept: list[NumberRange] = []
        taken: list[NumberRange] = []
        for part in self.parts:
            if part.first > last:
                kept.append(part)
                continue
            if part.last >= first:
                taken.append(NumberRange(max(part.first, first), min(part.last, last), part.row))
            if part.last > last:
                kept.append(NumberRange(last + 1, part.last, part.row))
        self.parts = kept
        yield from taken

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.parts, (number, 1 << 63, 0)) - 1
        return at >= 0 and self.parts[at].last >= number


RECOVERED, MISSED, OPEN = "recovered", "missed", "open"
DELIVER, QUERY, GONE = "deliver", "query", "gone"
ENDS = ("query_ended", "query_timeout")
UNPROMPTED = "period_over"
"""After it a query is sent that nobody waits for."""
MET = ("appeared", "history_ended")
"""A source that is known by its token alone is asked for its newest samples."""


class SampleFinding(NamedTuple):
    """A row that is not as the check of this name has it."""

    check: str
    row: int
    detail: str


class Hole(NamedTuple):
    """Numbers that were missing: `size` of them from `first` on, since the row `since`, which was a `cause` (a sample
    or heartbeat ahead of them), until the row `until` (-1: to the end); `outcome`: recovered, missed, open."""

    first: int
    size: int
    since: int
    until: int
    cause: str
    outcome: str


class KnownTop(NamedTuple):
    """From this row on it is known that everything below `top` exists."""

    top: int
    row: int
    cause: str


class SampleStream:
    """`pending`: so many numbers that are ahead of a hole are held at most; where there are more, the oldest hole gives
    way, asked for or not (None: nobody knows, and every sample may be one too many).  `next`: the first number that was
    not told (-1: nothing is settled yet); `looked`: how much each check has looked at."""

    def __init__(self, name: str, pending: int | None) -> None:
        self.name = name
        self.pending = pending
        self.next = -1
        self.delivered = self.again = self.queries = 0
        self.holes: list[Hole] = []
        self.wrong: list[SampleFinding] = []
        self.looked: Counter[str] = Counter()
        self._held = HeldNumbers()
        self._known: list[KnownTop] = []
        self._ended = -1
        self._asked: list[tuple[int, int, int]] = []
        self._step = ""

    @property
    def top(self) -> int:
        """The first number never heard of; -1: none was."""
        return self._known[-1].top if self._known else -1

    def step(self, row: int, event: str, first: int, last: int) -> None:
        """A step of the Source."""
        self.settle()
        self._step = event
        if event == "sample":
            self._hear(row, last + 1, event)
            fresh = self._held.add(max(first, self.next), last, row) if last >= self.next else 0
            self.again += last - first + 1 - fresh
        elif event == "heartbeat" and last >= 0:
            self._hear(row, last + 1, event)
        elif event in ENDS:
            self._ended = row

    def _hear(self, row: int, top: int, cause: str) -> None:
        if top > self.top:
            self._known.append(KnownTop(top, row, cause))

    def ask(self, row: int, first: int, last: int) -> None:
        """A query for `first`..`last` (`last` below `first`: for the newest there are), as an effect of the last step;
        what it told besides stands beside it."""
        self.queries += 1
        self._asked.append((row, first, last))

    def settle(self) -> None:
        """The last step has had all its effects."""
        asked, self._asked = self._asked, []
        begins = self._step != "query_ended"  # then others may be open, for what is lower
        for row, first, last in asked:
            looks = last < first
            if looks and self._step in MET:
                continue  # of a source that nothing has come of
            if self.next < 0:
                self.next = first
            self.looked["asked"] += 1
            if first < self.next or (first > self.next and (looks or begins)):
                self._say("asked", row, f"asks from {first} on, and {self.next} is the first that was not told")
            elif not looks and (first >= self.top or first in self._held):
                self._say("asked", row, f"asks from {first} on, and nothing is missing")
            elif looks and self._step != UNPROMPTED:
                self._say("asked", row, f"asks for the newest from {first} on, and nobody waits for that")
            begins = False

    def tell_range(self, row: int, event: str, first: int, last: int) -> None:
        """The application was told of a range."""
        self._judge_order(row, event, first)
        if event == DELIVER:
            self._deliver(row, first, last)
        else:
            self._miss(row, first, last)
        self.next = max(self.next, last + 1)
        while len(self._known) > 1 and self._known[0].top <= self.next:
            del self._known[0]

    def _judge_order(self, row: int, event: str, first: int) -> None:
        self.looked["once"] += 1
        self.looked["reported"] += 1
        if self.next < 0:
            return
        if first < self.next:
            self._say("once", row, f"{event} {first}, and everything below {self.next} was told")
        elif first > self.next:
            self._say("reported", row, f"{event} {first}, and nothing was said of {self.next}")

    def _deliver(self, row: int, first: int, last: int) -> None:
        count = last - first + 1
        self.delivered += count
        self.looked["came"] += 1
        parts = list(self._held.take(first, last))
        if sum(part.last - part.first + 1 for part in parts) < count:
            self._say("came", row, f"delivers {first}..{last}, and not all of it has come")
        for part in parts:
            self._note(part.first, part.last, row, RECOVERED, came=part.row)

    def _miss(self, row: int, first: int, last: int) -> None:
        self.looked["given_up"] += 1
        crowded = self._step == "sample" if self.pending is None else len(self._held) > self.pending
        if list(self._held.take(first, last)):
            self._say("given_up", row, f"reports {first}..{last} as missed, and some of it has come")
        if last >= self.top:
            self._say("given_up", row, f"reports {first}..{last} as missed, which was never heard of")
        elif self._ended < self._known_since(last).row and not crowded:
            self._say("given_up", row, f"reports {first}..{last} as missed, and no query for it has ended")
        self._note(first, min(last, self.top - 1), row, MISSED)

    def _known_since(self, number: int) -> KnownTop:
        return self._known[bisect_right(self._known, number, key=lambda known: known.top)]

    def _note(self, first: int, last: int, until: int, outcome: str, came: int = 1 << 63) -> None:
        """Holes, apart where they were known apart; what `came` in the row in which it was first heard of is none."""
        while first <= last:
            known = self._known_since(first)
            end = min(known.top - 1, last)
            if known.row < came:
                self.holes.append(Hole(first, end - first + 1, known.row, until, known.cause, outcome))
            first = end + 1

    def _say(self, check: str, row: int, detail: str) -> None:
        self.wrong.append(SampleFinding(check, row, f"{self.name} {detail}"))

    def end(self) -> None:
        """Nothing more of it comes: what is missing stays so."""
        self.settle()
        begin = self.next
        for part in [*self._held.parts, None]:
            if begin >= 0:
                self._note(begin, (self.top if part is None else part.first) - 1, -1, OPEN)
            begin = begin if part is None else part.last + 1
