"""Unreadable session: a session whose reads fail, and what it does about that.

The first read that fails sets a timer, and a read that succeeds takes it back.  When the timer fires the session has
read nothing for a validity: it tells its host so, which gives all shared streams back.  From then on the session tries
one read, again and again: the slices that failed.  When that succeeds, the host is told to take part again.
"""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import Ask, CancelTimer, Effects, SetTimer, Tell
from statemachines.shared_subscriptions.relaxed_order import count_excused, find_due
from statemachines.shared_subscriptions.session_record import (
    PollTimer,
    ReadsFailed,
    ReadsSucceed,
    SessionRecord,
    StreamReading,
    UnreadableTimer,
)
from statemachines.shared_subscriptions.stream_store import SERVICE, Fetch, Slice

NO_KEY = ""
"""The key of a slice that is read for no owner."""


def is_unreadable(record: SessionRecord, event: PollTimer) -> bool:
    """The session has given its streams back, and tries whether it can read."""
    return bool(record.trial)


def is_failing(record: SessionRecord, event: UnreadableTimer) -> bool:
    """A read has failed, and none has succeeded since."""
    return bool(record.failing)


def note_failure(record: SessionRecord, asked: tuple[str, ...], now_ns: int) -> tuple[SessionRecord, Effects]:
    """The read of `asked` has failed: the first one sets the timer, and every one sets when the next read begins."""
    if record.trial:
        return record, (SetTimer("poll", now_ns + record.retry_ns),)
    poll = SetTimer("poll", now_ns + record.poll_ns)
    failing = tuple([slice_of(record, record.readings[key]) for key in asked if key in record.readings])
    if record.failing or not failing:
        return record, (poll,)
    return replace(record, failing=failing), (SetTimer("unreadable", now_ns + record.patience_ns), poll)


def note_success(record: SessionRecord) -> tuple[SessionRecord, Effects]:
    """A read has succeeded."""
    if record.trial:
        return replace(record, trial=()), (Tell(ReadsSucceed()),)
    return replace(record, failing=()), (CancelTimer("unreadable"),)


def give_up_reads(record: SessionRecord, event: UnreadableTimer, now_ns: int) -> tuple[SessionRecord, Effects]:
    """Tell the host, and try what failed from now on."""
    record, effects = give_up_open_read(record, event, now_ns)
    return record, (SetTimer("poll", now_ns + record.retry_ns), *effects)


def give_up_open_read(record: SessionRecord, event: UnreadableTimer, now_ns: int) -> tuple[SessionRecord, Effects]:
    """The same while a read is open: its answer, or its failure, sets when the next begins."""
    return replace(record, failing=(), trial=record.failing), (Tell(ReadsFailed(record.failing[0].stream)),)


def try_read(record: SessionRecord, event: PollTimer, now_ns: int) -> tuple[SessionRecord, Effects]:
    """Ask for the slices that failed, for no owner."""
    record = replace(record, fetch_n=record.fetch_n + 1, asked=(NO_KEY,) * len(record.trial))
    return record, (Ask(SERVICE, Fetch(record.fetch_n, record.trial)),)


def slice_of(record: SessionRecord, reading: StreamReading) -> Slice:
    """What a fetch asks for of this reading: a message that was given back comes first, and alone."""
    due = find_due(reading)
    if due is not None:
        return Slice(reading.stream, reading.grant, due, 1)
    room = record.buffer - (reading.fetched - reading.progress - count_excused(reading))
    return Slice(reading.stream, reading.grant, reading.fetched, room)
