"""Coverage: which rows of the tables, and which pairs of consecutive rows, a trace has taken, of how many there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from statemachines.kernel import Fsm, Line, name_of

Pairs = set[tuple[int, int]]
Records = list[dict[str, Any]]


class RowCoverage(msgspec.Struct, frozen=True):
    """How many rows of a machine's table were taken, and how many pairs of consecutive rows of an instance.

    Rows that refuse an event cannot be taken and do not count.  A pair counts where the second row begins in a state
    that the first may end in; guards and timers may forbid more.
    """

    machine: str
    taken: int
    rows: int
    pairs_taken: int
    pairs: int


def coverage_of(used: Records, pairs: Records, family: list[Fsm[Any]]) -> list[RowCoverage]:
    """Per machine, from the tables `coverage` and `pairs`."""
    rows = {(line["machine"], line["row"]) for line in used}
    found: dict[str, Pairs] = {}
    for line in pairs:
        found.setdefault(line["machine"], set()).add((line["first"], line["second"]))
    covered = []
    for fsm in family:
        possible = set(list_pairs(fsm))
        covered.append(
            RowCoverage(
                fsm.full_name,
                sum((fsm.full_name, line.number) in rows for line in list_takeable(fsm)),
                len(list_takeable(fsm)),
                len(possible & found.get(fsm.full_name, set())),
                len(possible),
            )
        )
    return covered


def list_untaken(used: Records, family: list[Fsm[Any]]) -> Records:
    """The rows that the trace never took, each with its clause."""
    rows = {(line["machine"], line["row"]) for line in used}
    return [
        {"machine": fsm.full_name, "row": line.number, **describe_line(line)}
        for fsm in family
        for line in list_takeable(fsm)
        if (fsm.full_name, line.number) not in rows
    ]


def describe_line(line: Line) -> dict[str, str]:
    """A row of a table in words."""
    return {
        "event": name_of(line.event),
        "source": ", ".join(str(state.value) for state in line.sources),
        "dest": "" if line.dest is None else str(line.dest.value),
        "guard": line.guard_name,
        "action": line.action_name or ("" if line.kind == "row" else line.kind),
        "clause": line.clause,
    }


def list_takeable(fsm: Fsm[Any]) -> list[Line]:
    """The rows that a step can take."""
    return [line for line in fsm.lines if line.kind != "refuse"]


def list_pairs(fsm: Fsm[Any]) -> Iterator[tuple[int, int]]:
    """The pairs of rows that the table lets follow each other."""
    for first in list_takeable(fsm):
        ends = set(first.sources) if first.dest is None else {first.dest}
        for second in list_takeable(fsm):
            if not ends.isdisjoint(second.sources):
                yield first.number, second.number
