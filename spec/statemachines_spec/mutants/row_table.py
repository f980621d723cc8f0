"""Row table: a machine's compiled table from any lines at all, below the checks of a declaration.

`Fsm` refuses a table with a row that is never looked at, or a cell that nothing decides.  A mutant may well be such a
table; so it is compiled here from its lines alone, as `Fsm` reads it back from the `transitions` engine (a test shows
that both are the same), and what the checks would have said is kept beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from copy import copy
from enum import Enum
from typing import Any

from statemachines.kernel import Event, Fsm, Timer
from statemachines.kernel.errors import DeclarationError
from statemachines.kernel.fsm import Line

Cells = dict[type[Event], dict[Enum, tuple[Any, ...]]]


def with_lines(fsm: Fsm[Any], lines: Sequence[Line], timers: tuple[Timer, ...] | None = None) -> Fsm[Any]:
    """Another machine with these lines, in this order; a cell of `fsm` that none of them decides does nothing."""
    made = copy(fsm)
    made.lines = tuple(lines)
    if timers is not None:
        made.timers = timers
        made._moves = made._compile_moves()
    else:
        missing = {
            (source, line.dest): made._move(source, line.dest)
            for line in lines
            if line.dest is not None
            for source in line.sources
            if (source, line.dest) not in fsm._moves
        }
        made._moves = {**fsm._moves, **missing}
    made._cells = cells(fsm, made)
    return made


def cells(fsm: Fsm[Any], made: Fsm[Any]) -> Cells:
    """The dispatch table of the lines of `made`, for every cell that `fsm` has."""
    table: dict[type[Event], dict[Enum, list[Any]]] = {
        event: {state: [] for state in by_state} for event, by_state in fsm._cells.items()
    }
    for line in made.lines:
        dest = None if line.dest is None else str(line.dest.value)
        for state in line.sources:
            table[line.event].setdefault(state, []).append(made._entry(line, state, dest))
    return {event: {state: tuple(one) for state, one in row.items()} for event, row in table.items()}


def refusal(fsm: Fsm[Any], lines: Sequence[Line]) -> str:
    """What the checks of a declaration say of these lines ("": nothing)."""
    made = copy(fsm)
    made.lines = tuple(lines)
    try:
        made._check()
    except DeclarationError as error:
        return str(error)
    return ""


def install(stack: ExitStack, fsm: Fsm[Any], made: Fsm[Any]) -> None:
    """`fsm`, the object that everybody holds, is `made` until the stack closes; its lines stand by their numbers."""
    before = dict(vars(fsm))
    vars(fsm).update(vars(made))
    fsm.lines = tuple(sorted(made.lines, key=lambda line: line.number))

    def restore() -> None:
        vars(fsm).clear()
        vars(fsm).update(before)

    stack.callback(restore)
