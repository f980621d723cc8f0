"""Fan-out: rows of a message that comes to each subscription once, of which some node has still to store each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, TypeVar

from statemachines.persistent_sessions.message import Queued


class MatchedRoute(Protocol):
    """A subscription that a topic matches; `is_single`: of those of the session that are, one gets the message."""

    @property
    def session(self) -> str: ...
    @property
    def qos(self) -> int: ...
    @property
    def is_single(self) -> bool: ...


R = TypeVar("R", bound=MatchedRoute)

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


def choose_routes(routes: Sequence[R]) -> tuple[R, ...]:
    """Of the single ones of a session the one with the highest quality, and all others; in their order."""
    best: dict[str, R] = {}
    for one in routes:
        if one.is_single and (one.session not in best or best[one.session].qos < one.qos):
            best[one.session] = one
    return tuple(one for one in routes if not one.is_single or best[one.session] is one)


def find_volatile(routes: Iterable[R], qos: int) -> list[R]:
    """The single ones by which a message of this QoS comes with QoS 0: it is for a connected client alone."""
    return [one for one in routes if one.is_single and min(one.qos, qos) == 0]


def leave_out_absent(routes: Iterable[R], absent: Collection[str]) -> tuple[R, ...]:
    """The routes without the single ones of absent sessions."""
    return tuple(one for one in routes if not (one.is_single and one.session in absent))
