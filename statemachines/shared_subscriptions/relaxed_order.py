"""Relaxed order: what a session does with messages that are given back, where its group is declared so.

The stream goes on.  A message that is given back waits for its delay beside the others, is then fetched alone, and is
handed over before anything of its stream that was not handed over yet.  It is acknowledged like any other; until then
it is a hole, and the progress does not pass it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from statemachines.kernel import CancelTimer, Effects, Map, SetTimer, in_order
from statemachines.shared_subscriptions.acknowledged_ranges import find_reach, join_all_ranges
from statemachines.shared_subscriptions.message import HOLES_MAX
from statemachines.shared_subscriptions.session_record import (
    DELAYED,
    DUE,
    FETCHED,
    IN_HAND,
    SPENT,
    Nack,
    ReturnedDelivery,
    ReturnEnd,
    SessionRecord,
    StreamReading,
    reading_key,
)

# -- what is in hand --------------------------------------------------------------------------------------------------


def find_in_hand(reading: StreamReading, since: int = 0) -> int | None:
    """The first message from offset `since` on that the application has in hand."""
    at = max(reading.progress, since)
    if not reading.relaxed:
        return at if at < reading.delivered else None
    for first, last in in_order(reading.acked):
        at = pass_returned(reading, at, min(first, reading.delivered))
        if at < min(first, reading.delivered):
            return at
        at = max(at, last + 1)
    at = pass_returned(reading, at, reading.delivered)
    return at if at < reading.delivered else None


def pass_returned(reading: StreamReading, at: int, end: int) -> int:
    """The first from `at` on that is not given back, or is handed over again; `end` at most."""
    while at < end and at in reading.returned and reading.returned[at].turn is not IN_HAND:
        at += 1
    return at


def find_low(reading: StreamReading) -> int:
    """All before this offset is acknowledged, or was given back."""
    first = find_in_hand(reading)
    return reading.delivered if first is None else first


def is_first_in_hand(reading: StreamReading) -> bool:
    """The application has the message at the progress."""
    return find_in_hand(reading) == reading.progress


def find_held_again(readings: Mapping[str, StreamReading]) -> set[tuple[str, int, int]]:
    """Key, grant and offset of what was given back, and is fetched or in hand again."""
    return {
        (key, reading.grant, offset)
        for key, reading in sorted(readings.items())
        for offset, one in in_order(reading.returned)
        if one.turn in (FETCHED, IN_HAND)
    }


def count_excused(reading: StreamReading) -> int:
    """Messages behind the progress that take no room: acknowledged, or given back."""
    if not reading.relaxed:
        return 0
    acked = (min(last + 1, reading.fetched) - first for first, last in in_order(reading.acked))
    waiting = (one.turn in (DELAYED, DUE, SPENT) for _, one in in_order(reading.returned))
    return sum(max(size, 0) for size in acked) + sum(waiting)


def is_full(reading: StreamReading) -> bool:
    """It has as many holes as a stream may have: nothing new is fetched.  What is before the last acknowledged
    message is not new: a stream may be granted with all of its holes."""
    if len(reading.returned) >= HOLES_MAX:
        return True
    return len(reading.acked) >= HOLES_MAX and reading.fetched >= find_reach(0, tuple(in_order(reading.acked)))


# -- giving back ------------------------------------------------------------------------------------------------------


def put_aside(reading: StreamReading, event: Nack, failed: int, wait_ns: int) -> StreamReading:
    """The stream as it is when the message comes again after `wait_ns`; one that failed too often waits for its
    leader."""
    is_spent = 0 < reading.most <= failed
    one = ReturnedDelivery(failed, SPENT if is_spent else DELAYED if wait_ns else DUE, event.reason)
    suspect, before = (0, 0) if event.offset == reading.suspect else (reading.suspect, reading.failed)
    returned = reading.returned.set(event.offset, one)
    return replace(reading, returned=returned, suspect=suspect, failed=before)


def time_return(reading: StreamReading, event: Nack, wait_ns: int, now_ns: int) -> Effects:
    """The timer of its delay."""
    if reading.returned[event.offset].turn is not DELAYED:
        return ()
    return (SetTimer("return", now_ns + wait_ns, return_key(reading, event.offset)),)


def return_key(reading: StreamReading, offset: int) -> str:
    return f"{reading_key(reading.owner, reading.stream)} {offset}"


def is_returning(record: SessionRecord, event: ReturnEnd) -> bool:
    """The message waits for this."""
    key, _, offset = event.key.rpartition(" ")
    reading = record.readings.get(key)
    one = reading.returned.get(int(offset)) if reading is not None and offset.isdecimal() else None
    return one is not None and one.turn is DELAYED


def set_turn(reading: StreamReading, offset: int, turn: object) -> StreamReading:
    """The message with another turn."""
    one = replace(reading.returned[offset], turn=turn)
    return replace(reading, returned=reading.returned.set(offset, one))


# -- handing over again --------------------------------------------------------------------------------------------


def find_turn(reading: StreamReading, *turns: object) -> int | None:
    """The first message that was given back and has one of these turns."""
    if not reading.returned:
        return None
    return next((offset for offset, one in in_order(reading.returned) if one.turn in turns), None)


def find_due(reading: StreamReading) -> int | None:
    """The message that is to be fetched next, before anything else; one at a time."""
    if not reading.returned or find_turn(reading, FETCHED) is not None:
        return None
    return find_turn(reading, DUE)


def join_relaxed(reading: StreamReading, first: int, last: int) -> tuple[StreamReading, Effects]:
    """The reading with `first`..`last` acknowledged, and what ends the delays of these."""
    progress, acked = join_all_ranges(reading.progress, in_order(reading.acked), ((first, last),))
    done = [offset for offset, _ in in_order(reading.returned) if first <= offset <= last or offset < progress]
    delayed = [offset for offset in done if reading.returned[offset].turn is DELAYED]
    returned = reading.returned
    for offset in done:
        returned = returned.delete(offset)
    effects = tuple(CancelTimer("return", return_key(reading, offset)) for offset in delayed)
    return replace(reading, progress=progress, acked=Map(acked), returned=returned), effects
