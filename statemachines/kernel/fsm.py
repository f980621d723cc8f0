"""A machine, declared once: rows, states, timers; and the step compiled from it.

A declaration is a `transitions.Machine`, which the `Fsm` keeps as `reference`; the machine's rules (order of rows,
wildcard sources, internal and reflexive transitions) are the meaning of a table.  The dispatch table of `Fsm.step` is
read back from it.  `Fsm.reference_step` is the same step taken by `transitions` itself, an order of magnitude slower;
tests compare the two.  `Fsm.use_engine("transitions")` has a running program take its steps that way.

What happens outside the rows, once for all machines:

* a cell (state x event of the alphabet) without any row is refused when the machine is declared;
* guards that all fail, with no `Ignore` or `Refuse` behind them: nothing happens, `Step.row` is -1;
* an event that is not of the alphabet, or any event in a final state: `RemoteProtocolError` for a `Message`,
  `LocalProtocolError` for anything else; the record is untouched.

`Any` lives here, where `transitions` (untyped, mutable models) meets the types.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Generic

import msgspec
from msgspec.structs import replace
from transitions import Machine

from statemachines.kernel.arming import can_arm
from statemachines.kernel.effect import CancelTimer, Effects, SetTimer
from statemachines.kernel.errors import (
    ConfigurationError,
    DeclarationError,
    DeclarationWarning,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
)
from statemachines.kernel.event import Answer, Event, Message, TimerFired, column_fields, name_of
from statemachines.kernel.row import ANY, STAY, AnyRow, ChildStep, Delegate, Ignore, R, Refuse, Row
from statemachines.kernel.timer import Timer

ENGINES = ("compiled", "transitions")
"""Who takes the steps of a machine; the first is the default."""


class Step(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """The outcome of one event: the next record, what to do (in order), the row taken (-1: none)."""

    record: R
    effects: Effects
    row: int
    children: tuple[ChildStep, ...] = ()


class Line(msgspec.Struct, frozen=True):
    """One numbered line of the table: a row, or one event of an `Ignore` or `Refuse`."""

    number: int
    event: type[Event]
    sources: tuple[Enum, ...]
    dest: Enum | None
    """None: internal (or ignored, or refused)."""
    kind: str
    """row, ignore or refuse."""
    clause: str
    do: Any = None
    when: Any = None

    @property
    def action_name(self) -> str:
        """The action as the table shows it."""
        run = self.do.run if isinstance(self.do, Delegate) else self.do
        return "" if run is None else str(run.__name__)

    @property
    def guard_name(self) -> str:
        """The guard as the table shows it."""
        return "" if self.when is None else str(self.when.__name__)


class Invariant(Generic[R]):
    """A promise about one record: `holds(record)` in full, `touched(record, event)` for what the event touched."""

    __slots__ = ("clause", "holds", "name", "touched")

    def __init__(
        self,
        name: str,
        clause: str,
        holds: Callable[[R], bool],
        touched: Callable[[R, Event], bool] | None = None,
    ) -> None:
        self.name = name
        self.clause = clause
        self.holds = holds
        self.touched = touched


class Fsm(Generic[R]):
    """A declared machine.  `protocol` it is of ("": of none); `key(record)` names the instance when this is a child
    machine ("" otherwise)."""

    def __init__(
        self,
        name: str,
        *,
        protocol: str = "",
        record: type[R],
        states: type[Enum],
        initial: Enum,
        rows: tuple[AnyRow, ...],
        final: tuple[Enum, ...] = (),
        timers: tuple[Timer, ...] = (),
        children: tuple[Fsm[Any], ...] = (),
        key: Callable[[R], str] | None = None,
        invariants: tuple[Invariant[R], ...] = (),
    ) -> None:
        self.name = name
        self.protocol = protocol
        self.full_name = f"{protocol}/{name}" if protocol else name
        """As traces and snapshots name it: two protocols may each have a machine of this name."""
        self.record_type = record
        self.states = tuple(states)
        self.initial = initial
        self.final = final
        self.timers = timers
        self.children = children
        self.invariants = invariants
        self.declared = rows
        self.key = key or _no_key
        self.lines = tuple(self._number(rows))
        self.alphabet = tuple(dict.fromkeys(line.event for line in self.lines))
        self._registry = self._collect_timers()
        self.authority: frozenset[str] = frozenset(one.name for one in timers if one.authority).union(
            *(child.authority for child in children)
        )
        """The names of the timers of authority, of this machine and of those in it."""
        self._check()
        self._moves = self._compile_moves()
        self.reference = self.machine()
        """The `transitions.Machine` of this declaration: `step` looks up what was read from it."""
        self._cells = self._compile(self.reference)
        self._model: Model[R] = Model()

    # -- the step ---------------------------------------------------------------------------------------------

    def step(self, record: R, event: Event, now_ns: int) -> Step[R]:
        """Take one step: pure and deterministic; `now_ns` only computes deadlines and stamps messages."""
        try:
            cell = self._cells[type(event)][record.status]  # type: ignore[attr-defined]
        except KeyError:
            raise self._unknown(record, event) from None
        for guard, action, number, move, delegates in cell:
            if guard is None or guard(record, event):
                children: tuple[ChildStep, ...] = ()
                effects: Effects
                if delegates:
                    record, effects, children = action(record, event, now_ns)
                elif action is None:
                    effects = ()
                else:
                    record, effects = action(record, event, now_ns)
                if move is not None:
                    record, effects = move(record, effects, now_ns)
                return Step(record, effects, number, children)
        return Step(record, (), -1)

    def start(self, record: R, now_ns: int) -> Effects:
        """The effects of entering the initial state: its timers are armed."""
        return self._arm(self._entered(None, record.status), record, now_ns)  # type: ignore[attr-defined]

    def child_step(self, record: R, event: Event, now_ns: int, number: int = -1) -> tuple[R, Effects, ChildStep]:
        """A step of a child machine: the next record, the effects, and how the parent reports it (see `ChildStep` for
        `number`).  It is the loop of `step` again and not a call of it, being half of the cost of a parent's step."""
        status: Enum = record.status  # type: ignore[attr-defined]
        try:
            cell = self._cells[type(event)][status]
        except KeyError:
            raise self._unknown(record, event) from None
        for guard, action, row, move, delegates in cell:
            if guard is None or guard(record, event):
                effects: Effects
                if delegates:
                    record, effects, _ = action(record, event, now_ns)
                elif action is None:
                    effects = ()
                else:
                    record, effects = action(record, event, now_ns)
                if move is not None:
                    record, effects = move(record, effects, now_ns)
                return record, effects, ChildStep(self, record, number, event, status, row)
        return record, (), ChildStep(self, record, number, event, status, -1)

    # -- the reference ----------------------------------------------------------------------------------------

    def machine(self) -> Machine:
        """The live `transitions.Machine` of this declaration, without a model (add your own: see `Model`)."""
        machine = Machine(
            model=None,
            states=[str(state.value) for state in self.states],
            initial=str(self.initial.value),
            auto_transitions=False,
            send_event=True,
        )
        for line in self.lines:
            machine.add_transition(
                name_of(line.event),
                [str(state.value) for state in line.sources],
                None if line.dest is None else str(line.dest.value),
                conditions=[_Condition(line)],
                before=[_Before(self, line)],
                after=[] if line.dest is None else [_After(self)],
            )
        return machine

    def reference_step(self, record: R, event: Event, now_ns: int) -> Step[R]:
        """The same step, taken by `transitions`: what `step` must equal."""
        if not self.reference.models:
            self.reference.add_model(self._model)
        status = record.status  # type: ignore[attr-defined]
        if type(event) not in self._cells or status in self.final:
            raise self._unknown(record, event)
        model = self._model
        model.load(record, event, now_ns)
        model.state = str(status.value)
        model.trigger(name_of(type(event)))
        return Step(model.record, model.effects, model.row, model.children)

    def reference_child_step(
        self, record: R, event: Event, now_ns: int, number: int = -1
    ) -> tuple[R, Effects, ChildStep]:
        """The same child step, taken by `transitions`: what `child_step` must equal."""
        step = self.reference_step(record, event, now_ns)
        status: Enum = record.status  # type: ignore[attr-defined]
        return step.record, step.effects, ChildStep(self, step.record, number, event, status, step.row)

    def use_engine(self, engine: str) -> None:
        """Have this machine and its children step by "compiled" (the dispatch table, as they begin) or "transitions".

        It holds for all nodes of this process, also for those that run.  Raises `ConfigurationError` for another name.
        """
        if engine not in ENGINES:
            raise ConfigurationError("engine", engine, f"must be one of {', '.join(ENGINES)}")
        for one in self.family():
            for step in ("step", "child_step"):
                vars(one).pop(step, None)
                if engine != ENGINES[0]:
                    vars(one)[step] = getattr(one, f"reference_{step}")

    # -- reading the declaration ------------------------------------------------------------------------------

    def cell(self, status: Enum, event: type[Event]) -> tuple[Line, ...]:
        """The lines that decide `event` in `status`, in order."""
        return tuple(self.lines[entry[2]] for entry in self._cells.get(event, {}).get(status, ()))

    def timer_registry(self) -> dict[str, type[TimerFired]]:
        """Timer name -> event, of this machine and of its children; the same dictionary for every node."""
        return self._registry

    def _collect_timers(self) -> dict[str, type[TimerFired]]:
        registry = {timer.name: timer.event for timer in self.timers}
        for child in self.children:
            for name, event in child.timer_registry().items():
                if registry.setdefault(name, event) is not event:
                    raise DeclarationError(f"{self.name}: two timers are called {name!r}")
        return registry

    def family(self) -> tuple[Fsm[Any], ...]:
        """This machine and its child machines, depth first."""
        return (self, *(member for child in self.children for member in child.family()))

    def __repr__(self) -> str:
        return f"Fsm({self.name!r}: {len(self.states)} states, {len(self.lines)} rows)"

    # -- declaration to lines ---------------------------------------------------------------------------------

    def _number(self, rows: tuple[AnyRow, ...]) -> Iterator[Line]:
        number = 0
        for row in rows:
            sources = self._sources(row.source)
            if isinstance(row, Row):
                yield Line(
                    number, row.on, sources, None if row.to is STAY else row.to, "row", row.clause, row.do, row.when
                )
                number += 1
            else:
                kind = "refuse" if isinstance(row, Refuse) else "ignore"
                for event in row.on:
                    yield Line(number, event, sources, None, kind, row.clause)
                    number += 1

    def _sources(self, source: Enum | tuple[Enum, ...]) -> tuple[Enum, ...]:
        if source is ANY:
            return tuple(state for state in self.states if state not in self.final)
        return source if isinstance(source, tuple) else (source,)

    def _check(self) -> None:
        """Every cell is decided, every name is known, no final state is left, every row can be reached; what fills
        the columns of traces is there."""
        known = set(self.states)
        decided: set[tuple[Enum, type[Event]]] = set()
        for line in self.lines:
            strange = [state for state in (*line.sources, line.dest) if state is not None and state not in known]
            if strange:
                raise DeclarationError(f"{self.name}, row {line.number}: {strange[0]!r} is not one of its states")
            if any(state in self.final for state in line.sources):
                raise DeclarationError(f"{self.name}, row {line.number}: leaves a final state")
            if not line.clause:
                raise DeclarationError(f"{self.name}, row {line.number}: no clause")
            decided.update((state, line.event) for state in line.sources)
        self._check_reachable()
        missing = [
            f"{state.value} x {name_of(event)}"
            for state in self.states
            if state not in self.final
            for event in self.alphabet
            if (state, event) not in decided
        ]
        if missing:
            raise DeclarationError(
                f"{self.name}: undecided cells (a row, an Ignore or a Refuse?): {', '.join(missing)}"
            )
        for event in self.alphabet:
            column_fields(event)
        for timer in self.timers:
            if timer.event not in self.alphabet:
                raise DeclarationError(f"{self.name}: nothing takes {name_of(timer.event)} of timer {timer.name!r}")
        self._check_timers()

    def _check_timers(self) -> None:
        """A timer that entering arms fires once in a state where a row takes its event, stays, and cannot arm it; one
        of authority is an end, and is meant to."""
        timers: dict[type[Event], Timer] = {
            timer.event: timer for timer in self.timers if timer.on_entry and not (timer.once or timer.authority)
        }
        for line in self.lines:
            timer = timers.get(line.event)
            if timer is None or line.kind != "row" or line.dest is not None or isinstance(line.do, Delegate):
                continue
            stays = [state for state in line.sources if state in timer.states]
            others = {one.name for one in self.timers} - {timer.name}
            if stays and (line.do is None or not can_arm(line.do, timer.name, others)):
                text = (
                    f"{self.name}, row {line.number}: takes {name_of(line.event)}, stays in {stays[0].value}, and does "
                    f"not set the timer {timer.name!r} again: it fires once; return SetTimer, or declare it once=True"
                )
                warnings.warn(text, DeclarationWarning, stacklevel=4)

    def _check_reachable(self) -> None:
        """Nothing behind a line without a guard is ever looked at: no row stands there, in any of its cells.  What is
        ignored or refused may be said of more cells than are left to it, of one at least."""
        closed: dict[tuple[Enum, type[Event]], int] = {}
        for line in self.lines:
            before = {state: closed[state, line.event] for state in line.sources if (state, line.event) in closed}
            if before and (line.kind == "row" or len(before) == len(set(line.sources))):
                state, number = next(iter(before.items()))
                raise DeclarationError(
                    f"{self.name}, row {line.number}: can never be taken in {state.value} x {name_of(line.event)}, "
                    f"since row {number} before it has no guard; put it first, or give row {number} a guard"
                )
            if line.when is None:
                closed |= dict.fromkeys(((state, line.event) for state in line.sources), line.number)

    # -- compilation ------------------------------------------------------------------------------------------

    def _compile(self, machine: Machine) -> dict[type[Event], dict[Enum, tuple[Any, ...]]]:
        """Read the dispatch table back from the `transitions.Machine`."""
        cells: dict[type[Event], dict[Enum, tuple[Any, ...]]] = {}
        states = {str(state.value): state for state in self.states}
        for event in self.alphabet:
            cells[event] = {
                states[source]: tuple(
                    self._entry(self._line(transition), states[source], transition.dest) for transition in transitions
                )
                for source, transitions in machine.events[name_of(event)].transitions.items()
                if transitions
            }
        return cells

    @staticmethod
    def _line(transition: Any) -> Line:
        line: Line = transition.conditions[0].func.line
        return line

    def _entry(self, line: Line, source: Enum, dest: str | None) -> tuple[Any, ...]:
        if line.kind == "refuse":
            return (None, self._refusal(line), line.number, None, False)
        if isinstance(line.do, Delegate):
            action, delegates = line.do.run, True
        else:
            action, delegates = line.do, False
        move = None if dest is None else self._moves[source, line.dest]  # type: ignore[index]
        return (line.when, action, line.number, move, delegates)

    def _refusal(self, line: Line) -> Callable[[R, Event, int], tuple[R, Effects]]:
        def refuse(record: R, event: Event, now_ns: int) -> tuple[R, Effects]:
            raise _blame(event)(
                self.name,
                str(record.status.value),  # type: ignore[attr-defined]
                name_of(line.event),
                line.clause,
                "the table refuses it",
            )

        return refuse

    def _compile_moves(self) -> dict[tuple[Enum, Enum], Callable[[R, Effects, int], tuple[R, Effects]]]:
        return {
            (source, line.dest): self._move(source, line.dest)
            for line in self.lines
            if line.dest is not None
            for source in line.sources
        }

    def _move(self, source: Enum, dest: Enum) -> Callable[[R, Effects, int], tuple[R, Effects]]:
        """Set the status; cancel the timers left, arm those entered; then the effects of the action."""
        left = self._list_left_timers(source, dest)
        entered = self._entered(source, dest)

        def move(record: R, effects: Effects, now_ns: int) -> tuple[R, Effects]:
            record = replace(record, status=dest)
            if not left and not entered:
                return record, effects
            key = self.key(record)
            cancels = tuple(CancelTimer(timer.name, key) for timer in left)
            return record, (*cancels, *self._arm(entered, record, now_ns), *effects)

        return move

    def _list_left_timers(self, source: Enum, dest: Enum) -> tuple[Timer, ...]:
        return tuple(
            timer for timer in self.timers if source in timer.states and (dest not in timer.states or dest is source)
        )

    def _entered(self, source: Enum | None, dest: Enum) -> tuple[Timer, ...]:
        return tuple(
            timer
            for timer in self.timers
            if timer.on_entry and dest in timer.states and (source not in timer.states or dest is source)
        )

    def _arm(self, timers: tuple[Timer, ...], record: R, now_ns: int) -> Effects:
        key = self.key(record)
        return tuple(SetTimer(one.name, now_ns + one.period_ns(record), key) for one in timers if one.period_ns)

    def _unknown(self, record: R, event: Event) -> ProtocolError:
        status: Enum = record.status  # type: ignore[attr-defined]
        why = "the machine has stopped" if status in self.final else f"{self.name} does not take this event"
        if isinstance(event, Answer) and status not in self.final:
            why += ", which answers what it asked; give the answer a row or an Ignore"
        return _blame(event)(self.name, str(status.value), name_of(type(event)), "", why)


