"""Plain: the tables of `session`, made in this process: for traces that are judged sooner than Spark starts."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Any

import msgspec
import numpy as np

from statemachines_reports.queries import ALL, ENDINGS, FINDINGS
from statemachines_reports.runs import judge_path, lookup_of
from statemachines_reports.session import Tables
from statemachines_reports.trace_set import Setting, TraceSet

Records = list[dict[str, Any]]


def plain_tables(trace: TraceSet, protocol: str) -> Tables:
    """Judge the trace, file after file; every table as a list of records, as `Session.tables` gives them."""
    lookup, exclusive = lookup_of(protocol), trace.exclusive
    found: dict[str, Records] = defaultdict(list)
    for path in trace.files:
        for what, result in judge_path(path, lookup, exclusive):
            found[what].append(msgspec.to_builtins(result, enc_hook=int))
    settings = {setting.run: setting for setting in trace.settings}
    for what in ("latency", "recovery"):
        found[what] = [line for line in found[what] if line["run"] in settings]
    found["count"] = _sums(found["count"], ("run", "kind", "event"), ("count",))
    fail_overs = [line for line in found["latency"] if line["measure"] == "failover"]
    return {
        "runs": sorted(found["runs"], key=lambda line: line["run"]),
        "verdicts": _sums(found["verdict"], ("check",), ("checked", "wrong", "waived")),
        "findings": _first_of_each(sorted(found["finding"], key=_place)),
        "accounts": sorted(found["stream"], key=lambda line: (line["run"], line["key"])),
        "scenarios": _scenarios(found["count"], found["stream"], settings),
        "latencies": _latencies(found["latency"], settings),
        "histograms": [line for measure, values in _measured(found["latency"]) for line in _bins(measure, values)],
        "fail_overs": [
            {"fault": cause, "measured": len(lines), **_spread(lines, settings)}
            for (cause,), lines in _grouped(fail_overs, "cause")
        ],
        "recoveries": [
            {
                "fault": fault,
                "faults": len(lines),
                "disturbed": sum(line["disturbed"] for line in lines),
                "recovered": sum(line["value_ns"] is not None for line in lines),
                **_spread(lines, settings),
            }
            for (fault,), lines in _grouped(found["recovery"], "fault")
        ],
        "coverage": _sums(found["used"], ("machine", "row", "source", "dest"), ("count",)),
        "pairs": _sums(found["pair"], ("machine", "first", "second"), ("count",)),
        "totals": _sums(found["count"], ("kind", "event"), ("count",)),
        "faults": _faults(found["count"], found["stream"], _broken(found["finding"], settings)),
    }


def _first_of_each(findings: Records) -> Records:
    """At most so many of each check."""
    seen: Counter[tuple[str, bool]] = Counter()
    kept = []
    for finding in findings:
        kind = finding["check"], finding["promised"]
        seen[kind] += 1
        if seen[kind] <= FINDINGS:
            kept.append(finding)
    return kept


def _place(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["check"], line["run"], line["seq"], line["detail"]


def _sums(lines: Records, names: tuple[str, ...], values: tuple[str, ...]) -> Records:
    """Grouped by the names, sorted by them."""
    sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * len(values))
    for line in lines:
        total = sums[tuple(line[name] for name in names)]
        for number, value in enumerate(values):
            total[number] += line[value]
    return [
        {**dict(zip(names, key, strict=True)), **dict(zip(values, total, strict=True))}
        for key, total in sorted(sums.items())
    ]


def _grouped(lines: Records, *names: str) -> list[tuple[tuple[Any, ...], Records]]:
    groups: dict[tuple[Any, ...], Records] = defaultdict(list)
    for line in lines:
        groups[tuple(line[name] for name in names)].append(line)
    return sorted(groups.items())


def _measured(lines: Records) -> list[tuple[str, list[int]]]:
    return [(measure, [line["value_ns"] for line in some]) for (measure,), some in _grouped(lines, "measure")]


def _latencies(lines: Records, settings: dict[int, Setting]) -> Records:
    """Each measurement counts for its scenario, and for all together."""
    doubled = [{**line, "scenario": settings[line["run"]].scenario} for line in lines]
    doubled += [{**line, "scenario": ALL} for line in doubled]
    return [
        {"scenario": scenario, "measure": measure, "measured": len(some), **_spread(some, settings)}
        for (scenario, measure), some in _grouped(doubled, "scenario", "measure")
    ]


def _spread(lines: Records, settings: dict[int, Setting]) -> dict[str, Any]:
    """Percentiles in nanoseconds, and in the units of each run's configuration; None where nothing is known."""
    known = [(line["value_ns"], settings[line["run"]].unit_ns) for line in lines if line["value_ns"] is not None]
    values = np.array([value for value, _ in known], np.int64)
    units = np.array([value / unit for value, unit in known if unit is not None])
    shown: dict[str, Any] = {}
    for some, suffix in ((values, "ns"), (units, "units")):
        for name, percent in (("p50", 50), ("p90", 90), ("p99", 99)):
            shown[f"{name}_{suffix}"] = float(np.percentile(some, percent)) if len(some) else None
        shown[f"max_{suffix}"] = some.max().item() if len(some) else None
    return shown


