"""Step damage: steps that are changed, missing, repeated or swapped, and nodes whose rows are missing."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import numpy as np

from statemachines.kernel import name_of
from statemachines_reports.columns import STEPS, stable_order
from statemachines_reports.damage.damage_kind import DamagedRun, DamageKind, Edit, list_rows_of_cell


def find_steps(run: DamagedRun) -> np.ndarray:
    """Steps of machines that are known here, and have more than one state."""
    known = tuple(name for name, fsm in run.machines.items() if len(fsm.states) > 1)
    return np.asarray(run.steps[run.columns.is_one_of("machine", known, run.steps)])


def find_moves(run: DamagedRun) -> np.ndarray:
    """Steps that change the state."""
    return np.asarray(run.steps[_is_move(run, run.steps)])


def find_stills(run: DamagedRun) -> np.ndarray:
    """Steps that change no state."""
    return np.asarray(run.steps[~_is_move(run, run.steps)])


def _is_move(run: DamagedRun, rows: np.ndarray) -> np.ndarray:
    texts = {text: code for code, text in enumerate(run.columns.texts["source"])}
    dest = np.array([texts.get(text, -1) for text in [*run.columns.texts["dest"], ""]])[run.columns["dest"][rows]]
    return np.asarray(run.columns["source"][rows] != dest)


def find_stills_with_traces(run: DamagedRun) -> np.ndarray:
    """Steps that change no state, and that a message brought, or behind which their instance does something."""
    rows = find_stills(run)
    return np.asarray(rows[_has_traces(run, rows)])


def find_idle_stills(run: DamagedRun) -> np.ndarray:
    """The others."""
    rows = find_stills(run)
    return np.asarray(rows[~_has_traces(run, rows)])


def _has_traces(run: DamagedRun, rows: np.ndarray) -> np.ndarray:
    """Whether a row is of a message, or the next row of its node is a step of a child, or what its instance does."""
    columns = run.columns
    order = np.argsort(columns["node"], kind="stable")
    following = np.full(run.rows, -1)
    following[order[:-1]] = np.where(np.diff(columns["node"][order]) == 0, order[1:], -1)
    after = following[rows]
    names = [*columns.texts["instance"], ""]
    root = {name: code for code, name in enumerate(dict.fromkeys(name.partition(":")[0] for name in names))}
    roots = np.array([root[name.partition(":")[0]] for name in names])
    is_child = np.array([":" in name for name in names])
    own = columns["instance"][after] == columns["instance"][rows]
    own &= ~columns.is_one_of("kind", STEPS, after)
    own |= (
        is_child[columns["instance"][after]]
        & ~is_child[columns["instance"][rows]]
        & (roots[columns["instance"][after]] == roots[columns["instance"][rows]])
    )
    own &= (after >= 0) & (columns["t_ns"][after] == columns["t_ns"][rows])
    return np.asarray(own)


def find_pairs(run: DamagedRun) -> np.ndarray:
    """Steps behind which the next of their instance is another."""
    order = run.steps[stable_order(run.columns["instance"][run.steps], len(run.columns.texts["instance"]) + 1)]
    same = run.columns["instance"][order][1:] == run.columns["instance"][order][:-1]
    other = np.zeros(len(same), bool)
    for column in ("event", "row", "source", "dest"):
        other |= run.columns[column][order][1:] != run.columns[column][order][:-1]
    return np.sort(order[:-1][same & other])


def change_states(*columns: str) -> Callable[[DamagedRun, int, Random], Edit | None]:
    """These columns name another state of the machine."""

    def act(run: DamagedRun, row: int, chance: Random) -> Edit | None:
        fsm = run.machines[run.cell("machine", row)]
        states = [str(one.value) for one in fsm.states]
        cells = {column: run.pick_other(states, run.cell(column, row), chance) for column in columns}
        return run.change(row, **cells)

    return act


def change_row(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Another row of the machine's table."""
    fsm = run.machines[run.cell("machine", row)]
    cell = list_rows_of_cell(fsm, run.cell("event", row), run.cell("source", row))
    numbers = [line.number for line in fsm.lines if line.number not in cell]
    return run.change(row, row=chance.choice(numbers)) if numbers else None


def change_row_of_cell(*, moves: bool) -> Callable[[DamagedRun, int, Random], Edit | None]:
    """Another row of the cell, which leads elsewhere (`moves`) or not; the step ends where it ended."""

    def act(run: DamagedRun, row: int, chance: Random) -> Edit | None:
        taken, dest = run.cell("row", row), run.cell("dest", row)
        cell = list_rows_of_cell(
            run.machines[run.cell("machine", row)], run.cell("event", row), run.cell("source", row)
        )
        others = [number for number, leads in cell.items() if number != taken and (leads != dest) == moves]
        return run.change(row, row=chance.choice(others)) if others else None

    return act


def change_event(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Another event of the machine."""
    events = [name_of(one) for one in run.machines[run.cell("machine", row)].alphabet]
    found = run.pick_other(events, run.cell("event", row), chance)
    return None if found is None else run.change(row, event=found)


def swap_steps(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """It and the next of its instance."""
    instance = run.columns["instance"]
    later = run.steps[np.searchsorted(run.steps, row) + 1 :]
    return run.swap(row, int(later[np.argmax(instance[later] == instance[row])]))


def remove_part(begin: float, end: float) -> Callable[[DamagedRun, int, Random], Edit | None]:
    """This part of the rows of a node."""

    def act(run: DamagedRun, row: int, chance: Random) -> Edit | None:
        rows = run.rows_of_node(row)
        return run.remove(rows[int(len(rows) * begin) : int(len(rows) * end)])

    return act


KINDS: Final = (
    DamageKind("step-dest", find_steps, change_states("dest")),
    DamageKind("step-source", find_steps, change_states("source")),
    DamageKind("step-states", find_steps, change_states("source", "dest")),
    DamageKind("step-row", find_steps, change_row),
    DamageKind("step-row-of-cell", find_steps, change_row_of_cell(moves=True)),
    DamageKind("step-guard", find_steps, change_row_of_cell(moves=False)),
    DamageKind("step-no-row", find_steps, lambda run, row, chance: run.change(row, row=-1)),
    DamageKind("step-event", find_steps, change_event),
    DamageKind("step-removed", find_moves, lambda run, row, chance: run.remove(row)),
    DamageKind("idle-step-removed", find_idle_stills, lambda run, row, chance: run.remove(row)),
    DamageKind("still-step-removed", find_stills_with_traces, lambda run, row, chance: run.remove(row)),
    DamageKind("step-repeated", find_moves, lambda run, row, chance: run.repeat(row, row)),
    DamageKind("still-step-repeated", find_stills, lambda run, row, chance: run.repeat(row, row)),
    DamageKind("steps-swapped", find_pairs, swap_steps),
    DamageKind("last-half-removed", find_moves, remove_part(1 / 2, 1)),
    DamageKind("middle-removed", find_moves, remove_part(1 / 3, 2 / 3)),
)
