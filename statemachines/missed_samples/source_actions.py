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
    RECOVERING,
    UNKNOWN,
    Appeared,
    Disappeared,
    Done,
    HistoryEnded,
    Overdue,
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
    ask_again,
    close_filled,
    count_failure,
    end_window,
    fill,
    find_failed_top,
    has_open,
    hear_answer,
    is_filled,
    leave,
    leave_failed,
    look_for_newest,
    lower_top,
    next_due_ns,
    note_missing,
    open_windows,
    ready_window,
)

# -- what an event makes of the record ------------------------------------------------------------------------------


def extend_known(record: SourceRecord, first: int, last: int) -> SourceRecord:
    """Numbers up to `last` exist; a source that was not known begins, with `first` or with the first there is."""
    if record.status is UNKNOWN:
        begin = record.origin if record.from_start else first
        return replace(record, expected=begin, top=last + 1, heard=True)
    return replace(record, top=max(record.top, last + 1), heard=True)


def hear_top(record: SourceRecord, event: Heartbeat) -> SourceRecord:
    """The source has sent everything up to `last`, and no more: what was said to lie above, and of which nothing has
    come, somebody else has made up, or it is said again."""
    record, top = extend_known(record, event.last + 1, event.last), event.last + 1
    seen = record.held[-1][1] + 1 if record.held else record.expected
    return lower_top(record, top) if seen <= top < record.top else record


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


def conclude(record: SourceRecord) -> Done:
    """What the queries that are over say: what no cache has is convicted, in order.  When none is open the round is
    over, and what was asked for in vain is counted, and convicted after so many rounds; windows are left where the next
    round has to wait."""
    record, effects = settle_ready(record, ())
    if has_open(record):
        return record, effects
    top = find_failed_top(record)
    if top > record.expected:
        record = count_failure(record, top)
        if len(record.asking.asked) > record.recovery.retries:
            record, more = settle(record, record.asking.asked[0])
            record, effects = settle_ready(record, (*effects, *more))
    waits = record.attempts > 0 and any(one.status is FAILED for one in record.windows)
    return record if waits else leave_failed(record), effects


def settle_ready(record: SourceRecord, effects: Effects) -> Done:
    """Convict what an answer said is in no cache, as soon as nothing before it is missing."""
    while (one := ready_window(record)) is not None:
        left = tuple(other for other in record.windows if other is not one)
        record, more = settle(with_asking(record, windows=left), one.below)
        effects = (*effects, *more)
    return record, effects


def take_in(record: SourceRecord, event: Sample) -> Done:
    """Keep it, and settle what it settles."""
    return settle_ready(*settle(receive_samples(record, event)))


def query_over(record: SourceRecord, event: QueryEnded, now_ns: int = 0) -> Done:
    """What the end of a query settles, and what is asked for then."""
    record, again = end_window(record, event, now_ns)
    record, effects = conclude(record)
    record, asked = open_windows(record, now_ns)
    return record, (*effects, *again, *asked)


def timed_out(record: SourceRecord, event: QueryTimeout, now_ns: int = 0) -> Done:
    """What was not answered in time is asked for again; nobody waits for the newest, or for what has come."""
    record = leave(record, tuple(one for one in record.windows if one.status is FAILED or not is_filled(record, one)))
    if has_open(record):
        return ask_again(record, now_ns)
    record, effects = conclude(record)
    record, asked = open_windows(record, now_ns)
    return record, (*effects, *asked)


def give_up_late(record: SourceRecord) -> Done:
    """What has been missing for the deadline is given up, unless something that was missing has come meanwhile."""
    mark = next(iter(record.asking.marks), None)
    if mark is None or mark.expected != record.expected:
        return record, ()
    return settle_ready(*settle(record, mark.top))


def ask(record: SourceRecord, effects: Effects, now_ns: int) -> Done:
    """Begin to ask."""
    before = record
    record, asked = open_windows(record, now_ns)
    return go_on(before, record, (*effects, *asked), now_ns)


def go_on(before: SourceRecord, record: SourceRecord, effects: Effects, now_ns: int, fired: str = "") -> Done:
    """Something is missing still: note since when, and when to ask again; the timer that `fired` does not run."""
    record = note_missing(record, now_ns)
    if before.status is RECOVERING and has_open(record):
        due_ns = next_due_ns(record)
        if fired == "query" or not has_open(before) or due_ns != next_due_ns(before):
            effects = (*effects, SetTimer("query", due_ns, record.source))
    marks, known = record.asking.marks, before.asking.marks
    if marks and (fired == "overdue" or not known or marks[0].since_ns != known[0].since_ns):
        due_ns = marks[0].since_ns + record.recovery.deadline_ms * MS
        effects = (*effects, SetTimer("overdue", due_ns, record.source))
    return record, effects


# -- guards ---------------------------------------------------------------------------------------------------------


def shows_new_hole(record: SourceRecord, event: Sample) -> bool:
    """Numbers before it were not known to exist."""
    top = event.first if record.status is UNKNOWN and not record.from_start else record.top
    return event.first > top


def leaves_nothing(record: SourceRecord, event: Sample) -> bool:
    """After it nothing is missing: it fills every hole, or the holes are given up."""
    return not take_in(record, event)[0].missing


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


