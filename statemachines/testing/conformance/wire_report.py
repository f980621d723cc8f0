"""WireReport: the verdict of a run over the wire, in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.report import describe_cell, describe_cells, describe_violation
from statemachines.testing.conformance.role import ConformanceRole
from statemachines.testing.conformance.wire_verdict import Note, WireVerdict

MS: Final = 1_000_000
SHOWN_NOTES: Final = 16


def text_of(verdict: WireVerdict, role: ConformanceRole) -> str:
    """The verdict for people."""
    return "\n".join(_lines(verdict, role))


def _lines(verdict: WireVerdict, role: ConformanceRole) -> Iterator[str]:
    yield f"{verdict.outcome.value}: {role.fsm.full_name} over the wire"
    if verdict.outcome is ConformanceOutcome.FAIL:
        if verdict.violation is None:
            yield f"  {verdict.why}"
        else:
            yield f"  instance  {verdict.instance}"
            yield from describe_violation(verdict.violation, role)
        yield ""
        yield "what came before it:"
        yield from (_note(note) for note in verdict.notes[-SHOWN_NOTES:])
        yield ""
    elif verdict.why:
        yield f"  {verdict.why}"
    yield from _coverage(verdict, role)


def _note(note: Note) -> str:
    return f"  {note.at_ns / MS:9.1f} ms  {note.what}"


def _coverage(verdict: WireVerdict, role: ConformanceRole) -> Iterator[str]:
    counts = (
        f"  counts    {', '.join(f'{count} {name}' for name, count in sorted(verdict.counts.items())) or 'nothing'}"
    )
    if verdict.rules:
        applied = [f"{clause} {count}" for clause, count in verdict.rules.items() if count]
        missed = ", ".join(clause for clause, count in verdict.rules.items() if not count)
        yield f"  rules     {len(applied)} of {len(verdict.rules)} were applied: {', '.join(applied)}"
        if missed:
            yield f"            not applied: {missed}"
        yield counts
        return
    some = len(verdict.possible - verdict.cells)
    taken = f"{len(verdict.cells)} certainly, {some} more possibly"
    yield f"  rows      of {len(verdict.table)} rows of the table, state by state, were taken: {taken}"
    untaken = tuple(sorted(verdict.table - verdict.cells - verdict.possible))
    if untaken and verdict.outcome is ConformanceOutcome.PASS:
        yield f"            not taken: {describe_cells(untaken, role)}"
    yield f"  pairs     {verdict.pairs} pairs of rows"
    yield counts


def json_of(verdict: WireVerdict, role: ConformanceRole) -> dict[str, Any]:
    """The verdict for programs."""
    shown: dict[str, Any] = {
        "role": role.fsm.full_name,
        "outcome": verdict.outcome.value,
        "why": verdict.why,
        "rows": len(verdict.table),
        "rows_taken": len(verdict.cells),
        "rows_possible": len(verdict.possible - verdict.cells),
        "rows_missed": [describe_cell(cell, role) for cell in sorted(verdict.table - verdict.cells - verdict.possible)],
        "pairs_taken": verdict.pairs,
        "counts": verdict.counts,
        "rules": verdict.rules,
        "notes": [{"at_ns": note.at_ns, "what": note.what} for note in verdict.notes],
    }
    found = verdict.violation
    if found is not None:
        shown |= {
            "instance": verdict.instance,
            "fed": found.fed,
            "at_ns": found.at_ns,
            "expected": [{"effects": list(map(str, one)), "clauses": list(rows)} for one, rows in found.expected],
            "came": list(map(str, found.came)),
        }
    return shown
