"""Row ranges: what writers store in one transaction, whatever sessions it is for, in few statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from statemachines.drivers.persistent_sessions.publisher_packets import note_stored, read_open_rows
from statemachines.drivers.persistent_sessions.row_hands import encode_hand
from statemachines.drivers.persistent_sessions.row_products import RowProduct, put_product
from statemachines.drivers.persistent_sessions.sql import Sql, all_of
from statemachines.drivers.persistent_sessions.tables import UNDELIVERED
from statemachines.drivers.sql.failure import StoreDamaged
from statemachines.kernel import Answer
from statemachines.persistent_sessions.fan_out import find_duplicates, rows_once
from statemachines.persistent_sessions.request import PutRows, RowFenced, RowsDuplicate, RowStored

PUT_LAST: Final = (
    "INSERT INTO @epochs VALUES (:session, :writer, :epoch, :last)"
    " ON CONFLICT (session, writer, epoch) DO UPDATE SET last = excluded.last"
)
LEAVE_EPOCHS: Final = "DELETE FROM @epochs WHERE session = :session AND writer = :writer AND epoch < :epoch"
EPOCHS: Final = (
    "SELECT sessions.session, coalesce(epochs.epoch, 0), coalesce(epochs.last, 0) FROM @sessions AS sessions"
    " LEFT JOIN @epochs AS epochs ON epochs.session = sessions.session AND epochs.writer = :writer"
    " WHERE sessions.session IN ({keys})"
)
THERE: Final = (
    "SELECT number, message, time_ns FROM @session_rows WHERE session = :session AND writer = :writer"
    f" AND epoch = :epoch AND number BETWEEN :first AND :last AND tag = {UNDELIVERED}"
)

Key = tuple[bytes, bytes]
"""(session, writer)."""


class WriterPlace(NamedTuple):
    """The epoch of a writer and the number of its last row; whether it has `older` epochs."""

    epoch: int
    last: int
    older: bool = False


def put_ranges(sql: Sql, ranges: Sequence[PutRows], where: str, once: frozenset[str] = frozenset()) -> list[Answer]:
    """Store ranges in their order, each all or not at all; `where`: the database, for errors; `once`: messages that
    come to each subscription once.

    Nothing is stored for a session that is gone: nobody will ever read it.
    """
    return _RangeWriter(sql, where, once).put(ranges)


class _RangeWriter:
    def __init__(self, sql: Sql, where: str, once: frozenset[str]) -> None:
        self._sql = sql
        self._where = where
        self._once = once
        self._products: dict[tuple[bytes, Any], RowProduct] = {}
        self._places: dict[Key, WriterPlace] = {}
        self._changed: dict[Key, None] = {}

    def put(self, ranges: Sequence[PutRows]) -> list[Answer]:
        sessions: dict[str, dict[bytes, None]] = {}
        for asked in ranges:
            sessions.setdefault(asked.writer, {})[asked.session.encode()] = None
        for writer, its in sessions.items():
            self._read_places(writer.encode(), list(its))
        answers = [self._put(asked) for asked in ranges]
        self._write()
        return answers

    def _read_places(self, writer: bytes, sessions: Sequence[bytes]) -> None:
        for session, epoch, last in all_of(self._sql, EPOCHS, sessions, writer=writer):
            key = (bytes(session), writer)
            known = self._places.get(key)
            if known is None:
                self._places[key] = WriterPlace(epoch, last)
            else:
                self._places[key] = max(known, WriterPlace(epoch, last))._replace(older=True)

    def _put(self, asked: PutRows) -> Answer:
        key = session, writer = asked.session.encode(), asked.writer.encode()
        place = self._places.get(key)
        if place is None:
            return RowStored()
        if place.epoch != asked.epoch:
            return RowFenced(place.epoch)
        if asked.first_number <= place.last:
            return RowStored(self._check_there(asked, place.last))
        if asked.first_number != place.last + 1:
            number = asked.first_number
            raise self._damage(f"{asked.writer} stores number {number} for {asked.session} after {place.last}")
        once = rows_once(asked.rows, self._once)
        duplicates = find_duplicates(once, read_open_rows(self._sql, session, once))
        if duplicates:
            return RowsDuplicate(duplicates)
        note_stored(self._sql, session, once)
        if place.older and not place.last:
            self._sql.run(LEAVE_EPOCHS, session=session, writer=writer, epoch=asked.epoch)
        hands = tuple(map(encode_hand, asked.rows))
        product = self._products.get((writer, hands))
        if product is None:
            product = self._products[writer, hands] = RowProduct(writer, hands)
        product.starts.append((session, asked.epoch, asked.first_number))
        self._places[key] = place._replace(last=asked.last_number)
        self._changed[key] = None
        return RowStored(self._sql.now_ns)

    def _check_there(self, asked: PutRows, last: int) -> int:
        """Rows that are there, or have been: the same ones, or somebody has numbered two alike; since when (0: none is
        there any more)."""
        self._write()
        if asked.last_number > last:
            number = asked.last_number
            raise self._damage(f"{asked.writer} stores up to {number} for {asked.session}, of which {last} is the last")
        found = self._sql.all(
            THERE, session=asked.session.encode(), writer=asked.writer.encode(), epoch=asked.epoch,
            first=asked.first_number, last=asked.last_number,
        )  # fmt: skip
        there = {number: message.decode() for number, message, _ in found}
        for row in asked.rows:
            known = there.get(row.number, row.message)
            if known not in (row.message, ""):  # its message may have been dropped since
                raise self._damage(f"{asked.writer} stores {row.message} for {asked.session} where {known} is")
        return min((time_ns for _, _, time_ns in found), default=0)

    def _write(self) -> None:
        """The rows, and how far each writer has come."""
        for product in self._products.values():
            put_product(self._sql, product)
        self._sql.put_many(PUT_LAST, [(*key, self._places[key].epoch, self._places[key].last) for key in self._changed])
        self._products.clear()
        self._changed.clear()

    def _damage(self, what: str) -> StoreDamaged:
        rule = "two processes under one name, or a database put back from a copy while they ran; stop them all"
        return StoreDamaged(f"{self._where}: {what}: {rule}, and start them anew")
