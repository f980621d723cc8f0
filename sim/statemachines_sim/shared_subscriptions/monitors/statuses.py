"""Statuses: S1, of every machine: its moves are of its table, and go one way only."""

from __future__ import annotations

from typing import Any

from statemachines.kernel import ChildStep, Node, Step
from statemachines.shared_subscriptions.properties.status_order import (
    MACHINES,
    Moves,
    StatusHistory,
    check_row,
    list_moves,
)
from statemachines_sim.judge import Judge


class Statuses:
    """Judges moves; a step that moves nothing is legal wherever its row is internal."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._moves: dict[str, Moves] = {}
        self._histories: dict[tuple[str, str], StatusHistory] = {}

    def observe_move(self, node: Node[Any], before: Any, step: Step[Any]) -> None:
        """A machine has another status than before."""
        self._observe(node.fsm, node.name, step.row, before, step.record.status)

    def observe_child(self, party: str, child: ChildStep) -> None:
        """A child machine has another status than before."""
        self._observe(child.fsm, f"{party}:{child.instance}", child.row, child.source, child.dest)

    def _observe(self, fsm: Any, name: str, row: int, source: Any, dest: Any) -> None:
        """A liar may call a borrower as a stream is called: the machine belongs to the name."""
        moves = self._moves.get(fsm.name)
        if moves is None:
            moves = self._moves[fsm.name] = list_moves(fsm)
        if broken := check_row(moves, name, row, source, dest):
            self._judge.report_properties(broken)
        if fsm.name in MACHINES:
            key = (fsm.name, name)
            self._histories[key], broken = self._histories.get(key, UNMOVED).observe(name, source, dest)
            if broken:
                self._judge.report_properties(broken)


UNMOVED = StatusHistory()
