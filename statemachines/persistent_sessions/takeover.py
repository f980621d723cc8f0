"""Takeover: a new owner and the owner of before, while a session that is live changes hands (source: "Current
implementation", its picture "current-implementation").

`new -> beginning -> begun -> ending -> confirming -> over`.  What is promised rests on the token and the database
alone: the new owner has loaded the state under its token before it says anything, so nothing of the owner of before is
committed any more, and a resume brings whatever that one had.  What it hands over only saves reading, and is taken
where the database has exactly the same row; an owner that lies, is silent or has died costs time.

What an event makes of a Takeover: the guards and actions of its table (`takeover`).
"""

from __future__ import annotations

from statemachines.kernel import STAY, Ask, Effects, Event, Fsm, Ignore, Refuse, Row, Send, SetTimer, Tell, Timer
from statemachines.persistent_sessions.request import DATABASE, ConfirmRows, RowsConfirmed
from statemachines.persistent_sessions.takeover_record import (
    BEGINNING,
    BEGUN,
    CONFIRMING,
    ENDING,
    NEW,
    OVER,
    BeginTakeover,
    BeginTimeout,
    Done,
    EndTakeover,
    EndTimeout,
    FinishTakeover,
    HandedOver,
    SayAgain,
    StartTakeover,
    TakenOver,
    TakeoverBegun,
    TakeoverEnded,
    TakeoverRecord,
    TakeoverRefused,
    TakeoverStatus,
    limit_rows,
)
from statemachines.persistent_sessions.times import MS

FromOld = TakeoverBegun | TakeoverEnded | TakeoverRefused

# -- guards ---------------------------------------------------------------------------------------------------------


def is_ours(record: TakeoverRecord, event: FromOld) -> bool:
    """Of this takeover, and not of one before or after it."""
    return (event.client, event.token) == (record.client, record.token)


def brings_rows(record: TakeoverRecord, event: TakeoverEnded) -> bool:
    return is_ours(record, event) and bool(limit_rows(event.found, record.times.handover))


# -- actions --------------------------------------------------------------------------------------------------------


def begin_patience_ms(record: TakeoverRecord) -> int:
    """An owner that its client has left has the time of one repetition to begin."""
    return record.times.repeat_ms if record.left else record.times.begin_ms


def again_timer(record: TakeoverRecord, now_ns: int) -> SetTimer:
    return SetTimer("again", now_ns + record.times.repeat_ms * MS, record.old)


def ask_begin(record: TakeoverRecord, event: Event, now_ns: int) -> Done:
    return record, (Send(record.old, BeginTakeover(record.client, record.owner, record.token)),)


def ask_begin_again(record: TakeoverRecord, event: Event, now_ns: int) -> Done:
    return record, (again_timer(record, now_ns), *ask_begin(record, event, now_ns)[1])


def ask_end(record: TakeoverRecord, event: Event, now_ns: int) -> Done:
    return record, (Send(record.old, EndTakeover(record.client, record.owner, record.token)),)


def ask_end_again(record: TakeoverRecord, event: Event, now_ns: int) -> Done:
    return record, (again_timer(record, now_ns), *ask_end(record, event, now_ns)[1])


def confirm(record: TakeoverRecord, event: TakeoverEnded, now_ns: int) -> Done:
    """Nothing is believed: the database says what of it is stored, and as what."""
    found = limit_rows(event.found, record.times.handover)
    return record, (Ask(DATABASE, ConfirmRows(record.session, record.token, found)),)


def over(record: TakeoverRecord, why: str) -> Effects:
    return (Tell(TakenOver(record.session, record.old, why)),)


def hand_on(record: TakeoverRecord, event: RowsConfirmed, now_ns: int) -> Done:
    return record, (Tell(HandedOver(event.found)), *over(record, "handed"))


def end_empty(record: TakeoverRecord, event: Event, now_ns: int) -> Done:
    return record, over(record, "handed")


def give_up_refused(record: TakeoverRecord, event: Event, now_ns: int) -> Done:
    return record, over(record, "refused")


def give_up_silent(record: TakeoverRecord, event: Event, now_ns: int) -> Done:
    return record, over(record, "silent")


STARTED = (BEGINNING, BEGUN, ENDING, CONFIRMING)

# fmt: off
ROWS = (
    #   on               from                  to          do               when         clause
    Row(StartTakeover,   NEW,                  BEGINNING,  ask_begin,       None,        "PS-170"),
    Row(SayAgain,        BEGINNING,            STAY,       ask_begin_again, None,        "PS-171"),
    Row(TakeoverBegun,   BEGINNING,            BEGUN,      None,            is_ours,     "PS-172"),
    Row(TakeoverRefused, BEGINNING,            OVER,       give_up_refused, is_ours,     "PS-173"),
    Row(BeginTimeout,    BEGINNING,            OVER,       give_up_silent,  None,        "PS-173"),
    Row(FinishTakeover,  BEGUN,                ENDING,     ask_end,         None,        "PS-174"),
    Row(SayAgain,        ENDING,               STAY,       ask_end_again,   None,        "PS-171"),
    Row(TakeoverEnded,   ENDING,               CONFIRMING, confirm,         brings_rows, "PS-175"),
    Row(TakeoverEnded,   ENDING,               OVER,       end_empty,       is_ours,     "PS-175"),
    Row(RowsConfirmed,   CONFIRMING,           OVER,       hand_on,         None,        "PS-176"),
    Row(TakeoverRefused, ENDING,               OVER,       give_up_refused, is_ours,     "PS-178"),
    Row(EndTimeout,      (ENDING, CONFIRMING), OVER,       give_up_silent,  None,        "PS-178"),
    Ignore((TakeoverBegun,),   STARTED,                                                  "PS-179"),
    Ignore((TakeoverEnded,),   STARTED,                                                  "PS-179"),
    Ignore((TakeoverRefused,), STARTED,                                                  "PS-179"),
    Ignore((RowsConfirmed,),   (BEGINNING, BEGUN, ENDING),                               "PS-179"),
    Ignore((SayAgain,),        (BEGUN, CONFIRMING),                                      "PS-179"),
    Ignore((BeginTimeout,),    (BEGUN, ENDING, CONFIRMING),                              "PS-179"),
    Ignore((EndTimeout,),      (BEGINNING, BEGUN),                                       "PS-179"),
    Refuse((StartTakeover,),   STARTED,                                                  "PS-170"),
    Refuse((FinishTakeover,),  (NEW, BEGINNING, ENDING, CONFIRMING),                     "PS-174"),
    Refuse((TakeoverBegun, TakeoverEnded, TakeoverRefused, RowsConfirmed, SayAgain, BeginTimeout, EndTimeout),
                               NEW,                                                      "PS-170"),
)
# fmt: on

TAKEOVER = Fsm(
    "takeover",
    protocol="persistent_sessions",
    record=TakeoverRecord,
    states=TakeoverStatus,
    initial=NEW,
    final=(OVER,),
    rows=ROWS,
    timers=(
        Timer("again", SayAgain, (BEGINNING, ENDING), lambda record: record.times.repeat_ms * MS),
        Timer("begin", BeginTimeout, (BEGINNING,), lambda record: begin_patience_ms(record) * MS),
        Timer("end", EndTimeout, (ENDING, CONFIRMING), lambda record: record.times.end_ms * MS),
    ),
    key=lambda record: record.old,
)
