"""Source: what a Subscriber keeps of one publisher (source: "The ReliableSubscriber" and the sections after it).

`unknown -> history -> live -> recovering <-> resting -> live -> gone`: history waits for the Subscriber's first query,
recovering has a query open, resting waits before the next.
Samples come as ranges of numbers (the payloads are the driver's) and one step handles a whole range: what is in order
is delivered, what is ahead is held until the numbers before it have come, or are convicted as lost.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Answer,
    Call,
    Effects,
    Event,
    Fsm,
    Ignore,
    Invariant,
    Message,
    Row,
    Send,
    SetTimer,
    Status,
    Tell,
    Timer,
    TimerFired,
)
from statemachines.missed_samples.ranges import Ranges, add, overlap, remove, size, union

MS = 1_000_000


class Sample(Message, frozen=True, gc=False):
    """Samples `first`..`last` of `source` arrived, from its publisher or in reply to a query."""

    source: str
    first: int
    last: int


class Heartbeat(Message, frozen=True, gc=False):
    """The publisher has sent everything up to `last`."""

    source: str
    last: int


class Query(Message, frozen=True, gc=False):
    """To the caches: samples of `source` from `first` on; number `n` of the subscriber's queries to it."""

    source: str
    n: int
    first: int


class QueryEnded(Answer, frozen=True, gc=False):
    """Query `n` is over; `replied`: it ended well, and some cache answered for the source."""

    n: int
    replied: bool


class Deliver(Event, frozen=True, gc=False):
    """To the application: samples `first`..`last`, in order."""

    source: str
    first: int
    last: int


class Missed(Event, frozen=True, gc=False):
    """To the application: samples `first`..`last` will not come."""

    source: str
    first: int
    last: int


class Appeared(Call, frozen=True, gc=False):
    """The source is known to live; `new`: it came up while we were there, so all it sent is ours."""

    new: bool


class Disappeared(Call, frozen=True, gc=False):
    """The source is not known to live any more."""


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


class Recovery(msgspec.Struct, frozen=True):
    """How to recover; times in milliseconds.  `past`: what was sent before the first contact counts as missing;
    `reliable`: a query that ended well brought everything there was; `pending`: at most so many samples are held, and
    `history_limit` while the first query is open; `period_ms`: how often to ask unprompted (0: never)."""

    past: bool = False
    reliable: bool = True
    retries: int = 5
    timeout_ms: int = 2_000
    backoff_ms: int = 100
    backoff_max_ms: int = 1_000
    pending: int = 10_000
    history_limit: int = 10_000
    period_ms: int = 0
    retention_ms: int = 3_600_000


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


class Try(msgspec.Struct, frozen=True, gc=False):
    """Numbers that are missing, and how many queries for them have ended."""

    missing: Ranges
    attempts: int


class SourceRecord(msgspec.Struct, frozen=True, gc=False):
    """One source.  All below `expected` is delivered or reported; `top` is the lowest number never heard of.  Between
    the two every number is in `held` (arrived), in one of `tries` (missing; the fewest attempts first), or in `lost`
    (convicted, reported when everything before it is settled).  `asked_top`: `top` when the open query was sent;
    `history`: the Subscriber's first query is open; `heard`: since the last retention; `new`, `alive`: see Appeared."""

    source: str
    caches: str
    recovery: Recovery
    status: SourceStatus = UNKNOWN
    expected: int = 0
    top: int = 0
    held: Ranges = ()
    held_count: int = 0
    tries: tuple[Try, ...] = ()
    lost: Ranges = ()
    query_n: int = 0
    asked_top: int = 0
    dropped: int = 0
    history: bool = False
    new: bool = False
    alive: bool = False
    heard: bool = False

    @property
    def from_start(self) -> bool:
        """What was sent before the first contact counts as missing."""
        return (self.recovery.past or self.new) and not self.history


# -- what an event makes of the record ------------------------------------------------------------------------------


def heard_of(record: SourceRecord, first: int, last: int) -> SourceRecord:
    """Numbers up to `last` exist; what lies between the highest known and `first` is missing."""
    if record.status is UNKNOWN:
        begin = 0 if record.from_start else first
        record = replace(record, expected=begin, top=begin)
    if first > record.top:
        record = replace(record, tries=with_missing(record.tries, record.top, first - 1))
    return replace(record, top=max(record.top, last + 1), heard=True)


