"""ConformanceRun: one instance of an implementation, fed and judged.

The kit carries every state of the table that what came so far allows..  An answer must be one that a state of them
allows; so must silence..  Time passes from deadline to deadline, those of the implementation and those of the table:
what is due at a moment is fired before anything else is said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from statemachines.kernel import (
    Answer,
    CancelTimer,
    Effect,
    Event,
    Fsm,
    GaplessError,
    ProtocolError,
    SetTimer,
    TimerFired,
    name_of,
)
from statemachines.testing.conformance.child_process import Implementation
from statemachines.testing.conformance.interface import (
    CancelTimerEffect,
    InterfaceError,
    SetTimerEffect,
    StopEffect,
)
from statemachines.testing.conformance.relation import (
    STOPPED,
    Binding,
    Output,
    OutputsOf,
    answered_values,
    match_answer,
    words_of,
)
from statemachines.testing.conformance.role import ConformanceRole, PlayedWorld, Start

STATES_MAX: Final = 64
"""More possible states than this are not carried: the run is inconclusive."""

TIMERS_MAX: Final = 10_000
TOO_MANY_TIMERS: Final = f"more than {TIMERS_MAX:,} timers; take those back that you do not wait for"
LAST: Final = ("\U0010ffff", "")
"""Behind all timers of the table."""

FIRINGS_MAX: Final = 1_000
"""So many timers of an implementation may be due at one moment."""

Cell = tuple[str, int, str]
"""Machine by its full name, number of the row, state before."""


class FedInput(msgspec.Struct, frozen=True, tag="feed"):
    """Say this event."""

    event: Any


class Wait(msgspec.Struct, frozen=True, tag="wait"):
    """Let so much time pass.  `is_turned`: of timers that are due at one moment, and of which none is to come first,
    the kit fires the last one first."""

    ns: int
    is_turned: bool = False


class Late(msgspec.Struct, frozen=True, tag="late"):
    """Fire a timer that was taken back, by its name in the table; one of a child with its key after a space."""

    timer: str


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """Begin an instance: number of the start."""

    start: int = 0


Move = Begin | FedInput | Wait | Late
"""What the kit does next."""


class PossibleState(msgspec.Struct, frozen=True):
    """A state that the implementation may be in: the record, and the deadlines of the timers that are set,
    and what the services hold."""

    record: Any
    armed: dict[tuple[str, str], int]
    binding: Binding
    stopped: bool = False
    world: PlayedWorld = ()


class ForeseenRow(msgspec.Struct, frozen=True):
    """The row of the machine itself that was taken last, and the one an event would take; whether it would change the
    record; whether it would end the instance."""

    rows: tuple[int, int]
    is_change: bool
    is_end: bool


class AllowedAnswer(msgspec.Struct, frozen=True):
    """One way in which the table takes an input: what is seen of it, the state after it, and the rows."""

    state: PossibleState
    outputs: tuple[Output, ...]
    cells: tuple[Cell, ...]


class ConformanceViolation(msgspec.Struct, frozen=True):
    """What an implementation did wrong..  `fed`: the last input, `at_ns`: when; `expected`: each way that was allowed,
    with the clauses of its rows; `came`; `wrong`: the difference."""

    fed: str
    at_ns: int
    states: tuple[str, ...]
    expected: tuple[tuple[tuple[Output, ...], tuple[str, ...]], ...]
    came: tuple[Output, ...]
    wrong: str


class Inconclusive(GaplessError):
    """The run cannot be judged any further, through no fault of the implementation."""


class Violated(GaplessError):
    """The implementation does what no clause allows."""

    def __init__(self, violation: ConformanceViolation) -> None:
        super().__init__(violation.wrong)
        self.violation = violation


class ConformanceRun:
    """Runs of an implementation, one instance after the other.  `ties`: so often several timers were due at one moment,
    and none of them was to come first.  `cells` are the rows taken so far, `pairs` the rows of
    the machine itself that followed each other; `inputs` counts the lines."""

    def __init__(self, role: ConformanceRole, implementation: Implementation) -> None:
        self.role = role
        self.fsm: Fsm[Any] = role.fsm
        self.interface = role.interface
        self.implementation = implementation
        self.cells: set[Cell] = set()
        self.pairs: set[tuple[int, int]] = set()
        self.inputs = 0
        self.now_ns = 0
        self.states: list[PossibleState] = []
        self._timers: dict[str, tuple[bool, int, int]] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._covered: dict[tuple[int, tuple[Cell, ...]], int] = {}
        self._set: list[Any] = []
        self._start = role.starts[0]
        self._taken_back: set[tuple[str, str]] = set()
        self._cancelled: set[str] = set()
        self._is_turned = False
        self.ties = 0
        self._stopped = True
        self._last_row = -1
        self._outputs = OutputsOf(role.relation)
        self._timer_names = {kind: name for name, kind in self.fsm.timer_registry().items()}

    @property
    def is_over(self) -> bool:
        """Whether the instance has ended."""
        return self._stopped

    # -- moves --------------------------------------------------------------------------------------------------

    def make(self, move: Move) -> None:
        """Make a move.  Raises `Violated`, `Inconclusive`, and `InterfaceError` for an answer that is none."""
        match move:
            case Begin(start):
                self.begin(self.role.starts[start])
            case FedInput(event):
                self.feed(event)
            case Wait(ns, is_turned):
                self._is_turned = is_turned
                self.wait(ns)
                self._is_turned = False
            case Late(timer):
                self.fire_late(timer)

    def begin(self, start: Start) -> None:
        """Begin an instance."""
        record = start.record
        self.now_ns = 0
        self._timers.clear()
        self._names.clear()
        self._taken_back.clear()
        self._cancelled.clear()
        self._stopped = False
        self._last_row = -1
        self._start = start
        self.states = [PossibleState(record, {}, {}, False, start.world.begin())]
        world = self.states[0].world
        state = _after(self.states[0], record, self.fsm.start(record, 0), False, None, world)
        line = self.interface.init_line(record, 0, self.inputs + 1)
        came = self._ask(line, "init")
        self._judge("init", [AllowedAnswer(state, (), ())], came)
        self._settle()

    def feed(self, event: Event) -> None:
        """Say an event, now."""
        said = answered_values(self.role.relation, event, self.states[0].binding)
        self._say(self.interface.event_line(said, self.now_ns, self.inputs + 1), name_of(type(event)))
        taken = []
        for state in self.states:
            try:
                taken.append(self._step(state, event))
            except ProtocolError:
                continue
        if not taken:
            where = " or ".join(self._list_states())
            raise Inconclusive(f"{name_of(type(event))} is refused by the table in {where}: it is no input there")
        before = self.states
        came = self._hear(name_of(type(event)))
        self._judge(event, taken, came)
        is_single = len(before) == len(self.states) == 1
        if is_single and before[0].armed is self.states[0].armed and not self._set:
            return  # no timer was touched
        if is_single:
            self._taken_back.update(before[0].armed.keys() - self.states[0].armed.keys())
        self._settle()

    def wait(self, ns: int) -> None:
        """Let time pass; what is due on the way is fired."""
        until, firings = self.now_ns + ns, 0
        while not self._stopped and (due := self._next_due()) is not None and due <= until:
            self.now_ns = max(self.now_ns, due)
            self._fire()
            firings += 1
            if firings == FIRINGS_MAX:
                raise Inconclusive(f"timers were due {FIRINGS_MAX:,} times while {ns:,} ns passed; set them for later")
        self.now_ns = until

    def can_fire_late(self, timer: str) -> bool:
        """Whether the implementation has taken a timer back that is known to be this one of the table."""
        slot = _slot_of(timer)
        name = self._names.get(slot)
        return (
            name in self._cancelled
            and slot in self._taken_back
            and not self._stopped
            and all(slot not in state.armed for state in self.states)
        )

    def fire_late(self, timer: str) -> None:
        """Fire a timer that was taken back.  Raises `Inconclusive` where the implementation has no such one."""
        if not self.can_fire_late(timer):
            raise Inconclusive(f"the implementation has taken back no timer that is {timer!r} of the table")
        slot = _slot_of(timer)
        event = self.fsm.timer_registry()[slot[0]](slot[1])
        taken = [self._step(state, event) for state in self.states]
        line = self.interface.timer_line(self._names[slot], self.now_ns, self.inputs + 1)
        self._judge(event, taken, self._ask(line, f"timer {timer}"))
        self._settle()

    # -- time ---------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Fire what was set for now."""
        while not self._stopped and (due := self._next_due()) is not None and due <= self.now_ns:
            self._fire()

    def _next_due(self) -> int | None:
        """The next deadline of either side: of the table, the last moment at which what is owed may come."""
        late_ns, owed = self.role.relation.late_ns, self.role.relation.owed
        found: int | None = None
        for _, at, _ in self._timers.values():
            if found is None or at < found:
                found = at
        for state in self.states:
            for slot, at in state.armed.items():
                last = at + late_ns(slot[0]) if owed else at
                if found is None or last < found:
                    found = last
        return found

    def _fire(self) -> None:
        """Fire the timers that are due: those of the implementation one by one, and those of each possible state."""
        came: list[Output] = []
        fired: list[str] = []
        taken: list[AllowedAnswer] = []
        while (name := self._first_due()) is not None:
            if len(fired) == FIRINGS_MAX:
                self._fail(f"timer {name}", [], tuple(came), f"sets timers for now for ever: {name}")
            fired.append(name)
            del self._timers[name]
            self._say(self.interface.timer_line(name, self.now_ns, self.inputs + 1), f"timer {name}")
            taken = taken or self._all_fired()
            came += self._hear(f"timer {name}")
            if self._stopped:
                break
        taken = taken or self._all_fired()
        self._judge(
            f"timer {', '.join(fired)}" if fired else "time (no timer of the implementation is due)", taken, tuple(came)
        )

    def _all_fired(self) -> list[AllowedAnswer]:
        """Each way in which the due timers of each possible state fire."""
        return [one for state in self.states for one in self._fired(AllowedAnswer(state, (), ()), 0)]

    def _first_due(self) -> str | None:
        """Of the implementation: authority first, then by deadline, then in the order of the table's names where they
        are known, then as they were set."""
        now_ns = self.now_ns
        due = [(not first, at, place, name) for name, (first, at, place) in self._timers.items() if at <= now_ns]
        if len(due) > 1:
            known = {name: slot for slot, name in self._names.items()}
            next_due = min(one[:2] for one in due)
            due = [one for one in due if one[:2] == next_due]
            self.ties += len(due) > 1
            due.sort(key=lambda one: (known.get(one[3], LAST), one[2]), reverse=self._is_turned)
        return due[0][3] if due else None

    def _fired(self, taken: AllowedAnswer, depth: int) -> Iterator[AllowedAnswer]:
        """Each way in which the timers of a state fire that are due: those of authority first, others in any order; one
        that may be late fires now, or later."""
        state, late = taken.state, self.role.relation.late_ns
        due = sorted([slot for slot, at in state.armed.items() if at <= self.now_ns])
        if not due:
            yield taken
            return
        first = [slot for slot in due if slot[0] in self.fsm.authority]
        if not any(state.armed[slot] + late(slot[0]) <= self.now_ns for slot in due):
            yield taken
        if depth >= FIRINGS_MAX:
            raise Inconclusive("the table sets timers for now for ever")
        for timer, key in first or due:
            event = self.fsm.timer_registry()[timer](key)
            after = self._step(state, event)
            yield from self._fired(
                AllowedAnswer(after.state, taken.outputs + after.outputs, taken.cells + after.cells), depth + 1
            )

    # -- the table ----------------------------------------------------------------------------------------------

    def _step(self, state: PossibleState, event: Event) -> AllowedAnswer:
        """How the table takes an event in a state."""
        fsm, before = self.fsm, state.record
        step = fsm.step(before, event, self.now_ns)
        cells = [(fsm.full_name, step.row, str(before.status.value))] if step.row >= 0 else []
        cells += [(one.full_machine, one.row, str(one.source.value)) for one in step.children if one.row >= 0]
        stops = step.record.status in fsm.final
        fired = (self._timer_names[type(event)], event.key) if isinstance(event, TimerFired) else None
        outputs = self._outputs.of(step.effects)
        if stops and STOPPED not in outputs:
            outputs = (*outputs, STOPPED)
        world = self._start.world.after(state.world, event, step.effects) if state.world else ()
        after = _after(state, step.record, step.effects, stops, fired, world)
        return AllowedAnswer(after, outputs, tuple(cells))

    # -- the implementation -------------------------------------------------------------------------------------

    def _ask(self, line: bytes, what: str) -> tuple[Output, ...]:
        """Say a line, and hear the answer.  `what`: the line, for errors."""
        self._say(line, what)
        return self._hear(what)

    def _say(self, line: bytes, what: str) -> None:
        self.inputs += 1
        try:
            self.implementation.say(line)
        except InterfaceError as error:
            raise self._about(error, what) from None

    def _about(self, error: InterfaceError, what: str) -> InterfaceError:
        return type(error)(f"line {self.inputs} ({what}): the implementation {error}")

    def _hear(self, what: str) -> tuple[Output, ...]:
        """What is seen of the answer; its timers are set."""
        try:
            effects = self.interface.effects(self.implementation.hear(), self.inputs)
        except InterfaceError as error:
            raise self._about(error, what) from None
        found: list[Output] = []
        self._set = []
        for effect in effects:
            kind = type(effect)
            if kind is SetTimerEffect:
                self._set.append(effect)
                self._cancelled.discard(effect.timer)
                self._timers[effect.timer] = (effect.authority, effect.deadline_ns, len(self._timers))
                if len(self._timers) > TIMERS_MAX:
                    raise InterfaceError(f"line {self.inputs} ({what}): the implementation sets {TOO_MANY_TIMERS}")
            elif kind is CancelTimerEffect:
                if self._timers.pop(effect.timer, None) is not None:
                    self._cancelled.add(effect.timer)
            elif kind is StopEffect:
                self._stopped = True
                self._timers.clear()
                found.append(STOPPED)
            elif (one := self.interface.output(effect)).name not in self.role.relation.hidden:
                found.append(one)
        return tuple(found)

    # -- judging ------------------------------------------------------------------------------------------------

    def _judge(self, fed: Any, taken: list[AllowedAnswer], came: tuple[Output, ...]) -> None:
        """Keep the states that allow what came.  Raises `Violated` where none does."""
        relation = self.role.relation
        if len(taken) == 1 and taken[0].outputs == came and relation.chosen_in.isdisjoint([one.name for one in came]):
            self._keep(taken)
            return
        kept: list[AllowedAnswer] = []
        wrong = ""
        for one in taken:
            binding = match_answer(relation, one.outputs, came, one.state.binding)
            if isinstance(binding, str):
                wrong = wrong or binding
                continue
            state = one.state
            if binding is not state.binding:
                state = PossibleState(state.record, state.armed, binding, state.stopped, state.world)
            if not any(state == other.state for other in kept):
                kept.append(AllowedAnswer(state, one.outputs, one.cells))
        if not kept:
            self._fail(fed, taken, came, wrong)
        if len(kept) > STATES_MAX:
            raise Inconclusive(f"more than {STATES_MAX} states are possible after {_words(fed)}")
        self._keep(kept)

    def _keep(self, kept: list[AllowedAnswer]) -> None:
        before = self.states
        self.states = [one.state for one in kept]
        self._stopped = all(state.stopped for state in self.states)
        self._cover(kept)
        if len(kept) == 1:
            self._name_timers(before)

    def _name_timers(self, before: list[PossibleState]) -> None:
        """Which timer of the table one of the implementation is: the one that was set for the same moment at the same
        input, if no other was."""
        armed = self.states[0].armed
        old = before[0].armed if len(before) == 1 else {}
        if not self._set or armed is old:
            return
        new = [(slot, at) for slot, at in armed.items() if old.get(slot) != at]
        for slot, at in new:
            theirs = [one.timer for one in self._set if one.deadline_ns == at]
            if len(theirs) == 1 and sum(other == at for _, other in new) == 1:
                self._names[slot] = theirs[0]

    def _cover(self, kept: list[AllowedAnswer]) -> None:
        """Count the rows that were taken, whichever of the possible states it was."""
        if len(kept) > 1:
            self.cells |= set(kept[0].cells).intersection(*(one.cells for one in kept[1:]))
            self._last_row = -1
            return
        cells, before = kept[0].cells, self._last_row
        last = self._covered.get((before, cells))
        if last is None:
            self.cells.update(cells)
            last = before
            for machine, row, _ in cells:
                if machine == self.fsm.full_name:
                    if last >= 0:
                        self.pairs.add((last, row))
                    last = row
            self._covered[before, cells] = last
        self._last_row = last

    def next_inputs(self) -> Iterator[Event]:
        """What may come next, as the start says: what is told, and the answers of services."""
        return self._start.next_inputs(self.states[0].record, self.states[0].world)

    def can_feed(self, event: Event) -> bool:
        """Whether somebody may say this now: an answer is one of a service that was asked, where the kit plays it."""
        return not (self.states[0].world and isinstance(event, Answer)) or event in self.next_inputs()

    def foresee(self, event: Event) -> ForeseenRow | None:
        """What the table would do with the event now; None: it refuses it, or nobody would say it."""
        record = self.states[0].record
        try:
            step = self.fsm.step(record, event, self.now_ns)
        except Exception:  # a drawn answer that no service gives
            return None
        return ForeseenRow((self._last_row, step.row), step.record is not record, step.record.status in self.fsm.final)

    def next_due_ns(self) -> int | None:
        """How long until the next deadline; None: there is none."""
        due = self._next_due()
        return None if due is None else due - self.now_ns

    def late_timers(self) -> list[str]:
        """Timers of the table that may fire late now, and that it then ignores."""
        if not self._cancelled:
            return []
        found = [" ".join(slot).rstrip() for slot in sorted(self._taken_back)]
        return [timer for timer in found if self.can_fire_late(timer) and self._is_ignored(timer)]

    def _is_ignored(self, timer: str) -> bool:
        name, key = _slot_of(timer)
        event, record = self.fsm.timer_registry()[name](key), self.states[0].record
        try:
            step = self.fsm.step(record, event, self.now_ns)
        except ProtocolError:
            return False
        return step.record == record and not step.effects

    def _fail(self, fed: Any, taken: list[AllowedAnswer], came: tuple[Output, ...], wrong: str) -> None:
        expected = tuple(
            (one.outputs, tuple(self.role.line_of(machine, row).clause for machine, row, _ in one.cells))
            for one in taken
        )
        raise Violated(ConformanceViolation(_words(fed), self.now_ns, self._list_states(), expected, came, wrong))

    def _list_states(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(str(state.record.status.value) for state in self.states))


def _slot_of(timer: str) -> tuple[str, str]:
    """A timer and the key of its instance."""
    name, _, key = timer.partition(" ")
    return name, key


def _words(fed: Any) -> str:
    """An input for people."""
    if isinstance(fed, str):
        return fed
    return words_of(fed) if fed.__struct_fields__ else name_of(type(fed))


def _after(
    state: PossibleState,
    record: Any,
    effects: tuple[Effect, ...],
    stops: bool,
    fired: tuple[str, str] | None = None,
    world: PlayedWorld = (),
) -> PossibleState:
    """The state after a step, with the timers that it has set and taken back."""
    if stops:
        return PossibleState(record, {}, state.binding, True, world)
    armed = state.armed
    if fired is not None:
        armed = {slot: at for slot, at in armed.items() if slot != fired}
    for effect in effects:
        kind = type(effect)
        if kind is SetTimer or kind is CancelTimer:
            armed = dict(armed) if armed is state.armed else armed
            if kind is SetTimer:
                armed[effect.timer, effect.key] = effect.deadline_ns  # type: ignore[union-attr]
            else:
                armed.pop((effect.timer, effect.key), None)  # type: ignore[union-attr]
    return PossibleState(record, armed, state.binding, False, world)
