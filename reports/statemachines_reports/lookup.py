"""Lookup: the tables of the machines as arrays of integers, against which whole columns are judged at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from statemachines.kernel import Fsm, name_of

Codes = dict[str, int]


class Lookup:
    """Made from machines (child machines included).  A line is numbered `base[machine] + row`.

    `events`, `states`, `machines`: text -> code; what is not in a table has the code `len(...)`, which matches nothing.
    """

    def __init__(self, machines: tuple[Fsm[Any], ...]) -> None:
        family = list({fsm.name: fsm for machine in machines for fsm in machine.family()}.values())
        self.family = family
        self.machines: Codes = {fsm.name: code for code, fsm in enumerate(family)}
        self.events = _codes(name_of(line.event) for fsm in family for line in fsm.lines)
        self.states = _codes(str(state.value) for fsm in family for state in fsm.states)
        lines = [line for fsm in family for line in fsm.lines]
        sizes = [len(fsm.lines) for fsm in family]
        self.base = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        self.line_event = np.array([self.events[name_of(line.event)] for line in lines])
        self.line_dest = np.array([-1 if line.dest is None else self.states[str(line.dest.value)] for line in lines])
        self.line_source = np.zeros((len(lines), len(self.states) + 1), bool)
        self.refused = np.array([line.kind == "refuse" for line in lines])
        self.resends = np.array([line.kind == "row" and "resend" in name_of(line.event) for line in lines])
        self.initial = np.array([self.states[str(fsm.initial.value)] for fsm in family] + [-1])
        self._guarded = np.zeros((len(family) + 1, len(self.events) + 1, len(self.states) + 1), bool)
        self._fill(lines)

    def _fill(self, lines: list[Any]) -> None:
        for number, line in enumerate(lines):
            for source in line.sources:
                self.line_source[number, self.states[str(source.value)]] = True
        for fsm in self.family:
            for event in fsm.alphabet:
                for state in fsm.states:
                    cell = fsm.cell(state, event)
                    if cell and all(line.when is not None for line in cell):
                        self._guarded[
                            self.machines[fsm.name], self.events[name_of(event)], self.states[str(state.value)]
                        ] = True

    def legal(
        self, machine: np.ndarray, event: np.ndarray, source: np.ndarray, row: np.ndarray, dest: np.ndarray
    ) -> np.ndarray:
        """Which steps are legal: the row is of this machine, takes this event in this state, and leads there; or no
        row was taken, nothing changed, and every row of the cell has a guard."""
        known = machine < len(self.machines)
        base = self.base[np.minimum(machine, len(self.machines) - 1)]
        end = self.base[np.minimum(machine, len(self.machines) - 1) + 1]
        inside = known & (row >= 0) & (base + row < end)
        line = np.where(inside, base + row, 0)
        to = self.line_dest[line]
        taken = (
            inside
            & (self.line_event[line] == event)
            & self.line_source[line, source]
            & (dest == np.where(to < 0, source, to))
            & ~self.refused[line]
        )
        none = (row == -1) & (dest == source) & self._guarded[machine, event, source]
        return np.asarray(taken | none)

    def line_of(self, machine: np.ndarray, row: np.ndarray) -> np.ndarray:
        """The number of the line, where `row` is one (-1 elsewhere)."""
        return np.where((row >= 0) & (machine < len(self.machines)), self.base[machine] + row, -1)


def code_column(values: list[str], codes: Codes) -> np.ndarray:
    """Codes of the values of a dictionary; unknown ones get the code after the last."""
    return np.array([codes.get(value, len(codes)) for value in values], np.int64)


def _codes(names: Any) -> Codes:
    return {name: code for code, name in enumerate(dict.fromkeys(names))}
