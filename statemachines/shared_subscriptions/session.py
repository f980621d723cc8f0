"""Session: what a consumer does with the streams it may read (source: "Session Shared Subscription Handler").

One scheduler for everything that a session reads, shared and private.  It fetches from the stream store in turn, hands
messages to the application, collects acknowledgements and reports the progress of fully acknowledged prefixes.  One
fetch is open at a time.

    waiting -> fetching -> waiting ...

An owner is whoever has the session read a stream: a borrower, or a private subscription, by its id.  What is read for
one is kept apart from what is read for another, of the same stream too; nothing is fetched or delivered for an owner
without a lease.  Per owner and stream there is a `Reading`: offsets only; payloads are the driver's, which keeps those
that `kept` names until they are delivered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Ask,
    Effects,
    Event,
    Fifo,
    Fsm,
    Ignore,
    Invariant,
    LocalProtocolError,
    Refuse,
    Row,
    SetTimer,
    Tell,
    Timer,
    in_order,
    keys_in_order,
)
from statemachines.shared_subscriptions.acknowledgement_wait import (
    and_wait,
    and_wait_for_more,
    is_late,
    take_back,
)
from statemachines.shared_subscriptions.borrower import LeaseBegan, LeaseEnded
from statemachines.shared_subscriptions.message import END_OF_STREAM, HOLES_MAX
from statemachines.shared_subscriptions.relaxed_order import (
    count_excused,
    find_due,
    find_in_hand,
    find_turn,
    is_full,
    is_returning,
    join_relaxed,
    set_turn,
)
from statemachines.shared_subscriptions.returned_messages import (
    and_look,
    back_off,
    count_failures,
    find_handed,
    find_reason,
    give_up_open_read,
    give_up_reads,
    go_back,
    is_delayed,
    is_failing,
    is_in_hand,
    is_in_use,
    is_lone_over,
    is_unreadable,
    last_in_row,
    mark_failed,
    note_failure,
    note_success,
    pass_acknowledged,
    slice_of,
    time_delay,
    try_read,
    was_handed_behind,
)
from statemachines.shared_subscriptions.session_record import (
    DUE,
    FETCHED,
    FETCHING,
    IN_HAND,
    WAITING,
    OwnerLease,
    StreamReading,
    keep,
    reading_key,
    reading_of,
)
from statemachines.shared_subscriptions.session_record import Ack as Ack
from statemachines.shared_subscriptions.session_record import Acknowledged as Acknowledged
from statemachines.shared_subscriptions.session_record import AcknowledgementLate as AcknowledgementLate
from statemachines.shared_subscriptions.session_record import AcknowledgementWaitEnd as AcknowledgementWaitEnd
from statemachines.shared_subscriptions.session_record import Admit as Admit
from statemachines.shared_subscriptions.session_record import ApplicationReturned as ApplicationReturned
from statemachines.shared_subscriptions.session_record import CountedBatch as CountedBatch
from statemachines.shared_subscriptions.session_record import DelayEnd as DelayEnd
from statemachines.shared_subscriptions.session_record import Deliver as Deliver
from statemachines.shared_subscriptions.session_record import Dismiss as Dismiss
from statemachines.shared_subscriptions.session_record import Ended as Ended
from statemachines.shared_subscriptions.session_record import Nack as Nack
from statemachines.shared_subscriptions.session_record import PollTimer as PollTimer
from statemachines.shared_subscriptions.session_record import Progressed as Progressed
from statemachines.shared_subscriptions.session_record import ReadsFailed as ReadsFailed
from statemachines.shared_subscriptions.session_record import ReadsSucceed as ReadsSucceed
from statemachines.shared_subscriptions.session_record import Ready as Ready
from statemachines.shared_subscriptions.session_record import ReturnEnd as ReturnEnd
from statemachines.shared_subscriptions.session_record import SessionRecord as SessionRecord
from statemachines.shared_subscriptions.session_record import SessionStatus as SessionStatus
from statemachines.shared_subscriptions.session_record import Take as Take
from statemachines.shared_subscriptions.session_record import UnreadableTimer as UnreadableTimer
from statemachines.shared_subscriptions.stream import Finish, Install, Uninstall
from statemachines.shared_subscriptions.stream_store import SERVICE, Fetch, Fetched, FetchFailed, MessageBatch, Slice

SLICES_PER_FETCH = 32
"""A fetch asks for at most so many streams."""

IDLE_PER_FETCH = 8
"""So many of them are streams that had nothing new last time, where others have their turn too."""


# -- guards ---------------------------------------------------------------------------------------------------------


def is_known(record: SessionRecord, event: Admit | Dismiss) -> bool:
    return event.owner in record.leases


def is_last(record: SessionRecord, event: Dismiss) -> bool:
    """Its subscription ends with it."""
    return event.owner in record.leases and event.subscription != ""


def is_admitted_first(record: SessionRecord, event: Admit) -> bool:
    return event.owner not in record.leases


def has_lease(record: SessionRecord, event: LeaseEnded) -> bool:
    lease = record.leases.get(event.owner)
    return lease is not None and lease.held


def has_no_lease(record: SessionRecord, event: LeaseBegan) -> bool:
    lease = record.leases.get(event.owner)
    return lease is not None and not lease.held


def is_new(record: SessionRecord, event: Install) -> bool:
    reading = reading_of(record, event)
    return event.owner in record.leases and (reading is None or event.grant > reading.grant)


def is_installed(record: SessionRecord, event: Finish | Uninstall | Ack) -> bool:
    reading = reading_of(record, event)
    return reading is not None and reading.grant == event.grant


def is_idle(record: SessionRecord, event: Finish) -> bool:
    """Installed, and nothing of it is in the application's hands."""
    reading = reading_of(record, event)
    return reading is not None and reading.grant == event.grant and find_in_hand(reading) is None


