"""SessionRow: a session as its table has it: in whose hands it is, and when it is over.

State rows: a session's state as rows, of which a commit writes what has changed; what is queued is a row each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Protocol

from statemachines.drivers.persistent_sessions.node_messages import FRONT_INSTANCE
from statemachines.drivers.persistent_sessions.sql import Sql, Text, read_number, read_one
from statemachines.kernel import Map
from statemachines.persistent_sessions.in_flight_record import InFlightRecord, InFlightStatus
from statemachines.persistent_sessions.life_request import NEVER
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import (
    SessionState,
    StateChange,
)
from statemachines.persistent_sessions.times import MS


class SessionRow(NamedTuple):
    """`connection`: in whose hands it is (b"": nobody's, its client has left); `seen_ns`: when that was said last, or
    when the client left; `expiry_ms`: how long it outlives that (`NEVER`: it does not end)."""

    session: bytes
    connection: bytes
    expiry_ms: int
    seen_ns: int
    instance: bytes | None = None
    """Of the client that had the lock of its client id last."""

    @property
    def ends_for_front(self) -> bool:
        """For the clients of a front a session without expiry ends with its connection, so a connection that takes its
        place finds none (PS-440)."""
        return self.expiry_ms == 0 and (self.instance or b"").startswith(FRONT_INSTANCE.encode())

    def is_live(self, now_ns: int, dead_ms: int) -> bool:
        """It is in the hands of somebody who has said so within `dead_ms`."""
        return bool(self.connection) and now_ns - self.seen_ns < dead_ms * MS

    def is_over(self, sql: Sql, dead_ms: int) -> bool:
        """Its expiry has passed, since its client left or its owner was heard of last."""
        if self.is_live(sql.now_ns, dead_ms) or self.expiry_ms == NEVER:
            return False
        return sql.aged_ns - self.seen_ns >= self.expiry_ms * MS


def session_of(sql: Sql, client: Text) -> SessionRow | None:
    """The client's session."""
    found = read_one(
        sql,
        "SELECT sessions.session, sessions.connection, sessions.expiry_ms, sessions.seen_ns, clients.instance"
        " FROM @clients AS clients JOIN @sessions AS sessions ON sessions.session = clients.session"
        " WHERE clients.client = :client",
        client=client,
    )
    return None if found is None else SessionRow(*found)


TOKEN: Final = "SELECT token FROM @sessions WHERE session = :session"


def is_there(sql: Sql, session: Text) -> bool:
    return read_one(sql, "SELECT 1 FROM @sessions WHERE session = :session", session=session) is not None


class FencedRequest(Protocol):
    """A request of an owner."""

    @property
    def session(self) -> str:
        """Of which it is about."""

    @property
    def token(self) -> int:
        """Under which it is asked."""


def is_current(sql: Sql, asked: FencedRequest) -> bool:
    """Whether its owner is still that of the session."""
    return is_owned(sql, asked.session, asked.token)


def is_owned(sql: Sql, session: Text, token: int) -> bool:
    """No higher token has been here; a session that is gone is nobody's."""
    found = read_one(sql, TOKEN, session=session)
    return found is not None and token >= found[0]


def epoch_of(sql: Sql, session: str, writer: str) -> tuple[int, int]:
    """(epoch, last number); (0, 0): it has never begun."""
    statement = (
        "SELECT epoch, last FROM @epochs WHERE session = :session AND writer = :writer ORDER BY epoch DESC LIMIT 1"
    )
    return read_one(sql, statement, session=session, writer=writer) or (0, 0)


STATUS: Final = {status: status.value.encode() for status in InFlightStatus}


def read_state(sql: Sql, session: bytes, client: str) -> SessionState:
    """The state of a session that is there."""
    places = read_number(sql, "SELECT places FROM @sessions WHERE session = :session", session=session)
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
        "SELECT number, message, filter, qos, until_ns FROM @queued WHERE session = :session ORDER BY place",
        session=session,
    )
    return SessionState(Map(taken), Map(packets), tuple(_queued(*row) for row in queued), places)


PacketRow = tuple[Any, ...]


def list_packet_rows(session: bytes, packets: Iterable[InFlightRecord]) -> list[PacketRow]:
    """As they are stored."""
    rows = []
    for packet in packets:  # thousands: no call for each
        queued = packet.queued
        head = (session, packet.packet, packet.place, STATUS[packet.status], queued.number)
        rows.append((*head, queued.message.encode(), queued.filter.encode(), queued.qos, queued.until_ns))
    return rows


def write_change(sql: Sql, session: bytes, change: StateChange, rows: list[PacketRow] | None = None) -> None:
    """What a commit changes, but for packets that begin with what is over; `rows` of all its packets, if they were made
    before."""
    taken = sorted(change.taken.items())
    sql.put_many(
        "INSERT INTO @taken VALUES (:session, :writer, :epoch, :number)"
        " ON CONFLICT (session, writer) DO UPDATE SET epoch = excluded.epoch, number = excluded.number",
        [(session, writer.encode(), epoch, number) for writer, (epoch, number) in taken],
    )
    for first, last in runs_of_numbers(change.ended):
        sql.run(
            "DELETE FROM @packets WHERE session = :session AND packet BETWEEN :first AND :last",
            session=session,
            first=first,
            last=last,
        )
    packets = change.list_packets(sql.aged_ns)
    if rows is None or len(rows) != len(packets):
        rows = list_packet_rows(session, packets)
    sql.put_many(
        "INSERT INTO @packets VALUES (:session, :packet, :place, :status, :number, :message, :filter, :qos,"
        " :until_ns) ON CONFLICT (session, packet) DO UPDATE SET place = excluded.place, status = excluded.status,"
        " number = excluded.number, message = excluded.message, filter = excluded.filter, qos = excluded.qos,"
        " until_ns = excluded.until_ns",
        rows,
    )
    if change.dequeued or change.queued:
        _write_queued(sql, session, change)
    sql.run(
        "UPDATE @sessions SET revision = revision + 1, places = :places WHERE session = :session",
        session=session,
        places=change.places,
    )


def runs_of_numbers(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of each run of them without a hole; packets are acknowledged mostly in their order."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _write_queued(sql: Sql, session: bytes, change: StateChange) -> None:
    """Some are gone from the front, some have come at the end."""
    ((first, last),) = sql.all(
        "SELECT coalesce((SELECT min(place) FROM @queued WHERE session = :session), 0),"
        " coalesce((SELECT max(place) FROM @queued WHERE session = :session), -1)",
        session=session,
    )
    if change.dequeued:
        sql.run(
            "DELETE FROM @queued WHERE session = :session AND place < :first",
            session=session,
            first=first + change.dequeued,
        )
    sql.put_many(
        "INSERT INTO @queued VALUES (:session, :place, :number, :message, :filter, :qos, :until_ns)",
        [
            (session, place, row.number, row.message.encode(), row.filter.encode(), row.qos, row.until_ns)
            for place, row in enumerate(change.queued, last + 1)
        ],
    )


def _queued(number: int, message: bytes, topic_filter: bytes, qos: int, until_ns: int) -> Queued:
    return Queued(number, message.decode(), topic_filter.decode(), qos, until_ns)