def _bins(measure: str, values: list[int]) -> Records:
    bins = Counter(math.floor(math.log10(max(value, 1000)) * 8) for value in values)
    return [{"measure": measure, "bin": number, "measured": count} for number, count in sorted(bins.items())]


def _scenarios(counts: Records, streams: Records, settings: dict[int, Setting]) -> Records:
    """Per scenario: what was published, delivered and sent again, and how that stands to each other."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for setting in settings.values():
        sums[setting.scenario].update({"runs": 1, "held": int(setting.held)})
    for line in streams:
        if line["run"] in settings:
            amounts = {name: line[name] for name in ("published", "delivered", "duplicates", "acknowledged")}
            sums[settings[line["run"]].scenario].update(amounts)
    for line in counts:
        name = _counted_as(line["kind"], line["event"])
        if name and line["run"] in settings:
            sums[settings[line["run"]].scenario][name] += line["count"]
    return [_with_ratios(scenario, amounts) for scenario, amounts in sorted(sums.items())]


def _counted_as(kind: str, event: str) -> str:
    """The column of `scenarios` that counts such a row; "": none."""
    if kind == "fault":
        return "" if _is_ending(event) else "faults"
    again = {"granting": "grant_again", "revoking": "revoke_again", "revoked": "revoked_again"}
    if kind == "resend":
        return again.get(event, "")
    return {"send": "sent", "drop": "dropped", "assign": "grants"}.get(kind, "")


def _is_ending(event: str) -> bool:
    return event.startswith("end_") or event in ENDINGS


SUMMED = (
    "runs", "held", "published", "delivered", "duplicates", "acknowledged", "faults", "sent", "dropped", "grants",
    "grant_again", "revoke_again", "revoked_again",
)  # fmt: skip


def _with_ratios(scenario: str, amounts: Counter[str]) -> dict[str, Any]:
    def ratio(above: int, below: str) -> float | None:
        return above / amounts[below] if amounts[below] else None

    again = amounts["grant_again"] + amounts["revoke_again"] + amounts["revoked_again"]
    return {
        "scenario": scenario,
        **{name: amounts[name] for name in SUMMED},
        "again_per_grant": ratio(again, "grants"),
        "duplicates_per_delivered": ratio(amounts["duplicates"], "delivered"),
        "delivered_per_acknowledged": ratio(amounts["delivered"], "acknowledged"),
    }


def _broken(findings: Records, settings: dict[int, Setting]) -> set[int]:
    """The runs in which something does not hold."""
    broken = {number for number, setting in settings.items() if not setting.held}
    return broken | {line["run"] for line in findings if line["promised"]}


def _faults(counts: Records, streams: Records, broken: set[int]) -> Records:
    """Per kind of fault: the runs that had it, and what else happened in them."""
    again: Counter[int] = Counter()
    for stream in streams:
        again[stream["run"]] += stream["duplicates"]
    of_kind: dict[str, Counter[int]] = {"drop": Counter(), "resend": Counter()}
    for line in counts:
        if line["kind"] in of_kind:
            of_kind[line["kind"]][line["run"]] += line["count"]
    lines = [
        {
            "fault": line["event"],
            "runs": 1,
            "held": int(line["run"] not in broken),
            "injected": line["count"],
            "duplicates": again[line["run"]],
            "dropped": of_kind["drop"][line["run"]],
            "resent": of_kind["resend"][line["run"]],
        }
        for line in counts
        if line["kind"] == "fault" and not _is_ending(line["event"])
    ]
    return _sums(lines, ("fault",), ("runs", "held", "injected", "duplicates", "dropped", "resent"))
