"""Result: what measuring a row gave, and how it is written down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isnan, nan
from statistics import median

import msgspec
from msgspec import UNSET, UnsetType
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from statemachines_bench.row import BenchRow


class RowResult(msgspec.Struct, frozen=True):
    """The values of every round, ours and the baseline's, in the unit of the row.

    `error`: why there are none ("": there are); then the values are NaN.
    """

    row: BenchRow
    ours_rounds: tuple[float, ...]
    baseline_rounds: tuple[float, ...]
    error: str = ""
    seconds: float = 0.0
    """What the row took, on the clock: all that it prepares included."""

    @property
    def ours(self) -> float:
        """The median of ours."""
        return nan if self.error else median(self.ours_rounds)

    @property
    def baseline(self) -> float:
        """The median of the baseline."""
        return nan if self.error else median(self.baseline_rounds)

    @property
    def ratio(self) -> float:
        """The ratio of the medians."""
        return self.row.ratio.of(self.ours, self.baseline)

    @property
    def holds(self) -> bool:
        """Whether it was measured, and the row's target is met."""
        return not self.error and self.row.holds(self.ratio)


class ResultJson(msgspec.Struct, frozen=True, omit_defaults=True):
    """A result as it stands in JSON; of a row that failed the values are null, and `error` says why."""

    name: str
    unit: str
    ours: float | None
    baseline_name: str
    baseline: float | None
    ratio: float | None
    target: float | None
    holds: bool
    rounds: int
    seconds: float
    """What the row took, on the clock."""
    error: str | UnsetType = UNSET
    commit: str | UnsetType = UNSET
    """What was measured, in a file of results; with it stand the values of all rounds."""
    ours_rounds: tuple[float, ...] = ()
    baseline_rounds: tuple[float, ...] = ()


def make_written(result: RowResult, commit: str = "") -> ResultJson:
    """The result as one object, four significant digits; with all rounds where a `commit` is given."""
    row = result.row
    return ResultJson(
        row.name,
        row.unit,
        round_value(result.ours),
        row.baseline_name,
        round_value(result.baseline),
        round_value(result.ratio),
        row.target,
        result.holds,
        len(result.ours_rounds),
        round(result.seconds, 1),
        result.error or UNSET,
        commit or UNSET,
        result.ours_rounds if commit else (),
        result.baseline_rounds if commit else (),
    )


def results_json(results: Iterable[RowResult]) -> bytes:
    """A list of objects, one a row, indented."""
    return msgspec.json.format(msgspec.json.encode([make_written(result) for result in results]), indent=2)


def render_results(results: Sequence[RowResult]) -> RenderableType:
    """A table; each value is a median with the spread of its rounds; below it why a row failed."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("row")
    for head in ("ours", "baseline", "ratio"):
        table.add_column(head, justify="right")
    for head in ("unit", "target", "holds", "rounds", "seconds", "baseline is", "aim"):
        table.add_column(head)
    for result in results:
        row = result.row
        table.add_row(
            Text(row.name, style="bold"),
            with_spread(result.ours_rounds),
            with_spread(result.baseline_rounds),
            "-" if result.error else f"{result.ratio:.2f}",
            row.unit,
            row.target_text,
            _verdict(result),
            str(len(result.ours_rounds)),
            f"{result.seconds:.0f}",
            row.baseline_name,
            row.aim,
        )
    failures = [Text(f"{one.row.name} failed: {one.error}", style="bold red") for one in results if one.error]
    minutes = sum(result.seconds for result in results) / 60
    notes = Text(
        "values: median (least - greatest of the rounds); a target is a ratio of medians; "
        f"all rows took {minutes:.0f} minutes"
    )
    return Group(table, notes, *failures)


def summarize_result(result: RowResult) -> str:
    """The row in one line, as it is printed when it ends."""
    if result.error:
        return f"{result.row.name}: FAILED: {result.error}"
    verdict = "holds" if result.holds else "MISSED"
    return f"{result.row.name}: {result.ratio:.2f} ({result.row.target_text}: {verdict})"


def _verdict(result: RowResult) -> Text:
    if result.error:
        return Text("FAILED", style="bold red")
    return Text("yes", style="green") if result.holds else Text("NO", style="bold red")


def with_spread(values: tuple[float, ...]) -> str:
    """The median and the range of the rounds."""
    if not values:
        return "-"
    if len(values) == 1:
        return _number(values[0])
    return f"{_number(median(values))} ({_number(min(values))} - {_number(max(values))})"


def round_value(value: float) -> float | None:
    """Four significant digits; None for what was not measured."""
    return None if isnan(value) else float(f"{value:.4g}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