def was_delivered(record: SessionRecord, event: Ack) -> bool:
    reading = reading_of(record, event)
    if reading is None or reading.grant != event.grant:
        return False
    return event.first <= event.last < count_handed(reading)


def count_handed(reading: StreamReading) -> int:
    """The offset behind all that was handed over under the grant."""
    return reading.delivered if reading.relaxed else max(reading.delivered, reading.handed)


def is_stale(record: SessionRecord, event: Ack) -> bool:
    """Of a grant that is not installed (any more): the next owner delivers it again."""
    return not is_installed(record, event)


def check_ack(record: SessionRecord, event: Ack) -> None:
    """Raises `LocalProtocolError` where the table refuses the acknowledgement.  What it takes now it takes later: under
    a grant never less is delivered."""
    if was_delivered(record, event) or is_stale(record, event):
        return
    reading = record.readings[reading_key(event.owner, event.stream)]
    delivered = count_handed(reading)
    why = (
        f"messages {event.first} to {event.last} of {event.stream} were not all handed over, only those below"
        f" {delivered} were; acknowledge what was handed over"
    )
    raise LocalProtocolError(SESSION.full_name, record.status.value, "ack", "SS-107", why)


def can_fetch(record: SessionRecord, event: PollTimer) -> bool:
    """Somebody is waiting, and the first may be fetched."""
    queue = record.to_fetch or record.idle
    return bool(queue) and may_fetch(record, record.readings.get(queue.items[queue.head]))


def has_to_fetch(record: SessionRecord, event: PollTimer) -> bool:
    return bool(record.to_fetch or record.idle)


def is_answer(record: SessionRecord, event: Fetched) -> bool:
    """To the open fetch, a batch for each slice."""
    return event.n == record.fetch_n and len(event.batches) == len(record.asked)


def is_open(record: SessionRecord, event: Fetched | FetchFailed) -> bool:
    return event.n == record.fetch_n


def may_fetch(record: SessionRecord, reading: StreamReading | None) -> bool:
    if reading is None or reading.delayed:
        return False
    return reading.queued and not reading.finishing and record.leases[reading.owner].held


def wants_fetch(record: SessionRecord, reading: StreamReading) -> bool:
    """It has room and a future, and its owner a lease."""
    if reading.finishing or reading.delayed or not record.leases[reading.owner].held:
        return False
    if find_due(reading) is not None:
        return True
    if reading.ended or is_full(reading):
        return False
    return 2 * (reading.fetched - reading.progress - count_excused(reading)) <= record.buffer


def may_deliver(record: SessionRecord, reading: StreamReading) -> bool:
    if reading.delayed or (reading.delivered >= reading.fetched and find_turn(reading, FETCHED) is None):
        return False
    return not reading.finishing and record.leases[reading.owner].held


# -- owners ---------------------------------------------------------------------------------------------------------


def admit(record: SessionRecord, event: Admit, now_ns: int) -> tuple[SessionRecord, Effects]:
    lease = OwnerLease(event.held, event.at_delivery)
    return replace(record, leases=record.leases.set(event.owner, lease)), ()


