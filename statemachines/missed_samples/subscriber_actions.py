"""What an event makes of a Subscriber: the guards and actions of its table (`subscriber`)."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import Ask, ChildStep, Effects, Event, SetTimer, Tell, TimerFired, in_order
from statemachines.missed_samples.message import (
    EVERY_SOURCE,
    QUERY,
    DeliverUnnumbered,
    Heartbeat,
    Query,
    QueryEnded,
    QueryGoesOn,
    Sample,
    TurnedAway,
    Unnumbered,
)
from statemachines.missed_samples.recovery import MS, backoff_ms
from statemachines.missed_samples.serial_number import origin, unwrap_number
from statemachines.missed_samples.source import SOURCE
from statemachines.missed_samples.source_record import GONE, UNKNOWN, Appeared, Disappeared, HistoryEnded, SourceRecord
from statemachines.missed_samples.subscriber_record import BEFORE, HistoryTimeout, Subscribe, SubscriberRecord

Done = tuple[SubscriberRecord, Effects]
Delegated = tuple[SubscriberRecord, Effects, tuple[ChildStep, ...]]


# -- one source of many ---------------------------------------------------------------------------------------------


def source_of(record: SubscriberRecord, source: str) -> SourceRecord:
    """The source as it is kept, or as it begins."""
    found = record.sources.get(source)
    if found is not None:
        return found
    return SourceRecord(
        source,
        record.recovery,
        history=record.status in BEFORE,
        query_n=record.queries,
        origin=origin(record.width),
    )


def step_source(record: SubscriberRecord, before: SourceRecord, event: Event, now_ns: int) -> Delegated:
    """One step of a source; one that is gone is not kept, but for the numbers of its queries."""
    after, effects, seen = SOURCE.child_step(before, event, now_ns)
    if after.status is GONE:
        left = record.sources.delete(after.source) if after.source in record.sources else record.sources
        return replace(record, sources=left, queries=max(record.queries, after.query_n)), effects, (seen,)
    return replace(record, sources=record.sources.set(after.source, after)), effects, (seen,)


def number_of(record: SubscriberRecord, source: SourceRecord, sn: int) -> int:
    """The number that the wire's `sn` stands for."""
    if source.status is UNKNOWN:
        return source.origin + sn
    return unwrap_number(sn, source.top, record.width)


# -- guards ---------------------------------------------------------------------------------------------------------


def wants_history(record: SubscriberRecord, event: Subscribe) -> bool:
    return record.history is not None


def is_beyond_the_wire(record: SubscriberRecord, event: Sample) -> bool:
    """No number of this width begins it."""
    return event.first >> record.width != 0


def beats_beyond_the_wire(record: SubscriberRecord, event: Heartbeat) -> bool:
    return event.last > 0 and event.last >> record.width != 0


def is_one_too_many(record: SubscriberRecord, event: Sample | Heartbeat | Appeared) -> bool:
    """Of a source that is not known, and so many are kept as may be: none of those gives way to it."""
    return event.source not in record.sources and len(record.sources) >= record.recovery.sources


def says_nothing(record: SubscriberRecord, event: Heartbeat) -> bool:
    """Nothing was sent yet, and the source is known for something."""
    known = record.sources.get(event.source)
    return event.last < 0 and known is not None and known.status is not UNKNOWN


def is_known(record: SubscriberRecord, event: Disappeared) -> bool:
    return event.source in record.sources


def is_about_a_source(record: SubscriberRecord, event: QueryEnded | QueryGoesOn) -> bool:
    return event.source in record.sources


def is_of_history(record: SubscriberRecord, event: QueryGoesOn) -> bool:
    return event.source == EVERY_SOURCE


def ends_history(record: SubscriberRecord, event: QueryEnded) -> bool:
    """It was answered, be it an earlier try."""
    return event.source == EVERY_SOURCE and event.brought > 0


def ends_this_try(record: SubscriberRecord, event: QueryEnded) -> bool:
    return event.source == EVERY_SOURCE and event.n == record.tries


def ends_last_try(record: SubscriberRecord, event: QueryEnded) -> bool:
    return ends_this_try(record, event) and record.tries > record.recovery.retries


def was_last_try(record: SubscriberRecord, event: HistoryTimeout) -> bool:
    return record.tries > record.recovery.retries


def is_of_a_source(record: SubscriberRecord, event: TimerFired) -> bool:
    return event.key in record.sources


# -- actions --------------------------------------------------------------------------------------------------------


def ask_history(record: SubscriberRecord, event: Subscribe, now_ns: int) -> Done:
    return ask_history_again(record, event, now_ns)


def ask_history_again(record: SubscriberRecord, event: Event, now_ns: int) -> Done:
    history, n = record.history, record.tries + 1
    assert history is not None
    query = Query(EVERY_SOURCE, n, origin(record.width), history.newest, history.age_ms)
    return replace(record, tries=n), (Ask(QUERY, query),)


def wait_for_history(record: SubscriberRecord, event: QueryGoesOn, now_ns: int) -> Done:
    """A reply has come: silence begins anew."""
    return record, (SetTimer("history", now_ns + record.recovery.pacing.history_ms * MS),)


def history_backoff_ns(record: SubscriberRecord) -> int:
    return backoff_ms(record.recovery.pacing, record.tries) * MS


def deliver_unnumbered(record: SubscriberRecord, event: Unnumbered, now_ns: int) -> Done:
    return record, (Tell(DeliverUnnumbered()),)


def turn_away(record: SubscriberRecord, event: Sample, now_ns: int) -> Done:
    """As the first of its source, whose numbers nobody knows."""
    first = origin(record.width) + event.first
    count = event.last - event.first + 1
    told = Tell(TurnedAway(event.source, first, first + count - 1))
    return replace(record, turned_away=record.turned_away + count), (told,)


def count_only(record: SubscriberRecord, event: Heartbeat | Appeared, now_ns: int) -> Done:
    """It brings no sample that anybody could miss."""
    return replace(record, turned_away=record.turned_away + 1), ()


def take_sample(record: SubscriberRecord, event: Sample, now_ns: int) -> Delegated:
    source = source_of(record, event.source)
    first = number_of(record, source, event.first)
    if first != event.first:
        event = Sample(event.source, first, first + event.last - event.first)
    return step_source(record, source, event, now_ns)


def take_heartbeat(record: SubscriberRecord, event: Heartbeat, now_ns: int) -> Delegated:
    source = source_of(record, event.source)
    last = number_of(record, source, event.last)
    return step_source(record, source, event if last == event.last else Heartbeat(event.source, last), now_ns)


def take_token(record: SubscriberRecord, event: Appeared | Disappeared, now_ns: int) -> Delegated:
    return step_source(record, source_of(record, event.source), event, now_ns)


def take_end(record: SubscriberRecord, event: QueryEnded | QueryGoesOn, now_ns: int) -> Delegated:
    return step_source(record, record.sources[event.source], event, now_ns)


def take_timer(record: SubscriberRecord, event: TimerFired, now_ns: int) -> Delegated:
    return step_source(record, record.sources[event.key], event, now_ns)


def close_history(record: SubscriberRecord, event: Event, now_ns: int) -> Delegated:
    """Every source goes on by itself, in the order of their ids."""
    effects: Effects = ()
    steps: tuple[ChildStep, ...] = ()
    for _, source in in_order(record.sources):
        if source.history:
            record, more, step = step_source(record, source, HistoryEnded(), now_ns)
            effects, steps = (*effects, *more), (*steps, *step)
    return record, effects, steps
