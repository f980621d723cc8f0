"""Lives: borrowers that end.  S11: what is left of one that is gone; L7: how long it may take to leave, and that nobody
follows; L8: resets."""

from __future__ import annotations

from typing import Any

from statemachines.kernel import ChildStep, Message, Node, Step, Tell, node_of
from statemachines.shared_subscriptions.borrower import DESTROYED, UNSUBSCRIBING, Destroyed
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.member import REGISTERED
from statemachines.shared_subscriptions.membership import HEARD
from statemachines_sim.judge import Judge
from statemachines_sim.local_clock import PPM

TICK_NS = 10 * MS
"""How late a timer may be, beyond what clocks are wrong by."""


class Lives:
    """`ended`: borrower -> when it ended itself or its process died; `reset_ns`: when a borrower was last replaced."""

    def __init__(self, judge: Judge, configuration: Configuration) -> None:
        self.ended: dict[str, int] = {}
        self.reset_ns = -1
        self._judge = judge
        millionths = round(configuration.clock_drift * PPM)
        self._validity_ns = stretch(configuration.validity_ms * MS, millionths)
        self._leaving_ns = stretch(configuration.unsubscribe_timeout_ms * MS, millionths)
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
                if left:
                    self._judge.report_broken("L7", f"{node.name} was unsubscribing, and asks for another in its place")

    def check_leaving(self, now_ns: int) -> None:
        """L7: unsubscribing ends within its timeout."""
        for borrower, since_ns in self._leaving.items():
            end_ns = max(since_ns, self._resumed.get(node_of(borrower), 0)) + self._leaving_ns + TICK_NS
            if now_ns > end_ns:
                self._judge.report_broken("L7", f"{borrower} has been unsubscribing for {(now_ns - since_ns) // MS} ms")

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
        late_ns = self._late_ns(leader, borrower, now_ns)
        if late_ns > 0:
            self._judge.report_broken("L9", f"{borrower} is dead, and {leader} keeps it {late_ns // MS} ms too long")

    def _check_effect(self, leader: str, borrower: str, now_ns: int, what: str) -> None:
        """S11: nothing happens for a borrower that is gone beyond one validity after it was last heard."""
        late_ns = self._late_ns(leader, borrower, now_ns)
        if late_ns > 0:
            self._judge.report_broken("S11", f"{borrower} is gone, and {what} by {leader} {late_ns // MS} ms too late")

    def _late_ns(self, leader: str, borrower: str, now_ns: int) -> int:
        heard_ns = self._heard.get((leader, borrower), 0)
        since_ns = max(self.ended[borrower], heard_ns, self._resumed.get(node_of(leader), 0))
        return now_ns - since_ns - self._validity_ns - TICK_NS


def is_reset(event: Any) -> bool:
    """The subscription goes on under another borrower."""
    return type(event) is Destroyed and event.recreate


def stretch(duration_ns: int, millionths: int) -> int:
    """How long a timer of one clock may last by another, where both are wrong by so much."""
    return duration_ns * (PPM + millionths) // (PPM - millionths)
