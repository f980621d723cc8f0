"""Group rows: what of a session came from streams of groups, and is in no client's hands yet."""

from __future__ import annotations

from typing import Final

from statemachines.drivers.persistent_sessions.sql import Sql, read_number
from statemachines.drivers.persistent_sessions.tables import UNDELIVERED
from statemachines.drivers.topic import is_shared

FILTERS: Final = (
    "SELECT filter FROM @routes WHERE session = :session AND filter >= :first AND filter < :last AND gone = 0"
    " ORDER BY filter"
)
"""All that may be of groups, by the key of the table: a session may subscribe thousands that are not."""

LOOKED_MAX: Final = 10_000
"""Rows that a session has not taken among which those of a group are looked for."""

WRITERS: Final = (
    "SELECT writer, coalesce(taken.epoch, 0), coalesce(taken.number, 0)"
    " FROM (SELECT DISTINCT writer FROM @epochs WHERE session = :session) AS writers"
    " LEFT JOIN (SELECT writer, epoch, number FROM @taken WHERE session = :session) AS taken USING (writer) ORDER BY 1"
)
"""And how far the state has the rows of each."""

AHEAD: Final = (
    "SELECT filter FROM @session_rows WHERE session = :session AND writer = :writer"
    f" AND (epoch, number) > (:epoch, :number) AND tag = {UNDELIVERED} ORDER BY epoch, number LIMIT :looked"
)
OURS: Final = f"SELECT count(*) FROM (SELECT 1 FROM ({AHEAD}) AS ahead WHERE filter = :filter LIMIT :most) AS ours"
ALL: Final = f"SELECT count(*) FROM ({AHEAD}) AS ahead"
QUEUED: Final = "SELECT count(*) FROM @queued WHERE session = :session AND filter = :filter"


def group_filters(sql: Sql, session: bytes) -> tuple[str, ...]:
    """The filters of groups that it subscribes."""
    found = sql.all(FILTERS, session=session, first=b"$", last=b"%")
    return tuple(each.decode() for (each,) in found if is_shared(each.decode()))


def count_waiting(sql: Sql, session: bytes, topic_filter: str, most: int) -> int:
    """How many messages that came by this filter wait in the database, `most` at most; as many where so many rows wait
    that they are not looked through."""
    count, is_all = _look_ahead(sql, session, topic_filter, most)
    return count if is_all else most


def _look_ahead(sql: Sql, session: bytes, topic_filter: str, most: int) -> tuple[int, bool]:
    """How many there are, `most` at most, and whether that is all of them."""
    wanted = {"session": session, "filter": topic_filter.encode()}
    count, looked = read_number(sql, QUEUED, **wanted), LOOKED_MAX
    for writer, epoch, number in sql.all(WRITERS, session=session):
        ahead = {"session": session, "writer": writer, "epoch": epoch, "number": number, "looked": looked}
        count += read_number(sql, OURS, **ahead, filter=wanted["filter"], most=most)
        if count >= most:
            return most, False
        looked -= read_number(sql, ALL, **ahead)
        if looked <= 0:
            return count, False
    return min(count, most), True
