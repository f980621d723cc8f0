"""Subscriber: all that is subscribed under one key expression (source: "The `ReliableSubscriber`", "Historical data").

`new -> history <-> paused -> subscribed -> closed`: in history its first query, about every source, is open; in paused
it waits to be sent again.  It holds a Source
for each publisher and does little itself: numbers of the wire become numbers that never come round, and each event
goes to the source it is about, so that one which is stuck delays no other.
"""

from __future__ import annotations

from statemachines.kernel import STAY, Delegate, Event, Fsm, Ignore, Invariant, Refuse, Row, Timer
from statemachines.missed_samples.message import Heartbeat, QueryEnded, QueryGoesOn, Sample, Unnumbered
from statemachines.missed_samples.recovery import MS
from statemachines.missed_samples.source import SOURCE
from statemachines.missed_samples.source_record import (
    GONE,
    Appeared,
    Disappeared,
    Overdue,
    PeriodOver,
    QueryTimeout,
    Rested,
    RetentionOver,
    SourceRecord,
)
from statemachines.missed_samples.subscriber_actions import (
    ask_history,
    ask_history_again,
    beats_beyond_the_wire,
    close_history,
    count_only,
    deliver_unnumbered,
    ends_history,
    ends_last_try,
    ends_this_try,
    history_backoff_ns,
    is_about_a_source,
    is_beyond_the_wire,
    is_known,
    is_of_a_source,
    is_of_history,
    is_one_too_many,
    says_nothing,
    take_end,
    take_heartbeat,
    take_sample,
    take_timer,
    take_token,
    turn_away,
    wait_for_history,
    wants_history,
    was_last_try,
)
from statemachines.missed_samples.subscriber_record import (
    BEFORE,
    CLOSED,
    HISTORY,
    NEW,
    OPEN,
    PAUSED,
    SUBSCRIBED,
    HistoryRested,
    HistoryTimeout,
    Subscribe,
    SubscriberRecord,
    SubscriberStatus,
    Unsubscribe,
)

OF_SOURCES = (QueryTimeout, Overdue, Rested, PeriodOver, RetentionOver)
FROM_OUTSIDE = (Sample, Unnumbered, Heartbeat, Appeared, Disappeared, QueryEnded, QueryGoesOn)

