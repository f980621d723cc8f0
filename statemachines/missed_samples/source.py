"""Source: what a Subscriber keeps of one publisher (source: "The ReliableSubscriber" and the sections after it).

`unknown -> history -> live -> recovering <-> resting -> live -> gone`: history waits for the Subscriber's first query,
recovering has a query open, resting waits before the next.
Samples come as ranges of numbers (the payloads are the driver's) and one step handles a whole range: what is in order
is delivered, what is ahead is held until the numbers before it have come, or are convicted as lost.
"""

from __future__ import annotations

from itertools import pairwise

from statemachines.kernel import STAY, Fsm, Ignore, Invariant, Row, Timer
from statemachines.missed_samples.message import Heartbeat, QueryEnded, QueryGoesOn, Sample
from statemachines.missed_samples.ranges import size
from statemachines.missed_samples.recovery import MS
from statemachines.missed_samples.source_actions import (
    appear,
    appear_and_ask,
    ask_unprompted,
    backoff_ns,
    beat_jumps,
    close_history,
    close_history_and_ask,
    close_history_and_look,
    close_history_live,
    deliver,
    disappear,
    doubt,
    doubt_beat,
    end_last_query,
    end_query,
    fill_history_and_ask,
    fill_history_live,
    fills_history,
    fills_history_without_hole,
    give_up,
    give_up_last_query,
    give_up_the_rest,
    gives_up_all,
    has_history_open,
    hear,
    hear_and_ask,
    hear_late_end,
    hear_the_rest,
    hear_word,
    hold,
    is_new_in_history,
    is_next,
    is_open,
    is_ours_from_start,
    jumps,
    leaves_no_tail,
    leaves_nothing,
    leaves_something_to_ask,
    miss_and_ask,
    misses_nothing,
    note_top,
    note_top_live,
    opens_hole,
    rest_no_longer,
    retain,
    retention_ns,
    settles_all,
    shows_loss,
    stay_alive,
    take,
    take_and_ask,
    take_reply,
    take_the_rest,
    timeout_asks,
    timeout_settles_all,
    wait_no_longer,
    was_heard,
    was_met_by_token,
)
from statemachines.missed_samples.source_record import (
    GONE,
    HISTORY,
    KNOWN,
    LIVE,
    RECOVERING,
    RESTING,
    UNKNOWN,
    Appeared,
    Disappeared,
    HistoryEnded,
    Overdue,
    PeriodOver,
    QueryTimeout,
    Rested,
    RetentionOver,
    SourceRecord,
    SourceStatus,
)
from statemachines.missed_samples.source_windows import answer_limit_ns, has_open

