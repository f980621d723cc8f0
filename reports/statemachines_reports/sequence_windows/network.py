"""Network: the messages that a network lost, by its own rows, and when hosts were not there to miss any.

A row of kind drop says which publisher's message it was (instance), on which subject (key), under which number (term,
first), and to which node it was not brought (peer; "": to none).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import NamedTuple

from statemachines_reports.columns import Columns

BASE_BITS = 35
DEATHS = ("crash", "lost_disk", "kill")
COMINGS = ("join", "restart")
LATE = 1 << 64
"""More than any number."""


class PublisherSubject(NamedTuple):
    """What a publisher (its id) sends on a subject, in a run."""

    run: int
    publisher: str
    subject: str


class LostPacket(NamedTuple):
    """A message that was lost; `number`: frame and base as one, so that numbers compare; `down`: its receiver was
    dead."""

    number: int
    row: int
    down: bool = False


def number_at(columns: Columns, row: int) -> int:
    """The number of the message of a row."""
    return int(columns["term"][row]) << BASE_BITS | int(columns["first"][row])


class NetworkLosses:
    """All losses of a segment.  `dead`: (run, node) -> the rows in which it died."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.dead: dict[tuple[int, str], list[int]] = {}
        self.lost: dict[tuple[PublisherSubject, str], list[LostPacket]] = {}
        self.last_lost: dict[tuple[int, str], list[int]] = {}
        down: set[tuple[int, str]] = set()
        rows = columns.rows_of("drop", "fault")
        for row in rows.tolist():
            run = int(columns["run"][row])
            if columns.text("kind", row) == "drop":
                self._drop(run, row, down)
                continue
            who, event = (run, columns.text("node", row)), columns.text("event", row)
            if event in DEATHS:
                down.add(who)
                self.dead.setdefault(who, []).append(row)
            elif event in COMINGS:
                down.discard(who)

    def _drop(self, run: int, row: int, down: set[tuple[int, str]]) -> None:
        columns = self.columns
        node = columns.text("peer", row)
        if columns["first"][row] < 1:
            return  # no message of ours
        is_down = (run, node) in down
        place = PublisherSubject(run, columns.text("instance", row), columns.text("key", row))
        insort(self.lost.setdefault((place, node), []), LostPacket(number_at(columns, row), row, is_down))
        if not is_down:
            self.last_lost.setdefault((run, node), []).append(row)

    def between(self, place: PublisherSubject, node: str, after: int, before: int) -> list[LostPacket]:
        """What was lost on the way to a node, with numbers greater than the one and lower than the other."""
        found: list[LostPacket] = []
        for to in (node, ""):
            some = self.lost.get((place, to), [])
            found += some[bisect_right(some, (after, LATE)) : bisect_right(some, (before, -1))]
        return found

    def loses_since(self, run: int, node: str, row: int, until: int) -> bool:
        """Whether anything was lost on the way to a node between two rows."""
        for to in (node, ""):
            rows = self.last_lost.get((run, to), [])
            place = bisect_right(rows, row)
            if place < len(rows) and rows[place] < until:
                return True
        return False