# fmt: off
ROWS = (
    #   on              from     to          do                        when                   clause
    Row(Subscribe,      NEW,     HISTORY,    ask_history,              wants_history,         "MS-50"),
    Row(Subscribe,      NEW,     SUBSCRIBED, None,                     None,                  "MS-51"),
    Row(Sample,         OPEN,    STAY,       None,                     is_beyond_the_wire,    "MS-52"),
    Row(Sample,         OPEN,    STAY,       turn_away,                is_one_too_many,       "MS-63"),
    Row(Sample,         OPEN,    STAY,       Delegate(take_sample),    None,                  "MS-53"),
    Row(Unnumbered,     OPEN,    STAY,       deliver_unnumbered,       None,                  "MS-54"),
    Row(Heartbeat,      OPEN,    STAY,       None,                     beats_beyond_the_wire, "MS-52"),
    Row(Heartbeat,      OPEN,    STAY,       None,                     says_nothing,          "MS-55"),
    Row(Heartbeat,      OPEN,    STAY,       count_only,               is_one_too_many,       "MS-64"),
    Row(Heartbeat,      OPEN,    STAY,       Delegate(take_heartbeat), None,                  "MS-53"),
    Row(Appeared,       OPEN,    STAY,       count_only,               is_one_too_many,       "MS-64"),
    Row(Appeared,       OPEN,    STAY,       Delegate(take_token),     None,                  "MS-53"),
    Row(Disappeared,    OPEN,    STAY,       Delegate(take_token),     is_known,              "MS-53"),
    Row(QueryEnded,     BEFORE,  SUBSCRIBED, Delegate(close_history),  ends_history,          "MS-56"),
    Row(QueryEnded,     HISTORY, SUBSCRIBED, Delegate(close_history),  ends_last_try,         "MS-56"),
    Row(QueryEnded,     HISTORY, PAUSED,     None,                     ends_this_try,         "MS-72"),
    Row(HistoryTimeout, HISTORY, SUBSCRIBED, Delegate(close_history),  was_last_try,          "MS-56"),
    Row(HistoryTimeout, HISTORY, PAUSED,     None,                     None,                  "MS-72"),
    Row(HistoryRested,  PAUSED,  HISTORY,    ask_history_again,        None,                  "MS-72"),
    Row(QueryGoesOn,    HISTORY, STAY,       wait_for_history,         is_of_history,         "MS-66"),
    Row(QueryGoesOn,    OPEN,    STAY,       Delegate(take_end),       is_about_a_source,     "MS-57"),
    Row(QueryEnded,     OPEN,    STAY,       Delegate(take_end),       is_about_a_source,     "MS-57"),
    Row(QueryTimeout,   OPEN,    STAY,       Delegate(take_timer),     is_of_a_source,        "MS-57"),
    Row(Overdue,        OPEN,    STAY,       Delegate(take_timer),     is_of_a_source,        "MS-57"),
    Row(Rested,         OPEN,    STAY,       Delegate(take_timer),     is_of_a_source,        "MS-57"),
    Row(PeriodOver,     OPEN,    STAY,       Delegate(take_timer),     is_of_a_source,        "MS-57"),
    Row(RetentionOver,  OPEN,    STAY,       Delegate(take_timer),     is_of_a_source,        "MS-57"),
    Row(Unsubscribe,    (NEW, *OPEN), CLOSED, None,                    None,                  "MS-58"),
    Ignore((Disappeared, QueryEnded, QueryGoesOn, *OF_SOURCES), OPEN,                         "MS-59"),
    Ignore((HistoryTimeout,), (NEW, PAUSED, SUBSCRIBED),                                      "MS-59"),
    Ignore((HistoryRested,), (NEW, HISTORY, SUBSCRIBED),                                      "MS-59"),
    Ignore((*FROM_OUTSIDE, *OF_SOURCES), NEW,                                                 "MS-51"),
    Refuse((Subscribe,), OPEN,                                                                "MS-51"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def is_sound(source: SourceRecord) -> bool:
    return source.status is not GONE and all(one.holds(source) for one in SOURCE.invariants)


def keeps_sound_sources(record: SubscriberRecord) -> bool:
    """Each source is kept under its name, is not gone, and keeps its own promises; none waits for a first query that is
    over."""
    waits = record.status in BEFORE
    return all(
        name == source.source and is_sound(source) and (waits or not source.history)
        for name, source in record.sources.items()
    )


def keeps_no_more_sources_than_it_may(record: SubscriberRecord) -> bool:
    return len(record.sources) <= record.recovery.sources


def keeps_the_touched(record: SubscriberRecord, event: Event) -> bool:
    source = record.sources.get(getattr(event, "source", "") or getattr(event, "key", ""))
    return source is None or is_sound(source)


SUBSCRIBER = Fsm(
    "subscriber",
    protocol="missed_samples",
    record=SubscriberRecord,
    states=SubscriberStatus,
    initial=NEW,
    final=(CLOSED,),
    rows=ROWS,
    timers=(
        Timer("history", HistoryTimeout, (HISTORY,), lambda record: record.recovery.pacing.history_ms * MS),
        Timer("pause", HistoryRested, (PAUSED,), history_backoff_ns),
    ),
    children=(SOURCE,),
    invariants=(
        Invariant("keeps-sound-sources", "MS-60", keeps_sound_sources, keeps_the_touched),
        Invariant("keeps-no-more-sources-than-it-may", "MS-63", keeps_no_more_sources_than_it_may),
    ),
)
