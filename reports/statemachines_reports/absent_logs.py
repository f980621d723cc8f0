"""Absent logs: nodes that sent what came to somebody, and of which no row or not all rows are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from statemachines.kernel import node_of
from statemachines_reports.columns import Columns, Segment

HOLED: Final = ("part of ", "the end of ")
"""What is said of a log that is there, and not all of it."""


def find_lacking_logs(segment: Segment, unlogged: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """(run, log) of logs that are missing, or a part of which is, as the merged logs of a real run say."""
    for run, _ in segment.columns.runs():
        for log, event in segment.parameters(run).get("lacking", ()):
            if event not in unlogged:
                yield run, log


def find_holed_nodes(segment: Segment) -> set[tuple[int, str]]:
    """(run, node) of nodes whose logs may lack rows anywhere: a part is missing, or nothing says where it ends."""
    return {
        (run, node_of(log.removeprefix(said)))
        for run, log in find_lacking_logs(segment, ())
        for said in HOLED
        if log.startswith(said)
    }


def find_silent_nodes(columns: Columns, unlogged: tuple[str, ...] = ()) -> Iterator[tuple[int, str]]:
    """(run, node) of nodes whose messages came to somebody, and who have no row of their own: one that says what was
    done to a node is not its own.  Messages that are `unlogged` come from those who keep no log.  A peer that is no
    life of a node is none of ours: a source of zenoh, say."""
    rows = columns.rows_of("deliver")
    rows = rows[~columns.is_one_of("event", unlogged, rows)]
    number = {name: place for place, name in enumerate(columns.texts["node"])}
    nodes = [node_of(text) if "~" in text else "" for text in columns.texts["peer"]] + [""]
    rows = rows[np.array([bool(name) for name in nodes])[columns["peer"][rows]]]
    ends, faults = np.cumsum([count for _, count in columns.runs()]), columns.rows_of("fault")
    begins = [0, *ends[:-1].tolist()]
    limit = len(number) + 1
    own = [np.bincount(columns["node"][slice(*one)], minlength=limit) for one in zip(begins, ends, strict=True)]
    of_faults = np.searchsorted(ends, faults, "right") * limit + columns["node"][faults]
    counts = np.concatenate(own) - np.bincount(of_faults, minlength=len(ends) * limit)
    is_known = counts.reshape(len(ends), limit) > 0
    is_known[:, -1] = False
    sender = np.array([number.get(name, -1) for name in nodes])[columns["peer"][rows]]
    unknown = rows[~is_known[np.searchsorted(ends, rows, "right"), sender]]
    pairs = zip(columns["run"][unknown].tolist(), columns["peer"][unknown].tolist(), strict=True)
    yield from sorted({(run, nodes[code]) for run, code in pairs})


def find_speakers(columns: Columns, unlogged: tuple[str, ...]) -> np.ndarray:
    """Of a run the first row of each node, the first delivery of each peer, the first row and the last: they decide
    what `find_silent_nodes` finds in the whole run."""
    own = np.setdiff1d(np.arange(columns.rows), columns.rows_of("fault"))
    came = columns.rows_of("deliver")
    came = came[~columns.is_one_of("event", unlogged, came)]
    firsts = [
        rows[np.unique(columns[name][rows], return_index=True)[1]] for name, rows in (("node", own), ("peer", came))
    ]
    return np.concatenate((*firsts, [0, columns.rows - 1]))
