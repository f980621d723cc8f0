"""Cell damage: clocks that go wrong, numbers and words that are others, and rows from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

import numpy as np

from statemachines import catalogue, registry
from statemachines.kernel import name_of
from statemachines_reports.damage.damage_kind import DamagedRun, DamageKind, Edit
from statemachines_reports.judge import NO_FAULTS
from statemachines_reports.neutral.run_checks import DEATHS

S: Final = 1_000_000_000
"""Nanoseconds in a second."""

LAST: Final = 50
"""At most so many rows are the last ones of a run."""

LATE: Final = 3
"""A death comes behind so many steps of the next life."""

MIXED: Final = 20
"""So many rows of another run are mixed in."""


def find_later(run: DamagedRun) -> np.ndarray:
    """Rows before which their node has another."""
    order = np.argsort(run.columns["node"], kind="stable")
    node = run.columns["node"][order]
    later = np.flatnonzero(node[1:] == node[:-1]) + 1
    return np.sort(order[later])


def set_back(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """The time of this row is before that of the row before it of its node."""
    rows = run.rows_of_node(row)
    before = int(rows[np.searchsorted(rows, row) - 1])
    return run.change(row, t_ns=run.cell("t_ns", before) - chance.randint(1, S))


def shift_clock(by_ns: int) -> Callable[[DamagedRun, int, Random], Edit | None]:
    """From this row on the clock of its node differs by so much."""

    def act(run: DamagedRun, row: int, chance: Random) -> Edit | None:
        rows = run.rows_of_node(row)
        cells = tuple((one, "t_ns", run.cell("t_ns", one) + by_ns) for one in rows[rows >= row].tolist())
        return Edit(np.arange(run.rows), cells)

    return act


def end_late(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """All rows of the run from this one on are later by the same time."""
    by_ns = chance.randint(S, 3_600 * S)
    return Edit(
        np.arange(run.rows), tuple((one, "t_ns", run.cell("t_ns", one) + by_ns) for one in range(row, run.rows))
    )


def find_with(column: str) -> Callable[[DamagedRun], np.ndarray]:
    """Rows of sends, deliveries, tells and requests that have a number in the column which some protocol has as its
    epoch or grant."""

    def find(run: DamagedRun) -> np.ndarray:
        if all(getattr(roles, column) == "" for roles in run.roles):
            return np.zeros(0, np.int64)
        rows = run.columns.rows_of("send", "deliver", "tell", "ask")
        name = next(getattr(roles, column) for roles in run.roles if getattr(roles, column))
        return np.asarray(rows[run.columns[name][rows] >= 0])

    return find


def change_number_in(column: str) -> Callable[[DamagedRun, int, Random], Edit | None]:
    """The epoch or grant is another."""

    def act(run: DamagedRun, row: int, chance: Random) -> Edit | None:
        name = next(getattr(roles, column) for roles in run.roles if getattr(roles, column))
        value = run.cell(name, row)
        return run.change(row, **{name: max(value + chance.choice((-1, 1, 2)), 0) if value else 1})

    return act


def find_faults(run: DamagedRun) -> np.ndarray:
    """Rows of faults, but not of what is none."""
    rows = run.columns.rows_of("fault")
    return np.asarray(rows[~run.columns.is_one_of("event", NO_FAULTS, rows)])


def find_hits(run: DamagedRun) -> np.ndarray:
    """Rows of faults that the run counts, and that hit a node."""
    rows = find_faults(run)
    rows = rows[run.columns.is_one_of("event", run.counted, rows)]
    return np.array([row for row in rows.tolist() if run.cell("node", row)], np.int64)


def find_deaths(run: DamagedRun) -> np.ndarray:
    """Rows of faults that end a process."""
    return run.columns.rows_of("fault", event=DEATHS)


def die_late(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """The next life of the node takes some steps before this death."""
    rows = run.rows_of_node(row)
    later = rows[(rows > row) & np.isin(rows, run.steps)]
    if len(later) <= LATE:
        return None
    place = int(later[LATE - 1])
    take = np.insert(np.delete(np.arange(run.rows), row), place, row)
    return Edit(take, ((place, "t_ns", run.cell("t_ns", place)),))


def change_node(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """It is at another node."""
    found = run.pick_other(run.values("node", run.steps), run.cell("node", row), chance)
    return None if found is None else run.change(row, node=found)


def step_after_death(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """The last step of the node before its death is there again behind it."""
    rows = run.rows_of_node(row)
    before = rows[(rows < row) & np.isin(rows, run.steps)]
    return run.repeat(int(before[-1]), row) if len(before) else None


def mix_in_run(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Some rows of another run stand here, at the times of here."""
    if run.others is None:
        return None
    begin = chance.randrange(max(run.others.num_rows - MIXED, 1))
    mixed = run.others.slice(begin, MIXED)
    names = [name for name in mixed.column_names if name not in ("run", "seq", "t_ns", "data")]
    lines: list[dict[str, Any]] = mixed.select(names).to_pylist()
    take = np.insert(np.arange(run.rows), row, np.full(len(lines), row))
    time_ns = run.cell("t_ns", row)
    cells = [(row + at, name, line[name]) for at, line in enumerate(lines) for name in names]
    return Edit(take, (*cells, *((row + at, "t_ns", time_ns) for at in range(len(lines)))))


