"""Result: what measuring a row gave, and how it is written down."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from statemachines_bench.row import Row


class Result(msgspec.Struct, frozen=True):
    """The values of every round, ours and the baseline's, in the unit of the row."""

    row: Row
    ours_rounds: tuple[float, ...]
    baseline_rounds: tuple[float, ...]

    @property
    def ours(self) -> float:
        """The median of ours."""
        return median(self.ours_rounds)

    @property
    def baseline(self) -> float:
        """The median of the baseline."""
        return median(self.baseline_rounds)

    @property
    def ratio(self) -> float:
        """The ratio of the medians."""
        return self.row.ratio.of(self.ours, self.baseline)

    @property
    def holds(self) -> bool:
        """Whether the row's target is met."""
        return self.row.holds(self.ratio)


class Written(msgspec.Struct, frozen=True):
    """A result as it stands in JSON."""

    name: str
    unit: str
    ours: float
    baseline_name: str
    baseline: float
    ratio: float
    target: float | None
    holds: bool
    rounds: int


def written(result: Result) -> Written:
    """The result as one object, four significant digits."""
    row = result.row
    return Written(
        row.name,
        row.unit,
        rounded(result.ours),
        row.baseline_name,
        rounded(result.baseline),
        rounded(result.ratio),
        row.target,
        result.holds,
        len(result.ours_rounds),
    )


def results_json(results: Iterable[Result]) -> bytes:
    """A list of objects, one a row, indented."""
    return msgspec.json.format(msgspec.json.encode([written(result) for result in results]), indent=2)


def rendered(results: Iterable[Result]) -> RenderableType:
    """A table; each value is a median with the spread of its rounds."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("row")
    for head in ("ours", "baseline", "ratio"):
        table.add_column(head, justify="right")
    for head in ("unit", "target", "holds", "rounds", "baseline is", "aim"):
        table.add_column(head)
    for result in results:
        row = result.row
        table.add_row(
            Text(row.name, style="bold"),
            with_spread(result.ours_rounds),
            with_spread(result.baseline_rounds),
            f"{result.ratio:.2f}",
            row.unit,
            row.wanted,
            Text("yes", style="green") if result.holds else Text("NO", style="bold red"),
            str(len(result.ours_rounds)),
            row.baseline_name,
            row.aim,
        )
    return Group(table, Text("values: median (least - greatest of the rounds); a target is a ratio of medians"))


def with_spread(values: tuple[float, ...]) -> str:
    """The median and the range of the rounds."""
    if len(values) == 1:
        return _number(values[0])
    return f"{_number(median(values))} ({_number(min(values))} - {_number(max(values))})"


def rounded(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.4g}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
