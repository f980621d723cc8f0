"""Fan-out: rows of a message that comes to each subscription once, of which some node has still to store each."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from statemachines.persistent_sessions.message import Queued

OpenRow = tuple[str, str]
"""(message, filter): a row that is still to be stored for a session."""


def rows_once(rows: Iterable[Queued], once: Collection[str]) -> list[Queued]:
    """Those of these rows whose message comes to each subscription once."""
    return [row for row in rows if row.message in once]


def find_duplicates(rows: Iterable[Queued], open_rows: Collection[OpenRow]) -> tuple[int, ...]:
    """Numbers of those of these rows that are not to be stored: they are, or stand twice among them."""
    left = set(open_rows)
    duplicates = []
    for row in rows:
        if (row.message, row.filter) in left:
            left.remove((row.message, row.filter))
        else:
            duplicates.append(row.number)
    return tuple(duplicates)