def reaches_back(record: SourceRecord, first: int, last: int) -> SourceRecord:
    """While the first query is open a source begins with the lowest number that has come."""
    if record.status is UNKNOWN or first >= record.expected:
        return record
    if last + 1 < record.expected:
        record = replace(record, tries=with_missing(record.tries, last + 1, record.expected - 1))
    return replace(record, expected=first)


def with_missing(tries: tuple[Try, ...], first: int, last: int) -> tuple[Try, ...]:
    if tries and tries[0].attempts == 0:
        return (Try(add(tries[0].missing, first, last), 0), *tries[1:])
    return (Try(((first, last),), 0), *tries)


def arrived(record: SourceRecord, event: Sample) -> SourceRecord:
    """Keep what is new of the range, count the rest."""
    if record.history:
        record = reaches_back(record, event.first, event.last)
    record = heard_of(record, event.first, event.last)
    first, last = max(event.first, record.expected), event.last
    new = last - first + 1 - overlap(record.held, first, last) if first <= last else 0
    if new:
        tries = (Try(remove(one.missing, first, last), one.attempts) for one in record.tries)
        record = replace(
            record,
            held=add(record.held, first, last),
            held_count=record.held_count + new,
            tries=tuple(one for one in tries if one.missing),
            lost=remove(record.lost, first, last),
        )
    again = last - event.first + 1 - new
    return replace(record, dropped=record.dropped + again) if again else record


def settle(record: SourceRecord) -> tuple[SourceRecord, Effects]:
    """Deliver and report, in order, as far as everything is settled; hold no more than may be held."""
    record, effects = settle_known(record)
    if record.held_count > record.recovery.pending:
        record, more = settle_known(convict(record, record.expected, last_to_give_up(record)))
        effects = (*effects, *more)
    return record, effects


def settle_known(record: SourceRecord) -> tuple[SourceRecord, Effects]:
    """Deliver what is held and report what is lost, up to the first number that is missing."""
    expected, held, lost = record.expected, record.held, record.lost
    held_done = lost_done = delivered = 0
    effects: list[Tell] = []
    while True:
        if held_done < len(held) and held[held_done][0] == expected:
            last = held[held_done][1]
            effects.append(Tell(Deliver(record.source, expected, last)))
            delivered += last - expected + 1
            held_done += 1
        elif lost_done < len(lost) and lost[lost_done][0] == expected:
            last = lost[lost_done][1]
            effects.append(Tell(Missed(record.source, expected, last)))
            lost_done += 1
        else:
            break
        expected = last + 1
    if effects:
        left = record.held_count - delivered
        record = replace(record, expected=expected, held=held[held_done:], held_count=left, lost=lost[lost_done:])
    return record, tuple(effects)


def last_to_give_up(record: SourceRecord) -> int:
    """The end of the last of the oldest holes that must go so that no more is held than may be."""
    left = record.held_count
    end = record.top - 1
    for first, last in record.held:
        if left <= record.recovery.pending:
            break
        left -= last - first + 1
        end = first - 1
    return end


def convict(record: SourceRecord, first: int, last: int) -> SourceRecord:
    """Give the missing numbers among `first`..`last` up."""
    given_up: list[Ranges] = []
    kept: list[Try] = []
    for one in record.tries:
        left = remove(one.missing, first, last)
        if left:
            kept.append(Try(left, one.attempts))
        if left is not one.missing:
            given_up.append(tuple((max(low, first), min(high, last)) for low, high in one.missing if low <= last))
    found = tuple(one for ranges in given_up for one in ranges if one[0] <= one[1])
    return replace(record, tries=tuple(kept), lost=union(record.lost, found))


def query_over(record: SourceRecord, replied: bool) -> SourceRecord:
    """What was missing when the query was sent has been asked for once more, or is convicted."""
    recovery = record.recovery
    if replied and recovery.reliable:
        return convict(record, 0, record.asked_top - 1)
    asked = [Try(remove(one.missing, record.asked_top, record.top), one.attempts + 1) for one in record.tries]
    new = union(*(remove(one.missing, 0, record.asked_top - 1) for one in record.tries))
    lost = union(record.lost, *(one.missing for one in asked if one.attempts > recovery.retries))
    kept = tuple(one for one in asked if one.missing and one.attempts <= recovery.retries)
    return replace(record, tries=(Try(new, 0), *kept) if new else kept, lost=lost)