def begin(record: SessionRecord, event: LeaseBegan, now_ns: int) -> tuple[SessionRecord, Effects]:
    """Queue what is read for this owner: its turns passed by while it had no lease."""
    lease = record.leases[event.owner]
    idle = not record.to_take
    record = replace(record, leases=record.leases.set(event.owner, replace(lease, held=True)))
    for stream in keys_in_order(lease.streams):
        record = queue_take(queue_fetch(record, reading_key(event.owner, stream)), reading_key(event.owner, stream))
    return record, (Tell(Ready()),) if idle and record.to_take else ()


def end(record: SessionRecord, event: LeaseEnded, now_ns: int) -> tuple[SessionRecord, Effects]:
    lease = replace(record.leases[event.owner], held=False)
    return replace(record, leases=record.leases.set(event.owner, lease)), ()


def dismiss(record: SessionRecord, event: Dismiss, now_ns: int) -> tuple[SessionRecord, Effects]:
    readings = record.readings
    for stream in keys_in_order(record.leases[event.owner].streams):
        readings = readings.delete(reading_key(event.owner, stream))
    return tidy(replace(record, readings=readings, leases=record.leases.delete(event.owner))), ()


def dismiss_last(record: SessionRecord, event: Dismiss, now_ns: int) -> tuple[SessionRecord, Effects]:
    record, _ = dismiss(record, event, now_ns)
    return record, (Tell(Ended(event.subscription)),)


# -- readings -------------------------------------------------------------------------------------------------------


def add(record: SessionRecord, event: Install, now_ns: int) -> tuple[SessionRecord, Effects]:
    at = event.progress
    lease = record.leases[event.owner]
    if event.stream not in lease.streams:
        lease = replace(lease, streams=lease.streams.set(event.stream, True))
        record = replace(record, leases=record.leases.set(event.owner, lease))
    reading = StreamReading(event.owner, event.stream, event.grant, at, at, at, repeats=event.repeats)
    reading = mark_failed(reading, event)
    record = tidy(keep(record, reading))
    if record.lone == reading_key(event.owner, event.stream):
        record = replace(record, lone="")
    return queue_fetch(record, reading_key(event.owner, event.stream)), back_off(event, now_ns)


def finish_idle(record: SessionRecord, event: Finish, now_ns: int) -> tuple[SessionRecord, Effects]:
    record, _ = finish(record, event, now_ns)
    return record, report(record.readings[reading_key(event.owner, event.stream)])


def finish(record: SessionRecord, event: Finish, now_ns: int) -> tuple[SessionRecord, Effects]:
    return keep(record, replace(record.readings[reading_key(event.owner, event.stream)], finishing=True)), ()


def drop(record: SessionRecord, event: Uninstall, now_ns: int) -> tuple[SessionRecord, Effects]:
    lease = record.leases[event.owner]
    leases = record.leases.set(event.owner, replace(lease, streams=lease.streams.delete(event.stream)))
    readings = record.readings.delete(reading_key(event.owner, event.stream))
    return tidy(replace(record, readings=readings, leases=leases)), ()


def tidy(record: SessionRecord) -> SessionRecord:
    """Readings that are gone leave their keys in the queues; nobody may ever take.  Amortised over what was dropped."""
    if len(record.to_fetch) + len(record.idle) + len(record.to_take) <= 4 * len(record.readings) + 64:
        return record
    to_fetch, idle, to_take = (living(record, one) for one in (record.to_fetch, record.idle, record.to_take))
    return replace(record, to_fetch=to_fetch, idle=idle, to_take=to_take)


def living(record: SessionRecord, queue: Fifo) -> Fifo:
    kept = Fifo()
    for key in dict.fromkeys(queue):
        if key in record.readings:
            kept = kept.push(key)
    return kept


# -- fetching -------------------------------------------------------------------------------------------------------


def queue_fetch(record: SessionRecord, key: str) -> SessionRecord:
    """Put the reading at the end of the fetch queue, unless it is there or may not be fetched."""
    reading = record.readings[key]
    if reading.queued or not wants_fetch(record, reading):
        return record
    readings = record.readings.set(key, replace(reading, queued=True))
    return replace(record, readings=readings, to_fetch=record.to_fetch.push(key))


