"""Latencies: from assigning a stream until its borrower answered, and from taking it back until it is free."""

from __future__ import annotations

import numpy as np

from statemachines_reports.protocol import Latency, Segment
from statemachines_reports.shared_subscriptions.names import ASSIGNMENT


def list_latencies(segment: Segment) -> list[Latency]:
    """Grants and revokes of a segment."""
    found = _between(segment, "grant", "granting", "granted")
    return found + _between(segment, "revoke", "revoking", "none")


def _between(segment: Segment, measure: str, entered: str, reached: str) -> list[Latency]:
    """Per assignment: from entering one state until it first reaches another."""
    columns, steps, lookup = segment.columns, segment.steps, segment.lookup
    machine = lookup.machines.get(ASSIGNMENT, -1)
    order = steps.order[steps.machine[steps.order] == machine]
    source, dest = steps.source[order], steps.dest[order]
    group = steps.run[order] * (len(columns.texts["instance"]) + 1) + steps.instance[order]
    t_ns = columns["t_ns"][steps.index[order]]
    begin = np.flatnonzero((dest == lookup.states[entered]) & (source != dest))
    end = np.flatnonzero((dest == lookup.states[reached]) & (source != dest))
    after = np.searchsorted(end, begin)
    paired = after < len(end)
    begin, end = begin[paired], end[after[paired]] if len(end) else end
    same = group[begin] == group[end] if len(begin) else np.zeros(0, bool)
    runs, lasted_ns = steps.run[order][begin[same]].tolist(), (t_ns[end] - t_ns[begin])[same].tolist()
    return [Latency(measure, run, value) for run, value in zip(runs, lasted_ns, strict=True)]
