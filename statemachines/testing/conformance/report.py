"""Report: the verdict on an implementation, in words and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from statemachines import catalogue
from statemachines.kernel import ConfigurationError, GaplessError, name_of
from statemachines.testing.conformance.campaign import (
    INPUTS_MAX,
    ConformanceCoverage,
    ConformanceOutcome,
    ConformanceVerdict,
)
from statemachines.testing.conformance.conformance_run import (
    Begin,
    Cell,
    ConformanceViolation,
    FedInput,
    Late,
    Move,
    Wait,
)
from statemachines.testing.conformance.relation import Output
from statemachines.testing.conformance.role import ConformanceRole
from statemachines.testing.conformance.script_file import line_of

MS = 1_000_000
MISSED_MAX = 20


def text_of(verdict: ConformanceVerdict, role: ConformanceRole) -> str:
    """The verdict for people: what was fed, what was expected by which clause, what came; and the coverage."""
    lines = [f"{verdict.outcome.value}: {role.fsm.full_name}"]
    if verdict.outcome is ConformanceOutcome.FAIL:
        lines += [*_violation(verdict, role), "", "the inputs that repeat it:", *_inputs(verdict.moves)]
        return "\n".join(lines)
    if verdict.why:
        lines += [f"  {verdict.why}"]
    return "\n".join([*lines, *_coverage(verdict, role)])


def repeat_of(role_name: str, script: Path, command: Iterable[str]) -> str:
    """The command that repeats a run."""
    return f"gapless conform {role_name} --script {shlex.quote(str(script))} -- {shlex.join(command)}"


def json_of(verdict: ConformanceVerdict, role: ConformanceRole) -> dict[str, Any]:
    """The verdict for programs."""
    shown: dict[str, Any] = {
        "role": role.fsm.full_name,
        "outcome": verdict.outcome.value,
        "why": verdict.why,
        "script": [line_of(move) for move in verdict.moves],
    }
    if (coverage := verdict.coverage) is not None:
        shown |= _coverage_json(coverage, role)
    found = verdict.violation
    if found is not None:
        shown |= {
            "fed": found.fed,
            "at_ns": found.at_ns,
            "expected": [{"effects": list(map(str, one)), "clauses": list(rows)} for one, rows in found.expected],
            "came": list(map(str, found.came)),
        }
    return shown


def _coverage_json(coverage: ConformanceCoverage, role: ConformanceRole) -> dict[str, Any]:
    return {
        "bounds": {"systems": [one.name for one in role.starts], "inputs_of_a_run": INPUTS_MAX},
        "rows": coverage.rows,
        "rows_taken": coverage.taken,
        "rows_missed": [describe_cell(cell, role) for cell in coverage.missed],
        "rows_without_path": [describe_cell(cell, role) for cell in coverage.pathless],
        "pairs": coverage.pairs,
        "pairs_taken": coverage.pairs_taken,
        "rows_not_separated": coverage.unseparated,
        "inputs": coverage.inputs,
        "runs": coverage.runs,
    }


def _violation(verdict: ConformanceVerdict, role: ConformanceRole) -> Iterator[str]:
    if verdict.violation is None:
        yield f"  {verdict.why}"
    else:
        yield from describe_violation(verdict.violation, role)


def describe_violation(found: ConformanceViolation, role: ConformanceRole) -> Iterator[str]:
    """What was fed, what was expected by which clause, what came."""
    yield f"  fed       {found.fed} at {found.at_ns / MS:g} ms, {' or '.join(found.states)}"
    for number, (outputs, clauses) in enumerate(found.expected):
        yield from _listed("expected" if not number else "or", outputs)
        for clause in dict.fromkeys(clauses):
            yield f"            by {clause}{_clause_text(role, clause)}"
    yield from _listed("came", found.came)
    yield f"  wrong     {found.wrong}"


def _listed(title: str, outputs: tuple[Output, ...]) -> Iterator[str]:
    for number, one in enumerate(outputs or ("nothing",)):
        yield f"  {title if not number else '':8}  {one}"


def _clause_text(role: ConformanceRole, clause: str) -> str:
    try:
        found = catalogue.clauses(role.fsm.protocol).get(clause) if role.fsm.protocol else None
    except (ConfigurationError, GaplessError):
        return ""
    return "" if found is None else f": {found.text}"


def _inputs(moves: tuple[Move, ...]) -> Iterator[str]:
    for number, move in enumerate(moves, 1):
        yield f"  {number:3}  {_words(move)}"


def _words(move: Move) -> str:
    match move:
        case Begin(start):
            return f"begin (start {start})"
        case Wait(ns, is_turned):
            return f"{ns / MS:g} ms pass{', timers that are due at one moment in the other order' * is_turned}"
        case Late(timer):
            return f"the timer {timer}, which was taken back, fires late"
    assert isinstance(move, FedInput)
    event = move.event
    fields = ", ".join(f"{field}={getattr(event, field)!r}" for field in event.__struct_fields__)
    return f"{name_of(type(event))}({fields})"


def _coverage(verdict: ConformanceVerdict, role: ConformanceRole) -> Iterator[str]:
    found = verdict.coverage
    if found is None:
        return
    yield f"  rows      {found.taken} of {found.rows} that can be taken within the bounds, state by state"
    if verdict.outcome is not ConformanceOutcome.PASS:
        return
    if found.missed:
        yield f"            not taken: {describe_cells(found.missed, role)}"
    if found.pathless:
        yield f"            without a path within the bounds: {describe_cells(found.pathless, role)}"
    if not found.is_whole:
        yield "            the bounds were not reached: there may be more"
    yield f"  pairs     {found.pairs_taken} of {found.pairs} pairs of rows that can follow each other"
    if found.unseparated:
        yield f"  states    after {found.unseparated} of the rows some wrong state cannot be told from the right one"
    yield f"  bounds    {len(role.starts)} systems: {', '.join(one.name for one in role.starts)}"
    yield f"            drawn runs have {INPUTS_MAX} inputs at most, of these systems and now and then of other values"
    yield f"  inputs    {found.inputs}, with {found.runs} drawn runs"


def describe_cells(cells: tuple[Cell, ...], role: ConformanceRole) -> str:
    """Rows by name."""
    more = f" and {len(cells) - MISSED_MAX} more" if len(cells) > MISSED_MAX else ""
    return ", ".join(describe_cell(cell, role) for cell in cells[:MISSED_MAX]) + more


def describe_cell(cell: Cell, role: ConformanceRole) -> str:
    """A row by its machine, number, event, state and clause."""
    machine, row, status = cell
    line = next(one for one in role.fsm.family() if one.full_name == machine).lines[row]
    return f"{machine.rpartition('/')[2]} {row} {name_of(line.event)} in {status} [{line.clause}]"
