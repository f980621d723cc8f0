"""Simulated runs: those whose network and clock the trace tells the whole of.

Clock check: every row has a time, and no clock goes back in a node.  A simulated run has one time, and its rows are
numbered from 0 on.

Fault check: a simulated run has a row for every fault that took effect, at the time and the node that its schedule
says, and as many rows as it wrote.  No row is later than its end.  Its parameters say all that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Final

import numpy as np

from statemachines_reports.columns import Columns, Segment
from statemachines_reports.neutral.row_groups import group_by_text, keep_group_ends
from statemachines_reports.protocol import (
    Check,
    CheckVerdict,
    Joint,
    KeptRows,
    Parameters,
    TraceRoles,
    find_setting,
    verdict,
)

MS = 1_000_000
DEATHS: Final = ("crash", "kill", "lost_disk", "cut", "leader_crash", "poisoned", "store_crash")
"""Faults that end a process."""

HELD_BACK_NS = 14_000 * MS
"""So long the network may hold a message back under a fault, at most."""


MARGIN_NS = 1_000 * MS
"""What other faults may delay a message by, and a little more."""


def is_simulated(parameters: Parameters) -> bool:
    """The run says how many faults of each kind took effect, as the simulator does."""
    return isinstance(parameters.get("faults"), dict)


def runs_where(segment: Segment, holds: Callable[[Parameters], bool]) -> list[int]:
    """The runs of a segment whose parameters are so."""
    return [run for run, _ in segment.columns.runs() if holds(segment.parameters(run))]


def longest_delay_ns(parameters: Parameters) -> int:
    """So long a message may be on its way, by the settings of the run and the faults that it had."""
    network = find_setting(parameters, "settings", "network")
    try:
        own_ms = max(network["delay_ms"]) + network["tail_ms"]
    except (KeyError, TypeError, ValueError):
        return HELD_BACK_NS
    slows = {"hold_back", "slow_link"} & set(parameters["faults"])
    return int(own_ms * MS) + (HELD_BACK_NS if slows else MARGIN_NS)


def judge_clocks(segment: Segment) -> CheckVerdict:
    """Rows whose time is before that of the row before, or before 0; and rows before which some are missing."""
    columns = segment.columns
    run = columns["run"]
    back = np.flatnonzero((columns["t_ns"][1:] < columns["t_ns"][:-1]) & (run[1:] == run[:-1])) + 1
    nodes = group_by_text(columns, np.arange(columns.rows if len(back) else 0), "node")
    t_ns = columns["t_ns"][nodes.rows]
    wrong = nodes.rows[1:][nodes.same[1:] & (t_ns[1:] < t_ns[:-1])]
    simulated = runs_where(segment, is_simulated)
    wrong = np.union1d(wrong, back[np.isin(run[back], simulated)])
    timeless = np.flatnonzero(columns["t_ns"] < 0)
    behind = _find_behind_hole(columns)
    behind = behind[np.isin(run[behind], simulated)]
    holes = set(behind.tolist())

    def describe(row: int) -> str:
        if row in holes:
            return f"row {columns['seq'][row]} does not follow the row before: rows of the run are missing"
        if columns["t_ns"][row] < 0:
            return f"{columns.text('node', row)}: the row has no time, or one before 0"
        return f"{columns.text('node', row)}: the time goes back to {columns['t_ns'][row]} ns"

    return verdict(columns, columns.rows, np.unique(np.concatenate((wrong, timeless, behind))), describe)


def _find_behind_hole(columns: Columns) -> np.ndarray:
    """Rows whose number is not that of the row before and one; the first row of a run has 0."""
    seq, run = columns["seq"], columns["run"]
    expected = np.zeros(len(seq), np.int64)
    expected[1:] = np.where(run[1:] == run[:-1], seq[:-1] + 1, 0)
    return np.flatnonzero(seq != expected)


def keep_ends(segment: Segment) -> KeptRows:
    """The first row of each node is open, and stands behind the row before it; the last ones are context."""
    columns = segment.columns
    kept = keep_group_ends(columns, np.arange(columns.rows), "node")
    return KeptRows(kept.open, np.concatenate((kept.context, np.maximum(kept.open - 1, 0))))


CLOCKS: Final = Check(
    "clocks",
    "no clock goes back, and no number of a row is missing",
    judge_clocks,
    joints=(Joint(judge_clocks, keep_ends),),
)


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
    found = find_setting(parameters, "settings", "faults")
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
