"""Coverage: which rows of the declared machines no explored system has reached, state by state.

A cell is a row in one of the states that it is for.  What only a step beyond the bounds took does not count; a row that
refuses an event cannot be taken by a system that holds, and does not count either.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from statemachines.kernel import Fsm, name_of
from statemachines_spec.explorer.system import System

Cell = tuple[str, int, str]
"""Machine by its full name, number of the row, state before."""


class UnreachedRow(msgspec.Struct, frozen=True):
    """A row of a machine (by its full name) that was not taken in `states`; `partly`: it was in another of its
    states."""

    machine: str
    row: int
    event: str
    states: tuple[str, ...]
    partly: bool
    does: str
    clause: str


class RowsReached(msgspec.Struct, frozen=True):
    """One machine: of `rows`, `taken` were; `unreached` are those that were not, or not in every state."""

    machine: str
    rows: int
    taken: int
    cells: int
    cells_taken: int
    unreached: tuple[UnreachedRow, ...]


def find_reached(machines: Iterable[Fsm[Any]], cells: Iterable[Cell]) -> tuple[RowsReached, ...]:
    """What of each machine these cells are."""
    known = set(cells)
    return tuple(_reached(machine, known) for machine in machines)


def machines_in(systems: Iterable[System]) -> tuple[Fsm[Any], ...]:
    """The machines of all components that say which they run, with their child machines; one that
    a function makes anew for each component is one all the same."""
    found = [member for system in systems for machine in system.machines for member in machine.family()]
    return tuple({machine.full_name: machine for machine in found}.values())


def _reached(fsm: Fsm[Any], known: set[Cell]) -> RowsReached:
    machine = fsm.full_name
    rows = taken = all_cells = cells_taken = 0
    unreached = []
    for line in fsm.lines:
        if line.kind == "refuse":
            continue
        states = [str(state.value) for state in line.sources]
        left = tuple(state for state in states if (machine, line.number, state) not in known)
        some = len(left) < len(states)
        rows, taken = rows + 1, taken + some
        all_cells, cells_taken = all_cells + len(states), cells_taken + len(states) - len(left)
        if left:
            does = line.action_name or ("" if line.kind == "row" else line.kind)
            unreached.append(UnreachedRow(machine, line.number, name_of(line.event), left, some, does, line.clause))
    return RowsReached(machine, rows, taken, all_cells, cells_taken, tuple(unreached))


def describe_coverage(found: tuple[RowsReached, ...], *, cells: bool = False) -> str:
    """For people: what was never reached, by machine; with `cells` also rows that were reached in some states only."""
    ends = [one.machine.rpartition("/")[2] for one in found]

    def short(name: str) -> str:
        return name if ends.count(name.rpartition("/")[2]) > 1 else name.rpartition("/")[2]

    lines = []
    for one in found:
        if not one.taken:
            lines.append(f"  {short(one.machine)}: in no system")
            continue
        rows = f"{one.taken} of {one.rows} rows, {one.cells_taken} of {one.cells} cells"
        lines.append(f"  {short(one.machine)}: {rows}")
        for row in one.unreached:
            if cells or not row.partly:
                where = f" in {', '.join(row.states)}" if row.partly else ""
                lines.append(f"    never {row.row} {row.event}{where}: {row.does or 'moves on'} [{row.clause}]")
    return "\n".join(lines)
