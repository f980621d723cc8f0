"""Replay check: the shipped machines step again through the events of a trace, and everything must come out the same.

It takes a trace with `data` (`gapless simulate --data`), whose rows have the events and the records of machines.  A
step is wrong if the machine takes another row, comes to another state, steps other children, or does something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import repeat
from typing import Final

import numpy as np
import pyarrow as pa

from statemachines_reports.columns import STEPS, Columns, Segment
from statemachines_reports.neutral.event_readers import reader_of
from statemachines_reports.neutral.replayed_run import ReplayedRun, TraceStep
from statemachines_reports.neutral.simulated_run import DEATHS
from statemachines_reports.protocol import Check, CheckVerdict, verdict
from statemachines_reports.trace_roles import TraceRoles

LEVEL: Final = "replay"
ROWS: Final = ("record", *STEPS, "send", "ask", "tell")
COLUMNS: Final = ("machine", "instance", "kind", "event", "source", "dest")


def judge_replay(segment: Segment, roles: Iterable[TraceRoles]) -> CheckVerdict:
    """What is wrong with the steps of a segment, as far as its rows have data."""
    columns = segment.columns
    readers = {fsm.full_name: reader_of(fsm) for fsm in segment.lookup.family}
    children = frozenset(child.full_name for fsm in segment.lookup.family for child in fsm.children)
    words: dict[int, str] = {}
    checked = 0
    told = np.unique(columns["run"][columns.rows_of("record")]) if columns.data is not None else ()
    lies = tuple(event for one in roles for event in one.lies)
    for run in told:
        replayed = ReplayedRun(readers, children, roles, _find_faults(columns, int(run), lies))
        for one in _read_steps(columns, int(run)):
            replayed.take(one)
        replayed.end(_find_faults(columns, int(run), DEATHS))
        checked += replayed.checked
        for row, what in replayed.wrong:
            words.setdefault(row, what)
    return verdict(columns, checked, np.array(sorted(words), np.int64), words.__getitem__)


def _read_steps(columns: Columns, run: int) -> Iterable[TraceStep]:
    """The rows of a run that say something of steps."""
    rows = columns.rows_of(*ROWS)
    rows = rows[columns["run"][rows] == run]
    texts = [np.array([*columns.texts[name], ""], object)[columns[name][rows]].tolist() for name in (*COLUMNS, "peer")]
    data = columns.data.take(pa.array(rows)).fill_null("{}").to_pylist() if columns.data is not None else repeat("{}")
    return map(
        TraceStep,
        rows.tolist(),
        columns["t_ns"][rows].tolist(),
        *texts[:6],
        columns["row"][rows].tolist(),
        texts[6],
        data,
    )


def _find_faults(columns: Columns, run: int, events: tuple[str, ...]) -> dict[str, int]:
    """Node -> the row of the last of these faults that hit it."""
    rows = columns.rows_of("fault", event=events) if events else columns.rows_of("fault")[:0]
    return {columns.text("node", row): row for row in rows[columns["run"][rows] == run].tolist()}


def _keep_none(segment: Segment) -> np.ndarray:
    """A run whose rows have data is not cut: the record of a machine follows from all steps before."""
    return segment.columns.rows_of("record")[:0]


def replay_check(roles: Iterable[TraceRoles]) -> Check:
    """The check, for protocols with these roles."""
    claim = "the shipped machines take the same steps from the same events, and do the same"
    return Check("replay", claim, partial(judge_replay, roles=tuple(roles)), LEVEL, rows=_keep_none)
