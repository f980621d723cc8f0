"""Promises: properties of the page that a System judges beside the simulator's monitors, each with its own books.

**S1** an assignment goes forward only (granting, granted, revoking, revoked, none).  **S3** the claim is written by its
holder alone: no commit under an epoch below that of the claim that stands.  **S8** a stream that has ended is not
granted.  **L3** where nothing is wrong any more, nobody is kicked for a revoke.  **L6** where nothing is wrong any
more, no leader loses its claim.  **L7** who unsubscribed does not come back.
"""

from __future__ import annotations

from typing import Any

from statemachines.kernel import Answer, Event, Node, Request, Step
from statemachines.shared_subscriptions.assignment import (
    GRANTED,
    GRANTING,
    NONE,
    REVOKED,
    REVOKING,
    Assign,
    RevokeTimeout,
)
from statemachines.shared_subscriptions.borrower import Start
from statemachines.shared_subscriptions.group_store import Claim, Commit, Committed
from statemachines.shared_subscriptions.leader_record import RESIGNED
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines_sim.judge import Violation

ORDER = {GRANTING: 0, GRANTED: 1, REVOKING: 2, REVOKED: 3, NONE: 4}


class Promises:
    """The books of one run.  `steady` is set once everything has healed and settled."""

    def __init__(self) -> None:
        self.steady = False
        self._left: set[str] = set()
        self._epochs: dict[str, int] = {}
        self._ended: set[str] = set()

    def left(self, life: str) -> None:
        """The client of this life has unsubscribed."""
        self._left.add(life)

    def heal(self) -> None:
        """What went wrong before may still show for a while."""
        self.steady = False

    def settle(self) -> None:
        """From now on nothing may go wrong."""
        self.steady = True

    def step(self, node: Node[Any], event: Event, step: Step[Any]) -> None:
        """A step of any machine."""
        if type(event) is Start and node.name.partition("/")[0] in self._left:
            raise Violation("L7", f"{node.name} begins after its client unsubscribed")
        if self.steady and step.record.status is RESIGNED and node.fsm.lines[step.row].clause in ("SS-130", "SS-132"):
            raise Violation("L6", f"{node.name} loses its claim, and nothing is wrong")
        for child in step.children:
            if child.machine == "assignment":
                self._assignment(child)

    def commit(self, request: Request, answers: tuple[Answer, ...]) -> None:
        """A request that a group store has carried out."""
        if not isinstance(request, Commit) or not isinstance(answers[0], Committed):
            return
        for key, value in request.put:
            if isinstance(value, Claim):
                stands = self._epochs.get(key, 0)
                if value.epoch < stands:
                    raise Violation("S3", f"{key} is written under epoch {value.epoch}, below {stands}")
                self._epochs[key] = value.epoch
            elif value == END_OF_STREAM:
                self._ended.add(key.partition(":progress:")[2])

    def _assignment(self, child: Any) -> None:
        source, dest = child.source, child.dest
        stream = child.instance.rpartition("#")[0]
        if type(child.event) is Assign:
            if child.record.progress == END_OF_STREAM or stream in self._ended:
                raise Violation("S8", f"{stream} has ended, and is granted to {child.record.link.borrower}")
        elif ORDER[dest] < ORDER[source]:
            raise Violation("S1", f"assignment {child.instance} goes back from {source.value} to {dest.value}")
        if self.steady and type(child.event) is RevokeTimeout and dest is NONE and source is not NONE:
            raise Violation("L3", f"{child.record.link.borrower} is kicked over {stream}, and nothing is wrong")
