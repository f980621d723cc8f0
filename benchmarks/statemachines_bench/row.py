"""Row: one claim about speed, as something that can be measured against one baseline."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, TypeVar

import msgspec

T = TypeVar("T")

Measure = Callable[[], float]
"""Run once; the value in the unit of the row."""


class Size(Enum):
    """How much is measured."""

    FULL = "full"
    """What the row is about: all that is printed or saved."""
    SMALL = "small"
    """The same in little, by which tests see that both sides run; its values mean nothing."""

    def pick(self, full: T, small: T) -> T:
        """Whichever belongs to this size."""
        return full if self is Size.FULL else small


class TurnPair(NamedTuple):
    """What one row runs in turns."""

    ours: Measure
    baseline: Measure


class RatioKind(Enum):
    """Which way the two values are divided."""

    BASELINE_OVER_OURS = "baseline / ours"
    """How many times less ours takes: for costs."""
    OURS_OVER_BASELINE = "ours / baseline"
    """How many times more ours takes, or yields."""

    def of(self, ours: float, baseline: float) -> float:
        """The ratio of two values."""
        return baseline / ours if self is RatioKind.BASELINE_OVER_OURS else ours / baseline


class BenchRow(msgspec.Struct, frozen=True):
    """One row of the table.

    `about`: the claim in one line; `unit` of both values; `prepare(size)` makes ready (not timed) and gives what is run
    in turns; `at_least`, `at_most`: the target of the ratio, at most one of them, none for a row that only reports;
    `aim`: what we would like, in words, absolute values included; `is_long`: the bench measures it only by its name.
    """

    name: str
    about: str
    unit: str
    baseline_name: str
    prepare: Callable[[Size], TurnPair]
    ratio: RatioKind
    at_least: float | None = None
    at_most: float | None = None
    aim: str = ""
    is_long: bool = False

    @property
    def target(self) -> float | None:
        """The bound of the ratio; None: the row only reports."""
        return self.at_most if self.at_least is None else self.at_least

    @property
    def target_text(self) -> str:
        """The target in words."""
        if self.target is None:
            return "report only"
        return f"{'at most' if self.at_least is None else 'at least'} {self.target:g}"

    def holds(self, ratio: float) -> bool:
        """Whether the target is met; a row without a target always holds."""
        return (self.at_least is None or ratio >= self.at_least) and (self.at_most is None or ratio <= self.at_most)