def queue_take(record: SessionRecord, key: str) -> SessionRecord:
    """Put the reading at the end of the delivery queue, unless it is there or has nothing to deliver."""
    reading = record.readings[key]
    if reading.waiting or not may_deliver(record, reading):
        return record
    readings = record.readings.set(key, replace(reading, waiting=True))
    return replace(record, readings=readings, to_take=record.to_take.push(key))


def fetch(record: SessionRecord, event: PollTimer, now_ns: int) -> tuple[SessionRecord, Effects]:
    """Ask for the next readings in the queues: new streams do not wait for a round over all that are idle."""
    slices: dict[str, Slice] = {}
    record = ask_next(record, "to_fetch", SLICES_PER_FETCH - min(len(record.idle), IDLE_PER_FETCH), slices)
    record = ask_next(record, "idle", SLICES_PER_FETCH, slices)
    record = replace(record, fetch_n=record.fetch_n + 1, asked=tuple(slices))
    return record, (Ask(SERVICE, Fetch(record.fetch_n, tuple(slices.values()))),)


def ask_next(record: SessionRecord, name: str, most: int, slices: dict[str, Slice]) -> SessionRecord:
    """Add slices for the next readings of a queue, until there are `most`; what has no right to it is passed by."""
    readings, queue = record.readings, getattr(record, name)
    if not queue:
        return record
    items, head, tail = queue.items, queue.head, queue.tail
    while head != tail and len(slices) < most:  # `queue.pop()` without a queue for each
        key = items[head]
        items, head = items.delete(head), head + 1
        reading = readings.get(key)
        if reading is not None and may_fetch(record, reading):
            slices[key] = slice_of(record, reading)
        elif reading is not None:
            readings = readings.set(key, replace(reading, queued=False))
    return replace(record, readings=readings, **{name: Fifo(items, head, tail)})


def pass_by(record: SessionRecord, event: PollTimer, now_ns: int) -> tuple[SessionRecord, Effects]:
    """Up to the first that may be fetched; a reading that has lost the right to it waits for the next lease."""
    name = "to_fetch" if record.to_fetch else "idle"
    readings, queue = record.readings, getattr(record, name)
    while queue and not may_fetch(record, readings.get(queue.items[queue.head])):
        key, queue = queue.pop()
        reading = readings.get(key)
        if reading is not None:
            readings = readings.set(key, replace(reading, queued=False))
    record = replace(record, readings=readings, **{name: queue})
    again = record.to_fetch or record.idle or record.trial
    return record, (SetTimer("poll", now_ns),) if again else ()


def take_in(record: SessionRecord, event: Fetched, now_ns: int) -> tuple[SessionRecord, Effects]:
    """Count what came, a batch for each slice that was asked for; look again at once if anything did, or if there are
    readings that nobody has looked at."""
    nothing_to_take = not record.to_take
    readings, to_fetch, idle, to_take = record.readings, record.to_fetch, record.idle, record.to_take
    effects: Effects = ()
    for key, batch in zip(record.asked, event.batches, strict=True):
        known = readings.get(key)
        if known is None:
            continue
        reading, came = known, False
        if continues(record, reading, batch):
            came = batch.last >= batch.first
            reading = count_batch(reading, batch)
            effects += report(reading) if has_ended(reading) else ()
        queued, waiting = wants_fetch(record, reading), reading.waiting or may_deliver(record, reading)
        if queued and came:
            to_fetch = to_fetch.push(key)
        elif queued:
            idle = idle.push(key)
        if key == record.lone:
            waiting = reading.waiting  # it has its turn when that is over
        if waiting and not reading.waiting:
            to_take = to_take.push(key)
        if queued != reading.queued or waiting != reading.waiting:
            reading = replace(reading, queued=queued, waiting=waiting)
        if reading is not known:
            readings = readings.set(key, reading)
    if to_fetch or idle:
        effects = (SetTimer("poll", now_ns if to_fetch else now_ns + record.poll_ns), *effects)
    record = replace(record, readings=readings, to_fetch=to_fetch, idle=idle, to_take=to_take, asked=())
    if record.failing or record.trial:
        record, more = note_success(record)
        effects = (*effects, *more)
    is_ready = (nothing_to_take and to_take) or record.lone
    return record, (*effects, Tell(Ready())) if is_ready else effects


