"""Runs of marks: requests to mark rows one behind the other become one statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from statemachines.persistent_sessions.request import MarkDelivered

T = TypeVar("T")


def runs_of(requests: Sequence[T]) -> Iterator[Sequence[T]]:
    """The requests in their order, each alone but for marks of rows that follow each other."""
    begin = 0
    for place in range(1, len(requests) + 1):
        if place == len(requests) or not follows(requests[place - 1], requests[place]):
            yield requests[begin:place]
            begin = place


def follows(one: object, other: object) -> bool:
    """Whether `other` marks the row behind that which `one` marks."""
    if not isinstance(one, MarkDelivered) or not isinstance(other, MarkDelivered):
        return False
    same = (one.session, one.writer, one.epoch) == (other.session, other.writer, other.epoch)
    return same and other.number == one.until + 1
