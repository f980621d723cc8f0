"""Conformance: what others may do otherwise who implement a publisher, a cache or a subscriber, and what is told to
them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import Event, in_order
from statemachines.missed_samples.cache import (
    CACHE,
    CacheQuery,
    CacheRecord,
    LetGo,
    NotKept,
    Published,
    Reply,
    ReplyEnded,
    ReplyRefused,
    Withdraw,
)
from statemachines.missed_samples.message import (
    EVERY_SOURCE,
    PARTLY,
    Deliver,
    DeliverUnnumbered,
    Heartbeat,
    Missed,
    Query,
    QueryEnded,
    QueryGoesOn,
    Sample,
    TurnedAway,
    Unnumbered,
)
from statemachines.missed_samples.publisher import (
    PUBLISHER,
    Beats,
    Declare,
    Publish,
    PublisherRecord,
    Stamped,
    Undeclare,
)
from statemachines.missed_samples.recovery import MS, make_recovery
from statemachines.missed_samples.source_record import (
    NOTHING_ASKED,
    Appeared,
    Disappeared,
    QueryWindow,
    SentQuery,
    WindowStatus,
)
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines.missed_samples.subscriber_record import History, Subscribe, SubscriberRecord, Unsubscribe
from statemachines.testing.conformance.interface import Alphabet
from statemachines.testing.conformance.relation import AnyOrder, Before, Chosen, Free, Ranged, Relation
from statemachines.testing.conformance.role import ConformanceRole, Start
from statemachines_spec.explorer.actor import Move, Stamp, Timing

ROUND: Final = 1 << 32
"""Where the numbers of zenoh come round; those of 64 bits that are told are far below."""
LAST: Final = ROUND - 1


def is_short(record: Any, event: Event) -> bool:
    """Ranges are as short as somebody takes who takes one sample after the other (MS-73)."""
    return not isinstance(event, Published | Sample) or event.last - event.first < 8


# -- publisher ------------------------------------------------------------------------------------------------------

PUBLISHING: Final = Relation(
    before=(Before("stamped", "sample", "last", "MS-33"),),
    ranged=(
        Ranged("stamped", "first", "last", "MS-73"),
        Ranged("sample", "first", "last", "MS-73", round_at=ROUND),
    ),
)


def tell_publisher(record: PublisherRecord) -> Iterator[Event]:
    """The application publishes one sample, or several."""
    yield from (Declare(), Publish(1), Publish(3), Undeclare())


def start_publisher(name: str, beats: Beats, width: int, since: int = 0) -> Start:
    """A publisher that goes on after `since` samples."""
    record = PublisherRecord("p", "a/b", beats, 2_000, width, next=since)
    return Start(name, record, tell_publisher, lambda record: record.next <= since + 4)


PUBLISHER_ROLE: Final = ConformanceRole(
    PUBLISHER,
    (
        start_publisher("no heartbeats", Beats.OFF, 64),
        start_publisher("periodic heartbeats", Beats.PERIODIC, 64),
        start_publisher("sporadic heartbeats", Beats.SPORADIC, 64),
        start_publisher("numbers that come round", Beats.PERIODIC, 32, LAST - 1),
        start_publisher("numbers that come round, sporadic", Beats.SPORADIC, 32, LAST),
    ),
    Timing(1_000 * MS, ("heartbeat",)),
    PUBLISHING,
    given=("source", "to", "beats", "period_ms", "width", "next"),
    alphabet=Alphabet((Declare, Publish, Undeclare), (Sample, Heartbeat), (), (Stamped,)),
)

# -- cache ----------------------------------------------------------------------------------------------------------

ANSWERING: Final = Relation(
    free=(Free("reply_refused", "why", "MS-75"),),
    any_order=(AnyOrder("reply", ("source", "key"), "MS-74"),),
    ranged=(
        Ranged("reply", "first", "last", "MS-73", round_at=ROUND),
        Ranged("not_kept", "first", "last", "MS-73", round_at=ROUND),
    ),
)
S_NS: Final = 1_000_000_000
ASKER: Final = "s~1/1"


def tell_cache(
    numbers: tuple[tuple[int, int], ...],
    parameters: tuple[str, ...],
    sources: tuple[str, ...] = ("p",),
    keys: tuple[str, ...] = ("a/b",),
    times: tuple[int, ...] = (0,),
    local: tuple[bool, ...] = (True,),
) -> Callable[[Any], Iterator[Event]]:
    """Samples with these numbers, and queries with these parameters, of one source and of all."""

    def say(record: CacheRecord) -> Iterator[Event]:
        for source in sources:
            for key in keys:
                for t_ns in times:
                    yield from (Published(key, source, *two, one, t_ns) for two in numbers for one in local)
        for text in parameters:
            yield CacheQuery(ASKER, 7, "p", "a/b", text, 10 * S_NS)
        yield from (CacheQuery(ASKER, 8, EVERY_SOURCE, expression, "", 10 * S_NS) for expression in ("a/*", "c"))
        yield Withdraw()

    return say


def is_counted(record: CacheRecord) -> bool:
    """Not more is turned away than shows that it is counted."""
    return record.not_kept <= 1


SELECTED: Final = ("", "_sn=1..2", "_sn=2..", "_sn=..1", "_sn=1", "_max=1", "_sn=..2;_max=2", "other=1", "_max=0")
MALFORMED: Final = ("_sn=b..a", "_sn=2..1", "_max=", "_sn=1;_sn=2", "_time=[1..2", "_sn=-1", f"_sn={1 << 64}")
TIMED: Final = ("_time=[now(-2s)..]", "_time=]now(-2s)..now()]", "_time=[..9000000000[", "_max=1;_time=[..now(-1s)]")

CACHE_ROLE: Final = ConformanceRole(
    CACHE,
    (
        Start("a queue", CacheRecord(history=3), tell_cache(((0, 0), (1, 2), (3, 3), (0, 4)), SELECTED)),
        Start("one sample", CacheRecord(prefix="p", expression="a/b", local=True), tell_cache(
            ((0, 0), (1, 1)), MALFORMED, ("p", "q", ""), ("a/b", "a/c"), local=(True, False)
        )),
        Start("several queues", CacheRecord(expression="a/**", places=2, retention_ms=2_000), tell_cache(
            ((0, 0), (1, 1)), ("_max=1", "_max=x"), ("p", "q", ""), ("a/b", "a/c", "c")
        ), is_counted),
        Start("times", CacheRecord(history=2), tell_cache(
            ((0, 0), (1, 1), (2, 2)), TIMED, times=(0, 8 * S_NS, 9 * S_NS)
        )),
        Start("numbers that come round", CacheRecord(history=3, width=32), tell_cache(
            ((LAST - 1, LAST - 1), (LAST, LAST), (LAST, LAST + 1), (1, 1)),
            ("", f"_sn={LAST}..0", f"_sn={LAST}..", "_sn=..0", "_max=2"),
        )),
    ),
    Timing(1_000 * MS, ("crowded",)),
    ANSWERING,
    given=("prefix", "expression", "local", "history", "width", "places", "retention_ms"),
    alphabet=Alphabet((Published, CacheQuery, Withdraw), (Reply, ReplyRefused, ReplyEnded), (), (NotKept, LetGo)),
    legal=is_short,
)  # fmt: skip

# -- subscriber -----------------------------------------------------------------------------------------------------

RECOVERY: Final = Relation(
    chosen=(
        Chosen("query number", (("query", "n"), ("query_ended", "n"), ("query_goes_on", "n")), "MS-76", per="source"),
    ),
    any_order=(AnyOrder("query", ("source", "first", "last"), "MS-77"),),
    ranged=(
        Ranged("deliver", "first", "last", "MS-73"),
        Ranged("missed", "first", "last", "MS-73"),
        Ranged("turned_away", "first", "last", "MS-73"),
    ),
)


def hide_counts(record: SubscriberRecord, live: Move, dead: Move) -> SubscriberRecord:
    """The record with other times of what is waited for, if they are still read; and without what shows nowhere:
    counts, what is over, and what answers took where no time depends on it."""
    sources = record.sources
    for name, source in in_order(sources):
        asking, pacing = source.asking, source.recovery.pacing
        if asking is not NOTHING_ASKED:
            has_one_timeout = pacing.timeout_min_ms == pacing.timeout_ms == pacing.timeout_max_ms
            learned = dead if has_one_timeout else live
            asking = replace(
                asking,
                windows=tuple(_move_window(one, live, dead, learned) for one in asking.windows),
                over=tuple(_move_sent(one, learned) for one in asking.over),
                marks=tuple(replace(one, since_ns=live(one.since_ns)) for one in asking.marks),
                **{key: dead(getattr(asking, key)) for key in ("answer_ns", "spread_ns", "gap_ns") if has_one_timeout},
            )
        sources = sources.set(name, replace(source, dropped=dead(source.dropped), asking=asking))
    return replace(record, sources=sources, turned_away=dead(record.turned_away))


def _move_window(window: QueryWindow, live: Move, dead: Move, learned: Move) -> QueryWindow:
    spoke_ns = (live if window.status is WindowStatus.OPEN else dead)(window.spoke_ns)
    return replace(window, spoke_ns=spoke_ns, sent=tuple(_move_sent(one, learned) for one in window.sent))


def _move_sent(sent: SentQuery, learned: Move) -> SentQuery:
    return sent if sent.sent_ns < 0 else replace(sent, sent_ns=learned(sent.sent_ns))


def tell_subscriber(
    samples: tuple[tuple[int, int], ...],
    beats: tuple[int, ...] = (),
    brought: tuple[int, ...] = (),
    sources: tuple[str, ...] = ("p",),
    tokens: tuple[bool, ...] = (),
) -> Callable[[Any], Iterator[Event]]:
    """Samples and heartbeats with these numbers, and ends of queries that brought so much."""

    def say(record: SubscriberRecord) -> Iterator[Event]:
        yield from (Subscribe(), Unnumbered(), Unsubscribe())
        for name in sources:
            yield from (Sample(name, *two) for two in samples)
            yield from (Heartbeat(name, last) for last in beats)
            yield from (Appeared(name, new) for new in tokens)
            if tokens:
                yield Disappeared(name)
            source = record.sources.get(name)
            if source is not None and brought:
                numbers = [one.n for window in source.windows for one in window.sent] or [source.query_n]
                yield from (QueryEnded(name, n, one) for n in numbers for one in brought)
                yield from (QueryGoesOn(name, n) for n in numbers)
                yield QueryEnded(name, source.query_n + 1, brought[-1])
        if record.history is not None and brought:
            yield from (QueryEnded(EVERY_SOURCE, n, one) for n in (record.tries, record.tries - 1) for one in (0, 1))
            yield QueryGoesOn(EVERY_SOURCE, record.tries)

    return say


def tell_doubt(record: SubscriberRecord) -> Iterator[Event]:
    """A number far ahead, one that ends the doubt, and one that follows it."""
    samples = ((2, 2), (6, 6), (7, 7), (1, 6)) if record.sources else ((0, 0),)
    yield from (Subscribe(), *(Sample("p", *two) for two in samples))


def is_within(queries: int) -> Callable[[Any], bool]:
    """No source has sent more queries."""

    def holds(record: SubscriberRecord) -> bool:
        return record.queries <= queries and all(one.query_n <= queries for _, one in in_order(record.sources))

    return holds


def start_subscriber(
    name: str,
    say: Callable[[Any], Iterator[Event]],
    queries: int = 2,
    history: History | None = None,
    width: int = 64,
    **changed: Any,
) -> Start:
    """A subscriber with short times: a query is silent after a second, and asked again a second later."""
    short = {"retries": 1, "deadline_ms": 4_000, "ahead": 1, "timeout_ms": 1_000, "timeout_min_ms": 1_000,
             "timeout_max_ms": 1_000, "history_ms": 1_000, "backoff_ms": 1_000, "retention_ms": 1_000}  # fmt: skip
    recovery = make_recovery(**{**short, **changed})
    return Start(name, SubscriberRecord(recovery, history, width), say, is_within(queries))


ONE, THREE = ((0, 0), (1, 1)), ((0, 0), (1, 1), (3, 3))
JUMPS: Final = ((0, 0), (2, 2), (6, 6), (7, 7))
SUBSCRIBER_STARTS: Final = (
    start_subscriber("a hole", tell_subscriber(THREE, (3,), (0, 1))),
    start_subscriber("windows", tell_subscriber(((0, 0), (1, 1), (5, 5)), (), (0, 1)), 3, window=2, windows=2),
    start_subscriber("one try", tell_subscriber(((0, 0), (2, 3), (6, 6)), (), (PARTLY, 0, 2)), retries=0, pending=1),
    start_subscriber("unreliable answers", tell_subscriber(THREE, (), (0, 2)), reliable=False),
    start_subscriber("the end", tell_subscriber(ONE, (-1, 1), (0, 1, 2)), period_ms=1_000),
    start_subscriber("the past", tell_subscriber(((2, 2),), (1,), (0, 2), tokens=(True,)), past=True),
    start_subscriber("tokens", tell_subscriber(((2, 2),), (1, -1), (2,), tokens=(True, False)), 1),
    start_subscriber("jumps", tell_subscriber(JUMPS, (7,)), 1, jump=2),
    start_subscriber("silence", tell_subscriber(((0, 0), (2, 2)), (), (0, 1)), timeout_max_ms=4_000, retries=2),
    start_subscriber("history", tell_subscriber(ONE, (1,), (0,), tokens=(True,)), 1, History(2, 1_000)),
    start_subscriber("a long history", tell_subscriber(THREE, (), (0,)), 1, History(), history_limit=1),
    start_subscriber(
        "a jump in history", tell_subscriber(((6, 6),), (0, 7), (), tokens=(False,)), 1, History(), jump=2
    ),
    start_subscriber("one source", tell_subscriber(ONE, (1,), (), ("p", "q"), (True,)), 1, sources=1),
    start_subscriber("round", tell_subscriber(((LAST, LAST), (0, 0), (2, 2)), (LAST, 2), (0, 1)), 1, width=32),
    start_subscriber("a doubt that ends", tell_doubt, 1, jump=2),
)
SUBSCRIBER_ROLE: Final = ConformanceRole(
    SUBSCRIBER,
    SUBSCRIBER_STARTS,
    Timing(1_000 * MS, ("history", "pause", "query", "overdue", "rest", "period", "retention"),
           (Stamp("spoke_ns", 4_000 * MS, hide_counts),)),
    RECOVERY,
    given=("recovery", "history", "width"),
    alphabet=Alphabet(
        (Subscribe, Unsubscribe, Sample, Unnumbered, Heartbeat, Appeared, Disappeared, QueryEnded, QueryGoesOn),
        (), (Query,), (Deliver, DeliverUnnumbered, Missed, TurnedAway),
    ),
    legal=is_short,
)  # fmt: skip

ROLES: Final = {"publisher": PUBLISHER_ROLE, "reliability_cache": CACHE_ROLE, "subscriber": SUBSCRIBER_ROLE}