def count_batch(reading: StreamReading, batch: MessageBatch) -> StreamReading:
    """With what came: the next messages, or one that was given back."""
    if batch.first == reading.fetched:
        if reading.repeats > batch.count:
            reading = replace(reading, repeats=batch.count)
        if batch.last + 1 == batch.first and batch.ended == reading.ended:
            return reading
        return replace(reading, fetched=batch.last + 1, ended=batch.ended)
    return set_turn(reading, batch.first, FETCHED) if batch.last >= batch.first else reading


def continues(record: SessionRecord, reading: StreamReading, batch: MessageBatch) -> bool:
    """The batch is what comes next under the grant that is installed, and its owner has a lease."""
    return (
        reading.grant == batch.grant
        and reading.stream == batch.stream
        and batch.first in (reading.fetched, find_due(reading))
        and not reading.finishing
        and record.leases[reading.owner].held
    )


def list_kept(record: SessionRecord, event: Fetched) -> tuple[CountedBatch, ...]:
    """What the step on this answer will count, for whoever has the payloads."""
    if record.status is not FETCHING or not is_answer(record, event):
        return ()
    parts = zip(record.asked, event.batches, strict=True)
    return tuple(
        CountedBatch(part, key, batch.grant, batch.first, batch.last, batch.first < record.readings[key].fetched)
        for part, (key, batch) in enumerate(parts)
        if key in record.readings and continues(record, record.readings[key], batch) and batch.last >= batch.first
    )


def give_up_fetch(record: SessionRecord, event: Event, now_ns: int) -> tuple[SessionRecord, Effects]:
    """No answer: ask for the same streams again after the poll interval, or, where the session gave its streams back,
    after a longer one."""
    asked = record.asked
    readings = record.readings
    for key in asked:
        reading = readings.get(key)
        if reading is not None:
            readings = readings.set(key, replace(reading, queued=False))
    record = replace(record, readings=readings, asked=())
    for key in asked:
        if key in readings:
            record = queue_fetch(record, key)
    return note_failure(record, asked, now_ns)


# -- delivering -----------------------------------------------------------------------------------------------------


def hand_over(record: SessionRecord, event: Take, now_ns: int) -> tuple[SessionRecord, Effects]:
    """The next range of the reading whose turn it is; who may not deliver is passed by until its next lease."""
    if record.lone and is_lone_over(record):
        record = queue_lone(record)
    if record.lone:
        return hand_over_alone(record, record.lone, now_ns)
    readings, queue = record.readings, record.to_take
    while queue:
        key, queue = queue.pop()
        reading = readings.get(key)
        if reading is not None and may_deliver(record, reading):
            record = replace(record, readings=readings, to_take=queue)
            return hand_over_next(record, key, event.limit, now_ns)
        if reading is not None:
            readings = readings.set(key, replace(reading, waiting=False))
    return replace(record, readings=readings, to_take=queue), ()


def hand_over_next(record: SessionRecord, key: str, limit: int, now_ns: int) -> tuple[SessionRecord, Effects]:
    reading = record.readings[key]
    at = find_turn(reading, FETCHED)
    if reading.is_lone and (at is not None or reading.delivered == reading.suspect):
        return hand_over_alone(record, key, now_ns)
    if at is not None:
        return hand_over_again(record, key, at, now_ns)
    last = min(reading.fetched, reading.delivered + limit) - 1
    if reading.handed or reading.failed:
        last = last_in_row(reading, last)
    after = replace(reading, delivered=last + 1)
    after = pass_acknowledged(after) if reading.handed else after
    more = after.delivered < after.fetched
    readings = record.readings.set(key, replace(after, waiting=more))
    record = replace(record, readings=readings, to_take=record.to_take.push(key) if more else record.to_take)
    failed = count_failures(reading, reading.delivered)
    handed = find_handed(reading, last)
    handed = handed if reading.delivered < handed else 0
    what = Deliver(reading.owner, reading.stream, reading.grant, reading.delivered, last, failed, handed)
    said = report(after) if failed and reading.delivered == reading.progress else ()
    record, effects = deliver(record, what, now_ns)
    return (queue_fetch(record, key) if reading.handed else record), (*said, *effects)


