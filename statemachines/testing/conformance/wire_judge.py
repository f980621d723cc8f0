"""WireJudge: one instance of an implementation, judged by its messages in real time.

The judge carries every state that the messages so far allow.  When a message comes, it searches the ways from these
states to that message.  Silence is judged in the same way: it is wrong when each way to go on silently is overdue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from msgspec.structs import replace

from statemachines.kernel import Fsm
from statemachines.testing.conformance.conformance_run import Cell, ConformanceViolation, Violated
from statemachines.testing.conformance.relation import Output
from statemachines.testing.conformance.role import ConformanceRole
from statemachines.testing.conformance.wire_role import BegunRecord, WireRole
from statemachines.testing.conformance.wire_search import WireSearch
from statemachines.testing.conformance.wire_state import CarriedState, SentInput, tighten
from statemachines.testing.conformance.wire_violation import WireViolations


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
