"""Messages: what subscribers, publishers and caches tell each other, and what the application is told.

Each event carries a contiguous range of numbers, so that one step stands for a batch.  Between the parties numbers are
those of the wire (`serial_number`): `first` has `width` bits, and `last` is so many after it, without coming round.  A
Source, and what the application is told of it, has numbers that never come round; without a width they are the same.
Payloads stay with the driver: it keeps what has arrived until `Deliver` or `Missed` has passed its number.
"""

from __future__ import annotations

from typing import ClassVar

from statemachines.kernel import Answer, Event, Message, Request, TraceColumns
from statemachines.missed_samples.serial_number import wrap_number

OF_SOURCE = TraceColumns(key="source")

EVERY_SOURCE = "*"
"""In place of a source: all of them."""

QUERY = "query"
"""The service that carries queries to the caches, their replies back, and says when a query is over."""


def check_range(what: object, source: str, first: int, last: int) -> None:
    """Raises ValueError where that is no range, which would take a reader back over numbers that are settled, or where
    the source has no name of its own."""
    if source in ("", EVERY_SOURCE):
        raise ValueError(f"{what} of {source!r}: expected the name of one source")
    if not 0 <= first <= last:
        raise ValueError(f"{what} {first}..{last} of {source!r}: expected 0 <= first <= last")


class Sample(Message, frozen=True, gc=False):
    """Samples `first`..`last` of `source` arrived, from its publisher or in reply to a query.

    Raises ValueError where that is not a range of numbers (decoding a message then fails as for any malformed one).
    """

    columns: ClassVar = OF_SOURCE

    source: str
    first: int
    last: int

    def __post_init__(self) -> None:
        check_range("sample", self.source, self.first, self.last)


class Unnumbered(Message, frozen=True, gc=False):
    """A sample without source information arrived: of which source, and the how many-th, nobody knows."""


class Heartbeat(Message, frozen=True, gc=False):
    """The publisher has sent everything up to `last` (-1: nothing yet); raises ValueError below that."""

    columns: ClassVar = OF_SOURCE

    source: str
    last: int

    def __post_init__(self) -> None:
        if self.source in ("", EVERY_SOURCE) or self.last < -1:
            raise ValueError(f"heartbeat {self.last} of {self.source!r}: expected the last number sent, at least -1")


class Query(Request, frozen=True, gc=False):
    """To all caches that can be reached: samples `first`..`last` of `source` (`last` below `first`: without end); of
    those the `newest` so many of each source (0: all); number `n` of the subscriber's queries.
    The subscriber's first query is about `EVERY_SOURCE`, with what it says of history: the `newest` of each source, no
    older than `age_ms` (0: of any age)."""

    columns: ClassVar = OF_SOURCE

    source: str
    n: int
    first: int
    newest: int = 0
    age_ms: int = 0
    last: int = -1

    @property
    def has_end(self) -> bool:
        """Whether it asks for a range of numbers, and not for all from the first on."""
        return self.last >= self.first

    def reach_of(self, sn: int, width: int) -> int:
        """How many numbers there are from its first on to `sn` of the wire; 0: it did not ask for that."""
        reach = wrap_number(sn - self.first, width) + 1
        return reach if not self.has_end or reach <= self.last - self.first + 1 else 0


class QueryGoesOn(Answer, frozen=True, gc=False):
    """A reply to query `n` about `source` has come, and more may come."""

    columns: ClassVar = OF_SOURCE

    source: str
    n: int


PARTLY = -1
"""What a query has brought of whose answer a part is lost, as far as the transport knows."""


class QueryEnded(Answer, frozen=True, gc=False):
    """Query `n` about `source` is over.  `brought`: the highest number that it brought is so many from its first on,
    that one included (`Query.reach_of`; 0: it brought nothing; or `PARTLY`); of the first query, how many caches
    answered.  What it brought has come before, as samples, where the transport brings every reply."""

    columns: ClassVar = OF_SOURCE

    source: str
    n: int
    brought: int = 0


class Deliver(Event, frozen=True, gc=False):
    """To the application: samples `first`..`last`, in order."""

    columns: ClassVar = OF_SOURCE

    source: str
    first: int
    last: int


class DeliverUnnumbered(Event, frozen=True, gc=False):
    """To the application: the sample without source information that has just come."""


class TurnedAway(Event, frozen=True, gc=False):
    """To the application: samples `first`..`last` have come, and are not taken: so many sources are kept as may be."""

    columns: ClassVar = OF_SOURCE

    source: str
    first: int
    last: int


class Missed(Event, frozen=True, gc=False):
    """To the application: samples `first`..`last` will not come."""

    columns: ClassVar = OF_SOURCE

    source: str
    first: int
    last: int
