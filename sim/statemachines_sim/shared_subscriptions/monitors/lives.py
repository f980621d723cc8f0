"""Lives: borrowers that end.  S11: what is left of one that is gone; L7: how long it may take to leave, and that nobody
follows; L8: resets."""

from __future__ import annotations

from typing import Any

from statemachines.kernel import ChildStep, Message, Node, Step, Tell, node_of
from statemachines.shared_subscriptions.borrower import DESTROYED, UNSUBSCRIBING, Destroyed
from statemachines.shared_subscriptions.member import REGISTERED
from statemachines.shared_subscriptions.membership import HEARD
from statemachines.shared_subscriptions.properties.settled_group import find_begun_again
from statemachines.shared_subscriptions.properties.time_limits import TimeLimits
from statemachines_sim.judge import Judge


class LifeMonitor:
    """`ended`: borrower -> when it ended itself or its process died; `reset_ns`: when a borrower was last replaced."""

    def __init__(self, judge: Judge, limits: TimeLimits) -> None:
        self.ended: dict[str, int] = {}
        self.reset_ns = -1
        self._judge = judge
        self._limits = limits
        self._heard: dict[tuple[str, str], int] = {}
        self._leaving: dict[str, int] = {}
        self._resumed: dict[str, int] = {}

    def observe_resume(self, node: str, now_ns: int) -> None:
        """A process goes on after a pause, in which it could keep no time."""
        self._resumed[node] = now_ns

    def observe_death(self, borrower: str, now_ns: int) -> None:
        """Its process is dead."""
        self.ended.setdefault(borrower, now_ns)
        self._leaving.pop(borrower, None)

    def observe_move(self, node: Node[Any], step: Step[Any], now_ns: int) -> None:
        """A borrower has another status than before."""
        status = step.record.status
        if status is UNSUBSCRIBING:
            self._leaving[node.name] = now_ns
        elif status is DESTROYED:
            self.ended[node.name] = now_ns
            self.check_leaving(now_ns)
            left = self._leaving.pop(node.name, None) is not None
            if any(type(effect) is Tell and is_reset(effect.event) for effect in step.effects):
                self.reset_ns = now_ns
                self._judge.report_properties(find_begun_again(node.name, left, begins=True))

    def check_leaving(self, now_ns: int) -> None:
        """L7: unsubscribing ends within its timeout."""
        for borrower, since_ns in self._leaving.items():
            waited_ns = now_ns - max(since_ns, self._resumed.get(node_of(borrower), 0))
            self._judge.report_properties(self._limits.check_leaving(borrower, waited_ns))

    def member_step(self, leader: str, child: ChildStep, now_ns: int) -> None:
        """The leader deals with one of its members."""
        borrower = child.record.link.borrower
        if borrower not in self.ended:
            return
        if child.source is REGISTERED and child.dest is not REGISTERED:
            self._check_effect(leader, borrower, now_ns, "is let go")
        elif isinstance(child.event, Message) or child.event is HEARD:
            self._heard[leader, borrower] = now_ns

    def observe_assignment(self, leader: str, child: ChildStep, now_ns: int) -> None:
        """The leader gives a stream away."""
        borrower = child.record.link.borrower
        if borrower in self.ended:
            self._check_effect(leader, borrower, now_ns, f"is given {child.record.stream}")

    def check_gone(self, leader: str, borrower: str, now_ns: int) -> None:
        """L9: no leader keeps a dead borrower for more than one validity after it was last heard."""
        waited_ns = self._count_waited(leader, borrower, now_ns)
        self._judge.report_properties(self._limits.check_gone(borrower, leader, waited_ns))

    def _check_effect(self, leader: str, borrower: str, now_ns: int, what: str) -> None:
        """S11."""
        waited_ns = self._count_waited(leader, borrower, now_ns)
        self._judge.report_properties(self._limits.check_effect(borrower, leader, waited_ns, what))

    def _count_waited(self, leader: str, borrower: str, now_ns: int) -> int:
        """How long ago the leader heard a borrower that is gone, while it could keep time."""
        heard_ns = self._heard.get((leader, borrower), 0)
        return now_ns - max(self.ended[borrower], heard_ns, self._resumed.get(node_of(leader), 0))


def is_reset(event: Any) -> bool:
    """The subscription goes on under another borrower."""
    return type(event) is Destroyed and event.recreate