def ask(record: SourceRecord, effects: Effects) -> tuple[SourceRecord, Effects]:
    """One open-ended query from the first missing number on."""
    n = record.query_n + 1
    first = min((one.missing[0][0] for one in record.tries), default=record.expected)
    record = replace(record, query_n=n, asked_top=record.top)
    return record, (*effects, Send(record.caches, Query(record.source, n, first)))


# -- guards ---------------------------------------------------------------------------------------------------------


def shows_new_hole(record: SourceRecord, event: Sample) -> bool:
    """Numbers before it were not known to exist."""
    top = event.first if record.status is UNKNOWN and not record.from_start else record.top
    return event.first > top


def leaves_nothing(record: SourceRecord, event: Sample) -> bool:
    """After it nothing is missing: it fills every hole, or the holes are given up."""
    might_give_up = record.history or record.held_count + event.last - event.first >= record.recovery.pending
    if might_give_up:
        return not settle(arrived(record, event))[0].tries
    fills_all = all(event.first <= one.missing[0][0] and one.missing[-1][1] <= event.last for one in record.tries)
    return fills_all and not shows_new_hole(record, event)


def opens_hole(record: SourceRecord, event: Sample) -> bool:
    """It shows numbers missing that were not known to be, and they are worth asking for."""
    return shows_new_hole(record, event) and not leaves_nothing(record, event)


def is_next(record: SourceRecord, event: Sample) -> bool:
    return event.first == record.expected


def shows_loss(record: SourceRecord, event: Heartbeat) -> bool:
    """Numbers exist that nothing was heard of."""
    return event.last >= record.top if record.status is not UNKNOWN else record.from_start


def has_history_open(record: SourceRecord, event: Event) -> bool:
    return record.history


def fills_history(record: SourceRecord, event: Sample) -> bool:
    """More would be held than may be while the first query is open."""
    return arrived(record, event).held_count > record.recovery.history_limit


def fills_history_at_once(record: SourceRecord, event: Sample) -> bool:
    return record.history and fills_history(record, event)


def fills_history_without_hole(record: SourceRecord, event: Sample) -> bool:
    return fills_history(record, event) and leaves_nothing(record, event)


def misses_nothing(record: SourceRecord, event: HistoryEnded) -> bool:
    return not settle(record)[0].tries


def was_heard(record: SourceRecord, event: RetentionOver) -> bool:
    """Or is known to live."""
    return record.heard or record.alive


def is_open(record: SourceRecord, event: QueryEnded) -> bool:
    return event.n == record.query_n


def settles_all(record: SourceRecord, event: QueryEnded) -> bool:
    return is_open(record, event) and not query_over(record, event.replied).tries


def leaves_only_new(record: SourceRecord, event: QueryEnded) -> bool:
    """Numbers are missing, and none that the query that ended was sent for."""
    tries = query_over(record, event.replied).tries
    return is_open(record, event) and bool(tries) and all(one.attempts == 0 for one in tries)


def timeout_settles_all(record: SourceRecord, event: QueryTimeout) -> bool:
    return not query_over(record, False).tries


# -- actions --------------------------------------------------------------------------------------------------------

Done = tuple[SourceRecord, Effects]


def live(record: SourceRecord, effects: Effects, now_ns: int) -> Done:
    """Into live: where the Subscriber asks unprompted, the period begins."""
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
    return settle(arrived(record, event))


def take_the_rest(record: SourceRecord, event: Sample, now_ns: int) -> Done:
    """Nothing is missing now."""
    return live(*settle(arrived(record, event)), now_ns)


def take_and_ask(record: SourceRecord, event: Sample, now_ns: int) -> Done:
    return ask(*settle(arrived(record, event)))


def note_top(record: SourceRecord, event: Heartbeat, now_ns: int) -> Done:
    """First contact by a heartbeat: what it covers is the past."""
    return replace(record, expected=event.last + 1, top=event.last + 1, heard=True), ()


def note_top_live(record: SourceRecord, event: Heartbeat, now_ns: int) -> Done:
    return live(*note_top(record, event, now_ns), now_ns)


def miss(record: SourceRecord, event: Heartbeat, now_ns: int) -> Done:
    return heard_of(record, event.last + 1, event.last), ()


def miss_and_ask(record: SourceRecord, event: Heartbeat, now_ns: int) -> Done:
    return ask(heard_of(record, event.last + 1, event.last), ())


def end_query(record: SourceRecord, event: QueryEnded, now_ns: int) -> Done:
    return settle(query_over(record, event.replied))


