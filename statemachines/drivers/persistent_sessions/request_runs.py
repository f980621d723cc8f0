"""Runs of requests: those that stand one behind the other and become few statements together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from statemachines.drivers.persistent_sessions.host_request import PutMessage, StoreRows
from statemachines.persistent_sessions.request import MarkDelivered, PutRows

T = TypeVar("T")

RANGES: Final = (PutRows, StoreRows)
"""Rows to be stored."""


def joins(one: object, other: object) -> bool:
    """Whether both are carried out together: marks of rows that follow each other, rows to be stored, and messages."""
    if isinstance(one, RANGES):
        return isinstance(other, RANGES)
    if isinstance(one, PutMessage):
        return isinstance(other, PutMessage)
    return follows(one, other)


def follows(one: object, other: object) -> bool:
    """Whether `other` marks the row behind that which `one` marks."""
    if not isinstance(one, MarkDelivered) or not isinstance(other, MarkDelivered):
        return False
    same = (one.session, one.writer, one.epoch) == (other.session, other.writer, other.epoch)
    return same and other.number == one.until + 1


def runs_of(requests: Sequence[T], are_joined: Callable[[T, T], bool] = joins) -> Iterator[Sequence[T]]:
    """The requests in their order, each alone but for neighbours that are joined."""
    begin = 0
    for place in range(1, len(requests) + 1):
        if place == len(requests) or not are_joined(requests[place - 1], requests[place]):
            yield requests[begin:place]
            begin = place
