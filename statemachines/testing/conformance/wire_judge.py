"""WireJudge: one instance of an implementation, judged by its messages in real time.

The judge carries every state that the messages so far allow.  When a message comes, it searches the ways from these
states to that message: inputs that were sent before may have been handled or not, timers may have fired, the
application may have called.

Silence is judged in the same way: it is wrong when each way to go on silently is overdue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from statemachines.kernel import Fsm, name_of
from statemachines.testing.conformance.conformance_run import Cell, Inconclusive, Violated, Violation
from statemachines.testing.conformance.relation import Binding, Output, match_answer
from statemachines.testing.conformance.role import ConformanceRole
from statemachines.testing.conformance.wire_role import BegunRecord, WireRole
from statemachines.testing.conformance.wire_state import CarriedState, CarriedSteps, SentInput, combine, tighten

STATES_MAX: Final = 5_000
"""More states than this are not searched for one message: the run is inconclusive."""

REPEAT_NS: Final = 50_000_000
"""A message that may be repeated at one input is repeated within so long."""

EXPECTED_MAX: Final = 4
"""A violation names so many of the messages that were allowed."""

FAR_NS: Final = 10**18
MS: Final = 1_000_000


class WireCoverage(NamedTuple):
    """What was certainly taken: rows in a state, and pairs of rows of the machine itself that followed each other;
    `possible`: rows that were taken unless something else was that looks the same."""

    cells: set[Cell]
    possible: set[Cell]
    pairs: set[tuple[int, int]]


class WireJudge:
    """Judges one instance, which began between the two moments of `began_ns`.  `states`: those that its last message
    allows; `coverage` is filled."""

    def __init__(
        self,
        role: ConformanceRole,
        wire: WireRole,
        name: str,
        records: Iterable[BegunRecord],
        began_ns: tuple[int, int],
        tolerance_ns: int,
        coverage: WireCoverage,
    ) -> None:
        self.role = role
        self.wire = wire
        self.name = name
        self.tolerance_ns = tolerance_ns
        self.steps = CarriedSteps(role.fsm, role.relation, tolerance_ns)
        self.sent: list[SentInput] = []
        self.coverage = coverage
        self._bindings: dict[tuple[int, str], Binding | str] = {}
        self.suspicion: Violation | None = None
        self.is_followed = False
        """Another instance of the node has begun after it."""
        self._last_row = -1
        at_ns, by_ns = began_ns
        self.states = [self.steps.begin(record, at_ns, by_ns) for record in records]
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
        self._bindings.clear()
        found = list(self._search(came, now_ns, before_ns))
        if not found:
            raise Violated(self._unexpected(came, now_ns))
        self._suspect(found, least, lambda: self._unexpected(came, now_ns))
        self._cover(found)
        self.states = self._merge(tighten(one, now_ns) for one in found)
        handled = min(state.inputs for state in self.states)
        if handled:
            del self.sent[:handled]
            self.states = [replace(state, inputs=state.inputs - handled) for state in self.states]

    def check_silence(self, now_ns: int, settled_ns: int) -> None:
        """Nothing has come.  Raises `Violated` where something had to."""
        before_ns = settled_ns - self.tolerance_ns
        least = self.likeliest.assumed
        found = [state for state in self._reach(None, now_ns) if not self._is_overdue(state, before_ns)]
        if not found:
            raise Violated(self._missing(now_ns))
        self._suspect(found, least, lambda: self._missing(now_ns))

    def list_ends(self, now_ns: int) -> tuple[tuple[Any, tuple[Output, ...]], ...]:
        """Each state that it may be in now, since another instance begins: the record, and what it told its application
        last where it has ended."""
        found = [state for state in self._reach(None, now_ns) if not state.pending]
        if ended := [state for state in found if state.stopped and not self.is_over]:
            self._cover(ended)
            self._last_row = -1
        return tuple((state.record, state.farewell) for state in found)

    def has_ended(self, now_ns: int, settled_ns: int) -> bool:
        """Whether it has certainly ended: what it would have to send otherwise has not come."""
        before_ns = settled_ns - self.tolerance_ns
        return all(state.stopped or self._is_overdue(state, before_ns) for state in self._reach(None, now_ns))

    def note_end(self) -> None:
        """The instance before it has certainly ended.  Raises `Violated` where that makes a message wrong."""
        states = [state for state in self.states if not state.goes_on]
        if not states and self.suspicion is not None:
            raise Violated(self.suspicion)
        self.states = states or self.states

    # -- searching ----------------------------------------------------------------------------------------------

    def _search(self, came: Output, until_ns: int, before_ns: int) -> Iterator[CarriedState]:
        """The states after this message, without what lies behind them in time."""
        for state in self._reach(came, until_ns):
            if not state.stopped and self._is_overdue(state, before_ns):
                continue
            after = self._match(state, came, until_ns)
            if isinstance(after, CarriedState):
                yield after

    def _match(self, state: CarriedState, came: Output, now_ns: int) -> CarriedState | str:
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

    def _is_overdue(self, state: CarriedState, before_ns: int) -> bool:
        return self.steps.is_overdue(state, self.sent, before_ns, self.is_followed)

    def _reach(self, came: Output | None, until_ns: int) -> Iterator[CarriedState]:
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
                    raise Inconclusive(
                        f"more than {STATES_MAX:,} states of {self.name} are possible; give --faults less"
                    )
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
            for slot, window in sorted(state.armed.items())
            if window.due_ns <= until_ns
        ]
        if state.inputs < len(self.sent):
            found.append(self.steps.take_input(state, self.sent[state.inputs], until_ns))
        return (one for one in found if one is not None)

    def _merge(self, states: Iterable[CarriedState]) -> list[CarriedState]:
        """The states, with those that differ in nothing but their times as one."""
        found: dict[Any, CarriedState] = {}
        for state in states:
            state = replace(state, cells=())
            key = (*self.steps.key(state), state.stopped)
            other = found.get(key)
            found[key] = state if other is None else combine(other, state)
        return list(found.values())

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

    def _suspect(self, found: list[CarriedState], least: int, describe: Callable[[], Violation]) -> None:
        """Keep what would be wrong if the application had not called unseen."""
        if self.suspicion is None and min(state.assumed for state in found) > least:
            self.suspicion = describe()
        elif all(state.stopped for state in found):
            self.suspicion = None

    def _unexpected(self, came: Output, now_ns: int) -> Violation:
        """The message that no state allows."""
        if self.suspicion is not None:
            return self.suspicion
        reached = self._likely(came, now_ns)
        found = [one for one in reached if one.pending]
        wrong = next((str(self._match(one, came, now_ns)) for one in found if one.pending[0].name == came.name), "")
        if any(isinstance(self._match(one, came, now_ns), CarriedState) for one in reached):
            wrong = f"too late: {came} was owed more than {self.tolerance_ns / 1e9:g} s before"
        elif (early := self._early(came, now_ns)) is not None:
            found, wrong = [early], f"too early: {came} is not due for another {self._wait_ms(early, now_ns):g} ms"
        if not found:  # whatever has led to it: of all that was sent, nothing does
            found = [max(reached, key=lambda one: one.inputs)]
        return self._violation(found, (came,), now_ns, wrong or f"not expected: {came}")

    def _likely(self, came: Output | None, now_ns: int) -> list[CarriedState]:
        """The states that can be reached without assuming more calls than before."""
        least = self.likeliest.assumed
        return [one for one in self._reach(came, now_ns) if one.assumed <= least]

    def _early(self, came: Output, now_ns: int) -> CarriedState | None:
        """The state in which a timer that is not due yet sends this message."""
        for state in self._likely(None, now_ns):
            for slot in sorted(state.armed) if not state.pending else ():
                after = self.steps.fire(state, slot, FAR_NS)
                if after is not None and isinstance(self._match(after, came, now_ns), CarriedState) and after.pending:
                    return after
        return None

    @staticmethod
    def _wait_ms(early: CarriedState, now_ns: int) -> float:
        return round((early.now_ns - now_ns) / MS, 3)

    def _missing(self, now_ns: int) -> Violation:
        """What had to come, and did not."""
        if self.suspicion is not None:
            return self.suspicion
        owed = sorted(self._likely(None, now_ns), key=lambda one: one.pending_ns)
        first = next((str(one.pending[0]) for one in owed if one.pending), "another instance, since this one has ended")
        wrong = f"missing: {first}, {self.tolerance_ns / 1e9:g} s after it was owed"
        return self._violation([one for one in owed if one.pending], (), now_ns, wrong)

    def _violation(self, found: list[CarriedState], came: tuple[Output, ...], now_ns: int, wrong: str) -> Violation:
        names = [one.name for one in came]
        found = sorted(found, key=lambda one: (one.assumed, [sent.name for sent in one.pending[:1]] != names))
        expected: dict[str, tuple[tuple[Output, ...], tuple[str, ...]]] = {}
        for one in found[: 10 * EXPECTED_MAX]:
            cells = one.pending_cells or tuple(dict.fromkeys(one.cells))
            clauses = tuple(self._clause(cell) for cell in cells)
            expected.setdefault(" ".join(map(str, one.pending)), (one.pending, clauses))
        states = dict.fromkeys(str(state.record.status.value) for state in self.states)
        fed = words_of(self.sent[-1].message) if self.sent else "nothing since its last message"
        allowed = tuple(expected.values())[:EXPECTED_MAX] or (((), ()),)
        return Violation(fed, now_ns, tuple(states), allowed, came, wrong)

    def _clause(self, cell: Cell) -> str:
        machine, row, _ = cell
        fsm = next(one for one in self.fsm.family() if one.full_name == machine)
        return fsm.lines[row].clause


def words_of(message: Any) -> str:
    """A message for people."""
    fields = ", ".join(f"{field}={getattr(message, field)!r}" for field in message.__struct_fields__)
    return f"{name_of(type(message))}({fields})"