class Model(Generic[R]):
    """What `transitions` mutates: the record, and what the rows gave back."""

    state: str
    trigger: Callable[[str], bool]
    record: R
    event: Event
    now_ns: int
    effects: Effects
    children: tuple[ChildStep, ...]
    row: int

    def load(self, record: R, event: Event, now_ns: int) -> None:
        """Make ready for one trigger."""
        self.record = record
        self.event = event
        self.now_ns = now_ns
        self.effects = ()
        self.children = ()
        self.row = -1


class _Condition:
    """The guard of a line, as `transitions` calls it."""

    __slots__ = ("line",)

    def __init__(self, line: Line) -> None:
        self.line = line

    def __call__(self, data: Any) -> bool:
        return self.line.when is None or bool(self.line.when(data.model.record, data.model.event))


class _Before:
    """The action of a line, as `transitions` calls it."""

    __slots__ = ("action", "delegates", "line")

    def __init__(self, fsm: Fsm[Any], line: Line) -> None:
        self.line = line
        self.delegates = isinstance(line.do, Delegate)
        self.action = line.do.run if self.delegates else line.do
        if line.kind == "refuse":
            self.action = fsm._refusal(line)

    def __call__(self, data: Any) -> None:
        model = data.model
        model.row = self.line.number
        if self.delegates:
            model.record, model.effects, model.children = self.action(model.record, model.event, model.now_ns)
        elif self.action is not None:
            model.record, model.effects = self.action(model.record, model.event, model.now_ns)


class _After:
    """Timers and status of a change of state, as `transitions` calls it."""

    __slots__ = ("moves",)

    def __init__(self, fsm: Fsm[Any]) -> None:
        self.moves = {(str(a.value), str(b.value)): move for (a, b), move in fsm._moves.items()}

    def __call__(self, data: Any) -> None:
        model = data.model
        move = self.moves[data.transition.source, data.transition.dest]
        model.record, model.effects = move(model.record, model.effects, model.now_ns)


def _blame(event: Event) -> type[ProtocolError]:
    return RemoteProtocolError if isinstance(event, Message) else LocalProtocolError


def _no_key(record: object) -> str:
    return ""


__all__ = ["Fsm", "Ignore", "Invariant", "Line", "Model", "Refuse", "Row", "Step"]