def end_last_query(record: SourceRecord, event: QueryEnded, now_ns: int) -> Done:
    return live(*end_query(record, event, now_ns), now_ns)


def end_query_and_ask(record: SourceRecord, event: QueryEnded, now_ns: int) -> Done:
    return ask(*end_query(record, event, now_ns))


def give_up_query(record: SourceRecord, event: QueryTimeout, now_ns: int) -> Done:
    return settle(replace(query_over(record, False), query_n=record.query_n + 1))


def give_up_last_query(record: SourceRecord, event: QueryTimeout, now_ns: int) -> Done:
    return live(*give_up_query(record, event, now_ns), now_ns)


def ask_again(record: SourceRecord, event: Rested, now_ns: int) -> Done:
    return ask(record, ())


def ask_unprompted(record: SourceRecord, event: PeriodOver, now_ns: int) -> Done:
    return ask(record, ())


def hold(record: SourceRecord, event: Sample, now_ns: int) -> Done:
    return arrived(record, event), ()


def close_history(record: SourceRecord, event: Event, now_ns: int) -> Done:
    return replace(record, history=False), ()


def close_history_live(record: SourceRecord, event: HistoryEnded, now_ns: int) -> Done:
    return live(*settle(replace(record, history=False)), now_ns)


def close_history_and_ask(record: SourceRecord, event: HistoryEnded, now_ns: int) -> Done:
    return ask(*settle(replace(record, history=False)))


def fill_history_live(record: SourceRecord, event: Sample, now_ns: int) -> Done:
    return live(*settle(replace(arrived(record, event), history=False)), now_ns)


def fill_history_and_ask(record: SourceRecord, event: Sample, now_ns: int) -> Done:
    return ask(*settle(replace(arrived(record, event), history=False)))


def appear(record: SourceRecord, event: Appeared, now_ns: int) -> Done:
    return replace(record, alive=True, new=event.new), ()


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
    attempts = max((one.attempts for one in record.tries), default=1)
    recovery = record.recovery
    return min(recovery.backoff_ms << min(max(attempts - 1, 0), 20), recovery.backoff_max_ms) * MS