def mix_in_protocol(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """The node takes a step of a machine of another protocol."""
    others = [fsm for name in registry.names() if name not in run.judges.protocols for fsm in catalogue.machines(name)]
    lines = [
        (fsm, name_of(line.event), line.number, str(line.dest.value))
        for fsm in others
        for line in fsm.lines
        if fsm.initial in line.sources and line.dest is not None
    ]
    if not lines:
        return None
    fsm, event, number, dest = chance.choice(lines)
    cells = {
        "machine": fsm.full_name, "event": event, "source": str(fsm.initial.value), "dest": dest, "row": number,
        "instance": f"{run.cell('instance', row)}x",
    }  # fmt: skip
    take = np.insert(np.arange(run.rows), row, row)
    return Edit(take, tuple((row, column, value) for column, value in cells.items()))


def select_all_rows(run: DamagedRun) -> np.ndarray:
    """Every row."""
    return np.arange(run.rows)


def steps_of(kind: str) -> Callable[[DamagedRun], np.ndarray]:
    """The rows of this kind."""
    return lambda run: run.columns.rows_of(kind)


def change_cells(**cells: Any) -> Callable[[DamagedRun, int, Random], Edit | None]:
    """These cells are others."""
    return lambda run, row, chance: run.change(row, **cells)


def name_unknown_machine(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """A machine that the protocol has not."""
    protocol = run.cell("machine", row).partition("/")[0]
    return run.change(row, machine=f"{protocol}/nobody")


KINDS: Final = (
    DamageKind("clock-back-once", find_later, set_back),
    DamageKind("clock-back", find_later, shift_clock(-S)),
    DamageKind("clock-ahead", find_later, shift_clock(3_600 * S)),
    DamageKind("end-late", lambda run: np.arange(max(run.rows - LAST, 0), run.rows), end_late),
    DamageKind("term-changed", find_with("epoch"), change_number_in("epoch")),
    DamageKind("grant-changed", find_with("grant"), change_number_in("grant")),
    DamageKind("faults-removed", find_faults, lambda run, row, chance: run.remove(run.columns.rows_of("fault"))),
    DamageKind(
        "crash-removed",
        find_deaths,
        lambda run, row, chance: run.remove(row),
    ),
    DamageKind("death-late", find_deaths, die_late),
    DamageKind("death-of-another", find_deaths, change_node),
    DamageKind("fault-elsewhere", find_hits, change_node),
    DamageKind("step-after-death", find_deaths, step_after_death),
    DamageKind(
        "step-elsewhere",
        lambda run: run.steps,
        change_node,
    ),
    DamageKind("kind-unknown", select_all_rows, change_cells(kind="note")),
    DamageKind("timer-as-step", steps_of("timer"), change_cells(kind="step")),
    DamageKind("step-as-timer", steps_of("step"), change_cells(kind="timer")),
    DamageKind("machine-unknown", lambda run: run.steps, name_unknown_machine),
    DamageKind("machine-empty", lambda run: run.steps, change_cells(machine="")),
    DamageKind(
        "instance-renamed",
        lambda run: run.steps,
        lambda run, row, chance: run.change(row, instance=f"{run.cell('instance', row)}x"),
    ),
    DamageKind("other-run", select_all_rows, mix_in_run),
    DamageKind("other-protocol", lambda run: run.steps, mix_in_protocol),
)
