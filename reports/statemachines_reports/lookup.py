"""Lookup: the tables of the machines as arrays of integers, against which whole columns are judged at once."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

from statemachines.kernel import Fsm, TimerFired, name_of

Codes = dict[str, int]


class Lookup:
    """Made from machines (child machines included).  A line stands at `machine * width + row`.

    `events`, `states`, `machines`: text -> code; what is not in a table has the code `len(...)`, which matches nothing.
    `missing`: protocols that are not installed here; steps of their machines cannot be judged.
    """

    def __init__(self, machines: tuple[Fsm[Any], ...], missing: tuple[str, ...] = ()) -> None:
        self.missing = missing
        family = list({fsm.full_name: fsm for machine in machines for fsm in machine.family()}.values())
        self.family = family
        self.machines: Codes = {fsm.full_name: code for code, fsm in enumerate(family)}
        self.events = _codes(name_of(line.event) for fsm in family for line in fsm.lines)
        self.states = _codes(str(state.value) for fsm in family for state in fsm.states)
        self.width = max((len(fsm.lines) for fsm in family), default=0) + 1
        """A machine's part of the tables; its last line stands for every row that it does not have."""
        self.initial = np.array([self.states[str(fsm.initial.value)] for fsm in family] + [-1], np.int32)
        self.begins = np.zeros((len(family) + 1, len(self.states) + 1), bool)
        """[machine, state]: an instance may begin there."""
        for fsm in family:
            self.add_begin(fsm, fsm.initial)
        self.ends = np.zeros((len(family) + 1, len(self.states) + 1), bool)
        """[machine, state]: an instance that is there is gone, and its parent may make it again: it begins anew."""
        for child in {one.full_name: one for fsm in family for one in fsm.children}.values():
            self.ends[self.machines[child.full_name], [self.states[str(one.value)] for one in child.final]] = True
        self._outcome = np.full(((len(family) + 1) * self.width, len(self.states) + 1), -1, np.int32)
        self._guarded = np.zeros((len(family) + 1, len(self.events) + 1, len(self.states) + 1), bool)
        self.is_timer = np.zeros((len(family) + 1, len(self.events) + 1), bool)
        """[machine, event]: it is a timer of the machine that fires."""
        for fsm in family:
            self._fill(fsm)

    def add_begin(self, fsm: Fsm[Any], state: Enum) -> None:
        """Instances of the machine may begin in this state, too."""
        self.begins[self.machines[fsm.full_name], self.states[str(state.value)]] = True

    def _fill(self, fsm: Fsm[Any]) -> None:
        machine = self.machines[fsm.full_name]
        for line in fsm.lines:
            place, event = machine * self.width + line.number, self.events[name_of(line.event)]
            for state in line.sources if line.kind != "refuse" else ():
                source = self.states[str(state.value)]
                dest = source if line.dest is None else self.states[str(line.dest.value)]
                self._outcome[place, source] = self._pair(event, dest)
        for event_type in fsm.alphabet:
            self.is_timer[machine, self.events[name_of(event_type)]] = issubclass(event_type, TimerFired)
            for state in fsm.states:
                cell = fsm.cell(state, event_type)
                if cell and all(line.when is not None for line in cell):
                    self._guarded[machine, self.events[name_of(event_type)], self.states[str(state.value)]] = True

    def legal(
        self, machine: np.ndarray, event: np.ndarray, source: np.ndarray, row: np.ndarray, dest: np.ndarray
    ) -> np.ndarray:
        """Which steps are legal: the row is of this machine, takes this event in this state, and leads there; or no
        row was taken, nothing changed, and every row of the cell has a guard."""
        legal = self._outcome[self.line_of(machine, row), source] == self._pair(event, dest)
        none = np.flatnonzero(row == -1)
        legal[none] = (dest[none] == source[none]) & self._guarded[machine[none], event[none], source[none]]
        return np.asarray(legal)

    def _pair(self, event: Any, dest: Any) -> Any:
        """An event and a destination as one integer."""
        return event * (len(self.states) + 1) + dest

    def line_of(self, machine: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Where the row of the machine stands in the tables."""
        return machine * np.int32(self.width) + np.where((row >= 0) & (row < self.width), row, self.width - 1)


def code_column(values: list[str], codes: Codes) -> np.ndarray:
    """Codes of the values of a dictionary; unknown ones get the code after the last."""
    return np.array([codes.get(value, len(codes)) for value in values], np.int32)


def _codes(names: Any) -> Codes:
    return {name: code for code, name in enumerate(dict.fromkeys(names))}
