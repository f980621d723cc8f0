"""Liveness: what must come true once everything has healed: L1 to L10, and S10 when it is quiet.

Ways that nothing heals are left (`Unreachable`).  A member that does not reach a store can be nobody's; all else holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from statemachines.kernel import Map, Node, in_order, node_of
from statemachines.shared_subscriptions.assignment import GRANTED, GRANTING, REVOKED, REVOKING
from statemachines.shared_subscriptions.borrower import CONNECTED, CONNECTING
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.leader_record import LEADING, LeaderRecord
from statemachines.shared_subscriptions.member import REGISTERED
from statemachines.shared_subscriptions.message import RelayedToBorrower, RelayedToLeader
from statemachines.shared_subscriptions.registry import Registry
from statemachines.shared_subscriptions.stream import ABSENT
from statemachines.shared_subscriptions.subscription import Subscription
from statemachines_sim.cluster import Missing
from statemachines_sim.judge import Judge
from statemachines_sim.shared_subscriptions.monitors.lives import Lives

View = dict[str, tuple[int, str, int]]
"""Stream -> grant, status, progress."""

TIMERS_OF_LEADER = 8
TIMERS_PER_MEMBER = 2
TIMERS_PER_ASSIGNMENT = 2
TIMERS_OF_OTHERS = 5
"""L10: how many timers may be armed: of a leader, more for each member and each assignment that waits for an answer."""


def list_subscribers(processes: Mapping[str, Any]) -> list[Any]:
    """Every process that lives and wants messages."""
    return [
        process
        for _, process in sorted(processes.items())
        if process.alive and isinstance(process.host, Subscription) and not process.host.is_ended
    ]


def meets(world: Any, one: str, other: str) -> bool:
    """Whether nothing that lasts is between two nodes, or a node and a store, in either direction."""
    return one == other or not world.network.lasting & {(one, other), (other, one)}


def able(world: Any) -> list[Any]:
    """Those of them that reach both stores and some leader host, and are reached by them."""
    hosts = [node for node, process in world.processes.items() if isinstance(process.host, Registry)]
    return [
        process
        for process in list_subscribers(world.processes)
        if all(meets(world, process.node, store) for store in world.devices)
        and any(meets(world, process.node, host) for host in hosts)
    ]


def list_connected(world: Any, leader: LeaderRecord | None) -> list[Any]:
    """Those of them that reach the leader, if only through another host."""
    if leader is None or not world.network.lasting:
        return able(world)
    lead = node_of(leader.id)
    hosts = [node for node, process in world.processes.items() if isinstance(process.host, Registry)]
    near = [host for host in hosts if meets(world, host, lead)]
    return [process for process in able(world) if any(meets(world, process.node, host) for host in near)]


def leaders(processes: Mapping[str, Any]) -> list[LeaderRecord]:
    """Everybody who believes to lead; the last has the highest epoch."""
    found = [
        node.record
        for process in processes.values()
        if process.alive and isinstance(process.host, Registry)
        for node in process.host.nodes.values()
        if node.record.status is LEADING
    ]
    return sorted(found, key=lambda record: record.epoch)


def is_balanced(members: Map[str, Any]) -> bool:
    """L4: the numbers of streams of registered members differ by at most one."""
    counts = [member.count for _, member in sorted(members.items()) if member.status is REGISTERED]
    return not counts or max(counts) - min(counts) <= 1


def is_served(leader: LeaderRecord, stream: str) -> bool:
    """L2: it is granted to a member that is registered."""
    assignment = leader.assignments.get(stream)
    if assignment is None:
        return False
    member = leader.members.get(assignment.link.borrower)
    return member is not None and member.status is REGISTERED


def list_relayed(world: Any) -> set[tuple[str, str]]:
    """(leader, borrower) of what is on its way through a follower."""
    messages = world.network.messages_in_flight()
    return {(one.leader, one.borrower) for one in messages if isinstance(one, RelayedToLeader | RelayedToBorrower)}


class Liveness:
    """Looks at a world from outside, between two events.  `liars`: as the watch has them."""

    def __init__(self, configuration: Configuration, judge: Judge, lives: Lives, liars: Set[str]) -> None:
        self._judge = judge
        self._lives = lives
        self._liars = liars
        self._agreed: set[tuple[str, str]] = set()
        self._lease_ns = configuration.lease_ms * MS

    def missing(self, world: Any, left: list[str], waiting: int, judging: bool) -> Missing | None:
        """The first that is not true yet, where `left` are the streams with something unacknowledged, and `waiting`
        publishers wait for their store; raises `Violation` for what must not be at any time."""
        leading = leaders(world.processes)
        if len(leading) > 1:
            return ("L6", f"{', '.join(one.id for one in leading)} lead the group")
        leader = leading[0] if leading else None
        if left:
            return self._unread(world, leader, left)
        if leader is not None and not is_balanced(leader.members):
            return ("L4", "the members' numbers of streams differ by more than one")
        return self._quiet(world, leader, waiting) if judging else None

    def _unread(self, world: Any, leader: LeaderRecord | None, left: list[str]) -> Missing | None:
        if leader is None:
            return ("L6", "nobody leads the group")
        if not able(world):
            return None
        lost = [stream for stream in left if not is_served(leader, stream)]
        if lost:
            return ("L2", f"{', '.join(lost[:3])}: unread messages, and granted to no live member")
        return ("L5", f"{', '.join(left[:3])}: published and never acknowledged")

    def _quiet(self, world: Any, leader: LeaderRecord | None, waiting: int) -> Missing | None:
        """Everything is read."""
        self._lives.check_leaving(world.now)
        self._check_timers(world)
        if leader is None and able(world):
            return ("L6", "nobody leads the group")
        if waiting:
            return ("L5", "a publisher still tries to reach the stream store")
        return (
            self._unconnected(world, leader)
            or self._dead(world, leader)
            or self._taken_back(leader)
            or self._resets(world)
            or (None if leader is None else self._disagreement(world, leader))
        )

    def _unconnected(self, world: Any, leader: LeaderRecord | None) -> Missing | None:
        for consumer in list_connected(world, leader):
            borrower = consumer.host.nodes.get(consumer.host.borrower)
            if borrower is None or borrower.record.status is CONNECTING:
                return ("L1", f"{consumer.life} has no leader")
        return None

    def _dead(self, world: Any, leader: LeaderRecord | None) -> Missing | None:
        """L9; that a dead member is gone in time is also part of S11."""
        if leader is None:
            return None
        lives = self._lives
        dead = [borrower for borrower, _ in in_order(leader.members) if borrower in lives.ended]
        for borrower in dead:
            if leader.members[borrower].status is REGISTERED:
                lives.check_gone(leader.id, borrower, world.now)
        return ("L9", f"{dead[0]} is dead, and still a member") if dead else None

    def _taken_back(self, leader: LeaderRecord | None) -> Missing | None:
        assignments = () if leader is None else in_order(leader.assignments)
        for stream, assignment in assignments:
            if assignment.status in (REVOKING, REVOKED):
                return ("L3", f"{stream} is being taken back from {assignment.link.borrower}")
        return None

    def _resets(self, world: Any) -> Missing | None:
        """L8: for the length of a lease nobody had to end itself."""
        if world.now < self._lives.reset_ns + self._lease_ns:
            return ("L8", "borrowers end themselves again and again")
        return None

    # -- S10 ----------------------------------------------------------------------------------------------------

    def _disagreement(self, world: Any, leader: LeaderRecord) -> Missing | None:
        """Every pair of leader and borrower agrees, at some moment at which nothing is on its way between them."""
        flying = world.network.in_flight() | list_relayed(world)
        for consumer in list_connected(world, leader):
            borrower = consumer.host.borrower
            pair = (leader.id, borrower)
            if pair in self._agreed or borrower in self._liars:
                continue
            quiet = pair not in flying and (borrower, leader.id) not in flying
            if not quiet or not self._agree(leader, consumer):
                return ("S10", f"{leader.id} and {borrower} never come to rest")
            self._agreed.add(pair)
        return None

    def _agree(self, leader: LeaderRecord, consumer: Any) -> bool:
        """Both know each other, and nothing is to be told or repeated; then they must see the same."""
        record = consumer.host.nodes[consumer.host.borrower].record
        member = leader.members.get(record.id)
        if member is None or member.status is not REGISTERED or record.link != member.link:
            return False
        held = {name: one for name, one in in_order(leader.assignments) if one.link.borrower == record.id}
        # Progress that the store has not covered yet is echoed, and does not count before it has (SS-157).
        waiting = any(one.status in (GRANTING, REVOKED) or name in leader.held for name, one in held.items())
        unconfirmed = record.changed or record.carried or record.late
        if waiting or record.status is not CONNECTED or unconfirmed:
            return False
        theirs: View = {name: (one.grant, one.status.value, one.progress) for name, one in held.items()}
        ours: View = {
            name: (one.grant, one.status.value, one.progress)
            for name, one in in_order(record.streams)
            if one.status is not ABSENT
        }
        if ours != theirs:
            self._judge.report_broken("S10", f"{record.id} sees {ours}, {leader.id} sees {theirs}")
        return True

    # -- L10 ----------------------------------------------------------------------------------------------------

    def _check_timers(self, world: Any) -> None:
        for _, process in sorted(world.processes.items()):
            if process.alive:
                for _, node in sorted(process.host.nodes.items()):
                    self._check_timers_of(node)

    def _check_timers_of(self, node: Node[Any]) -> None:
        allowed = TIMERS_OF_OTHERS
        if isinstance(node.record, LeaderRecord):
            waiting = sum(one.status is not GRANTED for _, one in in_order(node.record.assignments))
            allowed = TIMERS_OF_LEADER + TIMERS_PER_MEMBER * len(node.record.members) + TIMERS_PER_ASSIGNMENT * waiting
        armed = len(node.armed_timers())
        if armed > allowed:
            self._judge.report_broken("L10", f"{node.name} has {armed} timers armed, and needs {allowed}")
