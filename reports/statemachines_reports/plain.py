"""Plain: the tables of `session`, made in this process: for traces that are judged sooner than Spark starts."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from statemachines_reports.runs import judge_path, lookup_of
from statemachines_reports.session import FINDINGS, Tables
from statemachines_reports.trace_set import TraceSet

Records = list[dict[str, Any]]


def plain_tables(trace: TraceSet, protocol: str) -> Tables:
    """Judge the trace, file after file; every table as a list of records, as `Session.tables` gives them."""
    lookup, exclusive = lookup_of(protocol), trace.exclusive
    found: dict[str, Records] = defaultdict(list)
    for path in trace.files:
        for what, result in judge_path(path, lookup, exclusive):
            found[what].append(msgspec.to_builtins(result, enc_hook=int))
    return {
        "runs": sorted(found["runs"], key=lambda line: line["run"]),
        "verdicts": _sums(found["verdict"], ("check",), ("checked", "wrong")),
        "findings": _first_of_each(sorted(found["finding"], key=_place)),
        "accounts": sorted(found["stream"], key=lambda line: (line["run"], line["key"])),
        "latencies": [_spread(measure, values) for measure, values in _latencies(found["latency"])],
        "histograms": [line for measure, values in _latencies(found["latency"]) for line in _bins(measure, values)],
        "coverage": _sums(found["used"], ("machine", "row", "source", "dest"), ("count",)),
        "totals": _sums(found["count"], ("kind", "event"), ("count",)),
        "faults": _faults(found["count"], found["stream"]),
    }


def _first_of_each(findings: Records) -> Records:
    """At most so many of each check."""
    seen: Counter[str] = Counter()
    kept = []
    for finding in findings:
        seen[finding["check"]] += 1
        if seen[finding["check"]] <= FINDINGS:
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


def _latencies(lines: Records) -> Iterable[tuple[str, np.ndarray]]:
    for measure in sorted({line["measure"] for line in lines}):
        yield measure, np.array([line["value_ns"] for line in lines if line["measure"] == measure])


def _spread(measure: str, values: np.ndarray) -> dict[str, Any]:
    p50, p90, p99 = (float(value) for value in np.percentile(values, (50, 90, 99)))
    return {
        "measure": measure, "measured": len(values), "p50_ns": p50, "p90_ns": p90, "p99_ns": p99,
        "max_ns": int(values.max()),
    }  # fmt: skip


def _bins(measure: str, values: np.ndarray) -> Records:
    bins = Counter(math.floor(math.log10(max(value, 1000)) * 8) for value in values.tolist())
    return [{"measure": measure, "bin": number, "measured": count} for number, count in sorted(bins.items())]


def _faults(counts: Records, streams: Records) -> Records:
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
            "injected": line["count"],
            "duplicates": again[line["run"]],
            "dropped": of_kind["drop"][line["run"]],
            "resent": of_kind["resend"][line["run"]],
        }
        for line in counts
        if line["kind"] == "fault"
    ]
    return _sums(lines, ("fault",), ("runs", "injected", "duplicates", "dropped", "resent"))
