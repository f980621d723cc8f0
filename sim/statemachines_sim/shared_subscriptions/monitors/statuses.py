"""Statuses: S1, every move is one of the table's, from where the last one led, and goes one way only."""

from __future__ import annotations

from enum import Enum
from typing import Any

from statemachines.kernel import ChildStep, Fsm, Node, Step
from statemachines.shared_subscriptions.assignment import AssignmentStatus
from statemachines.shared_subscriptions.borrower import BorrowerStatus
from statemachines.shared_subscriptions.member import MemberStatus
from statemachines.shared_subscriptions.stream import StreamStatus
from statemachines_sim.judge import Judge

ORDER: dict[str, tuple[Enum, ...]] = {
    "borrower": tuple(BorrowerStatus),
    "member": tuple(MemberStatus),
    "stream": (*StreamStatus, StreamStatus.ABSENT),
    "assignment": (*AssignmentStatus, AssignmentStatus.NONE),
}
"""Machines without cycles, as the page has them: a status is left for one further to the right only."""


class Statuses:
    """Judges moves; a step that moves nothing is legal wherever its row is internal."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._moves: dict[str, dict[int, tuple[tuple[Any, ...], Any]]] = {}
        self._rank: dict[tuple[str, str], int] = {}

    def observe_move(self, node: Node[Any], before: Any, step: Step[Any]) -> None:
        """A machine has another status than before."""
        self._check(node.fsm, node.name, step.row, before, step.record.status)

    def observe_child(self, party: str, child: ChildStep) -> None:
        """A child machine has another status than before."""
        self._check(child.fsm, f"{party}:{child.instance}", child.row, child.source, child.dest)

    def _check(self, fsm: Any, name: str, row: int, source: Any, dest: Any) -> None:
        moves = self._moves.get(fsm.name)
        if moves is None:
            moves = self._moves[fsm.name] = moves_of(fsm)
        sources, to = moves.get(row, ((), None))
        if source not in sources or to is not dest:
            self._judge.report_broken(
                "S1", f"{name} goes from {source.value} to {dest.value}, and row {row} does not say so"
            )
        order = ORDER.get(fsm.name)
        if order is not None:
            self._check_order(fsm.name, order, name, source, dest)

    def _check_order(self, machine: str, order: tuple[Enum, ...], name: str, source: Enum, dest: Enum) -> None:
        """A liar may call a borrower as a stream is called: the machine belongs to the name."""
        rank = self._rank.get((machine, name), 0)
        if order[rank] is not source:
            self._judge.report_broken(
                "S1", f"{name} is in {source.value}, and its last move led to {order[rank].value}"
            )
        if dest not in order[rank + 1 :]:
            self._judge.report_broken("S1", f"{name} goes back from {source.value} to {dest.value}")
            return
        self._rank[machine, name] = order.index(dest, rank + 1)


def moves_of(fsm: Fsm[Any]) -> dict[int, tuple[tuple[Any, ...], Any]]:
    """Number of a line -> the statuses it holds in, the one it leads to (None: it leaves none)."""
    return {line.number: (line.sources, line.dest) for line in fsm.lines}
