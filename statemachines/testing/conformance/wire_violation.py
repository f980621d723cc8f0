"""WireViolation: what is wrong with a message over the wire, or with silence, in the words of the table."""

from __future__ import annotations

from typing import Any, Final

from statemachines.kernel import name_of
from statemachines.testing.conformance.conformance_run import Cell, ConformanceViolation
from statemachines.testing.conformance.relation import Output
from statemachines.testing.conformance.wire_search import WireSearch
from statemachines.testing.conformance.wire_state import CarriedState

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
            found, wrong = [early], f"too early: {came} is not due for another {_wait_ms(early, now_ns):g} ms"
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
            clauses = tuple(self._clause(cell) for cell in cells)
            expected.setdefault(" ".join(map(str, one.pending)), (one.pending, clauses))
        states = dict.fromkeys(str(state.record.status.value) for state in self._search.states)
        fed = words_of(self._search.sent[-1].message) if self._search.sent else "nothing since its last message"
        allowed = tuple(expected.values())[:EXPECTED_MAX] or (((), ()),)
        return ConformanceViolation(fed, now_ns, tuple(states), allowed, came, wrong)

    def _clause(self, cell: Cell) -> str:
        machine, row, _ = cell
        fsm = next(one for one in self._search.role.fsm.family() if one.full_name == machine)
        return fsm.lines[row].clause


def _wait_ms(early: CarriedState, now_ns: int) -> float:
    return round((early.now_ns - now_ns) / MS, 3)


def words_of(message: Any) -> str:
    """A message for people."""
    fields = ", ".join(f"{field}={getattr(message, field)!r}" for field in message.__struct_fields__)
    return f"{name_of(type(message))}({fields})"
