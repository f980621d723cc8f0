"""Row mutants: every row of a machine's table changed in every way of a fixed list.

A row is deleted (where nothing else decides its cells, they ignore the event), leads to each other state, or changes
places with its neighbour; its guard is dropped, or negated; the timers that it sets, and those that its state arms, are
dropped, or set to twice or half the time.

Row table: a machine's compiled table from any lines at all, below the checks of a declaration.

`Fsm` refuses a table with a row that is never looked at, or a cell that nothing decides.  A mutant may well be such a
table; so it is compiled here from its lines alone, as `Fsm` reads it back from the `transitions` engine (a test shows
that both are the same), and what the checks would have said is kept beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from copy import copy
from enum import Enum
from functools import wraps
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Delegate, Event, Fsm, SetTimer, Timer, name_of
from statemachines.kernel.errors import DeclarationError
from statemachines.kernel.fsm import Line
from statemachines_spec.mutants.mutant import GUARD, ROW, TIMER, Mutant, Site

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


Scale = Callable[[int], int | None]
"""The time that a timer is set for -> another (None: it is not set)."""

SCALES: dict[str, Scale] = {"dropped": lambda ns: None, "doubled": lambda ns: 2 * ns, "halved": lambda ns: ns // 2}


def row_mutants(fsm: Fsm[Any], sets_timers: Callable[[Any], bool]) -> Iterator[Mutant]:
    """All of one machine, row by row; `sets_timers(action)`: it may."""
    for line in fsm.lines:
        if line.kind == "row":
            yield _deleted(fsm, line)
            yield from _redirected(fsm, line)
            yield from _guards(fsm, line)
            yield from _swapped(fsm, line)
            if line.do is not None and sets_timers(line.do.run if isinstance(line.do, Delegate) else line.do):
                yield from _timer_effects(fsm, line)
    for number, timer in enumerate(fsm.timers):
        if timer.on_entry:
            yield from _timers(fsm, number, timer)


# -- rows -----------------------------------------------------------------------------------------------------------


def _deleted(fsm: Fsm[Any], line: Line) -> Mutant:
    others = [one for one in fsm.lines if one is not line]
    decided = {(state, one.event) for one in others for state in one.sources}
    left = tuple(state for state in line.sources if (state, line.event) not in decided)
    ignored = Line(line.number, line.event, left, None, "ignore", line.clause)
    lines = [ignored if one is line else one for one in fsm.lines]
    return _of_lines(fsm, line, ROW, "deleted", "is not there", lines, "row")


def _redirected(fsm: Fsm[Any], line: Line) -> Iterator[Mutant]:
    for state in fsm.states:
        if state is not line.dest:
            lines = _with(fsm, line, _copy(line, dest=state))
            yield _of_lines(fsm, line, ROW, f"to-{state.value}", f"leads to {state.value}", lines, "row", "redirected")


def _guards(fsm: Fsm[Any], line: Line) -> Iterator[Mutant]:
    if line.when is None:
        return
    lines = _with(fsm, line, _copy(line, when=None))
    yield _of_lines(fsm, line, GUARD, "unguarded", "asks nothing", lines, "asked", "guard dropped")
    lines = _with(fsm, line, _copy(line, when=_negated(line.when)))
    yield _of_lines(fsm, line, GUARD, "negated", f"asks not {line.guard_name}", lines, "asked", "guard negated")


def _swapped(fsm: Fsm[Any], line: Line) -> Iterator[Mutant]:
    """With each row that follows it in one of its cells: it is then looked at after that one, in all their cells."""
    behind: dict[int, Line] = {}
    for state in line.sources:
        cell = fsm.cell(state, line.event)
        at = next((n for n, one in enumerate(cell) if one.number == line.number), None)
        if at is not None and at + 1 < len(cell) and cell[at + 1].kind == "row":
            behind[cell[at + 1].number] = cell[at + 1]
    for number, other in sorted(behind.items()):
        lines = [one for one in fsm.lines if one is not line]
        lines.insert(lines.index(other) + 1, line)
        yield _of_lines(fsm, line, ROW, f"after-{number}", f"stands behind row {number}", lines, "asked", "swapped")


def _of_lines(
    fsm: Fsm[Any], line: Line, group: str, name: str, what: str, lines: Sequence[Line], site: str, kind: str = ""
) -> Mutant:
    table = _Table(fsm, lines)
    return Mutant(
        f"{fsm.name}/{line.number}/{name}",
        group,
        kind or name,
        f"row {line.number} ({_described(line)}) {what}",
        line.clause,
        ((site, fsm.full_name, line.number),),
        table.install,
        table.refusal,
    )


def _with(fsm: Fsm[Any], line: Line, other: Line) -> list[Line]:
    return [other if one is line else one for one in fsm.lines]


class _Table:
    """Another table of a machine, compiled when it is wanted."""

    def __init__(self, fsm: Fsm[Any], lines: Sequence[Line], timers: tuple[Timer, ...] | None = None) -> None:
        self.fsm = fsm
        self.lines = lines
        self.timers = timers

    def install(self, stack: ExitStack) -> None:
        """Put it in."""
        install(stack, self.fsm, with_lines(self.fsm, self.lines, self.timers))

    def refusal(self) -> str:
        """What a declaration would say of it."""
        return refusal(self.fsm, self.lines)


def _copy(line: Line, **changes: Any) -> Line:
    return replace(line, **changes)


def _negated(when: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    @wraps(when)
    def negated(record: Any, event: Any) -> bool:
        return not when(record, event)

    return negated


def _described(line: Line) -> str:
    states = ", ".join(str(state.value) for state in line.sources[:2]) + (", ..." if len(line.sources) > 2 else "")
    to = "" if line.dest is None else f" -> {line.dest.value}"
    return f"{name_of(line.event)} in {states}{to}"


# -- timers ---------------------------------------------------------------------------------------------------------


def _timer_effects(fsm: Fsm[Any], line: Line) -> Iterator[Mutant]:
    for name, scale in SCALES.items():
        lines = _with(fsm, line, _copy(line, do=_scaled(line.do, scale)))
        what = f"has its timers {name}"
        yield _of_lines(fsm, line, TIMER, f"timer-{name}", what, lines, "row", f"timer {name}")


def _scaled(do: Any, scale: Scale) -> Any:
    """The action, with other times in the timers that it sets."""
    run = do.run if isinstance(do, Delegate) else do

    @wraps(run)
    def scaled(record: Any, event: Any, now_ns: int) -> Any:
        record, effects, *rest = run(record, event, now_ns)
        return record, tuple(_rescaled(effects, scale, now_ns)), *rest

    return Delegate(scaled) if isinstance(do, Delegate) else scaled


def _rescaled(effects: Sequence[Any], scale: Scale, now_ns: int) -> Iterator[Any]:
    for effect in effects:
        if isinstance(effect, SetTimer):
            after = scale(effect.deadline_ns - now_ns)
            if after is not None:
                yield replace(effect, deadline_ns=now_ns + after)
        else:
            yield effect


def _timers(fsm: Fsm[Any], number: int, timer: Timer) -> Iterator[Mutant]:
    """What entering a state arms."""
    for name, scale in SCALES.items():
        other = Timer(timer.name, timer.event, timer.states, _scaled_period(timer, scale), on_entry=name != "dropped")
        timers = tuple(other if one is timer else one for one in fsm.timers)
        yield Mutant(
            f"{fsm.name}/{timer.name}/timer-{name}",
            TIMER,
            f"timer {name}",
            f"timer {timer.name}, when its states are entered, is {name}",
            "",
            (_armed(fsm, number),),
            _Table(fsm, fsm.lines, timers).install,
        )


def _armed(fsm: Fsm[Any], number: int) -> Site:
    return ("armed", fsm.full_name, number)


def _scaled_period(timer: Timer, scale: Scale) -> Callable[[Any], int]:
    def period_ns(record: Any) -> int:
        return scale(timer.period_ns(record) if timer.period_ns else 0) or 0

    return period_ns
