"""Comparison: several analyses side by side: what their settings differ in, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines_reports.pipeline import Analysis, write_tables
from statemachines_reports.queries import ALL
from statemachines_reports.trace_set import TraceSet, parameters

COUNTED: Final = ("runs", "published", "delivered", "duplicates", "acknowledged", "grants", "faults")


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
        for key, value in _flat(parameters(run).get("settings", {})):
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
    (out / "comparison.json").write_bytes(msgspec.json.format(msgspec.json.encode(comparison), indent=2))


def _line(name: str, analysis: Analysis) -> dict[str, Any]:
    """A side in numbers; None where nothing was measured."""
    scenarios = analysis.tables["scenarios"]
    sums = {name: sum(line[name] for line in scenarios) for name in COUNTED}
    checks = {check.name: check for check in analysis.checks}
    overlaps = checks["exclusivity"].wrong + checks["exclusivity"].waived
    line: dict[str, Any] = {
        "side": name,
        **sums,
        "held": analysis.held,
        "duplicates_per_1000": 1000 * sums["duplicates"] / sums["delivered"] if sums["delivered"] else None,
        "exclusivity": overlaps,
        "exclusivity_verdict": checks["exclusivity"].verdict,
    }
    spreads = {one["measure"]: one for one in analysis.tables["latencies"] if one["scenario"] == ALL}
    for measure in ("failover", "grant", "revoke"):
        for name in ("p50", "p90", "p99", "max"):
            line[f"{measure}_{name}_ns"] = spreads[measure][f"{name}_ns"] if measure in spreads else None
    return line
