"""SharedRuns: runs of which several rows read a value each, so that every run is made once.

A run measures ours and the baselines of all these rows one behind the other: each row still has them in turns.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Generic, TypeVar

from statemachines_bench.row import Measure

T = TypeVar("T")


class SharedRuns(Generic[T]):
    """What `run` gives, kept in the order in which it was made."""

    def __init__(self, run: Callable[[], T]) -> None:
        self._run = run
        self._made: list[T] = []

    def read(self, value: Callable[[T], float]) -> Measure:
        """A measure of one row: its n-th call reads the n-th run, which is made if no other row has read it."""
        numbers = count()

        def measure() -> float:
            number = next(numbers)
            while len(self._made) <= number:
                self._made.append(self._run())
            return value(self._made[number])

        return measure