def is_open(record: SourceRecord, event: QueryEnded) -> bool:
    return any(
        one.status is WindowStatus.OPEN and any(sent.n == event.n for sent in one.sent) for one in record.windows
    )


def settles_all(record: SourceRecord, event: QueryEnded) -> bool:
    """Nothing is missing, and nothing is asked for, any more."""
    return is_open(record, event) and not query_over(record, event)[0].missing


def leaves_something_to_ask(record: SourceRecord, event: QueryEnded) -> bool:
    """Other queries are open, or something is missing that no query has failed for."""
    return is_open(record, event) and has_open(query_over(record, event)[0])


def timeout_settles_all(record: SourceRecord, event: QueryTimeout) -> bool:
    return not timed_out(record, event)[0].missing


def timeout_asks(record: SourceRecord, event: QueryTimeout) -> bool:
    return has_open(timed_out(record, event)[0])


def gives_up_all(record: SourceRecord, event: Overdue) -> bool:
    return record.missing > 0 and not give_up_late(record)[0].missing


def leaves_no_tail(record: SourceRecord, event: Heartbeat) -> bool:
    """What was missing was said to exist by somebody else."""
    return not hear_top(record, event).missing


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
        record = with_asking(leave(record, ()), asked=(), front=0, vain=0, marks=())
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
    return go_on(record, *take_in(record, event), now_ns)


def take_the_rest(record: SourceRecord, event: Sample, now_ns: int) -> Done:
    """Nothing is missing now."""
    return live(*take_in(record, event), now_ns)


def take_and_ask(record: SourceRecord, event: Sample, now_ns: int) -> Done:
    return ask(*settle(receive_samples(record, event)), now_ns)


def take_reply(record: SourceRecord, event: Sample, now_ns: int) -> Done:
    """It fills a hole, or shows another, which is asked for."""
    after, effects = take_in(record, event)
    after, asked = open_windows(close_filled(after), now_ns)
    return go_on(record, after, (*effects, *asked), now_ns)


def note_top(record: SourceRecord, event: Heartbeat, now_ns: int) -> Done:
    """First contact by a heartbeat: what it covers is the past."""
    return replace(record, expected=event.last + 1, top=event.last + 1, heard=True), ()


def note_top_live(record: SourceRecord, event: Heartbeat, now_ns: int) -> Done:
    return live(*note_top(record, event, now_ns), now_ns)


def hear(record: SourceRecord, event: Heartbeat, now_ns: int) -> Done:
    after = hear_top(record, event)
    return (after, ()) if record.history else go_on(record, after, (), now_ns)


def hear_the_rest(record: SourceRecord, event: Heartbeat, now_ns: int) -> Done:
    return live(hear_top(record, event), (), now_ns)


def hear_and_ask(record: SourceRecord, event: Heartbeat, now_ns: int) -> Done:
    after, asked = open_windows(close_filled(hear_top(record, event)), now_ns)
    return go_on(record, after, asked, now_ns)


def miss_and_ask(record: SourceRecord, event: Heartbeat, now_ns: int) -> Done:
    return ask(extend_known(record, event.last + 1, event.last), (), now_ns)


def hear_word(record: SourceRecord, event: QueryGoesOn, now_ns: int) -> Done:
    """A query is answered: how long that took is learned, and its next word is waited for."""
    return go_on(record, hear_answer(record, event.n, now_ns), (), now_ns)


def end_query(record: SourceRecord, event: QueryEnded, now_ns: int) -> Done:
    return go_on(record, *query_over(record, event, now_ns), now_ns)


def end_last_query(record: SourceRecord, event: QueryEnded, now_ns: int) -> Done:
    return live(*query_over(record, event, now_ns), now_ns)


def hear_late_end(record: SourceRecord, event: QueryEnded, now_ns: int) -> Done:
    return hear_answer(record, event.n, now_ns), ()


def wait_no_longer(record: SourceRecord, event: QueryTimeout, now_ns: int) -> Done:
    return go_on(record, *timed_out(record, event, now_ns), now_ns, "query")


def give_up_last_query(record: SourceRecord, event: QueryTimeout, now_ns: int) -> Done:
    return live(*timed_out(record, event, now_ns), now_ns)


def give_up(record: SourceRecord, event: Overdue, now_ns: int) -> Done:
    """What has been missing for a shorter time has its own end; where something has come, the time begins anew."""
    if not record.missing:
        return record, ()
    after, effects = give_up_late(record)
    first, *others = record.asking.marks
    same = (replace(one, expected=after.expected) if one.expected == record.expected else one for one in others)
    marks = (replace(first, since_ns=now_ns, expected=after.expected), *same)
    asked: Effects = ()
    after = with_asking(after, marks=tuple(sorted(marks, key=lambda one: one.since_ns)))
    if has_open(record):
        after, asked = open_windows(close_filled(after), now_ns)
    return go_on(record, after, (*effects, *asked), now_ns, "overdue")


def give_up_the_rest(record: SourceRecord, event: Overdue, now_ns: int) -> Done:
    return live(*give_up_late(record), now_ns)


def rest_no_longer(record: SourceRecord, event: Rested, now_ns: int) -> Done:
    return ask(leave_failed(record), (), now_ns)


def ask_unprompted(record: SourceRecord, event: PeriodOver, now_ns: int) -> Done:
    return look_for_newest(record, now_ns)


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
    return backoff_ms(record.recovery.pacing, record.attempts) * MS
