"""State rows: a session's state as rows, of which a commit writes what has changed; what is queued is a row each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from statemachines.drivers.persistent_sessions.sql import Sql, one
from statemachines.kernel import Map
from statemachines.persistent_sessions.in_flight_record import SENT, TAKEN, InFlightRecord, InFlightStatus
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import SessionState, without_over

TABLES: Final = ("taken", "packets", "queued")

STATUS: Final = {status: status.value.encode() for status in InFlightStatus}

PUT_TAKEN: Final = (
    "INSERT INTO @taken VALUES (:session, :writer, :epoch, :number)"
    " ON CONFLICT (session, writer) DO UPDATE SET epoch = excluded.epoch, number = excluded.number"
)
PUT_PACKET: Final = (
    "INSERT INTO @packets VALUES (:session, :packet, :place, :status, :number, :message, :filter, :qos,"
    " :until_ns) ON CONFLICT (session, packet) DO UPDATE SET place = excluded.place, status = excluded.status,"
    " number = excluded.number, message = excluded.message, filter = excluded.filter, qos = excluded.qos,"
    " until_ns = excluded.until_ns"
)
DELETE_PACKETS: Final = "DELETE FROM @packets WHERE session = :session AND packet BETWEEN :first AND :last"
DELETE_QUEUED: Final = "DELETE FROM @queued WHERE session = :session AND place < :first"
WRITE_REVISION: Final = "UPDATE @sessions SET revision = revision + 1, places = :places WHERE session = :session"
PUT_QUEUED: Final = "INSERT INTO @queued VALUES (:session, :place, :number, :message, :filter, :qos, :until_ns)"


class KnownState(msgspec.Struct, frozen=True):
    """What is committed, as it was at this `revision`; `first`: the place of the first that is queued."""

    revision: int
    state: SessionState
    first: int


def read_state(sql: Sql, session: bytes, client: str) -> KnownState:
    """The state of a session that is there."""
    found = one(sql, "SELECT revision, places FROM @sessions WHERE session = :session", session=session)
    assert found is not None
    revision, places = found
    taken = {
        writer.decode(): (epoch, number)
        for writer, epoch, number in sql.all(
            "SELECT writer, epoch, number FROM @taken WHERE session = :session", session=session
        )
    }
    packets = {
        packet: InFlightRecord(packet, client, _queued(number, *rest), place, InFlightStatus(status.decode()))
        for packet, place, status, number, *rest in sql.all(
            "SELECT packet, place, status, number, message, filter, qos, until_ns FROM @packets"
            " WHERE session = :session",
            session=session,
        )
    }
    queued = sql.all(
        "SELECT place, number, message, filter, qos, until_ns FROM @queued WHERE session = :session ORDER BY place",
        session=session,
    )
    state = SessionState(Map(taken), Map(packets), tuple(_queued(*row[1:]) for row in queued), places)
    return KnownState(revision, state, queued[0][0] if queued else 0)


def write_state(sql: Sql, session: bytes, known: KnownState, state: SessionState) -> KnownState:
    """What has changed since `known`, but for what is over and was in no state before; what is known now."""
    before = known.state.packets
    # Thousands may be in flight, and few of them change: those that are the very objects that were committed do not.
    touched = [packet for packet, one in state.packets.items() if before.get(packet) is not one]
    if any(state.packets[packet].queued.until_ns for packet in touched):
        state = without_over(known.state, state, sql.aged_ns)
    _write_taken(sql, session, known.state, state)
    _write_packets(sql, session, known.state, state, [packet for packet in sorted(touched) if packet in state.packets])
    first = _write_queued(sql, session, known, state)
    sql.run(WRITE_REVISION, session=session, places=state.places)
    return KnownState(known.revision + 1, state, first)


def delete_state(sql: Sql, session: bytes) -> None:
    """All of it."""
    for table in TABLES:
        sql.run(f"DELETE FROM @{table} WHERE session = :session", session=session)


def _write_taken(sql: Sql, session: bytes, before: SessionState, after: SessionState) -> None:
    changed = sorted((writer, at) for writer, at in after.taken.items() if before.taken.get(writer) != at)
    sql.put_many(PUT_TAKEN, [(session, writer.encode(), epoch, number) for writer, (epoch, number) in changed])
    for writer in sorted(writer for writer in before.taken if writer not in after.taken):
        sql.run(
            "DELETE FROM @taken WHERE session = :session AND writer = :writer", session=session, writer=writer.encode()
        )  # fmt: skip


def _write_packets(sql: Sql, session: bytes, before: SessionState, after: SessionState, touched: Sequence[int]) -> None:
    known, kept = before.packets, after.packets
    if len(known) + sum(packet not in known for packet in touched) > len(kept):
        for first, last in runs_of_numbers(packet for packet in known if packet not in kept):
            sql.run(DELETE_PACKETS, session=session, first=first, last=last)
    changed = [packet for packet in touched if _is_changed(known.get(packet), kept[packet])]
    sql.put_many(PUT_PACKET, [_packet_row(session, kept[packet]) for packet in changed])


def runs_of_numbers(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of each run of them without a hole; packets are acknowledged mostly in their order."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _is_changed(known: InFlightRecord | None, one: InFlightRecord) -> bool:
    """Whether its row is to be written.  That it was sent meanwhile is no reason: what was taken and what was sent
    comes again alike, since nobody knows whether it was sent (PS-168)."""
    if known is one or known is None:
        return known is None
    if known.status is TAKEN and one.status is SENT:
        return (known.packet, known.place) != (one.packet, one.place) or known.queued != one.queued
    return known != one


def _packet_row(session: bytes, one: InFlightRecord) -> tuple[Any, ...]:
    return (session, one.packet, one.place, STATUS[one.status], *_row(one.queued))


def _write_queued(sql: Sql, session: bytes, known: KnownState, state: SessionState) -> int:
    """Some are gone from the front, some have come at the end: the place of the first that is queued now."""
    before, after = known.state.queued, state.queued
    gone = _gone_from_front(before, after)
    kept = len(before) - gone
    first = known.first + gone
    if gone:
        sql.run(DELETE_QUEUED, session=session, first=first)
    new = enumerate(after[kept:], first + kept)
    sql.put_many(PUT_QUEUED, [(session, place, *_row(row)) for place, row in new])
    return first


def _gone_from_front(before: tuple[Queued, ...], after: tuple[Queued, ...]) -> int:
    """How many of `before` are gone, if the rest of it is how `after` begins."""
    for count, first in enumerate(before if after else ()):
        if first == after[0] and _goes_on(before, count, after):
            return count
    return len(before)


def _goes_on(before: tuple[Queued, ...], count: int, after: tuple[Queued, ...]) -> bool:
    kept = len(before) - count
    if kept > len(after):
        return False
    # A session takes from the front and adds at the end.  Where the first and the last that are kept are the very
    # objects that were committed, so are all between: a look at tens of thousands would cost more than the commit.
    if after[0] is before[count] and after[kept - 1] is before[-1]:
        return True
    return after[:kept] == before[count:]


def _row(queued: Queued) -> tuple[int, bytes, bytes, int, int]:
    return queued.number, queued.message.encode(), queued.filter.encode(), queued.qos, queued.until_ns


def _queued(number: int, message: bytes, topic_filter: bytes, qos: int, until_ns: int) -> Queued:
    return Queued(number, message.decode(), topic_filter.decode(), qos, until_ns)
