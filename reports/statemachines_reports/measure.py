"""Measure: how long things took, how often they happened, which rows and edges were used."""

from __future__ import annotations

import msgspec
import numpy as np

from statemachines_reports.columns import Columns
from statemachines_reports.judge import Steps
from statemachines_reports.lookup import Lookup

DEATHS = ("crash", "lost_disk", "kill")


class Latency(msgspec.Struct, frozen=True):
    """One measurement in nanoseconds: `grant` (assigned until the first progress), `revoke` (taken back until free),
    `failover` (death of a consumer until a stream of its flows again)."""

    measure: str
    run: int
    value_ns: int


class Used(msgspec.Struct, frozen=True):
    """How often a row of a machine was taken (`row` -1: none was), leading from `source` to `dest`."""

    machine: str
    row: int
    source: str
    dest: str
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


def latencies(columns: Columns, steps: Steps, lookup: Lookup) -> list[Latency]:
    """Grants, revokes and fail-overs of a file."""
    found = _between(columns, steps, lookup, "grant", "granting", "granted")
    found += _between(columns, steps, lookup, "revoke", "revoking", "none")
    return found + _failovers(columns)


def _between(columns: Columns, steps: Steps, lookup: Lookup, measure: str, entered: str, reached: str) -> list[Latency]:
    """Per assignment: from entering one state until it first reaches another."""
    machine = lookup.machines.get("assignment", -1)
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


def _failovers(columns: Columns) -> list[Latency]:
    """Per death and stream: the node had delivered it last, and somebody does again."""
    told = columns.rows_of("tell", event=("deliver",))
    run, key = columns["run"][told], columns["key"][told]
    order = np.lexsort((told, key, run))
    told, run, key = told[order], run[order], key[order]
    begins = np.flatnonzero((run[1:] != run[:-1]) | (key[1:] != key[:-1])) + 1
    begins = np.concatenate(([0], begins))[: len(told)]
    ends = np.concatenate((begins[1:], [len(told)]))
    found = []
    for death in columns.rows_of("fault", event=DEATHS).tolist():
        here = slice(*np.searchsorted(run[begins], [columns["run"][death], columns["run"][death] + 1]))
        for begin, end in zip(begins[here].tolist(), ends[here].tolist(), strict=True):
            place = begin + int(np.searchsorted(told[begin:end], death))
            if begin < place < end and columns["node"][told[place - 1]] == columns["node"][death]:
                value = int(columns["t_ns"][told[place]] - columns["t_ns"][death])
                found.append(Latency("failover", int(columns["run"][death]), value))
    return found


def counts(columns: Columns, steps: Steps, lookup: Lookup) -> list[Count]:
    """How many rows of each kind and event each run has; steps are counted by `used_rows`, but for those that send
    something again: kind `resend`."""
    kinds, events = [*columns.texts["kind"], "resend"], [*columns.texts["event"], ""]
    others = np.flatnonzero(~columns.is_one_of("kind", ("step", "timer", "ask")))
    resends = steps.index[lookup.resends[lookup.line_of(steps.machine, steps.row)]]
    index = np.concatenate((others, resends))
    kind = np.concatenate((columns["kind"][others], np.full(len(resends), len(kinds) - 1)))
    numbers, run = np.unique(columns["run"][index], return_inverse=True)
    code = (run * len(kinds) + kind) * len(events) + columns["event"][index]
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
