"""Cache: keeps samples of sources and answers queries (source: "The `ReliabilityCache`").

`open <-> crowded -> closed`: crowded has as many queues as it may, and waits to see which of them are silent.  It
may stand beside one publisher, or anywhere in the network; it takes in what carries source information, from anywhere
or from its own session alone.  What it is asked for it reads itself; what cannot be read is answered with an error, and
nothing else.
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
    Event,
    Fsm,
    Ignore,
    Invariant,
    Map,
    Message,
    Row,
    Send,
    Status,
    Tell,
    Timer,
    TimerFired,
    in_order,
)
from statemachines.missed_samples.keys import matches
from statemachines.missed_samples.message import EVERY_SOURCE, OF_SOURCE, check_range
from statemachines.missed_samples.ranges import size
from statemachines.missed_samples.recovery import MS
from statemachines.missed_samples.sample_queue import SampleQueue, select_ranges, take_in
from statemachines.missed_samples.selector import Malformed, Selector, parse
from statemachines.missed_samples.serial_number import WIDTH_MAX, check_width, wrap_number


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


class NotKept(Event, frozen=True, gc=False):
    """To the host: samples `first`..`last`, as the wire has them, are not taken in: their queue has no place."""

    columns: ClassVar = OF_SOURCE

    key: str
    source: str
    first: int
    last: int


class LetGo(Event, frozen=True, gc=False):
    """To the host: the queue is kept no longer; nothing came into it for a whole retention."""

    columns: ClassVar = OF_SOURCE

    key: str
    source: str


class CrowdedOver(TimerFired, frozen=True, gc=False):
    """A retention has passed since somebody found no place."""


class CacheStatus(Status):
    """Whether it serves, and whether it looks who is silent."""

    OPEN = "open"
    CROWDED = "crowded"
    CLOSED = "closed"


OPEN, CROWDED, CLOSED = CacheStatus
SERVING = (OPEN, CROWDED)

Place = tuple[str, str]
"""(source, key)"""


class CacheRecord(msgspec.Struct, frozen=True, gc=False):
    """One cache: of one source, or of `EVERY_SOURCE` (`prefix`); `expression`: the keys it stands for; `local`: only
    what its own session publishes; `history`: so many samples are kept of each key and source; `width` of the numbers
    on the wire, in bits; `places`: so many queues there are at most.  Who finds no place is turned away, and counted in
    `not_kept` samples; `retention_ms` later the queues that were silent since go (`heard`: the others).
    `ConfigurationError` names the value that cannot be."""

    prefix: str = EVERY_SOURCE
    expression: str = "**"
    local: bool = False
    history: int = 1
    width: int = WIDTH_MAX
    places: int = 10_000
    retention_ms: int = 3_600_000
    status: CacheStatus = OPEN
    queues: Map[Place, SampleQueue] = Map()
    heard: Map[Place, bool] = Map()
    not_kept: int = 0

    def __post_init__(self) -> None:
        check_width(self.width)
        for key in ("history", "places", "retention_ms"):
            if getattr(self, key) < 1:
                raise ConfigurationError(key, getattr(self, key), "at least 1")


Done = tuple[CacheRecord, Effects]


def read(record: CacheRecord, event: CacheQuery) -> Selector | Malformed:
    """What the parameters say, or what is wrong with them."""
    try:
        return parse(event.parameters, record.width, event.t_ns)
    except Malformed as error:
        return error


def list_answers(record: CacheRecord, event: CacheQuery, selector: Selector) -> list[Effect]:
    """The samples that are asked for, by source and key, in the order of their numbers."""
    found: list[Effect] = []
    for (source, key), queue in in_order(record.queues):
        if event.source in (source, EVERY_SOURCE) and matches(event.expression, key):
            for first, last in select_ranges(queue, selector, record.width):
                sn = wrap_number(first, record.width)
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


def is_one_too_many(record: CacheRecord, event: Published) -> bool:
    """It needs a queue of its own, and there are as many as may be."""
    return (event.source, event.key) not in record.queues and len(record.queues) >= record.places


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
    heard = record.heard.set(place, True) if record.status is CROWDED else record.heard
    return replace(record, queues=record.queues.set(place, queue), heard=heard), ()


def turn_away(record: CacheRecord, event: Published, now_ns: int) -> Done:
    count = event.last - event.first + 1
    told = Tell(NotKept(event.key, event.source, event.first, event.last))
    return replace(record, not_kept=record.not_kept + count), (told,)


def let_go(record: CacheRecord, event: CrowdedOver, now_ns: int) -> Done:
    """Of the silent ones, so that publishers which do not come back make place."""
    queues = record.queues
    silent = [place for place, _ in in_order(queues) if place not in record.heard]
    for place in silent:
        queues = queues.delete(place)
    told = tuple(Tell(LetGo(key, source)) for source, key in silent)
    return replace(record, queues=queues, heard=Map()), told


def retention_ns(record: CacheRecord) -> int:
    return record.retention_ms * MS


def refuse(record: CacheRecord, event: CacheQuery, now_ns: int) -> Done:
    return record, (Send(event.asker, ReplyRefused(event.n, str(read(record, event)))),)


def answer(record: CacheRecord, event: CacheQuery, now_ns: int) -> Done:
    selector = read(record, event)
    assert isinstance(selector, Selector)
    return record, (*list_answers(record, event, selector), Send(event.asker, ReplyEnded(event.n)))


# fmt: off
ROWS = (
    #   on           from     to       do         when             clause
    Row(Published,   SERVING, STAY,    None,      is_unnumbered,   "MS-40"),
    Row(Published,   SERVING, STAY,    None,      is_not_for_us,   "MS-41"),
    Row(Published,   OPEN,    CROWDED, turn_away, is_one_too_many, "MS-48"),
    Row(Published,   CROWDED, STAY,    turn_away, is_one_too_many, "MS-48"),
    Row(Published,   SERVING, STAY,    keep,      None,            "MS-42"),
    Row(CrowdedOver, CROWDED, OPEN,    let_go,    None,            "MS-49"),
    Row(CacheQuery,  SERVING, STAY,    refuse,    is_malformed,    "MS-45"),
    Row(CacheQuery,  SERVING, STAY,    answer,    None,            "MS-44"),
    Row(Withdraw,    SERVING, CLOSED,  None,      None,            "MS-46"),
    Ignore((CrowdedOver,), (OPEN,),                                "MS-49"),
)
# fmt: on


def keeps_no_more_than_it_may(record: CacheRecord) -> bool:
    """Of each key and source so many at most, and they are counted."""
    return all(0 < queue.count == size(queue.kept) <= record.history for queue in record.queues.values())


def keeps_no_more_queues_than_it_may(record: CacheRecord) -> bool:
    """And notes no more than it has."""
    return len(record.heard) <= len(record.queues) <= record.places


CACHE = Fsm(
    "reliability_cache",
    protocol="missed_samples",
    record=CacheRecord,
    states=CacheStatus,
    initial=OPEN,
    final=(CLOSED,),
    rows=ROWS,
    timers=(Timer("crowded", CrowdedOver, (CROWDED,), retention_ns),),
    invariants=(
        Invariant("keeps-no-more-than-it-may", "MS-43", keeps_no_more_than_it_may),
        Invariant("keeps-no-more-queues-than-it-may", "MS-48", keeps_no_more_queues_than_it_may),
    ),
)
