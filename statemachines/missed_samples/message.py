"""Messages: what a Subscriber, the publishers and the caches tell each other, and what the application is told.

Numbers are absolute; each event carries a contiguous range, so that one step stands for a batch.  Payloads stay with
the driver: it keeps what has arrived until `Deliver` or `Missed` has passed its number.
"""

from __future__ import annotations

from typing import ClassVar

from statemachines.kernel import Answer, Event, Message, TraceColumns


class Sample(Message, frozen=True, gc=False):
    """Samples `first`..`last` of `source` arrived, from its publisher or in reply to a query.

    Raises ValueError where that is not a range of numbers (decoding a message then fails as for any malformed one):
    a range that ends before it begins would take the source back over numbers that are delivered.
    """

    columns: ClassVar = TraceColumns(key="source")

    source: str
    first: int
    last: int

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last:
            raise ValueError(f"sample {self.first}..{self.last} of {self.source!r}: expected 0 <= first <= last")


class Heartbeat(Message, frozen=True, gc=False):
    """The publisher has sent everything up to `last` (-1: nothing yet); raises ValueError below that."""

    columns: ClassVar = TraceColumns(key="source")

    source: str
    last: int

    def __post_init__(self) -> None:
        if self.last < -1:
            raise ValueError(f"heartbeat {self.last} of {self.source!r}: expected the last number sent, at least -1")


class Query(Message, frozen=True, gc=False):
    """To the caches: samples of `source` from `first` on; number `n` of the subscriber's queries to it."""

    columns: ClassVar = TraceColumns(key="source")

    source: str
    n: int
    first: int


class QueryEnded(Answer, frozen=True, gc=False):
    """Query `n` is over; `replied`: it ended well, and some cache answered for the source."""

    n: int
    replied: bool


class Deliver(Event, frozen=True, gc=False):
    """To the application: samples `first`..`last`, in order."""

    columns: ClassVar = TraceColumns(key="source")

    source: str
    first: int
    last: int


class Missed(Event, frozen=True, gc=False):
    """To the application: samples `first`..`last` will not come."""

    columns: ClassVar = TraceColumns(key="source")

    source: str
    first: int
    last: int
