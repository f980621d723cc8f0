"""Returned messages: what a session does with a message that its application gave back, or that failed elsewhere.

The stream goes back to that message: it is fetched and handed over again before anything behind it.  What was handed
out behind it comes again unless it is acknowledged meanwhile.  The application sees order, with repeats.

A message that failed before is handed over alone where the group bounds deliveries: when nothing else is in hand, and
nothing else is handed over until it is dealt with.  So what kills its member is known by name.

Unreadable session: a session whose reads fail, and what it does about that.

The first read that fails sets a timer, and a read that succeeds takes it back.  When the timer fires the session has
read nothing for a validity: it tells its host so, which gives all shared streams back.  From then on the session tries
one read, again and again: the slices that failed.  When that succeeds, the host is told to take part again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from msgspec.structs import replace

from statemachines.kernel import (
    Ask,
    CancelTimer,
    ConfigurationError,
    Effects,
    Event,
    LocalProtocolError,
    Map,
    SetTimer,
    Tell,
    in_order,
)
from statemachines.shared_subscriptions.acknowledged_ranges import find_reach, join_ranges
from statemachines.shared_subscriptions.message import REASON_MAX
from statemachines.shared_subscriptions.relaxed_order import (
    count_excused,
    find_due,
    find_in_hand,
    put_aside,
    time_return,
)
from statemachines.shared_subscriptions.session_record import (
    IN_HAND,
    DelayEnd,
    Nack,
    PollTimer,
    ReadsFailed,
    ReadsSucceed,
    Ready,
    SessionRecord,
    StreamReading,
    UnreadableTimer,
    reading_key,
    reading_of,
)
from statemachines.shared_subscriptions.stream import Install
from statemachines.shared_subscriptions.stream_store import SERVICE, Fetch, Slice

BACK_OFF_NS: Final = 1_000_000_000
"""A message that failed twice waits so long after it was granted; with each failure more, twice as long."""

DOUBLINGS_MAX: Final = 6
"""And no longer than 64 times as long."""


# -- what may be given back ---------------------------------------------------------------------------------------


def is_in_hand(record: SessionRecord, event: Nack) -> bool:
    return find_objection(record, event) == ""


def find_objection(record: SessionRecord, event: Nack) -> str:
    """Why this message cannot be given back ("": it can)."""
    reading = reading_of(record, event)
    if reading is None or reading.grant != event.grant or not record.leases[event.owner].held:
        return "its stream is not this member's any more (its lease or grant has ended); it is handed over again"
    if event.offset < reading.progress or is_acknowledged(reading, event.offset):
        return "it was acknowledged"
    again = reading.returned.get(event.offset)
    if event.offset < reading.delivered and (again is None or again.turn is IN_HAND):
        return ""
    if event.offset < (reading.delivered if reading.relaxed else reading.handed):
        return "it was given back before; it is handed over again"
    return "it was not handed over"


def is_acknowledged(reading: StreamReading, offset: int) -> bool:
    """Out of order."""
    return any(first <= offset <= last for first, last in in_order(reading.acked))


def check_nack(record: SessionRecord, event: Nack, failed: int) -> None:
    """Raises `LocalProtocolError` where the table refuses it, or where the message was handed over again since it had
    failed so often."""
    why = find_objection(record, event)
    reading = reading_of(record, event)
    if not why and reading is not None and count_failures(reading, event.offset) > failed:
        why = "it was given back before, and handed over again: give that one back"
    if why:
        what = f"message {event.offset} of {event.stream} cannot be given back: {why}"
        raise LocalProtocolError("shared_subscriptions/session", record.status.value, "nack", "SS-333", what)


def find_granted(reading: StreamReading | None, grant: int) -> StreamReading | None:
    """The reading, while the grant stands."""
    return reading if reading is not None and reading.grant == grant else None


def find_awaited(reading: StreamReading | None, offset: int) -> int | None:
    """A message that progress behind `offset` waits for, and that nobody has in hand: it was given back, and is handed
    over again when the application takes messages."""
    if reading is None or reading.relaxed or offset < max(reading.progress, reading.delivered):
        return None
    return reading.delivered


def check_reason(reason: str) -> None:
    """Raises `ConfigurationError` for a reason that is too long, or that UTF-8 cannot express."""
    if not isinstance(reason, str) or len(reason) > REASON_MAX:
        shown = reason[:40] if isinstance(reason, str) else reason
        raise ConfigurationError("reason", shown, f"must be text of at most {REASON_MAX} characters")
    try:
        reason.encode()
    except UnicodeEncodeError as error:
        rule = f"must be text that UTF-8 can express: {error.reason}"
        raise ConfigurationError("reason", repr(reason[:40]), rule) from error


def count_failures(reading: StreamReading, offset: int) -> int:
    """How often the message was handed over before and not acknowledged; known of one message of a stream, and of those
    that were given back where the stream goes on."""
    again = reading.returned.get(offset)
    if again is not None:
        return again.failed
    return reading.failed if reading.failed and reading.suspect == offset else 0


def find_reason(reading: StreamReading, offset: int) -> str:
    """Why the message was given back last."""
    again = reading.returned.get(offset)
    if again is not None:
        return again.reason
    return reading.reason if reading.failed and reading.suspect == offset else ""


# -- giving back ----------------------------------------------------------------------------------------------------


def find_wait(reading: StreamReading, event: Nack) -> int:
    """Nanoseconds until the message comes again: as its application said, or a while where it failed before."""
    return event.delay_ns or back_off_ns(count_failures(reading, event.offset) + 1)


def go_back(reading: StreamReading, event: Nack) -> StreamReading:
    """The stream as it is when this message comes next."""
    at = event.offset
    failed = count_failures(reading, at) + 1
    if reading.relaxed:
        return put_aside(reading, event, failed, find_wait(reading, event))
    is_spent = 0 < reading.most <= failed
    handed = max(reading.handed, reading.delivered)
    return replace(
        reading,
        delivered=at,
        fetched=at,
        ended=False,
        handed=handed,
        suspect=at,
        failed=failed,
        reason=event.reason,
        delayed=is_spent or find_wait(reading, event) > 0,
    )


def time_delay(before: StreamReading, after: StreamReading, event: Nack, now_ns: int) -> Effects:
    """The timer of a delay; a message that failed too often waits for its leader."""
    wait_ns, key = find_wait(before, event), reading_key(event.owner, event.stream)
    if after.relaxed:
        return time_return(after, event, wait_ns, now_ns)
    if wait_ns and after.delayed and not 0 < after.most <= after.failed:
        return (SetTimer("delay", now_ns + wait_ns, key),)
    return (CancelTimer("delay", key),) if after.delayed else ()


def pass_acknowledged(reading: StreamReading) -> StreamReading:
    """Behind a message that was given back some may be acknowledged: they are not handed over again."""
    at = max(reading.delivered, reading.progress)
    if at < reading.handed:
        for first, last in in_order(reading.acked):
            if first <= at <= last:
                at = last + 1
    is_over = reading.delayed and reading.progress > reading.suspect
    if at == reading.delivered and not is_over and not 0 < reading.handed <= at:
        return reading
    handed = reading.handed if at < reading.handed else 0
    return replace(
        reading,
        delivered=at,
        fetched=max(reading.fetched, at),
        handed=handed,
        delayed=reading.delayed and not is_over,
    )


def last_in_row(reading: StreamReading, last: int) -> int:
    """The last message up to `last` before the next one that is acknowledged."""
    if reading.handed <= reading.delivered:
        return last
    ahead = [first for first, _ in in_order(reading.acked) if first > reading.delivered]
    return min([last, *(first - 1 for first in ahead)])


# -- delays ---------------------------------------------------------------------------------------------------------


def mark_failed(reading: StreamReading, event: Install) -> StreamReading:
    """As it is installed: where its next message failed before, that is known, and waits if it failed often."""
    if event.relaxed:
        reading = mark_relaxed(reading, event)
    if not event.failed and not event.most:
        return reading
    suspect = event.progress if event.failed else 0
    return replace(reading, suspect=suspect, failed=event.failed, most=event.most, delayed=event.failed > 1)


def mark_relaxed(reading: StreamReading, event: Install) -> StreamReading:
    """What is acknowledged behind the progress is passed over; what is not was handed over before, as far as that."""
    progress, acked = join_ranges(event.progress, event.acked)
    at = {"progress": progress, "delivered": progress, "fetched": progress}
    return replace(reading, relaxed=True, acked=Map(acked), handed=find_reach(0, acked), **at)


def find_handed(reading: StreamReading, last: int) -> int:
    """Of what is delivered up to `last`: all below was, or may have been, handed over before, by anybody."""
    return max(reading.handed, min(reading.repeats, last + 1))


def was_handed_behind(reading: StreamReading, offset: int) -> bool:
    """Something from `offset` on was handed over under this grant and is not acknowledged."""
    return reading.handed > offset or any(one >= offset for one in reading.returned)


def back_off(event: Install, now_ns: int) -> Effects:
    """Other streams come first."""
    wait_ns = back_off_ns(event.failed)
    return (SetTimer("delay", now_ns + wait_ns, reading_key(event.owner, event.stream)),) if wait_ns else ()


def back_off_ns(failed: int) -> int:
    """How long a message waits that failed so often."""
    return 0 if failed <= 1 else BACK_OFF_NS << min(failed - 2, DOUBLINGS_MAX)


def is_delayed(record: SessionRecord, event: DelayEnd) -> bool:
    reading = record.readings.get(event.key)
    return reading is not None and reading.delayed


# -- alone ----------------------------------------------------------------------------------------------------------


def is_in_use(record: SessionRecord) -> bool:
    """Something is in hand."""
    return any(find_in_hand(reading) is not None for _, reading in in_order(record.readings))


def is_lone_over(record: SessionRecord) -> bool:
    """What was handed over alone is dealt with, or is not this owner's any more; or it cannot be handed over now."""
    reading = record.readings.get(record.lone)
    at = None if reading is None else reading.lone_offset
    if reading is None or at is None:
        return True
    can_wait = find_in_hand(reading, at) == at
    return not can_wait and (reading.finishing or not record.leases[reading.owner].held)


E = TypeVar("E", bound=Event)
Act = Callable[[SessionRecord, E, int], tuple[SessionRecord, Effects]]


def and_look(action: Act[E]) -> Act[E]:
    """The action; where something waits to be handed over alone, or behind that, its turn may have come."""

    def run(record: SessionRecord, event: E, now_ns: int) -> tuple[SessionRecord, Effects]:
        has_lone = record.lone != ""
        record, effects = action(record, event, now_ns)
        return record, (*effects, Tell(Ready())) if has_lone else effects

    run.__name__ = action.__name__
    return run


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
