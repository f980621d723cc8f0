"""Row products: the same messages in the same order for many sessions, inserted by few statements.

A message that 1 000 sessions have subscribed is 1 000 rows, which differ in the session, the epoch and the number.  The
statement names each session once and each message once, and the database multiplies them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from statemachines.drivers.persistent_sessions.row_hands import Hand
from statemachines.drivers.persistent_sessions.sql import Sql, cut_pieces
from statemachines.drivers.persistent_sessions.tables import UNDELIVERED

PUT_ROW: Final = (
    "INSERT INTO @session_rows VALUES (:session, :writer, :epoch, :number, :tag, :message, :filter, :qos, :token, :n,"
    " :k, :time_ns, :until_ns, :more)"
)

SESSIONS_MIN: Final = 8
"""For fewer sessions each row is named: a statement of its own costs more than it saves."""

SESSIONS_MAX: Final = 128
HANDS_MAX: Final = 64
"""So many of each go into one statement: SQLite before 3.32 takes 999 values."""

Place = tuple[bytes, int, int]
"""(session, epoch, number of its first row)."""


class RowProduct:
    """Rows of `writer`: each of the `hands`, in their order, for each of the sessions that `starts` says."""

    def __init__(self, writer: bytes, hands: tuple[Hand, ...]) -> None:
        self.writer = writer
        self.hands = hands
        self.starts: list[Place] = []


def put_product(sql: Sql, product: RowProduct) -> None:
    """Insert all rows of it, stored at the time of the transaction."""
    hands = [(number, *hand) for number, hand in enumerate(product.hands)]
    if len(product.starts) < SESSIONS_MIN:
        rows = [
            (session, product.writer, epoch, first + number, UNDELIVERED, message, topic_filter, qos, 0, 0, 0,
             sql.now_ns, until_ns, more)
            for session, epoch, first in product.starts
            for number, message, topic_filter, qos, until_ns, more in hands
        ]  # fmt: skip
        sql.put_many(PUT_ROW, rows)
        return
    fixed = {"writer": product.writer, "time_ns": sql.now_ns}
    named = [_name_values("h", piece) for piece in cut_pieces(hands, HANDS_MAX)]
    for places in cut_pieces(product.starts, SESSIONS_MAX):
        values = fixed | _name_values("p", places)
        for piece in named:
            sql.run(_statement(len(places), len(piece) // 6), **values, **piece)


def _name_values(prefix: str, rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    return {f"{prefix}{place}": value for place, value in enumerate(value for row in rows for value in row)}


@cache
def _statement(places: int, hands: int) -> str:
    return (
        f"WITH places (session, epoch, number) AS (VALUES {_list_names('p', places, 3)}),"
        f" hands (place, message, filter, qos, until_ns, more) AS (VALUES {_list_names('h', hands, 6)})"
        " INSERT INTO @session_rows SELECT places.session, :writer, places.epoch, places.number + hands.place,"
        f" {UNDELIVERED}, hands.message, hands.filter, hands.qos, 0, 0, 0, :time_ns, hands.until_ns, hands.more"
        " FROM places CROSS JOIN hands"
    )


def _list_names(prefix: str, rows: int, columns: int) -> str:
    """`(:p0, :p1, :p2), (:p3, ...), ...`."""
    places = range(0, rows * columns, columns)
    return ", ".join(f"({', '.join(f':{prefix}{begin + one}' for one in range(columns))})" for begin in places)
