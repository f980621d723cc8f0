"""Takeover: a new owner and the owner of before, while a session that is live changes hands (source: "Current
implementation", its picture "current-implementation").

`new -> beginning -> begun -> ending -> confirming -> over`.  What is promised rests on the token and the database
alone: the new owner has loaded the state under its token before it says anything, so nothing of the owner of before is
committed any more, and a resume brings whatever that one had.  What it hands over only saves reading, and is taken
where the database has exactly the same row; an owner that lies, is silent or has died costs time.
"""

from __future__ import annotations

from statemachines.kernel import STAY, Fsm, Ignore, Refuse, Row, Timer
from statemachines.persistent_sessions.request import RowsConfirmed
from statemachines.persistent_sessions.takeover_actions import (
    ask_begin,
    ask_begin_again,
    ask_end,
    ask_end_again,
    begin_patience_ms,
    brings_rows,
    confirm,
    end_empty,
    give_up_refused,
    give_up_silent,
    hand_on,
    is_ours,
)
from statemachines.persistent_sessions.takeover_message import TakeoverBegun, TakeoverEnded, TakeoverRefused
from statemachines.persistent_sessions.takeover_record import (
    BEGINNING,
    BEGUN,
    CONFIRMING,
    ENDING,
    NEW,
    OVER,
    BeginTimeout,
    EndTimeout,
    FinishTakeover,
    SayAgain,
    StartTakeover,
    TakeoverRecord,
    TakeoverStatus,
)
from statemachines.persistent_sessions.times import MS

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
