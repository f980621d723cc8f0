"""Cache: keeps samples of sources and answers queries (source: "The `ReliabilityCache`").

`open -> closed`.  It may stand beside one publisher, or anywhere in the network; it takes in what carries source
information, from anywhere or from its own session alone.  What it is asked for it reads itself; what cannot be read is
answered with an error, and nothing else.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Call,
    ConfigurationError,
    Effect,
    Effects,
    Fsm,
    Invariant,
    Map,
    Message,
    Row,
    Send,
    Status,
    in_order,
)
from statemachines.missed_samples.keys import matches
from statemachines.missed_samples.message import EVERY_SOURCE, OF_SOURCE, check_range
from statemachines.missed_samples.ranges import size
from statemachines.missed_samples.sample_queue import SampleQueue, chosen, take_in
from statemachines.missed_samples.selector import Malformed, Selector, parse
from statemachines.missed_samples.serial_number import WIDTH_MAX, check_width, wrapped


class Published(Message, frozen=True, gc=False):
    """Samples `first`..`last` of `source` ("": without source information) came by under `key`; `local`: from the
    cache's own session; `t_ns`: when they were published, in nanoseconds since 1970 (0: nobody says).  Raises
    ValueError where that is no range."""

    columns: ClassVar = OF_SOURCE

    key: str
    source: str
    first: int = 0
    last: int = 0
    local: bool = False
    t_ns: int = 0

    def __post_init__(self) -> None:
        if self.source:
            check_range("sample", self.source, self.first, self.last)


class CacheQuery(Message, frozen=True, gc=False):
    """`asker` wants samples of `source` (or of `EVERY_SOURCE`) under a key expression; `parameters` as in `selector`;
    `t_ns`: what is now, in nanoseconds since 1970.  `n` goes with every answer."""

    columns: ClassVar = OF_SOURCE

    asker: str
    n: int
    source: str
    expression: str
    parameters: str = ""
    t_ns: int = 0


class Reply(Message, frozen=True, gc=False):
    """To query `n`: samples `first`..`last` of `source`, under `key`."""

    columns: ClassVar = OF_SOURCE

    n: int
    key: str
    source: str
    first: int
    last: int


class ReplyRefused(Message, frozen=True, gc=False):
    """To query `n`: it cannot be read; `why`, for people."""

    n: int
    why: str


class ReplyEnded(Message, frozen=True, gc=False):
    """To query `n`: that was all."""

    n: int


class Withdraw(Call, frozen=True, gc=False):
    """The cache is not wanted any more."""


class CacheStatus(Status):
    """Whether it serves."""

    OPEN = "open"
    CLOSED = "closed"


OPEN, CLOSED = CacheStatus

Place = tuple[str, str]
"""(source, key)"""


class CacheRecord(msgspec.Struct, frozen=True, gc=False):
    """One cache: of one source, or of `EVERY_SOURCE` (`prefix`); `expression`: the keys it stands for; `local`: only
    what its own session publishes; `history`: so many samples are kept of each key and source; `width` of the numbers
    on the wire, in bits.  `ConfigurationError` names the value that cannot be."""

    prefix: str = EVERY_SOURCE
    expression: str = "**"
    local: bool = False
    history: int = 1
    width: int = WIDTH_MAX
    status: CacheStatus = OPEN
    queues: Map[Place, SampleQueue] = Map()

    def __post_init__(self) -> None:
        check_width(self.width)
        if self.history < 1:
            raise ConfigurationError("history", self.history, "at least 1")


Done = tuple[CacheRecord, Effects]


def read(record: CacheRecord, event: CacheQuery) -> Selector | Malformed:
    """What the parameters say, or what is wrong with them."""
    try:
        return parse(event.parameters, record.width, event.t_ns)
    except Malformed as error:
        return error


def answers(record: CacheRecord, event: CacheQuery, selector: Selector) -> list[Effect]:
    """The samples that are asked for, by source and key, in the order of their numbers."""
    found: list[Effect] = []
    for (source, key), queue in in_order(record.queues):
        if event.source in (source, EVERY_SOURCE) and matches(event.expression, key):
            for first, last in chosen(queue, selector, record.width):
                sn = wrapped(first, record.width)
                found.append(Send(event.asker, Reply(event.n, key, source, sn, sn + last - first)))
    return found


# -- guards ---------------------------------------------------------------------------------------------------------


def is_unnumbered(record: CacheRecord, event: Published) -> bool:
    return not event.source


def is_not_for_us(record: CacheRecord, event: Published) -> bool:
    """From elsewhere, of a source or under a key that the cache is not there for, or of no number of this width."""
    return (
        (record.local and not event.local)
        or record.prefix not in (EVERY_SOURCE, event.source)
        or event.first >> record.width != 0
        or not matches(record.expression, event.key)
    )


def is_malformed(record: CacheRecord, event: CacheQuery) -> bool:
    return isinstance(read(record, event), Malformed)


# -- actions --------------------------------------------------------------------------------------------------------


def keep(record: CacheRecord, event: Published, now_ns: int) -> Done:
    place = (event.source, event.key)
    queue = take_in(
        record.queues.get(place, SampleQueue()),
        event.first,
        event.last - event.first + 1,
        history=record.history,
        width=record.width,
        t_ns=event.t_ns,
    )
    return replace(record, queues=record.queues.set(place, queue)), ()


def refuse(record: CacheRecord, event: CacheQuery, now_ns: int) -> Done:
    return record, (Send(event.asker, ReplyRefused(event.n, str(read(record, event)))),)


def answer(record: CacheRecord, event: CacheQuery, now_ns: int) -> Done:
    selector = read(record, event)
    assert isinstance(selector, Selector)
    return record, (*answers(record, event, selector), Send(event.asker, ReplyEnded(event.n)))


# fmt: off
ROWS = (
    #   on          from  to      do      when           clause
    Row(Published,  OPEN, STAY,   None,   is_unnumbered, "MS-40"),
    Row(Published,  OPEN, STAY,   None,   is_not_for_us, "MS-41"),
    Row(Published,  OPEN, STAY,   keep,   None,          "MS-42"),
    Row(CacheQuery, OPEN, STAY,   refuse, is_malformed,  "MS-45"),
    Row(CacheQuery, OPEN, STAY,   answer, None,          "MS-44"),
    Row(Withdraw,   OPEN, CLOSED, None,   None,          "MS-46"),
)
# fmt: on


def keeps_no_more_than_it_may(record: CacheRecord) -> bool:
    """Of each key and source so many at most, and they are counted."""
    return all(0 < queue.count == size(queue.kept) <= record.history for queue in record.queues.values())


CACHE = Fsm(
    "reliability_cache",
    protocol="missed_samples",
    record=CacheRecord,
    states=CacheStatus,
    initial=OPEN,
    final=(CLOSED,),
    rows=ROWS,
    invariants=(Invariant("keeps-no-more-than-it-may", "MS-43", keeps_no_more_than_it_may),),
)
