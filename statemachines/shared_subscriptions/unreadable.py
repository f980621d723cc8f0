"""Unreadable: a session whose reads fail, and what it does about that.

The first read that fails sets a timer, and a read that succeeds takes it back.  When the timer fires the session has
read nothing for a validity: it tells its host so, which gives all shared streams back.  From then on the session tries
one read, again and again: the slices that failed.  When that succeeds, the host is told to take part again.
"""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import Ask, CancelTimer, Effects, Event, SetTimer, Tell, keys_in_order
from statemachines.shared_subscriptions.session_record import (
    SLICES_PER_FETCH,
    PollTimer,
    Reading,
    ReadsFailed,
    ReadsSucceed,
    SessionRecord,
    UnreadableTimer,
)
from statemachines.shared_subscriptions.stream_store import SERVICE, Fetch, Slice

NO_KEY = ""
"""The key of a slice that is read for no owner."""


def is_unreadable(record: SessionRecord, event: PollTimer) -> bool:
    """The session has given its streams back, and tries whether it can read."""
    return bool(record.trial)


def cannot_read(record: SessionRecord, event: UnreadableTimer) -> bool:
    """There is something to be read, and no read has succeeded since the first that failed."""
    return record.failing and bool(record.readings)


def note_failure(record: SessionRecord, now_ns: int) -> tuple[SessionRecord, Effects]:
    """Another read has failed: the first one sets the timer, and every one sets when the next read begins."""
    if record.trial:
        return record, (SetTimer("poll", now_ns + record.retry_ns),)
    poll = SetTimer("poll", now_ns + record.poll_ns)
    if record.failing:
        return record, (poll,)
    return replace(record, failing=True), (SetTimer("unreadable", now_ns + record.patience_ns), poll)


def note_success(record: SessionRecord) -> tuple[SessionRecord, Effects]:
    """A read has succeeded."""
    if record.trial:
        return replace(record, trial=()), (Tell(ReadsSucceed()),)
    return replace(record, failing=False), (CancelTimer("unreadable"),)


def give_up_reads(record: SessionRecord, event: UnreadableTimer, now_ns: int) -> tuple[SessionRecord, Effects]:
    """Remember what could not be read, and tell the host."""
    trial = tuple([slice_of(record, reading) for reading in failing_readings(record)])
    record = replace(record, failing=False, trial=trial)
    return record, (SetTimer("poll", now_ns + record.retry_ns), Tell(ReadsFailed(trial[0].stream)))


def give_up_open_read(record: SessionRecord, event: UnreadableTimer, now_ns: int) -> tuple[SessionRecord, Effects]:
    """The same while a read is open: its answer, or its failure, goes on from here."""
    record, (_, told) = give_up_reads(record, event, now_ns)
    return record, (told,)


def forget_failure(record: SessionRecord, event: Event, now_ns: int) -> tuple[SessionRecord, Effects]:
    """Nothing is read any more: the next read that fails is a first one."""
    return replace(record, failing=False), ()


def try_read(record: SessionRecord, event: PollTimer, now_ns: int) -> tuple[SessionRecord, Effects]:
    """Ask for the slices that failed, for no owner."""
    record = replace(record, fetch_n=record.fetch_n + 1, asked=(NO_KEY,) * len(record.trial))
    return record, (Ask(SERVICE, Fetch(record.fetch_n, record.trial)),)


def failing_readings(record: SessionRecord) -> list[Reading]:
    """Those of the open fetch, or whose turn it is, or any: no more than one fetch asks for."""
    readings = record.readings
    for keys in (record.asked, tuple(record.to_fetch), keys_in_order(readings)):
        living = [readings[key] for key in dict.fromkeys(keys) if key in readings]
        if living:
            return living[:SLICES_PER_FETCH]
    return []


def slice_of(record: SessionRecord, reading: Reading) -> Slice:
    """What a fetch asks for of this reading."""
    return Slice(reading.stream, reading.grant, reading.fetched, record.buffer - (reading.fetched - reading.progress))
