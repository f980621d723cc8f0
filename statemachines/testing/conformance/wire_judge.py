"""WireJudge: one instance of an implementation, judged by its messages in real time.

The judge carries every state that the messages so far allow.  When a message comes, it searches the ways from these
states to that message.  Silence is judged in the same way: it is wrong when each way to go on silently is overdue.

CarriedState: a state that an implementation may be in, as far as its messages show it.

The kit cannot see when an input is handled or a timer is set: each is known by the earliest and the latest moment.
The earliest moments are certain, since an input is not handled before it is sent.  The latest ones count in the
tolerance of the run.

WireSearch: the states that an instance may be in, and the ways from them to its next message.

Inputs that were sent may have been handled or not, timers may have fired, stores may have answered, the application may
have called.

WireViolation: what is wrong with a message over the wire, or with silence, in the words of the table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, Ask, CancelTimer, Fsm, ProtocolError, Request, SetTimer
from statemachines.kernel.pmap import enc_hook
from statemachines.testing.conformance.conformance_run import Cell, ConformanceViolation, Inconclusive, Violated
from statemachines.testing.conformance.relation import (
    Binding,
    Output,
    OutputsOf,
    Relation,
    match_answer,
    table_values,
    words_of,
)
from statemachines.testing.conformance.role import BegunRecord, ConformanceRole, WireRole, no_answer

Slot = tuple[str, Any]
"""Name and key of a timer of the table; or `ANSWER` and what a store will answer."""

ANSWER: Final = "answer"


Reply = Callable[[Any, Request], Answer | None]
"""(record, request) -> the answer of a store."""


class SentInput(NamedTuple):
    """A message that was sent to the implementation, and when (ns)."""

    message: Any
    at_ns: int


class TimerWindow(NamedTuple):
    """When a timer of the implementation may fire: not before `due_ns`, and not after `by_ns`."""

    due_ns: int
    set_by_ns: int
    set_ns: int

    @property
    def by_ns(self) -> int:
        """Its deadline, had it been set at the latest moment."""
        return self.due_ns + self.set_by_ns - self.set_ns

    def extend(self, by_ns: int) -> TimerWindow:
        """The window with this end."""
        return self._replace(set_by_ns=self.set_ns + by_ns - self.due_ns)


class CarriedState(msgspec.Struct, frozen=True):
    """One possible state of an instance."""

    record: Any
    armed: dict[Slot, TimerWindow]
    binding: Binding
    inputs: int
    """How many of the sent inputs are handled."""
    now_ns: int
    """No later step is earlier."""
    pending: tuple[Output, ...] = ()
    """Messages that it has sent and that have not come yet."""
    pending_ns: int = 0
    """When they were sent at the latest."""
    pending_cells: tuple[Cell, ...] = ()
    last: Output | None = None
    """The message that came last."""
    last_ns: int = 0
    """When it came."""
    stopped: bool = False
    ended_ns: int = 0
    """When it ended at the latest."""
    farewell: tuple[Output, ...] = ()
    """What it told its application when it ended."""
    assumed: int = 0
    """How many calls of the application were assumed that nothing has shown."""
    cells: tuple[Cell, ...] = ()
    """The rows taken since the last message."""
    goes_on: bool = False
    """It is possible only if the instance before it has not ended."""


class CarriedSteps:
    """Takes steps of the table from carried states.

    Args:
        tolerance_ns: how long after its moment a step may come.
        reply: what a store answers to a request, unseen.
    """

    def __init__(self, fsm: Fsm[Any], relation: Relation, tolerance_ns: int, reply: Reply = no_answer) -> None:
        self.fsm = fsm
        self.relation = relation
        self.tolerance_ns = tolerance_ns
        self._reply = reply
        self._outputs = OutputsOf(relation)
        self._events = fsm.timer_registry()
        self._encode = msgspec.msgpack.Encoder(enc_hook=enc_hook).encode

    def begin(self, begun: BegunRecord, at_ns: int, by_ns: int) -> CarriedState:
        """The state of an instance that begins with this record between two moments."""
        record = begun.record
        state = CarriedState(record, {}, {}, 0, at_ns, assumed=int(begun.goes_on), goes_on=begun.goes_on)
        return replace(state, armed=self._armed(state, record, self.fsm.start(record, at_ns), (at_ns, by_ns), None))

    def take_input(self, state: CarriedState, sent: SentInput, until_ns: int) -> CarriedState | None:
        """The next input is handled."""
        event = table_values(self.relation, sent.message, state.binding)
        by_ns = min(sent.at_ns + self.tolerance_ns, until_ns)
        after = self.step(state, event, max(state.now_ns, sent.at_ns), by_ns, sent.at_ns)
        return None if after is None else replace(after, inputs=state.inputs + 1)

    def fire(self, state: CarriedState, slot: Slot, until_ns: int) -> CarriedState | None:
        """A timer fires."""
        window = state.armed[slot]
        by_ns = window.by_ns + self.relation.late_ns(slot[0])
        event = slot[1] if slot[0] == ANSWER else self._events[slot[0]](slot[1])
        at_ns = max(state.now_ns, window.due_ns)
        return self.step(state, event, at_ns, min(by_ns + self.tolerance_ns, until_ns), by_ns, slot)

    def call(self, state: CarriedState, event: Any, until_ns: int, owed_ns: int) -> CarriedState | None:
        """The application calls, unseen."""
        after = self.step(state, event, state.now_ns, until_ns, owed_ns)
        if after is None or (after.record is state.record and not after.pending):
            return None
        return after if after.pending else replace(after, assumed=state.assumed + 1)

    def step(
        self, state: CarriedState, event: Any, at_ns: int, by_ns: int, owed_ns: int, fired: Slot | None = None
    ) -> CarriedState | None:
        """After an event that is handled between two moments; None: the table refuses it there.

        Args:
            owed_ns: the moment from which on its messages are owed.
            fired: the timer or answer that the event is.
        """
        fsm, before = self.fsm, state.record
        try:
            step = fsm.step(before, event, at_ns)
        except ProtocolError:
            return None
        cells = [(fsm.full_name, step.row, str(before.status.value))] if step.row >= 0 else []
        cells += [(one.full_machine, one.row, str(one.source.value)) for one in step.children if one.row >= 0]
        stops = step.record.status in fsm.final
        outputs = self._outputs.of(step.effects)
        pending = tuple(one for one in outputs if one.channel[0] == "send")
        return CarriedState(
            step.record,
            {} if stops else self._armed(state, step.record, step.effects, (at_ns, max(at_ns, by_ns)), fired),
            state.binding,
            state.inputs,
            at_ns,
            pending,
            max(owed_ns, at_ns) if pending else 0,
            tuple(cells) if pending else (),
            state.last,
            state.last_ns,
            stops,
            max(owed_ns, at_ns),
            tuple(one for one in outputs if one.channel[0] != "send") if stops else (),
            state.assumed,
            (*state.cells, *cells),
            state.goes_on,
        )

    def _armed(
        self, state: CarriedState, record: Any, effects: tuple[Any, ...], window_ns: tuple[int, int], fired: Slot | None
    ) -> dict[Slot, TimerWindow]:
        """The timers, and the answers under way, after a step between two moments."""
        at_ns, by_ns = window_ns
        armed = {slot: window for slot, window in state.armed.items() if slot != fired}
        for effect in effects:
            if type(effect) is SetTimer:
                armed[effect.timer, effect.key] = TimerWindow(effect.deadline_ns, by_ns, at_ns)
            elif type(effect) is CancelTimer:
                armed.pop((effect.timer, effect.key), None)
            elif type(effect) is Ask and (answer := self._reply(record, effect.request)) is not None:
                armed[ANSWER, answer] = TimerWindow(at_ns, by_ns, at_ns)
        return armed

    def is_overdue(self, state: CarriedState, sent: list[SentInput], before_ns: int, is_followed: bool) -> bool:
        """Whether something that happens in this state had to happen before this moment.

        Args:
            is_followed: another instance has begun, as it must when this one has ended.
        """
        if state.pending and state.pending_ns < before_ns:
            return True
        if state.stopped:
            return state.ended_ns < before_ns and not is_followed
        if state.inputs < len(sent) and sent[state.inputs].at_ns < before_ns:
            return True
        late_ns = self.relation.late_ns
        return any(window.by_ns + late_ns(slot[0]) < before_ns for slot, window in state.armed.items())

    def key(self, state: CarriedState) -> tuple[Any, ...]:
        """All of a state but its times and its past."""
        pending = tuple(map(str, state.pending))
        slots = tuple(sorted(state.armed, key=str))
        return (
            self._encode(state.record),
            state.inputs,
            pending,
            slots,
            id(state.binding),
            str(state.last),
            state.goes_on,
        )


def combine(one: CarriedState, two: CarriedState) -> CarriedState:
    """The state that two are which differ in nothing but their times and their past: with the times of both."""
    armed = {}
    for slot, window in one.armed.items():
        first = min(window, two.armed[slot])
        by_ns = max(window.by_ns, two.armed[slot].by_ns)
        armed[slot] = window if window.by_ns == by_ns and window is first else first.extend(by_ns)
    return replace(
        one,
        armed=armed,
        now_ns=min(one.now_ns, two.now_ns),
        pending_ns=max(one.pending_ns, two.pending_ns),
        assumed=min(one.assumed, two.assumed),
        cells=tuple(cell for cell in one.cells if cell in two.cells),
    )


def tighten(state: CarriedState, by_ns: int) -> CarriedState:
    """The state, since all its steps were before this moment."""
    armed = {
        slot: window if window.set_by_ns <= by_ns else window._replace(set_by_ns=max(by_ns, window.set_ns))
        for slot, window in state.armed.items()
    }
    return replace(state, armed=armed)


STATES_MAX: Final = 5_000
"""More states than this are not searched for one message: the run is inconclusive."""

REPEAT_NS: Final = 50_000_000
"""A message that may be repeated at one input is repeated within so long."""


class WireSearch:
    """`states`: those that the last message of the instance `name` allows; `sent`: what was sent to it since."""

    def __init__(self, role: ConformanceRole, wire: WireRole, name: str, tolerance_ns: int) -> None:
        self.role = role
        self.wire = wire
        self.name = name
        self.steps = CarriedSteps(role.fsm, role.relation, tolerance_ns, wire.reply)
        self.sent: list[SentInput] = []
        self.states: list[CarriedState] = []
        self.is_followed = False
        """Another instance of the node has begun after it, or nobody has asked for one."""
        self._bindings: dict[tuple[int, str], Binding | str] = {}

    # -- searching ----------------------------------------------------------------------------------------------

    def search(self, came: Output, until_ns: int, before_ns: int) -> Iterator[CarriedState]:
        """The states after this message, without what lies behind them in time."""
        self._bindings.clear()
        for state in self.reach(came, until_ns):
            if not state.stopped and self.is_overdue(state, before_ns):
                continue
            after = self.match(state, came, until_ns)
            if isinstance(after, CarriedState):
                yield after

    def match(self, state: CarriedState, came: Output, now_ns: int) -> CarriedState | str:
        """The state after the message; else what is wrong with it."""
        relation = self.role.relation
        if state.pending:
            place = next((n for n, one in enumerate(state.pending) if one.channel == came.channel), None)
            if place is None:
                return f"expected {state.pending[0]}, came {came}"
            binding = self._bind(state, state.pending[place], came)
            if isinstance(binding, str):
                return binding
            rest = state.pending[:place] + state.pending[place + 1 :]
            return replace(state, pending=rest, binding=binding, last=came, last_ns=now_ns)
        repeated = {one.kind for one in relation.repeated}
        if state.last == came and came.name in repeated and now_ns - state.last_ns <= REPEAT_NS:
            return state
        if state.stopped and came.name in self.wire.after_end:
            return state
        return f"not expected: {came}"

    def _bind(self, state: CarriedState, expected: Output, came: Output) -> Binding | str:
        """The binding after the message, the same object for the same binding before; else what is wrong."""
        key = (id(state.binding), str(expected))
        if key not in self._bindings:
            self._bindings[key] = match_answer(self.role.relation, (expected,), (came,), state.binding)
        return self._bindings[key]

    def is_overdue(self, state: CarriedState, before_ns: int) -> bool:
        """Whether something that happens in this state had to happen before this moment."""
        return self.steps.is_overdue(state, self.sent, before_ns, self.is_followed)

    def reach(self, came: Output | None, until_ns: int) -> Iterator[CarriedState]:
        """Every state that can be reached without a message, and those that have just sent one."""
        known = {self.steps.key(state): state for state in self.states}
        queue = deque(known)
        while queue:
            state = known[queue.popleft()]
            yield state
            if state.pending or state.stopped:
                continue
            for after in self._next(state, came, until_ns):
                key = self.steps.key(after)
                if key in known:
                    other, after = known[key], combine(known[key], after)
                    if after.armed == other.armed:
                        continue
                elif len(known) == STATES_MAX:
                    rule = "give --faults less, or --tolerance less"
                    raise Inconclusive(f"more than {STATES_MAX:,} states of {self.name} are possible; {rule}")
                known[key] = after
                queue.append(key)

    def _next(self, state: CarriedState, came: Output | None, until_ns: int) -> Iterator[CarriedState]:
        """The states after one step.  Calls come first: of equal states the one whose timers began earliest is kept."""
        found: list[CarriedState | None] = []
        owed_ns = state.now_ns if came is None else until_ns  # an assumed call excuses no silence
        calls = [self.steps.call(state, event, until_ns, owed_ns) for event in self.wire.unseen(state.record, came)]
        found += [one for one in calls if one is not None and not (came is None and one.pending)]
        found += [
            self.steps.fire(state, slot, until_ns)
            for slot, window in sorted(state.armed.items(), key=str)
            if window.due_ns <= until_ns
        ]
        if state.inputs < len(self.sent):
            found.append(self.steps.take_input(state, self.sent[state.inputs], until_ns))
        return (one for one in found if one is not None)

    def merge(self, states: Iterable[CarriedState]) -> list[CarriedState]:
        """The states, with those that differ in nothing but their times as one."""
        found: dict[Any, CarriedState] = {}
        for state in states:
            state = replace(state, cells=())
            key = (*self.steps.key(state), state.stopped)
            other = found.get(key)
            found[key] = state if other is None else combine(other, state)
        return list(found.values())


EXPECTED_MAX: Final = 4
"""A violation names so many of the messages that were allowed."""

FAR_NS: Final = 10**18
MS: Final = 1_000_000


class WireViolations:
    """Describes what the states of `search` do not allow."""

    def __init__(self, search: WireSearch) -> None:
        self._search = search

    def describe_message(self, came: Output, now_ns: int) -> ConformanceViolation:
        """The message that no state allows."""
        search = self._search
        reached = self._likely(came, now_ns)
        found = [one for one in reached if one.pending]
        wrong = next((str(search.match(one, came, now_ns)) for one in found if one.pending[0].name == came.name), "")
        if late := [one for one in reached if isinstance(search.match(one, came, now_ns), CarriedState)]:
            found, wrong = self._describe_late(late[0], came, now_ns)
        elif (early := self._find_early(came, now_ns)) is not None:
            found, wrong = (
                [early],
                f"too early: {came} is not due for another {round((early.now_ns - now_ns) / MS, 3):g} ms",
            )
        if not found:  # whatever has led to it: of all that was sent, nothing does
            found = [max(reached, key=lambda one: one.inputs)]
        return self._violation(found, (came,), now_ns, wrong or f"not expected: {came}")

    def describe_silence(self, now_ns: int) -> ConformanceViolation:
        """What had to come, and did not."""
        owed = sorted(self._likely(None, now_ns), key=lambda one: one.pending_ns)
        first = next((str(one.pending[0]) for one in owed if one.pending), "another instance, since this one has ended")
        wrong = f"missing: {first}, {self._search.steps.tolerance_ns / 1e9:g} s after it was owed"
        return self._violation([one for one in owed if one.pending], (), now_ns, wrong)

    def _describe_late(self, state: CarriedState, came: Output, now_ns: int) -> tuple[list[CarriedState], str]:
        """What was owed for too long when the message came that this state allows."""
        search = self._search
        tolerance_ns = search.steps.tolerance_ns
        for slot in sorted(state.armed, key=lambda slot: state.armed[slot].by_ns):
            after = search.steps.fire(state, slot, now_ns)
            if after is not None and after.pending and state.armed[slot].by_ns < now_ns - tolerance_ns:
                return [after], f"missing: {after.pending[0]}, {tolerance_ns / 1e9:g} s after it was owed"
        return [state], f"too late: {came} was owed more than {tolerance_ns / 1e9:g} s before"

    def _likely(self, came: Output | None, now_ns: int) -> list[CarriedState]:
        """The states that can be reached without assuming more calls than before."""
        least = min(state.assumed for state in self._search.states)
        return [one for one in self._search.reach(came, now_ns) if one.assumed <= least]

    def _find_early(self, came: Output, now_ns: int) -> CarriedState | None:
        """The state in which a timer that is not due yet sends this message."""
        search = self._search
        for state in self._likely(None, now_ns):
            for slot in sorted(state.armed, key=str) if not state.pending else ():
                after = search.steps.fire(state, slot, FAR_NS)
                if after is not None and after.pending and isinstance(search.match(after, came, now_ns), CarriedState):
                    return after
        return None

    def _violation(
        self, found: list[CarriedState], came: tuple[Output, ...], now_ns: int, wrong: str
    ) -> ConformanceViolation:
        names = [one.name for one in came]
        found = sorted(found, key=lambda one: (one.assumed, [sent.name for sent in one.pending[:1]] != names))
        expected: dict[str, tuple[tuple[Output, ...], tuple[str, ...]]] = {}
        for one in found[: 10 * EXPECTED_MAX]:
            cells = one.pending_cells or tuple(dict.fromkeys(one.cells))
            clauses = tuple(self._search.role.line_of(machine, row).clause for machine, row, _ in cells)
            expected.setdefault(" ".join(map(str, one.pending)), (one.pending, clauses))
        states = dict.fromkeys(str(state.record.status.value) for state in self._search.states)
        fed = words_of(self._search.sent[-1].message) if self._search.sent else "nothing since its last message"
        allowed = tuple(expected.values())[:EXPECTED_MAX] or (((), ()),)
        return ConformanceViolation(fed, now_ns, tuple(states), allowed, came, wrong)


class WireCoverage(NamedTuple):
    """What was certainly taken: rows in a state, and pairs of rows of the machine itself that followed each other;
    `possible`: rows that were taken unless something else was that looks the same."""

    cells: set[Cell]
    possible: set[Cell]
    pairs: set[tuple[int, int]]


class WireJudge(WireSearch):
    """Judges one instance, which began between the two moments of `began_ns`; `coverage` is filled.  `early`: what was
    sent before its first message came, of which it has missed the first ones."""

    def __init__(
        self,
        role: ConformanceRole,
        wire: WireRole,
        name: str,
        records: Iterable[BegunRecord],
        began_ns: tuple[int, int],
        tolerance_ns: int,
        coverage: WireCoverage,
        early: Iterable[SentInput] = (),
    ) -> None:
        super().__init__(role, wire, name, tolerance_ns)
        self.tolerance_ns = tolerance_ns
        self.coverage = coverage
        self.suspicion: ConformanceViolation | None = None
        self._violations = WireViolations(self)
        self._last_row = -1
        at_ns, by_ns = began_ns
        self.sent = list(early)
        begun = [self.steps.begin(record, at_ns, by_ns) for record in records]
        self.states = [replace(one, inputs=missed) for one in begun for missed in range(len(self.sent) + 1)]
        for call in wire.opening:
            self.states = [one for state in self.states if (one := self.steps.step(state, call, at_ns, by_ns, by_ns))]

    @property
    def fsm(self) -> Fsm[Any]:
        """The table."""
        return self.role.fsm

    @property
    def likeliest(self) -> CarriedState:
        """The state that assumes the fewest unseen calls, with all that was sent handled where it can be."""
        return min(self.states, key=lambda state: (state.assumed, state.stopped, -state.inputs))

    @property
    def is_over(self) -> bool:
        """Whether the instance has certainly ended."""
        return all(state.stopped for state in self.states)

    def send(self, message: Any, now_ns: int) -> None:
        """A message is sent to the implementation, now."""
        self.sent.append(SentInput(message, now_ns))

    def observe(self, came: Output, now_ns: int, settled_ns: int) -> None:
        """A message of the implementation has come.

        Args:
            settled_ns: all that had come by this moment was looked at; lateness counts from it.
        Raises:
            Violated: no clause allows the message now.
            Inconclusive: too many states are possible.
        """
        before_ns = settled_ns - self.tolerance_ns
        least = self.likeliest.assumed
        found = list(self.search(came, now_ns, before_ns))
        if not found:
            raise Violated(self._describe_message(came, now_ns))
        self._suspect(found, least, lambda: self._describe_message(came, now_ns))
        self._cover(found)
        self.states = self.merge(tighten(one, now_ns) for one in found)
        handled = min(state.inputs for state in self.states)
        if handled:
            del self.sent[:handled]
            self.states = [replace(state, inputs=state.inputs - handled) for state in self.states]

    def check_silence(self, now_ns: int, settled_ns: int) -> None:
        """Nothing has come.  Raises `Violated` where something had to."""
        before_ns = settled_ns - self.tolerance_ns
        least = self.likeliest.assumed
        found = [state for state in self.reach(None, now_ns) if not self.is_overdue(state, before_ns)]
        if not found:
            raise Violated(self._describe_silence(now_ns))
        self._suspect(found, least, lambda: self._describe_silence(now_ns))

    def list_ends(self, now_ns: int) -> tuple[tuple[Any, tuple[Output, ...]], ...]:
        """Each state that it may be in now, since another instance begins: the record, and what it told its application
        last where it has ended."""
        found = [state for state in self.reach(None, now_ns) if not state.pending]
        if ended := [state for state in found if state.stopped and not self.is_over]:
            self._cover(ended)
            self._last_row = -1
        return tuple((state.record, state.farewell) for state in found)

    def has_ended(self, now_ns: int, settled_ns: int) -> bool:
        """Whether it has certainly ended: what it would have to send otherwise has not come."""
        before_ns = settled_ns - self.tolerance_ns
        return all(state.stopped or self.is_overdue(state, before_ns) for state in self.reach(None, now_ns))

    def may_have_ended(self, now_ns: int) -> bool:
        """Whether it may have ended by now."""
        return any(state.stopped for state in self.reach(None, now_ns))

    def note_end(self) -> None:
        """The instance before it has certainly ended.  Raises `Violated` where that makes a message wrong."""
        states = [state for state in self.states if not state.goes_on]
        if not states and self.suspicion is not None:
            raise Violated(self.suspicion)
        self.states = states or self.states

    # -- coverage -----------------------------------------------------------------------------------------------

    def _cover(self, found: list[CarriedState]) -> None:
        """Count the rows that were taken whichever of the ways it was."""
        least = min(state.assumed for state in found)
        ways = [state.cells for state in found if state.assumed == least]
        self.coverage.cells.update(set(ways[0]).intersection(*ways[1:]))
        self.coverage.possible.update(*ways)
        if any(way != ways[0] for way in ways[1:]):
            self._last_row = -1
            return
        for machine, row, _ in ways[0]:
            if machine == self.fsm.full_name:
                if self._last_row >= 0:
                    self.coverage.pairs.add((self._last_row, row))
                self._last_row = row

    # -- what is wrong ------------------------------------------------------------------------------------------

    def _suspect(self, found: list[CarriedState], least: int, describe: Callable[[], ConformanceViolation]) -> None:
        """Keep what would be wrong if the application had not called unseen."""
        if self.suspicion is None and min(state.assumed for state in found) > least:
            self.suspicion = describe()
        elif all(state.stopped for state in found):
            self.suspicion = None

    def _describe_message(self, came: Output, now_ns: int) -> ConformanceViolation:
        return self.suspicion or self._violations.describe_message(came, now_ns)

    def _describe_silence(self, now_ns: int) -> ConformanceViolation:
        return self.suspicion or self._violations.describe_silence(now_ns)