def hand_over_alone(record: SessionRecord, key: str, now_ns: int) -> tuple[SessionRecord, Effects]:
    """A message that failed before, as soon as nothing else is in hand."""
    reading = record.readings[key]
    if is_in_use(record) or not may_deliver(record, reading):
        return replace(keep(record, replace(reading, waiting=False)), lone=key), ()
    record = replace(record, lone=key)
    again = find_turn(reading, FETCHED)
    if again is not None:
        return hand_over_again(record, key, again, now_ns)
    at = reading.delivered
    after = replace(reading, delivered=at + 1)
    after = pass_acknowledged(after) if reading.relaxed and reading.handed else after
    more = after.delivered < after.fetched
    after = replace(after, waiting=more)
    readings = record.readings.set(key, after)
    record = replace(record, readings=readings, to_take=record.to_take.push(key) if more else record.to_take)
    handed = find_handed(reading, at)
    what = Deliver(reading.owner, reading.stream, reading.grant, at, at, reading.failed, handed)
    record, effects = deliver(record, what, now_ns)
    return record, (*report(after), *effects)


def hand_over_again(record: SessionRecord, key: str, at: int, now_ns: int) -> tuple[SessionRecord, Effects]:
    """A message that was given back, while its stream went on."""
    reading = set_turn(record.readings[key], at, IN_HAND)
    record = queue_take(queue_fetch(keep(record, replace(reading, waiting=False)), key), key)
    what = Deliver(reading.owner, reading.stream, reading.grant, at, at, reading.returned[at].failed, at + 1)
    said = report(reading) if at == reading.progress else ()
    record, effects = deliver(record, what, now_ns)
    return record, (*said, *effects)


def queue_lone(record: SessionRecord) -> SessionRecord:
    """Its stream has its turn among the others again."""
    key, record = record.lone, replace(record, lone="")
    return queue_take(record, key) if key in record.readings else record


def deliver(record: SessionRecord, event: Deliver, now_ns: int) -> tuple[SessionRecord, Effects]:
    """What is delivered; acknowledged in the same step where nobody else will."""
    if not record.leases[event.owner].at_delivery:
        return record, (Tell(event),)
    ack = Ack(event.owner, event.stream, event.grant, event.first, event.last)
    record, effects = acknowledge(record, ack, now_ns)
    return record, (Tell(event), *effects)


def acknowledge(record: SessionRecord, event: Ack, now_ns: int) -> tuple[SessionRecord, Effects]:
    """Keep the range; report the progress if the fully acknowledged prefix grew."""
    key = reading_key(event.owner, event.stream)
    before = record.readings[key]
    first, last = event.first, event.last
    reading, ends = join_relaxed(before, first, last) if before.relaxed else (join(before, first, last), ())
    if before.handed or before.delayed:
        reading = pass_acknowledged(reading)
    record = queue_fetch(replace(record, readings=record.readings.set(key, reading)), key)
    told: Effects = (*ends, Tell(Acknowledged(event.owner, event.stream, event.grant, event.first, event.last)))
    is_news = reading.progress > before.progress or (reading.relaxed and reading.acked != before.acked)
    return record, told + report(reading) if is_news else told


def join(reading: StreamReading, first: int, last: int) -> StreamReading:
    """The reading with `first`..`last` acknowledged: the prefix grows over all that has become contiguous."""
    acked, progress = reading.acked, reading.progress
    if first > progress:
        known = acked.get(first, last)
        return replace(reading, acked=acked.set(first, max(known, last)))
    progress = max(progress, last + 1)
    while acked:
        covered = min(begin for begin, _ in in_order(acked))
        if covered > progress:
            break
        progress = max(progress, acked[covered] + 1)
        acked = acked.delete(covered)
    return replace(reading, progress=progress, acked=acked)


def give_back(record: SessionRecord, event: Nack, now_ns: int) -> tuple[SessionRecord, Effects]:
    """The message comes next; the leader counts it where it is the first that is not acknowledged."""
    key = reading_key(event.owner, event.stream)
    before = record.readings[key]
    reading = go_back(before, event)
    record = queue_fetch(keep(record, reading), key)
    if record.lone == key:
        record = queue_lone(record)
    effects = time_delay(before, reading, event, now_ns)
    is_news = reading.progress == reading.delivered or reading.relaxed
    return record, (*effects, *report(reading)) if is_news else effects


def give_back_late(record: SessionRecord, event: AcknowledgementWaitEnd, now_ns: int) -> tuple[SessionRecord, Effects]:
    """Its leader hears first how often the message failed."""
    record, effects = take_back(record, event, now_ns)
    record = queue_fetch(record, event.key)
    return record, (*report(record.readings[event.key]), *effects)


