"""What an event makes of a Takeover: the guards and actions of its table (`takeover`)."""

from __future__ import annotations

from statemachines.kernel import Ask, Effects, Event, Send, SetTimer, Tell
from statemachines.persistent_sessions.request import DATABASE, ConfirmRows, RowsConfirmed
from statemachines.persistent_sessions.takeover_message import (
    BeginTakeover,
    EndTakeover,
    TakeoverBegun,
    TakeoverEnded,
    TakeoverRefused,
    limit_rows,
)
from statemachines.persistent_sessions.takeover_record import Done, HandedOver, TakenOver, TakeoverRecord
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
