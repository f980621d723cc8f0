"""SourceRecord: what a Subscriber keeps of one publisher, and what may happen to it."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Call, Effects, Status, TimerFired, TraceColumns
from statemachines.missed_samples.ranges import Ranges
from statemachines.missed_samples.recovery import Recovery


class Appeared(Call, frozen=True, gc=False):
    """The source is known to live; `new`: it came up while we were there, so all it sent is ours."""

    columns: ClassVar = TraceColumns(key="source")

    source: str
    new: bool


class Disappeared(Call, frozen=True, gc=False):
    """The source is not known to live any more."""

    columns: ClassVar = TraceColumns(key="source")

    source: str


class HistoryEnded(Call, frozen=True, gc=False):
    """The Subscriber's first query is over, well or not."""


class QueryTimeout(TimerFired, frozen=True, gc=False):
    """The open query has not ended in time."""


class Rested(TimerFired, frozen=True, gc=False):
    """Time to ask again."""


class PeriodOver(TimerFired, frozen=True, gc=False):
    """Time to ask what may have been missed at the end."""


class RetentionOver(TimerFired, frozen=True, gc=False):
    """Time to forget the source, if it was silent."""


class SourceStatus(Status):
    """The page's states; its recovering is two here, so that each has its timer."""

    UNKNOWN = "unknown"
    HISTORY = "history"
    LIVE = "live"
    RECOVERING = "recovering"
    RESTING = "resting"
    GONE = "gone"


UNKNOWN, HISTORY, LIVE, RECOVERING, RESTING, GONE = SourceStatus
KNOWN = (LIVE, RECOVERING, RESTING)


class WindowStatus(Status):
    """What has become of a query for a window of numbers."""

    OPEN = "open"
    WELL = "well"
    FAILED = "failed"


class QueryWindow(msgspec.Struct, frozen=True, gc=False):
    """A query `n` for the numbers `first`..`last` (`last` below `first`: it looks for the newest there is); of those it
    wants the `newest` so many (0: all).  `top`: that of its source when it was sent; `filled`: so many numbers that
    were missing have come since; `below`: it ended well, and what is missing below this number is in no cache."""

    n: int
    first: int
    last: int
    newest: int = 0
    top: int = 0
    filled: int = 0
    below: int = 0
    status: WindowStatus = WindowStatus.OPEN


class OpenQueries(msgspec.Struct, frozen=True, gc=False):
    """What a source remembers of its queries.  `windows`: those of this round, in the order of their numbers;
    `asked_top`: `top` when the round began.  `asked`: for what is missing below each of these a query failed, the
    highest of them, sorted.  A missing number has been asked for by those above it: the lower of two at least as often
    as the higher, so none needs a count of its own.  `vain`: below this number a query has ended that brought nothing.
    `silent`: so many rounds on end nobody said a word; `spoke_ns`: when a reply came last, or the round began;
    `silence_ns`: the longest silence of late that a reply ended."""

    windows: tuple[QueryWindow, ...] = ()
    asked_top: int = 0
    asked: tuple[int, ...] = ()
    vain: int = 0
    silent: int = 0
    spoke_ns: int = 0
    silence_ns: int = 0


NOTHING_ASKED = OpenQueries()


class SourceRecord(msgspec.Struct, frozen=True, gc=False):
    """One source.  All below `expected` is delivered or reported; `top` is the lowest number never heard of.  Between
    the two a number is in `held` (arrived; `held_count` of them) or missing.  `query_n`: the number of the last query;
    `asking`: what is remembered of queries, in a record of its own, so that what is in order copies little.
    `doubt`: a number that is too far ahead to be believed (-1: none).
    `history`: the Subscriber's first query is open; `heard`: since the last retention; `new`, `alive`: see Appeared;
    `origin`: its first number."""

    source: str
    recovery: Recovery
    status: SourceStatus = UNKNOWN
    expected: int = 0
    top: int = 0
    held: Ranges = ()
    held_count: int = 0
    query_n: int = 0
    asking: OpenQueries = NOTHING_ASKED
    doubt: int = -1
    dropped: int = 0
    history: bool = False
    new: bool = False
    alive: bool = False
    heard: bool = False
    origin: int = 0

    @property
    def missing(self) -> int:
        """How many numbers are missing; when everything before it is settled, `expected` is the first of them."""
        return self.top - self.expected - self.held_count

    @property
    def attempts(self) -> int:
        """How many queries for the first missing number have failed."""
        return sum(top > self.expected for top in self.asking.asked)

    @property
    def windows(self) -> tuple[QueryWindow, ...]:
        """The queries of this round."""
        return self.asking.windows

    @property
    def from_start(self) -> bool:
        """What was sent before the first contact counts as missing."""
        return self.new or (self.recovery.past and not self.history)


def with_asking(record: SourceRecord, **changes: Any) -> SourceRecord:
    """With changes of what is remembered of queries."""
    return replace(record, asking=replace(record.asking, **changes))


Done = tuple[SourceRecord, Effects]
