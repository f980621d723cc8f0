"""Measure: how long things took, how often they happened, which rows and pairs of rows were used."""

from __future__ import annotations

import msgspec
import numpy as np

from statemachines_reports.columns import Columns
from statemachines_reports.judge import Steps
from statemachines_reports.lookup import Lookup
from statemachines_reports.names import ASSIGNMENT


class Latency(msgspec.Struct, frozen=True):
    """One measurement in nanoseconds: `grant` (assigned until the first progress), `revoke` (taken back until free),
    `failover` (a consumer is gone until another was granted a stream of its, `cause`: the kind of fault)."""

    measure: str
    run: int
    value_ns: int
    cause: str = ""


class Used(msgspec.Struct, frozen=True):
    """How often a row of a machine was taken (`row` -1: none was), leading from `source` to `dest`."""

    machine: str
    row: int
    source: str
    dest: str
    count: int


class Pair(msgspec.Struct, frozen=True):
    """How often an instance of a machine took row `second` next after row `first`."""

    machine: str
    first: int
    second: int
    count: int


class Count(msgspec.Struct, frozen=True):
    """Rows of a kind and event in a run: packets sent, faults, messages delivered."""

    run: int
    kind: str
    event: str
    count: int


def used_rows(steps: Steps, lookup: Lookup) -> list[Used]:
    """Every (machine, row, source, dest) that occurs."""
    states = len(lookup.states) + 1
    code = ((steps.machine * 1_024 + steps.row + 1) * states + steps.source) * states + steps.dest
    codes, counts = np.unique(code, return_counts=True)
    machines, names = [*lookup.machines, "?"], [*lookup.states, "?"]
    return [
        Used(
            machines[value // states // states // 1_024],
            value // states // states % 1_024 - 1,
            names[value // states % states],
            names[value % states],
            int(count),
        )
        for value, count in zip(codes.tolist(), counts, strict=True)
    ]


def used_pairs(steps: Steps, lookup: Lookup) -> list[Pair]:
    """Every pair of consecutive rows of an instance that occurs; steps that took no row change nothing and are
    skipped."""
    order = steps.order[steps.row[steps.order] >= 0]
    if len(order) < 2:
        return []
    same = (steps.instance[order][1:] == steps.instance[order][:-1]) & (steps.run[order][1:] == steps.run[order][:-1])
    machine, row = steps.machine[order].astype(np.int64), np.minimum(steps.row[order], lookup.width - 1)
    code = (machine[:-1] * lookup.width + row[:-1]) * lookup.width + row[1:]
    found = np.bincount(code[same])
    machines = [*lookup.machines, "?"]
    return [
        Pair(
            machines[place // lookup.width // lookup.width],
            place // lookup.width % lookup.width,
            place % lookup.width,
            int(found[place]),
        )
        for place in np.flatnonzero(found).tolist()
    ]


def latencies(columns: Columns, steps: Steps, lookup: Lookup) -> list[Latency]:
    """Grants and revokes of a file."""
    found = _between(columns, steps, lookup, "grant", "granting", "granted")
    return found + _between(columns, steps, lookup, "revoke", "revoking", "none")


def _between(columns: Columns, steps: Steps, lookup: Lookup, measure: str, entered: str, reached: str) -> list[Latency]:
    """Per assignment: from entering one state until it first reaches another."""
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
    return [
        Latency(measure, int(run), int(value))
        for run, value in zip(steps.run[order][begin[same]], (t_ns[end] - t_ns[begin])[same], strict=True)
    ]


def counts(columns: Columns, steps: Steps, lookup: Lookup) -> list[Count]:
    """How many rows of each kind and event each run has; of the steps only those that send something again (kind
    `resend`, event: the state in which nobody had answered), and those that assign a stream (kind `assign`)."""
    kinds = [*columns.texts["kind"], "resend", "assign"]
    events = [*columns.texts["event"], "", *lookup.states, ""]
    others = np.flatnonzero(~columns.is_one_of("kind", ("step", "timer", "ask")))
    again = np.flatnonzero(lookup.resends[lookup.line_of(steps.machine, steps.row)])
    given = np.flatnonzero(
        (steps.machine == lookup.machines.get(ASSIGNMENT, -1))
        & (steps.dest == lookup.states.get("granting", -1))
        & (steps.source != steps.dest)
    )
    index = np.concatenate((others, steps.index[again], steps.index[given]))
    kind = np.concatenate(
        (columns["kind"][others], np.repeat([len(kinds) - 2, len(kinds) - 1], [len(again), len(given)]))
    )
    states = len(columns.texts["event"]) + 1
    event = np.concatenate(
        (columns["event"][others], states + steps.source[again], np.full(len(given), len(events) - 1))
    )
    numbers, run = np.unique(columns["run"][index], return_inverse=True)
    code = (run * len(kinds) + kind) * len(events) + event
    found = np.bincount(code)
    return [
        Count(
            int(numbers[place // len(events) // len(kinds)]),
            kinds[place // len(events) % len(kinds)],
            events[place % len(events)],
            int(found[place]),
        )
        for place in np.flatnonzero(found).tolist()
    ]
