"""Row spans: which rows wait for a session, found by their keys: however many wait, they are not counted one by one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from statemachines.drivers.persistent_sessions.group_rows import WRITERS
from statemachines.drivers.persistent_sessions.sql import Sql, has_row, read_number, read_one
from statemachines.drivers.persistent_sessions.tables import UNDELIVERED

NEXT: Final = (
    "SELECT epoch, number, length(message) FROM @session_rows WHERE session = :session AND writer = :writer"
    f" AND (epoch, number) > (:epoch, :number) AND tag = {UNDELIVERED} ORDER BY epoch, number LIMIT 1"
)
_OF_EPOCH: Final = (
    f"FROM @session_rows WHERE session = :session AND writer = :writer AND epoch = :epoch AND tag = {UNDELIVERED}"
)
LAST: Final = f"SELECT number {_OF_EPOCH} AND number >= :number ORDER BY number DESC LIMIT 1"
PROBE: Final = f"SELECT length(message) {_OF_EPOCH} AND number >= :number ORDER BY number LIMIT 1"
_IS_STORED: Final = has_row("SELECT 1 FROM @messages AS messages WHERE messages.id = ahead.message")
WITH_MESSAGE: Final = (
    f"SELECT count(*) FROM (SELECT message {_OF_EPOCH} AND number >= :number ORDER BY number LIMIT :looked) AS ahead"
    f" WHERE {_IS_STORED}"
)


class RowSpan(NamedTuple):
    """Rows `first` to `last` of a writer and an epoch, which the session has not taken."""

    writer: bytes
    epoch: int
    first: int
    last: int

    @property
    def size(self) -> int:
        """How many rows, at most: one that was delivered ahead of its turn is in it."""
        return self.last - self.first + 1


def list_spans(sql: Sql, session: bytes) -> Iterator[RowSpan]:
    """The spans of the session, without what was dropped (PS-461): those are the oldest rows of an epoch."""
    for writer, epoch, number in sql.all(WRITERS, session=session):
        while found := read_one(sql, NEXT, session=session, writer=writer, epoch=epoch, number=number):
            epoch, first, size = found
            where = {"session": session, "writer": writer, "epoch": epoch}
            (number,) = read_one(sql, LAST, **where, number=first) or (first,)
            if not size:
                first += _count_dropped(sql, range(first, number + 1), where)
            if first <= number:
                yield RowSpan(bytes(writer), epoch, first, number)


def count_stored(sql: Sql, session: bytes, span: RowSpan, most: int) -> int:
    """How many of the first `most` rows of a span have a message that is still there."""
    where = {"session": session, "writer": span.writer, "epoch": span.epoch}
    return read_number(sql, WITH_MESSAGE, number=span.first, looked=most, **where)


def _count_dropped(sql: Sql, numbers: range, where: dict[str, Any]) -> int:
    """How many rows from the first on have no message: a look at a row for each halving."""

    def has_message(number: int) -> bool:
        found = read_one(sql, PROBE, number=number, **where)
        return found is None or found[0] > 0

    return bisect_left(numbers, True, key=has_message)
