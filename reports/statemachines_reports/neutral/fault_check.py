"""Fault check: a simulated run has a row for every fault that took effect, at the time and the node that its schedule
says, and as many rows as it wrote.  No row is later than its end.  Its parameters say all that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Final

import numpy as np

from statemachines_reports.columns import Columns, Segment
from statemachines_reports.neutral.simulated_run import DEATHS, is_simulated, runs_where
from statemachines_reports.protocol import Check, CheckVerdict, Parameters
from statemachines_reports.trace_roles import TraceRoles

RESTART: Final = "restart"
DOWN: Final = (*DEATHS, "power_loss", "torn_write", "unsubscribe")
"""Faults after which a node may restart: a store has no machines that end, and a consumer may end by itself."""


def judge_faults(segment: Segment, roles: Iterable[TraceRoles]) -> CheckVerdict:
    """Kinds of faults of which a run has more or fewer rows than it counts.  A fault that is planned may come to
    nothing, and leave no row."""
    columns = segment.columns
    planned = {event for one in roles for event in one.planned_faults}
    rows = columns.rows_of("fault")
    pairs = zip(columns["run"][rows].tolist(), (columns.text("event", row) for row in rows.tolist()), strict=True)
    there = Counter(pairs)
    wrong: list[tuple[int, str]] = []
    checked = 0
    unexplained = count_unexplained_restarts(columns, rows)
    last_rows = find_last_rows(columns)
    ends = dict(zip(columns["run"][last_rows].tolist(), columns["seq"][last_rows].tolist(), strict=True))
    times = dict(zip(columns["run"][last_rows].tolist(), columns["t_ns"][last_rows].tolist(), strict=True))
    for run in runs_where(segment, is_simulated):
        counts = segment.parameters(run)["faults"]
        for kind, count in sorted(counts.items()):
            found = there[run, kind]
            checked += count
            if found > count or (found < count and kind not in planned):
                wrong.append((run, f"{count} faults of kind {kind} took effect, and {found} rows say so"))
            elif (ended := there[run, f"end_{kind}"]) > count:
                wrong.append((run, f"{count} faults of kind {kind} took effect, and {ended} rows say that one ended"))
        parameters = segment.parameters(run)
        wrong += (
            (run, what) for what in find_unplanned(parameters, columns, rows[columns["run"][rows] == run], planned)
        )
        lasted_ns, end_ns = read_outcome(parameters, "lasted_ns"), times.get(run, 0)
        if lasted_ns is not None and end_ns > lasted_ns:
            wrong.append((run, f"the run ended at {lasted_ns} ns, and its last row is at {end_ns} ns"))
        written, last = read_outcome(parameters, "rows"), ends.get(run, -1)
        if written is not None and last + 1 != written:
            wrong.append((run, f"{written} rows were written, and the last that is there has number {last}"))
        if count := unexplained[run]:
            wrong.append((run, f"{count} restarts are of processes that no row says to have died"))
    runs = np.array([run for run, _ in wrong], np.int64)
    return CheckVerdict(checked, runs, np.full(len(runs), -1), lambda place: wrong[place][1])


def _drawn_kinds(parameters: Parameters) -> Iterable[str]:
    """The kinds of which the scenario draws faults."""
    settings = parameters.get("settings")
    found = settings.get("faults") if isinstance(settings, dict) else None
    return found if isinstance(found, dict) else ()


def count_unexplained_restarts(columns: Columns, rows: np.ndarray) -> Counter[int]:
    """Run -> how many of these rows are restarts of a node which has not died since the restart before."""
    dead: set[tuple[int, str]] = set()
    found: Counter[int] = Counter()
    for row in rows[columns.is_one_of("event", (RESTART, *DOWN), rows)].tolist():
        place = int(columns["run"][row]), columns.text("node", row)
        if columns.text("event", row) != RESTART:
            dead.add(place)
        elif place in dead:
            dead.remove(place)
        else:
            found[place[0]] += 1
    return found


def _keep_faults(segment: Segment) -> np.ndarray:
    columns = segment.columns
    return np.union1d(columns.rows_of("fault"), find_last_rows(columns))


def find_last_rows(columns: Columns) -> np.ndarray:
    """The last row of each run; rows of a run stand together."""
    run = columns["run"]
    return np.flatnonzero(np.append(run[1:] != run[:-1], True)) if columns.rows else np.arange(0)


def read_outcome(parameters: Parameters, name: str) -> int | None:
    """A number that the simulator gave, such as that of the rows; None where the run does not say."""
    hidden = parameters.get("outcome")
    found = parameters.get(name) if not isinstance(hidden, dict) else hidden.get(name, parameters.get(name))
    return found if isinstance(found, int) else None


def find_unplanned(
    parameters: Parameters, columns: Columns, rows: np.ndarray, planned: Collection[str]
) -> Iterator[str]:
    """Faults of a run that its schedule has not at this time and node; none where it gives no schedule.  A fault that
    is `planned` takes effect later than the schedule says."""
    schedule = parameters.get("schedule")
    if not isinstance(schedule, list):
        return
    faults = [one for one in schedule if isinstance(one, dict)]
    expected = [(one.get("kind"), one.get("target"), one.get("at_ns")) for one in faults]
    kinds = *parameters["faults"], *(one.get("kind", "") for one in faults), *_drawn_kinds(parameters)
    for row in rows[columns.is_one_of("event", kinds, rows)].tolist():
        kind, node, at_ns = columns.text("event", row), columns.text("node", row), int(columns["t_ns"][row])
        if kind not in planned and (kind, node, at_ns) not in expected:
            yield f"{kind} at {at_ns} ns{node and f' of {node}'} is not in the schedule of the run"


def faults_check(roles: Iterable[TraceRoles]) -> Check:
    """The check, for protocols with these roles."""
    judge = partial(judge_faults, roles=tuple(roles))
    return Check("faults", "every fault that took effect has its row", judge, rows=_keep_faults)
