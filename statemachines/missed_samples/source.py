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
    Call,
    ConfigurationError,
    Effects,
    Event,
    Fsm,
    Ignore,
    Invariant,
    Row,
    Send,
    SetTimer,
    Status,
    Tell,
    Timer,
    TimerFired,
)
from statemachines.missed_samples.message import Deliver, Heartbeat, Missed, Query, QueryEnded, Sample
from statemachines.missed_samples.ranges import Ranges, add, overlap, size

MS = 1_000_000


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
    `history_limit` while the first query is open; `period_ms`: how often to ask unprompted (0: never).
    `ConfigurationError` names the value that cannot be."""

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

    def __post_init__(self) -> None:
        least = {"timeout_ms": 1, "backoff_ms": 1, "backoff_max_ms": self.backoff_ms, "retention_ms": 1}
        for key in ("retries", "timeout_ms", "backoff_ms", "backoff_max_ms", "pending", "history_limit", "period_ms",
                    "retention_ms"):  # fmt: skip
            if getattr(self, key) < least.get(key, 0):
                raise ConfigurationError(key, getattr(self, key), f"at least {least.get(key, 0)}")


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


class SourceRecord(msgspec.Struct, frozen=True, gc=False):
    """One source.  All below `expected` is delivered or reported; `top` is the lowest number never heard of.  Between
    the two a number is in `held` (arrived; `held_count` of them) or missing.  `asked_top`: `top` when the open query
    was sent; `asked`: the same of the last queries that ended.  A missing number has been asked for by those above it:
    the lower of two at least as often as the higher, so none needs a count of its own.
    `history`: the Subscriber's first query is open; `heard`: since the last retention; `new`, `alive`: see Appeared."""

    source: str
    caches: str
    recovery: Recovery
    status: SourceStatus = UNKNOWN
    expected: int = 0
    top: int = 0
    held: Ranges = ()
    held_count: int = 0
    query_n: int = 0
    asked_top: int = 0
    asked: tuple[int, ...] = ()
    dropped: int = 0
    history: bool = False
    new: bool = False
    alive: bool = False
    heard: bool = False

    @property
    def missing(self) -> int:
        """How many numbers are missing; when everything before it is settled, `expected` is the first of them."""
        return self.top - self.expected - self.held_count

    @property
    def attempts(self) -> int:
        """How many queries for the first missing number have ended."""
        return sum(top > self.expected for top in self.asked)

    @property
    def from_start(self) -> bool:
        """What was sent before the first contact counts as missing."""
        return self.new or (self.recovery.past and not self.history)


Done = tuple[SourceRecord, Effects]


# -- what an event makes of the record ------------------------------------------------------------------------------


def heard_of(record: SourceRecord, first: int, last: int) -> SourceRecord:
    """Numbers up to `last` exist; a source that was not known begins, with `first` or with the first there is."""
    if record.status is UNKNOWN:
        begin = 0 if record.from_start else first
        return replace(record, expected=begin, top=last + 1, heard=True)
    return replace(record, top=max(record.top, last + 1), heard=True)


def arrived(record: SourceRecord, event: Sample) -> SourceRecord:
    """Keep what is new of the range, count the rest."""
    first, last = event.first, event.last
    record = heard_of(record, first, last)
    if record.history and first < record.expected:
        record = replace(record, expected=first)  # a source begins with the lowest that came, the order apart
    first = max(first, record.expected)
    new = last - first + 1 - overlap(record.held, first, last) if first <= last else 0
    again = last - event.first + 1 - new
    if new:
        held = add(record.held, first, last)
        return replace(record, held=held, held_count=record.held_count + new, dropped=record.dropped + again)
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


def query_over(record: SourceRecord, replied: bool) -> Done:
    """What was missing when the query was sent has been asked for once more, or is convicted."""
    if replied and record.recovery.reliable:
        return settle(record, record.asked_top)
    enough = record.recovery.retries + 1
    asked = (*record.asked, record.asked_top)[-enough:]
    return settle(replace(record, asked=asked), asked[0] if len(asked) == enough else 0)


def ask(record: SourceRecord, effects: Effects) -> Done:
    """One open-ended query from the first missing number on."""
    record = replace(record, query_n=record.query_n + 1, asked_top=record.top)
    return record, (*effects, Send(record.caches, Query(record.source, record.query_n, record.expected)))


# -- guards ---------------------------------------------------------------------------------------------------------


def shows_new_hole(record: SourceRecord, event: Sample) -> bool:
    """Numbers before it were not known to exist."""
    top = event.first if record.status is UNKNOWN and not record.from_start else record.top
    return event.first > top


def leaves_nothing(record: SourceRecord, event: Sample) -> bool:
    """After it nothing is missing: it fills every hole, or the holes are given up."""
    record = arrived(record, event)
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
    return event.last >= record.top if record.status is not UNKNOWN else record.from_start


def has_history_open(record: SourceRecord, event: Event) -> bool:
    return record.history


