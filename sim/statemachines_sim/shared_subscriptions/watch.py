"""Monitors: the properties of the protocol, judged while a run goes on, from what every node did.

Each keeps its own books, apart from the records of the machines; by subject they stand in `monitors/`.  A property
that breaks is a `Violation` that ends the run.  What must come true in the end stands in `liveness`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from statemachines.kernel import Event, Map, Node, Step
from statemachines.shared_subscriptions.assignment import Assign
from statemachines.shared_subscriptions.borrower import DESTROYED
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.leader_record import RESIGNED
from statemachines.shared_subscriptions.member import REGISTERED
from statemachines.shared_subscriptions.message import Disconnect
from statemachines.shared_subscriptions.session import Acknowledged, Deliver
from statemachines_sim.judge import Judge, Violation
from statemachines_sim.shared_subscriptions.monitors.assignments import Assignments
from statemachines_sim.shared_subscriptions.monitors.commits import Commits
from statemachines_sim.shared_subscriptions.monitors.deliveries import Deliveries
from statemachines_sim.shared_subscriptions.monitors.lives import Lives
from statemachines_sim.shared_subscriptions.monitors.progress import Progress
from statemachines_sim.shared_subscriptions.monitors.statuses import Statuses

if TYPE_CHECKING:
    from statemachines_sim.shared_subscriptions.consumer import Consumer

__all__ = ["Monitors", "Violation", "balanced"]

EXCUSES = ("crash", "lost_disk", "leader_crash", "unsubscribe")
"""What the nemesis or the world does that may lead to a second delivery."""


class Monitors:
    """All monitors of one run; `out_of_scope`: properties that are only counted."""

    def __init__(
        self, configuration: Configuration, topic_filter: str = "#", out_of_scope: tuple[str, ...] = ()
    ) -> None:
        self.judge = Judge(out_of_scope)
        self.progress = Progress(self.judge)
        self.commits = Commits(self.judge, configuration, self.progress)
        self.assignments = Assignments(self.judge, self.commits, self.progress)
        self.deliveries = Deliveries(self.judge, self.assignments, topic_filter, configuration.exclusive)
        self.statuses = Statuses(self.judge)
        self.lives = Lives(self.judge, configuration)
        self.commit = self.commits.commit
        self._number = 0

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """A step of any machine, before its effects."""
        self._number += 1
        status = step.record.status
        if status is not before:
            self._moved(node, before, step, now_ns)
        for child in step.children:
            if child.source is not child.record.status:
                self.statuses.child_moved(node.name, child)
            machine = child.fsm.name
            if machine == "assignment":
                self.assignments.step(node.name, child)
                if type(child.event) is Assign:
                    self.lives.assigned(node.name, child, now_ns)
            elif machine == "member":
                if type(child.event) is Disconnect:
                    self.assignments.farewell(node.name, child.event)
                if self.lives.ended:
                    self.lives.member_step(node.name, child, now_ns)
                if child.source is REGISTERED and child.record.status is not REGISTERED:
                    self.deliveries.excuse = self._number

    def fault(self, fault: str, node: str, now_ns: int) -> None:
        """The nemesis, or the world, did something."""
        self._number += 1
        if fault in EXCUSES:
            self.deliveries.excuse = self._number
        elif fault == "resume":
            self.lives.resumed(node, now_ns)

    def died(self, borrower: str, now_ns: int) -> None:
        """The process of a borrower is dead."""
        self.lives.died(borrower, now_ns)

    def publish(self, stream: str, first: int, last: int) -> None:
        """Messages are in the stream store."""
        self.progress.published[stream] = last + 1

    def deliver(self, consumer: Consumer, event: Deliver, now_ns: int) -> None:
        """An application gets messages."""
        self._number += 1
        self.deliveries.deliver(consumer, event, now_ns, self._number)

    def acknowledge(self, event: Acknowledged) -> None:
        """An application has dealt with messages."""
        self.progress.acknowledge(event.stream, event.first, event.last)

    @property
    def delivered(self) -> int:
        """Messages that applications got, again and again included."""
        return self.deliveries.delivered

    @property
    def duplicates(self) -> int:
        """Messages that applications got again."""
        return self.deliveries.duplicates

    @property
    def acknowledged(self) -> int:
        """Messages that are dealt with."""
        return sum(covered.prefix for covered in self.progress.acked.values())

    def unacknowledged(self) -> list[str]:
        """L5: streams of which something published is not acknowledged."""
        return self.progress.unacknowledged()

    def _moved(self, node: Node[Any], before: Any, step: Step[Any], now_ns: int) -> None:
        self.statuses.moved(node, before, step)
        status = step.record.status
        if status is DESTROYED or status is RESIGNED:
            self.deliveries.excuse = self._number
        if node.fsm.name == "borrower":
            self.lives.moved(node, step, now_ns)


def balanced(members: Map[str, Any]) -> bool:
    """L4: the numbers of streams of registered members differ by at most one."""
    counts = [member.count for member in _registered(members)]
    return not counts or max(counts) - min(counts) <= 1


def _registered(members: Map[str, Any]) -> Iterable[Any]:
    return (member for _, member in sorted(members.items()) if member.status is REGISTERED)
