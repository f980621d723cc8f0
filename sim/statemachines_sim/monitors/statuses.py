"""Statuses: S1, every move is one of the table's, and a borrower's and a stream's statuses go one way only."""

from __future__ import annotations

from typing import Any

from statemachines.kernel import ChildStep, Fsm, Node, Step
from statemachines.shared_subscriptions.borrower import BorrowerStatus
from statemachines.shared_subscriptions.stream import ABSENT, GRANTED
from statemachines_sim.monitors.judge import Judge

BORROWER_RANK = {status: rank for rank, status in enumerate(BorrowerStatus)}
"""connecting, connected, unsubscribing, destroyed: each is left for a later one only."""


class Statuses:
    """Judges moves; a step that moves nothing is legal wherever its row is internal."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._moves: dict[str, dict[int, tuple[tuple[Any, ...], Any]]] = {}
        self._begun: set[str] = set()
        self._over: set[str] = set()

    def moved(self, node: Node[Any], before: Any, step: Step[Any]) -> None:
        """A machine has another status than before."""
        after = step.record.status
        self._check(node.fsm, node.name, step.row, before, after)
        if node.fsm.name == "borrower" and BORROWER_RANK[after] <= BORROWER_RANK[before]:
            self._judge.broken("S1", f"{node.name} goes back from {before.value} to {after.value}")

    def child_moved(self, party: str, child: ChildStep) -> None:
        """A child machine has another status than before."""
        name = f"{party}:{child.instance}"
        source, dest = child.source, child.dest
        self._check(child.fsm, name, child.row, source, dest)
        if child.machine != "stream":
            return
        if dest is GRANTED:
            if name in self._begun:
                self._judge.broken("S1", f"{name} is granted a second time under one number")
            self._begun.add(name)
        elif dest is ABSENT:
            self._over.add(name)
        if source is not ABSENT and dest is not ABSENT and name in self._over:
            self._judge.broken("S1", f"{name} goes from {source.value} to {dest.value} after its end")

    def _check(self, fsm: Any, name: str, row: int, source: Any, dest: Any) -> None:
        moves = self._moves.get(fsm.name)
        if moves is None:
            moves = self._moves[fsm.name] = moves_of(fsm)
        sources, to = moves.get(row, ((), None))
        if source not in sources or to is not dest:
            self._judge.broken("S1", f"{name} goes from {source.value} to {dest.value}, and row {row} does not say so")


def moves_of(fsm: Fsm[Any]) -> dict[int, tuple[tuple[Any, ...], Any]]:
    """Number of a line -> the statuses it holds in, the one it leads to (None: it leaves none)."""
    return {line.number: (line.sources, line.dest) for line in fsm.lines}
