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
    """Nobody has answered a query in time."""


class Rested(TimerFired, frozen=True, gc=False):
    """Time to ask again."""


class Overdue(TimerFired, frozen=True, gc=False):
    """Time to give up what has been missing for too long."""


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


class SentQuery(msgspec.Struct, frozen=True, gc=False):
    """Query `n`, from `first` on, was sent at `sent_ns` (-1: it was answered, and how long that took is known)."""

    n: int
    first: int
    sent_ns: int = 0


class QueryWindow(msgspec.Struct, frozen=True, gc=False):
    """What is asked for together: the numbers `first`..`last` (`last` below `first`: the newest there is); of those
    the `newest` so many are wanted (0: all).  `top`: that of its source when it was asked for; `sent`: its queries
    that may still be answered, the newest last; `spoke_ns`: when one of them was sent, or answered, last; `heard`:
    somebody has answered since it was sent; `silent`: so often it was asked for again, and nothing missing came.
    `filled`: so many numbers that were missing have come; `below`: a query ended well, and what is missing below this
    number is in no cache."""

    first: int
    last: int
    newest: int = 0
    top: int = 0
    sent: tuple[SentQuery, ...] = ()
    spoke_ns: int = 0
    silent: int = 0
    heard: bool = False
    filled: int = 0
    below: int = 0
    status: WindowStatus = WindowStatus.OPEN


class MissingMark(msgspec.Struct, frozen=True, gc=False):
    """What is missing below `top` has been so since `since_ns`, when `expected` was what it says."""

    top: int
    since_ns: int
    expected: int


class OpenQueries(msgspec.Struct, frozen=True, gc=False):
    """What a source remembers of its queries.  `windows`: in the order of their numbers; `over`: the newest queries of
    windows that are over, and were not answered yet.  `asked`: for what is missing below each of these a query failed,
    the highest of them, sorted, since `expected` was `front`.  A missing number has been asked for by those above it:
    the lower of two at least as often as the higher, so none needs a count of its own.  `vain`: below this number a
    query has ended that brought nothing.  `marks`: since when numbers are missing.  `answer_ns`, `spread_ns`: how long
    an answer takes, and how much that varies; `gap_ns`: the longest silence of late inside an answer."""

    windows: tuple[QueryWindow, ...] = ()
    over: tuple[SentQuery, ...] = ()
    asked: tuple[int, ...] = ()
    front: int = 0
    vain: int = 0
    marks: tuple[MissingMark, ...] = ()
    answer_ns: int = 0
    spread_ns: int = 0
    gap_ns: int = 0


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
        return len(self.asking.asked) if self.asking.front == self.expected else 0

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
