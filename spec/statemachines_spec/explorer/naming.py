"""Naming: canonical names for what an actor alone knows (`Actor.canonical`), so that equal situations are one state."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

from statemachines.kernel import Fifo

N = TypeVar("N", bound=Hashable)


def rebase_queue(queue: Fifo) -> Fifo:
    """The same queue, numbered from 0."""
    if queue.head == 0:
        return queue
    again = Fifo()
    for item in queue:
        again = again.push(item)
    return again


def by_first_use(names: Iterable[N], first: int = 1) -> dict[N, int]:
    """A number for every name, from `first` on, in the order in which each is met first."""
    numbers: dict[N, int] = {}
    for name in names:
        numbers.setdefault(name, first + len(numbers))
    return numbers
