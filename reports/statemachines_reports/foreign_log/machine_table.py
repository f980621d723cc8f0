"""Machine table: what a declared machine may do in a state, and why not; plain data, so that a task can be given it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from statemachines import catalogue, registry
from statemachines.kernel import Fsm, name_of

SHOWN: Final = 8
"""Of what was possible, so many are named."""

UNKNOWN: Final = -1
"""Nobody says whether a guard held."""


class CellLine(msgspec.Struct, frozen=True):
    """A row of the table, as a cell has it; `guard` "": it always holds."""

    number: int
    kind: str
    guard: str
    dest: int
    clause: str


class Symbol(msgspec.Struct, frozen=True):
    """What a row of a log says: an event, what is known of guards, and the state afterwards (-1: not said)."""

    event: int
    guards: tuple[tuple[str, int], ...] = ()
    state: int = -1


class MachineTable(msgspec.Struct, frozen=True):
    """A machine: names by number, and (event, state) -> the rows that decide it."""

    name: str
    events: tuple[str, ...]
    states: tuple[str, ...]
    initial: int
    cells: dict[tuple[int, int], tuple[CellLine, ...]]

    @property
    def guards(self) -> set[str]:
        """The guards of all rows, each by its own name."""
        return {part for cell in self.cells.values() for line in cell for part in split_guard(line.guard)}

    def list_ends(self, symbol: Symbol, state: int) -> list[int]:
        """The states that the symbol may lead to from a state."""
        ends = self._walk(symbol, state)
        return [one for one in ends if symbol.state in (UNKNOWN, one)]

    def _walk(self, symbol: Symbol, state: int) -> list[int]:
        cell = self.cells.get((symbol.event, state), ())
        ends: list[int] = []
        known = dict(symbol.guards)
        for line in cell:
            if line.kind == "refuse":
                return ends
            held = evaluate_guard(line.guard, known)
            if held != 0:
                ends.append(line.dest)
            if held == 1:
                return ends
        return [*ends, state] if cell else []

    def explain_step(self, symbol: Symbol, state: int) -> str:
        """Why the symbol leads nowhere from a state: the rows, their clauses, and the guards that were false."""
        cell, known = self.cells.get((symbol.event, state), ()), dict(symbol.guards)
        event, where = self.events[symbol.event], self.states[state]
        if not cell:
            return f"{event} in {where}: the machine has ended there, or does not take it"
        parts = []
        for line in cell:
            if line.kind == "refuse":
                parts.append(f"row {line.number} refuses it ({line.clause})")
                break
            held = evaluate_guard(line.guard, known)
            if held == 0:
                parts.append(
                    f"row {line.number} to {self.states[line.dest]} needs {line.guard}, which was false ({line.clause})"
                )
                continue
            given = f" if {line.guard}" if held == UNKNOWN else ""
            parts.append(f"row {line.number} leads to {self.states[line.dest]}{given} ({line.clause})")
            if held == 1:
                break
        else:
            parts.append(f"no guard holds: it stays in {where}")
        said = "" if symbol.state == UNKNOWN else f", and the log says {self.states[symbol.state]}"
        return f"{event} in {where}: {'; '.join(parts)}{said}"

    def list_possible(self, states: Iterable[int]) -> str:
        """The events that some of the states take, with their rows."""
        found: dict[str, None] = {}
        for state in states:
            for event in range(len(self.events)):
                for line in self.cells.get((event, state), ()):
                    if line.kind == "row":
                        guard = f" [{line.guard}]" if line.guard else ""
                        found[f"{self.events[event]}{guard} -> {self.states[line.dest]} ({line.clause})"] = None
        names = list(found)
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        return (", ".join(names[:SHOWN]) + more) or "nothing"

    def name_states(self, states: Iterable[int]) -> str:
        """The names of some states."""
        names = [self.states[one] for one in states]
        more = f" or {len(names) - SHOWN} others" if len(names) > SHOWN else ""
        return " or ".join(names[:SHOWN]) + more

    def fill_steps(self, symbols: Iterable[Symbol]) -> np.ndarray:
        """[symbol, state before, state after]: what may be."""
        symbols = tuple(symbols)
        size = len(self.states)
        steps = np.zeros((len(symbols), size, size), bool)
        for place, symbol in enumerate(symbols):
            for state in range(size):
                steps[place, state, self.list_ends(symbol, state)] = True
        return steps


def split_guard(guard: str) -> list[str]:
    """The names that a guard is made of; an adopted row may have several."""
    return [part.removeprefix("not ") for part in guard.split(" and ") if part]


def evaluate_guard(guard: str, known: Mapping[str, int]) -> int:
    """1: it holds, 0: it does not, -1: nobody says."""
    found = 1
    for part in guard.split(" and ") if guard else ():
        name = split_guard(part)[0]
        value = known.get(name, UNKNOWN)
        if value != UNKNOWN and name != part:
            value = 1 - value
        if value == 0:
            return 0
        found = UNKNOWN if value == UNKNOWN else found
    return found


def load_machine(name: str) -> MachineTable:
    """The machine called `name`, at `module:ATTRIBUTE`, or what a factory there makes.

    Raises `ConfigurationError` where there is none, or several.
    """
    if ":" in name:
        found: Any = registry.load(name, object, "machine")
        if not isinstance(found, Fsm):
            from statemachines.adoption.declared_table import adopt_machine

            return read_table(adopt_machine(name, found), name)
    return read_table(catalogue.machine(name), name)


def read_table(fsm: Fsm[Any], name: str) -> MachineTable:
    """The table of a declared machine as plain data."""
    states = {state: place for place, state in enumerate(fsm.states)}
    cells = {}
    for number, event in enumerate(fsm.alphabet):
        for state, place in states.items():
            cells[number, place] = tuple(
                CellLine(
                    line.number,
                    line.kind,
                    line.guard_name,
                    place if line.dest is None else states[line.dest],
                    line.clause,
                )
                for line in fsm.cell(state, event)
            )
    return MachineTable(
        name,
        tuple(name_of(event) for event in fsm.alphabet),
        tuple(str(state.value) for state in fsm.states),
        states[fsm.initial],
        {key: cell for key, cell in cells.items() if cell},
    )