# fmt: off
ROWS = (
    #   on             from        to          do                     when                        clause
    Row(Sample,        UNKNOWN,    LIVE,       fill_history_live,     fills_history_at_once,      "MS-16"),
    Row(Sample,        UNKNOWN,    HISTORY,    hold,                  has_history_open,           "MS-14"),
    Row(Sample,        UNKNOWN,    RECOVERING, take_and_ask,          opens_hole,                 "MS-02"),
    Row(Sample,        UNKNOWN,    LIVE,       take_the_rest,         None,                       "MS-01"),
    Row(Sample,        HISTORY,    LIVE,       fill_history_live,     fills_history_without_hole, "MS-16"),
    Row(Sample,        HISTORY,    RECOVERING, fill_history_and_ask,  fills_history,              "MS-16"),
    Row(Sample,        HISTORY,    STAY,       hold,                  None,                       "MS-14"),
    Row(Sample,        LIVE,       STAY,       deliver,               is_next,                    "MS-03"),
    Row(Sample,        LIVE,       RECOVERING, take_and_ask,          opens_hole,                 "MS-04"),
    Row(Sample,        LIVE,       STAY,       take,                  None,                       "MS-03"),
    Row(Sample,        RECOVERING, LIVE,       take_the_rest,         leaves_nothing,             "MS-06"),
    Row(Sample,        RECOVERING, STAY,       take,                  None,                       "MS-05"),
    Row(Sample,        RESTING,    LIVE,       take_the_rest,         leaves_nothing,             "MS-06"),
    Row(Sample,        RESTING,    STAY,       take,                  None,                       "MS-05"),
    Row(Heartbeat,     UNKNOWN,    HISTORY,    note_top,              has_history_open,           "MS-14"),
    Row(Heartbeat,     UNKNOWN,    RECOVERING, miss_and_ask,          shows_loss,                 "MS-02"),
    Row(Heartbeat,     UNKNOWN,    LIVE,       note_top_live,         None,                       "MS-01"),
    Row(Heartbeat,     LIVE,       RECOVERING, miss_and_ask,          shows_loss,                 "MS-07"),
    Row(Heartbeat, (HISTORY, RECOVERING, RESTING), STAY, miss,        shows_loss,                 "MS-07"),
    Row(QueryEnded,    RECOVERING, LIVE,       end_last_query,        settles_all,                "MS-08"),
    Row(QueryEnded,    RECOVERING, RECOVERING, end_query_and_ask,     leaves_only_new,            "MS-09"),
    Row(QueryEnded,    RECOVERING, RESTING,    end_query,             is_open,                    "MS-10"),
    Row(QueryTimeout,  RECOVERING, LIVE,       give_up_last_query,    timeout_settles_all,        "MS-11"),
    Row(QueryTimeout,  RECOVERING, RESTING,    give_up_query,         None,                       "MS-11"),
    Row(Rested,        RESTING,    RECOVERING, ask_again,             None,                       "MS-10"),
    Row(PeriodOver,    LIVE,       RECOVERING, ask_unprompted,        None,                       "MS-17"),
    Row(HistoryEnded,  UNKNOWN,    STAY,       close_history,         None,                       "MS-15"),
    Row(HistoryEnded,  HISTORY,    LIVE,       close_history_live,    misses_nothing,             "MS-15"),
    Row(HistoryEnded,  HISTORY,    RECOVERING, close_history_and_ask, None,                       "MS-15"),
    Row(Appeared,      UNKNOWN,    STAY,       appear,                None,                       "MS-18"),
    Row(Appeared,      (HISTORY, *KNOWN), STAY, stay_alive,           None,                       "MS-18"),
    Row(Disappeared,   UNKNOWN,    GONE,       None,                  None,                       "MS-19"),
    Row(Disappeared,   (HISTORY, *KNOWN), STAY, disappear,            None,                       "MS-18"),
    Row(RetentionOver, LIVE,       STAY,       retain,                was_heard,                  "MS-19"),
    Row(RetentionOver, LIVE,       GONE,       None,                  None,                       "MS-19"),
    Row(RetentionOver, (RECOVERING, RESTING), STAY, retain,           None,                       "MS-19"),
    Ignore((Heartbeat,),                 (HISTORY, *KNOWN),                   "MS-12"),
    Ignore((QueryEnded,),                (UNKNOWN, HISTORY, *KNOWN),          "MS-12"),
    Ignore((HistoryEnded,),              KNOWN,                               "MS-15"),
    Ignore((QueryTimeout,),              (UNKNOWN, HISTORY, LIVE, RESTING),   "MS-13"),
    Ignore((Rested,),                    (UNKNOWN, HISTORY, LIVE, RECOVERING), "MS-13"),
    Ignore((PeriodOver,),                (UNKNOWN, HISTORY, RECOVERING, RESTING), "MS-13"),
    Ignore((RetentionOver,),             (UNKNOWN, HISTORY),                  "MS-13"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def accounts_for_every_number(record: SourceRecord) -> bool:
    """held, tries and lost are disjoint and together expected..top - 1."""
    parts = sorted([*record.held, *record.lost, *(one for each in record.tries for one in each.missing)])
    place = record.expected
    for first, last in parts:
        if first != place or last < first:
            return False
        place = last + 1
    return place == record.top or (record.status is UNKNOWN and not parts)


def holds_no_more_than_it_may(record: SourceRecord) -> bool:
    limit = record.recovery.history_limit if record.status is HISTORY else record.recovery.pending
    return record.held_count == size(record.held) <= limit


def misses_nothing_while_live(record: SourceRecord) -> bool:
    settled = record.expected == record.top
    return settled if record.status in (UNKNOWN, LIVE, GONE) else bool(record.tries) or record.status is not RESTING


SOURCE = Fsm(
    "source",
    record=SourceRecord,
    states=SourceStatus,
    initial=UNKNOWN,
    final=(GONE,),
    rows=ROWS,
    timers=(
        Timer("query", QueryTimeout, (RECOVERING,), lambda record: record.recovery.timeout_ms * MS),
        Timer("rest", Rested, (RESTING,), backoff_ns),
        Timer("period", PeriodOver, (LIVE,), lambda record: record.recovery.period_ms * MS, on_entry=False),
        Timer("retention", RetentionOver, KNOWN, retention_ns),
    ),
    key=lambda record: record.source,
    invariants=(
        Invariant("accounts-for-every-number", "MS-20", accounts_for_every_number),
        Invariant("holds-no-more-than-it-may", "MS-21", holds_no_more_than_it_may),
        Invariant("misses-nothing-while-live", "MS-22", misses_nothing_while_live),
    ),
)