def fills_history(record: SourceRecord, event: Sample) -> bool:
    """More would be held than may be while the first query is open."""
    return record.history and arrived(record, event).held_count > record.recovery.history_limit


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
    return event.n == record.query_n


def settles_all(record: SourceRecord, event: QueryEnded) -> bool:
    return is_open(record, event) and not query_over(record, event.replied)[0].missing


def leaves_only_new(record: SourceRecord, event: QueryEnded) -> bool:
    """Numbers are missing, and none that the query that ended was sent for."""
    return is_open(record, event) and not query_over(record, event.replied)[0].attempts


def timeout_settles_all(record: SourceRecord, event: QueryTimeout) -> bool:
    return not query_over(record, False)[0].missing


# -- actions --------------------------------------------------------------------------------------------------------


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


def hear(record: SourceRecord, event: Heartbeat, now_ns: int) -> Done:
    return heard_of(record, event.last + 1, event.last), ()


def miss_and_ask(record: SourceRecord, event: Heartbeat, now_ns: int) -> Done:
    return ask(heard_of(record, event.last + 1, event.last), ())


def end_query(record: SourceRecord, event: QueryEnded, now_ns: int) -> Done:
    return query_over(record, event.replied)


def end_last_query(record: SourceRecord, event: QueryEnded, now_ns: int) -> Done:
    return live(*end_query(record, event, now_ns), now_ns)


def end_query_and_ask(record: SourceRecord, event: QueryEnded, now_ns: int) -> Done:
    return ask(*end_query(record, event, now_ns))


def give_up_query(record: SourceRecord, event: QueryTimeout, now_ns: int) -> Done:
    return query_over(record, False)


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
    recovery = record.recovery
    return min(recovery.backoff_ms << min(max(record.attempts - 1, 0), 20), recovery.backoff_max_ms) * MS


# fmt: off
ROWS = (
    #   on             from        to          do                     when                        clause
    Row(Sample, (UNKNOWN, HISTORY), LIVE,      fill_history_live,     fills_history_without_hole, "MS-16"),
    Row(Sample, (UNKNOWN, HISTORY), RECOVERING, fill_history_and_ask, fills_history,              "MS-16"),
    Row(Sample,        UNKNOWN,    HISTORY,    hold,                  has_history_open,           "MS-14"),
    Row(Sample,        UNKNOWN,    RECOVERING, take_and_ask,          opens_hole,                 "MS-02"),
    Row(Sample,        UNKNOWN,    LIVE,       take_the_rest,         None,                       "MS-01"),
    Row(Sample,        HISTORY,    STAY,       hold,                  None,                       "MS-14"),
    Row(Sample,        LIVE,       STAY,       deliver,               is_next,                    "MS-03"),
    Row(Sample,        LIVE,       RECOVERING, take_and_ask,          opens_hole,                 "MS-04"),
    Row(Sample,        LIVE,       STAY,       take,                  None,                       "MS-03"),
    Row(Sample,        RECOVERING, LIVE,       take_the_rest,         leaves_nothing,             "MS-06"),
    Row(Sample,        RECOVERING, STAY,       take,                  None,                       "MS-05"),
    Row(Sample,        RESTING,    LIVE,       take_the_rest,         leaves_nothing,             "MS-06"),
    Row(Sample,        RESTING,    STAY,       take,                  None,                       "MS-05"),
    Row(Heartbeat,     UNKNOWN,    HISTORY,    hear,                  is_new_in_history,          "MS-18"),
    Row(Heartbeat,     UNKNOWN,    HISTORY,    note_top,              has_history_open,           "MS-14"),
    Row(Heartbeat,     UNKNOWN,    RECOVERING, miss_and_ask,          shows_loss,                 "MS-02"),
    Row(Heartbeat,     UNKNOWN,    LIVE,       note_top_live,         None,                       "MS-01"),
    Row(Heartbeat,     LIVE,       RECOVERING, miss_and_ask,          shows_loss,                 "MS-07"),
    Row(Heartbeat,     LIVE,       STAY,       hear,                  None,                       "MS-12"),
    Row(Heartbeat, (HISTORY, RECOVERING, RESTING), STAY, hear,        None,                       "MS-07"),
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
    """`held` is in order, apart, and between `expected` and `top`; what is next has been delivered."""
    place = record.expected if record.status is HISTORY else record.expected + 1
    for first, last in record.held:
        if first < place or last < first:
            return False
        place = last + 2
    return place <= record.top + 1 or not record.held


def holds_no_more_than_it_may(record: SourceRecord) -> bool:
    limit = record.recovery.history_limit if record.status is HISTORY else record.recovery.pending
    return record.held_count == size(record.held) <= limit


def misses_nothing_while_live(record: SourceRecord) -> bool:
    if record.status in (UNKNOWN, LIVE, GONE):
        return record.expected == record.top
    return record.missing > 0 or record.status is not RESTING


SOURCE = Fsm(
    "source",
    protocol="missed_samples",
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
