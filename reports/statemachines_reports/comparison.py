"""Comparison: several analyses side by side: what their settings differ in, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines.whole_file import write_whole
from statemachines_reports.pipeline import Analysis, write_tables
from statemachines_reports.protocol import AmountRatio
from statemachines_reports.tables import ALL, amounts_of
from statemachines_reports.trace_set import TraceSet, read_parameters


class Comparison(msgspec.Struct, frozen=True):
    """`lines`: a record for each side; `differences`: setting -> its value on each side, where all sides say it
    and they are not the same; `common`: how many (scenario, seed) every side has, of `seeds` that any has."""

    lines: list[dict[str, Any]]
    differences: dict[str, list[str]]
    common: int
    seeds: int


def compare(sides: dict[str, Analysis]) -> Comparison:
    """Put them side by side, by their names; the sums and percentiles of a side are over all of its runs."""
    seeds = [{(run.scenario, run.seed) for run in side.trace.runs.values()} for side in sides.values()]
    settings = [settings_of(side.trace) for side in sides.values()]
    keys = sorted(set.intersection(*(set(some) for some in settings)))
    differing = {key: [some[key] for some in settings] for key in keys}
    return Comparison(
        [_line(name, side) for name, side in sides.items()],
        {key: values for key, values in differing.items() if len(set(values)) > 1},
        len(set.intersection(*seeds)),
        len(set.union(*seeds)),
    )


def side_names(directories: list[Path]) -> list[str]:
    """A short name for each: its last parts, as many as tell them apart.  Raises `ConfigurationError` for the same
    directory twice."""
    resolved = [path.resolve() for path in directories]
    for path in resolved:
        if resolved.count(path) > 1:
            raise ConfigurationError("trace", str(path), "is given twice: name the traces that are to be compared")
    for count in range(1, max(len(path.parts) for path in resolved) + 1):
        names = ["/".join(path.parts[-count:]).strip("/") for path in resolved]
        if len(set(names)) == len(names):
            break
    return names


def settings_of(trace: TraceSet) -> dict[str, str]:
    """What the runs of a trace were made with: key -> value, "several" where they differ, nothing where none says."""
    found: dict[str, str] = {}
    for run in trace.runs.values():
        for key, value in _flat(read_parameters(run).get("settings", {})):
            text = msgspec.json.encode(value).decode()
            if found.setdefault(key, text) != text:
                found[key] = "several"
    return found


def _flat(section: dict[str, Any], path: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in section.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}{name}.")
        elif name != "about":
            yield f"{path}{name}", value


def write_comparison(out: Path, comparison: Comparison) -> None:
    """`tables/comparison.parquet`, a line for each side, and `comparison.json`."""
    write_tables(out / "tables", {"comparison": comparison.lines})
    write_whole(out / "comparison.json", msgspec.json.format(msgspec.json.encode(comparison), indent=2))


def _line(name: str, analysis: Analysis) -> dict[str, Any]:
    """A side in numbers; None where nothing was measured."""
    scenarios, judges = analysis.tables["scenarios"], analysis.judges
    amounts = [shown for shown, _, amount in amounts_of(judges) if amount.scenarios]
    line: dict[str, Any] = {"side": name, "held": analysis.is_held}
    line |= {one: sum(counted[one] for counted in scenarios) for one in ("runs", "faults", *amounts)}
    line |= {ratio.name: _ratio(ratio, line) for report in judges.reports.values() for ratio in report.ratios}
    for check in analysis.checks:
        line |= {check.name: check.wrong + check.waived, f"{check.name}_verdict": check.verdict}
    spreads = {one["measure"]: one for one in analysis.tables["latencies"] if one["scenario"] == ALL}
    for measure in judges.names(lambda report: (one.name for one in report.measures)).values():
        for percentile in ("p50", "p90", "p99", "max"):
            found = spreads[measure][f"{percentile}_ns"] if measure in spreads else None
            line[f"{measure}_{percentile}_ns"] = found
    return line


def _ratio(ratio: AmountRatio, line: dict[str, Any]) -> float | None:
    return sum(line[name] for name in ratio.above) / line[ratio.below] if line[ratio.below] else None
