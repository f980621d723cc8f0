"""Acknowledgement wait: what a session does when its application keeps a message for too long.

A stream of which something is handed over gets a timer, and progress sets it anew.  When it fires, the first message
that is not acknowledged counts as given back, and the host is told: it gives all shared streams back to the group, so
that an idle member has them.  The session takes part again when its application asks for messages.
"""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import Effects, SetTimer, Tell, in_order
from statemachines.shared_subscriptions.relaxed_order import find_in_hand
from statemachines.shared_subscriptions.returned_messages import Act, count_failures, go_back, time_delay
from statemachines.shared_subscriptions.session_record import (
    DUE,
    Ack,
    AcknowledgementLate,
    AcknowledgementWaitEnd,
    ApplicationReturned,
    Deliver,
    Nack,
    Ready,
    ReturnedDelivery,
    SessionRecord,
    StreamReading,
    Take,
    keep,
    reading_key,
)


def is_late(record: SessionRecord, event: AcknowledgementWaitEnd) -> bool:
    """Something of the stream is in hand still."""
    reading = record.readings.get(event.key)
    return reading is not None and find_in_hand(reading) is not None


def set_wait(before: SessionRecord, after: SessionRecord, key: str, now_ns: int) -> Effects:
    """The timer of a stream of which something is in hand, where the first such message is another one (grant 0: nobody
    else could have it)."""
    was, reading = before.readings[key], after.readings[key]
    first = find_in_hand(reading)
    if first is None or first == find_in_hand(was) or not reading.grant:
        return ()
    return (SetTimer("ack_wait", now_ns + before.ack_wait_ns, key),)


def and_wait(action: Act[Take]) -> Act[Take]:
    """The action that hands messages over; an application that kept a message for too long has returned with it."""

    def run(record: SessionRecord, event: Take, now_ns: int) -> tuple[SessionRecord, Effects]:
        if record.is_late:
            return return_application(record)
        after, effects = action(record, event, now_ns)
        if not record.ack_wait_ns:
            return after, effects
        told = (effect.event for effect in effects if isinstance(effect, Tell) and isinstance(effect.event, Deliver))
        keys = [reading_key(one.owner, one.stream) for one in told]
        return after, (*effects, *(timer for key in keys for timer in set_wait(record, after, key, now_ns)))

    run.__name__ = action.__name__
    return run


def and_wait_for_more(action: Act[Ack]) -> Act[Ack]:
    """The action that takes an acknowledgement."""

    def run(record: SessionRecord, event: Ack, now_ns: int) -> tuple[SessionRecord, Effects]:
        after, effects = action(record, event, now_ns)
        if not record.ack_wait_ns:
            return after, effects
        return after, (*effects, *set_wait(record, after, reading_key(event.owner, event.stream), now_ns))

    run.__name__ = action.__name__
    return run


def take_back(record: SessionRecord, event: AcknowledgementWaitEnd, now_ns: int) -> tuple[SessionRecord, Effects]:
    """The message is given back in the application's place, and the host is told after that."""
    before = record.readings[event.key]
    at = find_in_hand(before)
    assert at is not None
    nack = Nack(before.owner, before.stream, before.grant, at)
    failed = count_failures(before, at)
    reading = go_back(before, nack)
    if 0 < before.most <= failed + 1 and not is_alone(record, before):
        reading = unspend(before, reading, at, failed)
    record = replace(keep(record, reading), is_late=True, lone="" if record.lone == event.key else record.lone)
    late = AcknowledgementLate(before.owner, before.stream, before.grant, at)
    return record, (*time_delay(before, reading, nack, now_ns), Tell(late), Tell(Ready()))


def unspend(before: StreamReading, reading: StreamReading, offset: int, failed: int) -> StreamReading:
    """Something else may have kept the application: the message has failed no more often than before."""
    if reading.relaxed:
        return replace(reading, returned=reading.returned.set(offset, ReturnedDelivery(failed, DUE)))
    return replace(reading, failed=failed, suspect=before.suspect, delayed=False)


def is_alone(record: SessionRecord, reading: StreamReading) -> bool:
    """The application has nothing but one message of this stream."""
    at = find_in_hand(reading)
    others = (one for _, one in in_order(record.readings) if one is not reading)
    is_only = at is not None and find_in_hand(reading, at + 1) is None
    return is_only and all(find_in_hand(one) is None for one in others)


def return_application(record: SessionRecord) -> tuple[SessionRecord, Effects]:
    """The application asks for messages."""
    again = (Tell(Ready()),) if record.to_take or record.lone else ()
    return replace(record, is_late=False), (Tell(ApplicationReturned()), *again)
