"""What an event makes of a source: the guards and actions of its table (`source`)."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import Ask, Effects, Event, SetTimer, Tell
from statemachines.missed_samples.message import (
    QUERY,
    Deliver,
    Heartbeat,
    Missed,
    Query,
    QueryEnded,
    QueryGoesOn,
    Sample,
)
from statemachines.missed_samples.ranges import add, overlap
from statemachines.missed_samples.recovery import MS, backoff_ms
from statemachines.missed_samples.source_record import (
    NOTHING_ASKED,
    UNKNOWN,
    Appeared,
    Disappeared,
    Done,
    HistoryEnded,
    PeriodOver,
    QueryTimeout,
    Rested,
    RetentionOver,
    SourceRecord,
    WindowStatus,
    with_asking,
)
from statemachines.missed_samples.source_windows import (
    FAILED,
    NEWEST,
    count_failure,
    end_window,
    fill,
    find_failed_top,
    has_open,
    hear_end,
    hear_reply,
    is_silent,
    look_for_newest,
    open_windows,
    ready_window,
    silence_windows,
    timeout_ns,
)

# -- what an event makes of the record ------------------------------------------------------------------------------


def extend_known(record: SourceRecord, first: int, last: int) -> SourceRecord:
    """Numbers up to `last` exist; a source that was not known begins, with `first` or with the first there is."""
    if record.status is UNKNOWN:
        begin = record.origin if record.from_start else first
        return replace(record, expected=begin, top=last + 1, heard=True)
    return replace(record, top=max(record.top, last + 1), heard=True)


def receive_samples(record: SourceRecord, event: Sample) -> SourceRecord:
    """Keep what is new of the range, count the rest."""
    first, last = event.first, event.last
    if record.windows:
        record = fill(record, first, last)
    record = extend_known(record, first, last)
    if record.history and first < record.expected:
        record = replace(record, expected=first)  # a source begins with the lowest that came, the order apart
    first = max(first, record.expected)
    new = last - first + 1 - overlap(record.held, first, last) if first <= last else 0
    again = last - event.first + 1 - new
    if new:
        held = add(record.held, first, last)
        count = record.held_count + new
        return replace(record, held=held, held_count=count, dropped=record.dropped + again, doubt=-1)
    return replace(record, dropped=record.dropped + again)


def settle(record: SourceRecord, below: int = 0) -> Done:
    """Deliver what is held and report what is missing below `below`, in order, up to the first number that is still to
    come; hold no more than may be held."""
    record, effects = settle_below(record, below)
    if record.held_count > record.recovery.pending:
        record, more = settle_below(record, first_to_keep(record))
        effects = (*effects, *more)
    return record, effects


def settle_below(record: SourceRecord, below: int) -> Done:
    expected, held = record.expected, record.held
    done = delivered = 0
    effects: list[Tell] = []
    while True:
        next_held = held[done][0] if done < len(held) else record.top
        if done < len(held) and next_held == expected:
            last = held[done][1]
            effects.append(Tell(Deliver(record.source, expected, last)))
            delivered += last - expected + 1
            done += 1
        elif expected < min(below, next_held):
            last = min(below, next_held) - 1
            effects.append(Tell(Missed(record.source, expected, last)))
        else:
            break
        expected = last + 1
    if effects:
        record = replace(record, expected=expected, held=held[done:], held_count=record.held_count - delivered)
    return record, tuple(effects)


def first_to_keep(record: SourceRecord) -> int:
    """Below it the holes must be given up so that no more is held than may be."""
    left, below = record.held_count, 0
    for first, last in record.held:
        if left <= record.recovery.pending:
            break
        left -= last - first + 1
        below = first
    return below


def conclude(record: SourceRecord, silent: bool = False) -> Done:
    """What the queries that are over say: what no cache has is convicted, in order.  When none is open the round is
    over, and what was asked for in vain is counted, and convicted after so many rounds; windows are left where the next
    round has to wait."""
    effects: Effects = ()
    while (one := ready_window(record)) is not None:
        left = tuple(other for other in record.windows if other is not one)
        record, more = settle(with_asking(record, windows=left), one.below)
        effects = (*effects, *more)
    if has_open(record):
        return record, effects
    top = find_failed_top(record, silent)
    if top > record.expected:
        record = count_failure(record if silent else with_asking(record, vain=top), top)
        if len(record.asking.asked) > record.recovery.retries:
            record, more = settle(record, record.asking.asked[0])
            effects = (*effects, *more)
    waits = record.attempts > 0 and any(one.status is FAILED for one in record.windows)
    return record if waits else with_asking(record, windows=()), effects


def query_over(record: SourceRecord, event: QueryEnded) -> Done:
    """What the end of a query settles."""
    return conclude(end_window(record, event.n, event.brought))


def ask(record: SourceRecord, effects: Effects, now_ns: int) -> Done:
    """Begin to ask."""
    record, asked = open_windows(with_asking(record, windows=(), spoke_ns=now_ns))
    return record, (*effects, *asked)


# -- guards ---------------------------------------------------------------------------------------------------------


def shows_new_hole(record: SourceRecord, event: Sample) -> bool:
    """Numbers before it were not known to exist."""
    top = event.first if record.status is UNKNOWN and not record.from_start else record.top
    return event.first > top


def leaves_nothing(record: SourceRecord, event: Sample) -> bool:
    """After it nothing is missing: it fills every hole, or the holes are given up."""
    record = receive_samples(record, event)
    if record.missing and record.held_count > record.recovery.pending:
        record, _ = settle(record)
    return not record.missing


def opens_hole(record: SourceRecord, event: Sample) -> bool:
    """It shows numbers missing that were not known to be, and they are worth asking for."""
    return shows_new_hole(record, event) and not leaves_nothing(record, event)


def is_next(record: SourceRecord, event: Sample) -> bool:
    return event.first == record.expected


def shows_loss(record: SourceRecord, event: Heartbeat) -> bool:
    """Numbers exist that nothing was heard of."""
    if record.status is UNKNOWN:
        return record.from_start and event.last >= record.origin
    return event.last >= record.top


def has_history_open(record: SourceRecord, event: Event) -> bool:
    return record.history


def fills_history(record: SourceRecord, event: Sample) -> bool:
    """More would be held than may be while the first query is open."""
    return record.history and receive_samples(record, event).held_count > record.recovery.history_limit


def is_new_in_history(record: SourceRecord, event: Heartbeat) -> bool:
    return record.history and record.new


def fills_history_without_hole(record: SourceRecord, event: Sample) -> bool:
    return fills_history(record, event) and leaves_nothing(record, event)


def misses_nothing(record: SourceRecord, event: HistoryEnded) -> bool:
    return not settle(record)[0].missing


def was_heard(record: SourceRecord, event: RetentionOver) -> bool:
    """Or is known to live."""
    return record.heard or record.alive


def is_open(record: SourceRecord, event: QueryEnded | QueryGoesOn) -> bool:
    return any(one.n == event.n and one.status is WindowStatus.OPEN for one in record.windows)


def settles_all(record: SourceRecord, event: QueryEnded) -> bool:
    return is_open(record, event) and not query_over(record, event)[0].missing


def leaves_something_to_ask(record: SourceRecord, event: QueryEnded) -> bool:
    """Other queries are open, or something is missing that no query has failed for."""
    return is_open(record, event) and has_open(open_windows(query_over(record, event)[0])[0])


def timeout_settles_all(record: SourceRecord, event: QueryTimeout) -> bool:
    return not conclude(silence_windows(record), silent=is_silent(record))[0].missing


def jumps(record: SourceRecord, event: Sample) -> bool:
    """It is one number, far ahead of all that is known, and no other before it was."""
    if event.first != event.last or event.first - record.top <= record.recovery.jump:
        return False
    return record.doubt < 0 or not 0 < event.first - record.doubt <= record.recovery.jump


def beat_jumps(record: SourceRecord, event: Heartbeat) -> bool:
    """It covers far more than all that is known, and nothing before it did."""
    if event.last - record.top <= record.recovery.jump:
        return False
    return record.doubt < 0 or not 0 <= event.last - record.doubt <= record.recovery.jump


def is_ours_from_start(record: SourceRecord, event: Appeared) -> bool:
    """It is met by its token, and what it has sent so far is ours."""
    return not record.history and not record.alive and (event.new or record.recovery.past)


def was_met_by_token(record: SourceRecord, event: HistoryEnded) -> bool:
    """It is known by its token alone, and what it has sent so far is ours."""
    return record.alive and (record.new or record.recovery.past)


# -- actions --------------------------------------------------------------------------------------------------------


def live(record: SourceRecord, effects: Effects, now_ns: int) -> Done:
    """Into live, whatever query is still open: where the Subscriber asks unprompted, the period begins."""
    if record.asking is not NOTHING_ASKED:
        record = with_asking(record, windows=(), asked=(), asked_top=0, vain=0, silent=0)
    period_ms = record.recovery.period_ms
    if period_ms:
        effects = (*effects, SetTimer("period", now_ns + period_ms * MS, record.source))
    return record, effects


def deliver(record: SourceRecord, event: Sample, now_ns: int) -> Done:
    """All of it is in order: most steps of a life are this one."""
    after = event.last + 1
    return replace(record, expected=after, top=after, heard=True), (
        Tell(Deliver(record.source, event.first, event.last)),
    )


def take(record: SourceRecord, event: Sample, now_ns: int) -> Done:
    return settle(receive_samples(record, event))


def take_the_rest(record: SourceRecord, event: Sample, now_ns: int) -> Done:
    """Nothing is missing now."""
    return live(*settle(receive_samples(record, event)), now_ns)


def take_and_ask(record: SourceRecord, event: Sample, now_ns: int) -> Done:
    return ask(*settle(receive_samples(record, event)), now_ns)


def note_top(record: SourceRecord, event: Heartbeat, now_ns: int) -> Done:
    """First contact by a heartbeat: what it covers is the past."""
    return replace(record, expected=event.last + 1, top=event.last + 1, heard=True), ()


def note_top_live(record: SourceRecord, event: Heartbeat, now_ns: int) -> Done:
    return live(*note_top(record, event, now_ns), now_ns)


def hear(record: SourceRecord, event: Heartbeat, now_ns: int) -> Done:
    return extend_known(record, event.last + 1, event.last), ()


def miss_and_ask(record: SourceRecord, event: Heartbeat, now_ns: int) -> Done:
    return ask(extend_known(record, event.last + 1, event.last), (), now_ns)


def take_reply(record: SourceRecord, event: Sample, now_ns: int) -> Done:
    """What an open query asks for restarts the wait for its next word."""
    after, effects = settle(receive_samples(record, event))
    if after.windows == record.windows:
        return after, effects
    after, more = wait_on(after, event, now_ns)
    return after, (*effects, *more)


def wait_on(record: SourceRecord, event: Event, now_ns: int) -> Done:
    """A reply has come: silence begins anew."""
    record = hear_reply(record, now_ns)
    return record, (SetTimer("query", now_ns + timeout_ns(record), record.source),)


def hear_late(record: SourceRecord, event: QueryGoesOn, now_ns: int) -> Done:
    return hear_reply(record, now_ns), ()


def end_query(record: SourceRecord, event: QueryEnded, now_ns: int) -> Done:
    record, effects = query_over(hear_end(record, now_ns), event)
    return with_asking(record, windows=()), effects


def end_last_query(record: SourceRecord, event: QueryEnded, now_ns: int) -> Done:
    return live(*end_query(record, event, now_ns), now_ns)


def end_query_and_ask(record: SourceRecord, event: QueryEnded, now_ns: int) -> Done:
    record, effects = query_over(hear_end(record, now_ns), event)
    record, asked = open_windows(record)
    return record, (*effects, *asked)


def give_up_query(record: SourceRecord, event: QueryTimeout, now_ns: int) -> Done:
    record, effects = conclude(silence_windows(record), silent=is_silent(record))
    return with_asking(record, windows=()), effects


def give_up_last_query(record: SourceRecord, event: QueryTimeout, now_ns: int) -> Done:
    return live(*give_up_query(record, event, now_ns), now_ns)


def ask_again(record: SourceRecord, event: Rested, now_ns: int) -> Done:
    """The silence goes on: nothing has come since."""
    return open_windows(record)


def ask_unprompted(record: SourceRecord, event: PeriodOver, now_ns: int) -> Done:
    return look_for_newest(with_asking(record, spoke_ns=now_ns))


def doubt(record: SourceRecord, event: Sample, now_ns: int) -> Done:
    """Nobody takes it yet: if it is not forged, it is missing as soon as the next one comes."""
    return replace(record, doubt=event.first, dropped=record.dropped + 1), ()


def doubt_beat(record: SourceRecord, event: Heartbeat, now_ns: int) -> Done:
    return replace(record, doubt=event.last, heard=True), ()


def ask_for_newest(record: SourceRecord) -> Done:
    """Of a source that nothing has come of: what it has sent is not waited for, and shows what is missing."""
    n = record.query_n + 1
    query = Query(record.source, n, record.origin, NEWEST, 0, record.origin - 1)
    return replace(record, query_n=n), (Ask(QUERY, query),)


def hold(record: SourceRecord, event: Sample, now_ns: int) -> Done:
    return receive_samples(record, event), ()


def close_history(record: SourceRecord, event: Event, now_ns: int) -> Done:
    return replace(record, history=False), ()


def close_history_and_look(record: SourceRecord, event: HistoryEnded, now_ns: int) -> Done:
    return ask_for_newest(replace(record, history=False))


def close_history_live(record: SourceRecord, event: HistoryEnded, now_ns: int) -> Done:
    return live(*settle(replace(record, history=False)), now_ns)


def close_history_and_ask(record: SourceRecord, event: HistoryEnded, now_ns: int) -> Done:
    return ask(*settle(replace(record, history=False)), now_ns)


def fill_history_live(record: SourceRecord, event: Sample, now_ns: int) -> Done:
    return live(*settle(replace(receive_samples(record, event), history=False)), now_ns)


def fill_history_and_ask(record: SourceRecord, event: Sample, now_ns: int) -> Done:
    return ask(*settle(replace(receive_samples(record, event), history=False)), now_ns)


def appear(record: SourceRecord, event: Appeared, now_ns: int) -> Done:
    return replace(record, alive=True, new=event.new), ()


def appear_and_ask(record: SourceRecord, event: Appeared, now_ns: int) -> Done:
    return ask_for_newest(replace(record, alive=True, new=event.new))


def stay_alive(record: SourceRecord, event: Appeared, now_ns: int) -> Done:
    return replace(record, alive=True), ()


def disappear(record: SourceRecord, event: Disappeared, now_ns: int) -> Done:
    return replace(record, alive=False), ()


def retain(record: SourceRecord, event: RetentionOver, now_ns: int) -> Done:
    """Remembered for another time."""
    return replace(record, heard=False), (SetTimer("retention", now_ns + retention_ns(record), record.source),)


def retention_ns(record: SourceRecord) -> int:
    return record.recovery.retention_ms * MS


def backoff_ns(record: SourceRecord) -> int:
    """Doubling with the attempts, up to the greatest."""
    return backoff_ms(record.recovery, record.attempts) * MS