# fmt: off
ROWS = (
    #   on             from        to          do                     when                        clause
    Row(Sample,        LIVE,       STAY,       deliver,               is_next,                    "MS-03"),
    Row(Sample, (HISTORY, *KNOWN), STAY,       doubt,                 jumps,                      "MS-70"),
    Row(Sample, (UNKNOWN, HISTORY), LIVE,      fill_history_live,     fills_history_without_hole, "MS-16"),
    Row(Sample, (UNKNOWN, HISTORY), RECOVERING, fill_history_and_ask, fills_history,              "MS-16"),
    Row(Sample,        UNKNOWN,    HISTORY,    hold,                  has_history_open,           "MS-14"),
    Row(Sample,        UNKNOWN,    RECOVERING, take_and_ask,          opens_hole,                 "MS-02"),
    Row(Sample,        UNKNOWN,    LIVE,       take_the_rest,         None,                       "MS-01"),
    Row(Sample,        HISTORY,    STAY,       hold,                  None,                       "MS-14"),
    Row(Sample,        LIVE,       RECOVERING, take_and_ask,          opens_hole,                 "MS-04"),
    Row(Sample,        LIVE,       STAY,       take,                  None,                       "MS-03"),
    Row(Sample,        RECOVERING, LIVE,       take_the_rest,         leaves_nothing,             "MS-06"),
    Row(Sample,        RECOVERING, STAY,       take_reply,            None,                       "MS-05"),
    Row(Sample,        RESTING,    LIVE,       take_the_rest,         leaves_nothing,             "MS-06"),
    Row(Sample,        RESTING,    STAY,       take,                  None,                       "MS-05"),
    Row(Heartbeat, (HISTORY, *KNOWN), STAY,    doubt_beat,            beat_jumps,                 "MS-70"),
    Row(Heartbeat,     UNKNOWN,    HISTORY,    hear,                  is_new_in_history,          "MS-18"),
    Row(Heartbeat,     UNKNOWN,    HISTORY,    note_top,              has_history_open,           "MS-14"),
    Row(Heartbeat,     UNKNOWN,    RECOVERING, miss_and_ask,          shows_loss,                 "MS-02"),
    Row(Heartbeat,     UNKNOWN,    LIVE,       note_top_live,         None,                       "MS-01"),
    Row(Heartbeat,     LIVE,       RECOVERING, miss_and_ask,          shows_loss,                 "MS-07"),
    Row(Heartbeat,     LIVE,       STAY,       hear,                  None,                       "MS-12"),
    Row(Heartbeat, (RECOVERING, RESTING), LIVE, hear_the_rest,        leaves_no_tail,             "MS-78"),
    Row(Heartbeat,     RECOVERING, STAY,       hear_and_ask,          None,                       "MS-07"),
    Row(Heartbeat,     (HISTORY, RESTING), STAY, hear,                None,                       "MS-07"),
    Row(QueryEnded,    RECOVERING, LIVE,       end_last_query,        settles_all,                "MS-08"),
    Row(QueryEnded,    RECOVERING, STAY,       end_query,             leaves_something_to_ask,    "MS-09"),
    Row(QueryEnded,    RECOVERING, RESTING,    end_query,             is_open,                    "MS-10"),
    Row(QueryEnded,    KNOWN,      STAY,       hear_late_end,         None,                       "MS-66"),
    Row(QueryGoesOn,   KNOWN,      STAY,       hear_word,             None,                       "MS-66"),
    Row(QueryTimeout,  RECOVERING, LIVE,       give_up_last_query,    timeout_settles_all,        "MS-11"),
    Row(QueryTimeout,  RECOVERING, STAY,       wait_no_longer,        timeout_asks,               "MS-11"),
    Row(QueryTimeout,  RECOVERING, RESTING,    wait_no_longer,        None,                       "MS-11"),
    Row(Overdue, (RECOVERING, RESTING), LIVE,  give_up_the_rest,      gives_up_all,               "MS-79"),
    Row(Overdue, (RECOVERING, RESTING), STAY,  give_up,               None,                       "MS-79"),
    Row(Rested,        RESTING,    RECOVERING, rest_no_longer,        None,                       "MS-10"),
    Row(PeriodOver,    LIVE,       RECOVERING, ask_unprompted,        None,                       "MS-17"),
    Row(HistoryEnded,  UNKNOWN,    STAY,       close_history_and_look, was_met_by_token,          "MS-71"),
    Row(HistoryEnded,  UNKNOWN,    STAY,       close_history,         None,                       "MS-15"),
    Row(HistoryEnded,  HISTORY,    LIVE,       close_history_live,    misses_nothing,             "MS-15"),
    Row(HistoryEnded,  HISTORY,    RECOVERING, close_history_and_ask, None,                       "MS-15"),
    Row(Appeared,      UNKNOWN,    STAY,       appear_and_ask,        is_ours_from_start,         "MS-71"),
    Row(Appeared,      UNKNOWN,    STAY,       appear,                None,                       "MS-18"),
    Row(Appeared,      (HISTORY, *KNOWN), STAY, stay_alive,           None,                       "MS-18"),
    Row(Disappeared,   UNKNOWN,    GONE,       None,                  None,                       "MS-19"),
    Row(Disappeared,   (HISTORY, *KNOWN), STAY, disappear,            None,                       "MS-18"),
    Row(RetentionOver, LIVE,       STAY,       retain,                was_heard,                  "MS-19"),
    Row(RetentionOver, LIVE,       GONE,       None,                  None,                       "MS-19"),
    Row(RetentionOver, (RECOVERING, RESTING), STAY, retain,           None,                       "MS-19"),
    Ignore((QueryEnded, QueryGoesOn),    (UNKNOWN, HISTORY),                  "MS-12"),
    Ignore((HistoryEnded,),              KNOWN,                               "MS-15"),
    Ignore((QueryTimeout,),              (UNKNOWN, HISTORY, LIVE, RESTING),   "MS-13"),
    Ignore((Overdue,),                   (UNKNOWN, HISTORY, LIVE),            "MS-13"),
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


def waits_for_what_it_asked(record: SourceRecord) -> bool:
    """While a query is waited for one is open, and otherwise none; windows are in order, and no more than may be."""
    windows = record.windows
    apart = all(one.last < other.first for one, other in pairwise(windows))
    return (
        has_open(record) is (record.status is RECOVERING) and apart and len(windows) <= record.recovery.pacing.windows
    )


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
        Timer("query", QueryTimeout, (RECOVERING,), answer_limit_ns),
        Timer("overdue", Overdue, (RECOVERING, RESTING), on_entry=False),
        Timer("rest", Rested, (RESTING,), backoff_ns),
        Timer("period", PeriodOver, (LIVE,), lambda record: record.recovery.period_ms * MS, on_entry=False),
        Timer("retention", RetentionOver, KNOWN, retention_ns),
    ),
    key=lambda record: record.source,
    invariants=(
        Invariant("accounts-for-every-number", "MS-20", accounts_for_every_number),
        Invariant("holds-no-more-than-it-may", "MS-21", holds_no_more_than_it_may),
        Invariant("misses-nothing-while-live", "MS-22", misses_nothing_while_live),
        Invariant("waits-for-what-it-asked", "MS-65", waits_for_what_it_asked),
    ),
)
