"""Acknowledgement wait: what a session does when its application keeps a message for too long.

A stream of which something is handed over gets a timer, and progress sets it anew.  When it fires, the first message
that is not acknowledged counts as given back, and the host is told: it gives all shared streams back to the group, so
that an idle member has them.  The session takes part again when its application asks for messages.
"""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import Effects, SetTimer, Tell, in_order
from statemachines.shared_subscriptions.returned_messages import count_failures, go_back, time_delay
from statemachines.shared_subscriptions.session_record import (
    AcknowledgementLate,
    AcknowledgementWaitEnd,
    ApplicationReturned,
    Nack,
    Reading,
    Ready,
    SessionRecord,
    keep,
    reading_key,
)


def is_late(record: SessionRecord, event: AcknowledgementWaitEnd) -> bool:
    """Something of the stream is in hand still."""
    reading = record.readings.get(event.key)
    return reading is not None and reading.delivered > reading.progress


def wait_for_acknowledgement(record: SessionRecord, reading: Reading, now_ns: int) -> Effects:
    """The timer of a stream of which something is in hand (grant 0: nobody else could have it)."""
    if not record.ack_wait_ns or not reading.grant or reading.delivered == reading.progress:
        return ()
    return (SetTimer("ack_wait", now_ns + record.ack_wait_ns, reading_key(reading.owner, reading.stream)),)


def take_back(record: SessionRecord, event: AcknowledgementWaitEnd, now_ns: int) -> tuple[SessionRecord, Effects]:
    """The message is given back in the application's place, and the host is told after that."""
    before = record.readings[event.key]
    nack = Nack(before.owner, before.stream, before.grant, before.progress)
    failed = count_failures(before, before.progress)
    reading = go_back(before, nack)
    if 0 < before.most <= reading.failed and not is_alone(record, before):
        reading = replace(reading, failed=failed, suspect=before.suspect, delayed=False)
    record = replace(keep(record, reading), is_late=True, lone="" if record.lone == event.key else record.lone)
    late = AcknowledgementLate(before.owner, before.stream, before.grant, before.progress)
    return record, (*time_delay(reading, nack, now_ns), Tell(late), Tell(Ready()))


def is_alone(record: SessionRecord, reading: Reading) -> bool:
    """The application has nothing but the next message of this stream."""
    others = (one for _, one in in_order(record.readings) if one is not reading)
    return reading.delivered == reading.progress + 1 and all(one.delivered == one.progress for one in others)


def return_application(record: SessionRecord) -> tuple[SessionRecord, Effects]:
    """The application asks for messages."""
    again = (Tell(Ready()),) if record.to_take or record.lone else ()
    return replace(record, is_late=False), (Tell(ApplicationReturned()), *again)
