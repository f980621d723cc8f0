"""MachineRows: an ITF trace judged by the table of one declared machine, at the level of rows.

A variable of the trace has the machine's state, or is a map or record of them by instance; another one may name the
event of each step.  A step must be a row of the table, or be ignored where it stays.  Guards and actions are
not judged.
"""

from __future__ import annotations

from typing import Any

import msgspec

from statemachines import diagrams
from statemachines.diagrams import Cells
from statemachines.kernel import ConfigurationError, Fsm
from statemachines.trace.itf import ItfTrace, Value, entries_of


class RowVerdict(msgspec.Struct, frozen=True):
    """`steps` that were judged, in which an instance changed its state or an event is named; `rows`: the numbers of
    the lines that may have been taken; `wrong`: what the first illegal step is ("": none is)."""

    machine: str
    steps: int
    rows: tuple[int, ...]
    wrong: str = ""


def judge_rows(fsm: Fsm[Any], trace: ItfTrace, state_var: str = "", event_var: str = "") -> RowVerdict:
    """Judge every step.  `state_var` "": the one variable that always has states of the machine.

    Raises `ConfigurationError` where a variable is not in the trace, or does not have states of the machine.
    """
    names = diagrams.state_names(fsm)
    variable = state_var or _find_variable(trace, names)
    for name in filter(None, (variable, event_var)):
        if name not in trace.vars:
            raise ConfigurationError("variable", name, f"is not in the trace; it has: {', '.join(trace.vars)}")
    cells = diagrams.cells(fsm)
    events = {one.event for one in cells}
    if event_var and not any(str(state[event_var]) in events for state in trace.states):
        rule = f"names no event of the machine in any state; there are: {', '.join(sorted(events))}"
        raise ConfigurationError("variable", event_var, rule)
    initial = str(fsm.initial.value)
    before: dict[str, str] = {}
    judged, rows = 0, set[int]()
    for number, state in enumerate(trace.steps):
        event = str(state[event_var]) if event_var and number else ""
        after = _states(variable, number, state[variable], names)
        if number == 0 and (others := {one: at for one, at in after.items() if at != initial}):
            instance, at = next(iter(others.items()))
            wrong = f"state 0{f' of {instance}' if instance else ''}: {at}, and the machine begins in {initial}"
            return RowVerdict(fsm.full_name, 0, (), wrong)
        moved = {one for one, at in after.items() if before.get(one, initial) != at}
        stays = event in events and not moved and len(after) == 1
        taken = [one for one in after if one in moved or stays]
        for instance in taken:
            source, dest = before.get(instance, initial), after[instance]
            found = [one for one in cells if _leads(one, source, dest, event)]
            judged += 1
            if not found:
                said = f"state {number}{f' of {instance}' if instance else ''}: {source} -> {dest}"
                wrong = f"{said}{f' by {event}' if event else ''}: {_possible(cells, source)}"
                return RowVerdict(fsm.full_name, judged, tuple(sorted(rows)), wrong)
            rows.update(one.number for one in found)
        before = after
    return RowVerdict(fsm.full_name, judged, tuple(sorted(rows)))


def _leads(one: Cells, source: str, dest: str, event: str) -> bool:
    if source not in one.sources or one.kind == "refuse" or (event and one.event != event):
        return False
    return (one.dest or source) == dest


def _possible(cells: tuple[Cells, ...], source: str) -> str:
    rows = [one for one in cells if one.kind == "row" and source in one.sources]
    listed = ", ".join(f"{one.event} -> {one.dest or source} [{one.clause}]" for one in rows)
    return f"no row of the table; from {source} there are: {listed or 'none'}"


def _states(variable: str, number: int, value: Value, names: tuple[str, ...]) -> dict[str, str]:
    """Instance -> state ("" where there is one alone)."""
    found = {"": value} if isinstance(value, str) else entries_of(value)
    if found is None:
        raise ConfigurationError(f"variable {variable}", f"state {number}", "is neither text nor a map of texts")
    for state in found.values():
        if state not in names:
            rule = f"is no state of the machine; there are: {', '.join(names)}"
            raise ConfigurationError(f"variable {variable} in state {number}", state, rule)
    return found


def _find_variable(trace: ItfTrace, names: tuple[str, ...]) -> str:
    found = [
        name
        for name in trace.vars
        if all(
            one in names
            if isinstance(one, str)
            else (some := entries_of(one)) and set(map(str, some.values())) <= {*names}
            for one in (state[name] for state in trace.states)
        )
    ]
    if len(found) != 1:
        there = ", ".join(found or trace.vars)
        rule = f"must be named (--state): {len(found)} variables have states of the machine alone; there are: {there}"
        raise ConfigurationError("variable", "", rule)
    return found[0]