def end_delay(record: SessionRecord, event: DelayEnd, now_ns: int) -> tuple[SessionRecord, Effects]:
    record = keep(record, replace(record.readings[event.key], delayed=False))
    idle = not record.to_take
    record = queue_take(queue_fetch(record, event.key), event.key)
    return record, (Tell(Ready()),) if idle and record.to_take else ()


def end_return(record: SessionRecord, event: ReturnEnd, now_ns: int) -> tuple[SessionRecord, Effects]:
    """It is fetched, and handed over before anything new of its stream."""
    key, _, offset = event.key.rpartition(" ")
    return queue_fetch(keep(record, set_turn(record.readings[key], int(offset), DUE)), key), ()


def has_ended(reading: StreamReading) -> bool:
    """The stream has ended, and all of it is acknowledged."""
    return reading.ended and reading.progress == reading.fetched


def report(reading: StreamReading) -> Effects:
    """The progress, to the owner: final when the stream is to be finished and nothing is in hand."""
    progress = END_OF_STREAM if has_ended(reading) else reading.progress
    first = find_in_hand(reading)
    final = reading.finishing and first is None
    failed = count_failures(reading, progress)
    in_hand = was_handed_behind(reading, progress + (failed > 0)) if final else failed > 0 and first == progress
    said = (progress, final, failed, in_hand)
    acked = tuple(in_order(reading.acked))[:HOLES_MAX] if reading.relaxed else ()
    reason = find_reason(reading, progress)
    return (Tell(Progressed(reading.owner, reading.stream, reading.grant, *said, acked, reason)),)


E = TypeVar("E", bound=Event)
Act = Callable[[SessionRecord, E, int], tuple[SessionRecord, Effects]]


def and_poll(action: Act[E]) -> Act[E]:
    """The action; what it queued is fetched at once."""

    def run(record: SessionRecord, event: E, now_ns: int) -> tuple[SessionRecord, Effects]:
        before = record.to_fetch.tail
        record, effects = action(record, event, now_ns)
        return record, effects if record.to_fetch.tail == before else (*effects, SetTimer("poll", now_ns))

    run.__name__ = f"{action.__name__}_and_poll"
    return run


EVERY = (WAITING, FETCHING)

