"""Liveness: what must come true once everything has healed.  L1, L3, L6 to L10, and S10 when it is quiet.

At L2, L4, L5, and at L6 while something is left to do, the world looks itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statemachines.kernel import Node, in_order
from statemachines.shared_subscriptions.assignment import GRANTED, GRANTING, REVOKED, REVOKING
from statemachines.shared_subscriptions.borrower import CONNECTED, CONNECTING
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.leader_record import LeaderRecord
from statemachines.shared_subscriptions.member import REGISTERED
from statemachines.shared_subscriptions.stream import ABSENT

if TYPE_CHECKING:
    from statemachines_sim.shared_subscriptions.consumer import Consumer
    from statemachines_sim.world import World

Missing = tuple[str, str]
"""A property, and what is still missing."""

View = dict[str, tuple[int, str, int]]
"""Stream -> grant, status, progress."""

TIMERS_OF_LEADER = 8
TIMERS_PER_MEMBER = 2
TIMERS_PER_ASSIGNMENT = 2
TIMERS_OF_OTHERS = 5
"""L10: how many timers may be armed: of a leader, more for each member and each assignment that waits for an answer."""


class Liveness:
    """Looks at a world from outside, between two events."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._agreed: set[tuple[str, str]] = set()
        self._lease_ns = world.scenario.configuration.lease_ms * MS

    def missing(self, leader: LeaderRecord | None) -> Missing | None:
        """The first that is not true yet; raises `Violation` for what must not be at any time."""
        self._world.monitors.lives.check_leaving(self._world.env.now)
        self._check_timers()
        if leader is None and self._world.subscribed():
            return ("L6", "nobody leads the group")
        if self._world.unpublished:
            return ("L5", "a publisher still tries to reach the stream store")
        return (
            self._unconnected()
            or self._dead(leader)
            or self._taken_back(leader)
            or self._resets()
            or (None if leader is None else self._disagreement(leader))
        )

    def _unconnected(self) -> Missing | None:
        for consumer in self._world.subscribed():
            borrower = consumer.host.nodes.get(consumer.host.borrower)
            if borrower is None or borrower.record.status is CONNECTING:
                return ("L1", f"{consumer.life} has no leader")
        return None

    def _dead(self, leader: LeaderRecord | None) -> Missing | None:
        """L9; that a dead member is gone in time is also part of S11."""
        if leader is None:
            return None
        lives = self._world.monitors.lives
        dead = [borrower for borrower, _ in in_order(leader.members) if borrower in lives.ended]
        for borrower in dead:
            if leader.members[borrower].status is REGISTERED:
                lives.check_gone(leader.id, borrower, self._world.env.now)
        return ("L9", f"{dead[0]} is dead, and still a member") if dead else None

    def _taken_back(self, leader: LeaderRecord | None) -> Missing | None:
        assignments = () if leader is None else in_order(leader.assignments)
        for stream, assignment in assignments:
            if assignment.status in (REVOKING, REVOKED):
                return ("L3", f"{stream} is being taken back from {assignment.link.borrower}")
        return None

    def _resets(self) -> Missing | None:
        """L8: for the length of a lease nobody had to end itself."""
        if self._world.env.now < self._world.monitors.lives.reset_ns + self._lease_ns:
            return ("L8", "borrowers end themselves again and again")
        return None

    # -- S10 ----------------------------------------------------------------------------------------------------

    def _disagreement(self, leader: LeaderRecord) -> Missing | None:
        """Every pair of leader and borrower agrees, at some moment at which nothing is on its way between them."""
        flying = self._world.network.in_flight()
        for consumer in self._world.subscribed():
            borrower = consumer.host.borrower
            pair = (leader.id, borrower)
            if pair in self._agreed:
                continue
            quiet = pair not in flying and (borrower, leader.id) not in flying
            if not quiet or not self._agree(leader, consumer):
                return ("S10", f"{leader.id} and {borrower} never come to rest")
            self._agreed.add(pair)
        return None

    def _agree(self, leader: LeaderRecord, consumer: Consumer) -> bool:
        """Both know each other, and nothing is to be told or repeated; then they must see the same."""
        record = consumer.host.nodes[consumer.host.borrower].record
        member = leader.members.get(record.id)
        if member is None or member.status is not REGISTERED or record.link != member.link:
            return False
        held = {name: one for name, one in in_order(leader.assignments) if one.link.borrower == record.id}
        waiting = any(one.status in (GRANTING, REVOKED) for one in held.values())
        if waiting or record.status is not CONNECTED or record.changed or record.carried:
            return False
        theirs: View = {name: (one.grant, one.status.value, one.progress) for name, one in held.items()}
        ours: View = {
            name: (one.grant, one.status.value, one.progress)
            for name, one in in_order(record.streams)
            if one.status is not ABSENT
        }
        if ours != theirs:
            self._world.monitors.judge.broken("S10", f"{record.id} sees {ours}, {leader.id} sees {theirs}")
        return True

    # -- L10 ----------------------------------------------------------------------------------------------------

    def _check_timers(self) -> None:
        for _, process in sorted(self._world.processes.items()):
            if process.alive:
                for _, node in sorted(process.host.nodes.items()):
                    self._check_timers_of(node)

    def _check_timers_of(self, node: Node[Any]) -> None:
        allowed = TIMERS_OF_OTHERS
        if isinstance(node.record, LeaderRecord):
            waiting = sum(one.status is not GRANTED for _, one in in_order(node.record.assignments))
            allowed = TIMERS_OF_LEADER + TIMERS_PER_MEMBER * len(node.record.members) + TIMERS_PER_ASSIGNMENT * waiting
        armed = len(node.armed())
        if armed > allowed:
            self._world.monitors.judge.broken("L10", f"{node.name} has {armed} timers armed, and needs {allowed}")