# fmt: off
ROWS = (
    #   on           from      to        do                     when               clause
    Row(Admit,       EVERY,    STAY,     admit,                 is_admitted_first, "SS-111"),
    Row(LeaseBegan,  WAITING,  STAY,     and_poll(begin),       has_no_lease,      "SS-100"),
    Row(LeaseBegan,  FETCHING, STAY,     begin,                 has_no_lease,      "SS-100"),
    Row(LeaseEnded,  EVERY,    STAY,     and_look(end),         has_lease,         "SS-101"),
    Row(Dismiss,     EVERY,    STAY,     and_look(dismiss_last), is_last,          "SS-112"),
    Row(Dismiss,     EVERY,    STAY,     and_look(dismiss),     is_known,          "SS-112"),
    Row(Install,     WAITING,  STAY,     and_poll(add),         is_new,            "SS-102"),
    Row(Install,     FETCHING, STAY,     add,                   is_new,            "SS-102"),
    Row(PollTimer,   WAITING,  FETCHING, fetch,                 can_fetch,         "SS-103"),
    Row(PollTimer,   WAITING,  STAY,     pass_by,               has_to_fetch,      "SS-101"),
    Row(Fetched,     FETCHING, WAITING,  take_in,               is_answer,         "SS-104"),
    Row(Fetched,     FETCHING, WAITING,  give_up_fetch,         is_open,           "SS-105"),
    Row(FetchFailed, FETCHING, WAITING,  give_up_fetch,         is_open,           "SS-105"),
    Row(Take,        WAITING,  STAY,     and_poll(and_wait(hand_over)), None,      "SS-106"),
    Row(Take,        FETCHING, STAY,     and_wait(hand_over),   None,              "SS-106"),
    Row(Ack,         WAITING,  STAY,     and_poll(and_look(and_wait_for_more(acknowledge))), was_delivered, "SS-107"),
    Row(Ack,         FETCHING, STAY,     and_look(and_wait_for_more(acknowledge)), was_delivered, "SS-107"),
    Row(Ack,         EVERY,    STAY,     None,                  is_stale,          "SS-108"),
    Row(Finish,      EVERY,    STAY,     and_look(finish_idle), is_idle,           "SS-109"),
    Row(Finish,      EVERY,    STAY,     and_look(finish),      is_installed,      "SS-109"),
    Row(Uninstall,   EVERY,    STAY,     and_look(drop),        is_installed,      "SS-110"),
    Row(Nack,        WAITING,  STAY,     and_poll(and_look(give_back)), is_in_hand, "SS-332"),
    Row(Nack,        FETCHING, STAY,     and_look(give_back),   is_in_hand,        "SS-332"),
    Row(DelayEnd,    WAITING,  STAY,     and_poll(end_delay),   is_delayed,        "SS-334"),
    Row(DelayEnd,    FETCHING, STAY,     end_delay,             is_delayed,        "SS-334"),
    Row(ReturnEnd,   WAITING,  STAY,     and_poll(end_return),  is_returning,      "SS-406"),
    Row(ReturnEnd,   FETCHING, STAY,     end_return,            is_returning,      "SS-406"),
    Row(AcknowledgementWaitEnd, WAITING,  STAY, and_poll(give_back_late), is_late, "SS-351"),
    Row(AcknowledgementWaitEnd, FETCHING, STAY, give_back_late, is_late,           "SS-351"),
    Row(PollTimer,   WAITING,  FETCHING, try_read,              is_unreadable,     "SS-291"),
    Row(UnreadableTimer, WAITING,  STAY, give_up_reads,         is_failing,        "SS-290"),
    Row(UnreadableTimer, FETCHING, STAY, give_up_open_read,     is_failing,        "SS-290"),
    Refuse((Ack,),                         EVERY,    "SS-107"),
    Refuse((Nack,),                        EVERY,    "SS-333"),
    Ignore((DelayEnd,),                    EVERY,    "SS-334"),
    Ignore((ReturnEnd,),                   EVERY,    "SS-406"),
    Ignore((AcknowledgementWaitEnd,),      EVERY,    "SS-351"),
    Ignore((Install, Finish, Uninstall),   EVERY,    "SS-110"),
    Ignore((LeaseBegan,),                  EVERY,    "SS-100"),
    Ignore((LeaseEnded,),                  EVERY,    "SS-101"),
    Ignore((Admit,),                       EVERY,    "SS-111"),
    Ignore((Dismiss,),                     EVERY,    "SS-112"),
    Ignore((PollTimer,),                   EVERY,    "SS-103"),
    Ignore((Fetched, FetchFailed),         EVERY,    "SS-104"),
    Ignore((UnreadableTimer,),             EVERY,    "SS-290"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def offsets_in_order(record: SessionRecord) -> bool:
    """progress <= delivered <= fetched, and never more ahead than the buffer."""
    return all(keeps_order(record, reading) for _, reading in in_order(record.readings))


def keeps_order(record: SessionRecord, reading: StreamReading | None) -> bool:
    if reading is None:
        return True
    most = reading.progress + record.buffer + count_excused(reading)
    return reading.progress <= reading.delivered <= reading.fetched <= most


def is_touched_in_order(record: SessionRecord, event: Event) -> bool:
    owner, stream = getattr(event, "owner", None), getattr(event, "stream", None)
    return owner is None or stream is None or keeps_order(record, record.readings.get(reading_key(owner, stream)))


def owners_match(record: SessionRecord) -> bool:
    """The streams of the owners are what is read."""
    listed = {reading_key(owner, stream) for owner, lease in in_order(record.leases) for stream in lease.streams}
    return listed == set(record.readings)


def is_touched_matching(record: SessionRecord, event: Event) -> bool:
    owner, stream = getattr(event, "owner", None), getattr(event, "stream", None)
    if owner is None or stream is None:
        return True
    lease = record.leases.get(owner)
    return (lease is not None and stream in lease.streams) == (reading_key(owner, stream) in record.readings)


SESSION = Fsm(
    "session",
    protocol="shared_subscriptions",
    record=SessionRecord,
    states=SessionStatus,
    initial=WAITING,
    rows=ROWS,
    timers=(
        Timer("poll", PollTimer, (WAITING,)),
        Timer("unreadable", UnreadableTimer, EVERY),
        Timer("delay", DelayEnd, EVERY),
        Timer("return", ReturnEnd, EVERY),
        Timer("ack_wait", AcknowledgementWaitEnd, EVERY),
    ),
    invariants=(
        Invariant("offsets-in-order", "SS-106", offsets_in_order, is_touched_in_order),
        Invariant("owners-match", "SS-112", owners_match, is_touched_matching),
    ),
)
