"""Liveness: what must come true once everything has healed: L1 to L10, and S10 when it is quiet.

Ways that nothing heals are left (`Unreachable`).  A member that does not reach a store can be nobody's; all else holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

from statemachines.kernel import in_order, node_of
from statemachines.shared_subscriptions.leader_record import LEADING, LeaderRecord
from statemachines.shared_subscriptions.member import REGISTERED
from statemachines.shared_subscriptions.message import RelayedToBorrower, RelayedToLeader
from statemachines.shared_subscriptions.properties.agreement import check_agreement, is_at_rest
from statemachines.shared_subscriptions.properties.settled_group import (
    Broken,
    find_dead_members,
    find_leaderless,
    find_restless,
    find_taken_back,
    find_unbalanced,
    find_unconnected,
    find_unread,
    find_waiting_publisher,
)
from statemachines.shared_subscriptions.properties.time_limits import TimeLimits
from statemachines.shared_subscriptions.properties.timers_needed import check_timers
from statemachines.shared_subscriptions.registry import Registry
from statemachines.shared_subscriptions.subscription import Subscription
from statemachines_sim.cluster import Missing
from statemachines_sim.judge import Judge
from statemachines_sim.shared_subscriptions.monitors.lives import LifeMonitor


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


def list_able(world: Any) -> list[Any]:
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
        return list_able(world)
    lead = node_of(leader.id)
    hosts = [node for node, process in world.processes.items() if isinstance(process.host, Registry)]
    near = [host for host in hosts if meets(world, host, lead)]
    return [process for process in list_able(world) if any(meets(world, process.node, host) for host in near)]


def list_leaders(processes: Mapping[str, Any]) -> list[LeaderRecord]:
    """Everybody who believes to lead; the last has the highest epoch."""
    found = [
        node.record
        for process in processes.values()
        if process.alive and isinstance(process.host, Registry)
        for node in process.host.nodes.values()
        if node.record.status is LEADING
    ]
    return sorted(found, key=lambda record: record.epoch)


def list_relayed(world: Any) -> set[tuple[str, str]]:
    """(leader, borrower) of what is on its way through a follower."""
    messages = world.network.messages_in_flight()
    return {(one.leader, one.borrower) for one in messages if isinstance(one, RelayedToLeader | RelayedToBorrower)}


class Liveness:
    """Looks at a world from outside, between two events.  `liars`: as the watch has them."""

    def __init__(self, limits: TimeLimits, judge: Judge, lives: LifeMonitor, liars: Set[str]) -> None:
        self._judge = judge
        self._lives = lives
        self._liars = liars
        self._agreed: set[tuple[str, str]] = set()
        self._limits = limits

    def missing(self, world: Any, left: list[str], waiting: int, judging: bool) -> Missing | None:
        """The first that is not true yet, where `left` are the streams with something unacknowledged, and `waiting`
        publishers wait for their store; raises `Violation` for what must not be at any time."""
        for broken in self._list_missing(world, left, waiting, judging):
            for one in broken:
                return (one.name, one.detail)
        return None

    def _list_missing(self, world: Any, left: list[str], waiting: int, judging: bool) -> Iterator[Broken]:
        leading = list_leaders(world.processes)
        yield find_leaderless([one.id for one in leading], is_needed=bool(left))
        leader = leading[0] if leading else None
        if left:
            if list_able(world):
                yield find_unread(leader, left)
            return
        if leader is not None:
            yield find_unbalanced(leader)
        if judging:
            yield from self._quiet(world, leader, waiting)

    def _quiet(self, world: Any, leader: LeaderRecord | None, waiting: int) -> Iterator[Broken]:
        """Everything is read."""
        self._lives.check_leaving(world.now)
        self._check_timers(world)
        if leader is None:
            yield find_leaderless((), is_needed=bool(list_able(world)))
        yield find_waiting_publisher(waiting)
        for consumer in list_connected(world, leader):
            borrower = consumer.host.nodes.get(consumer.host.borrower)
            yield find_unconnected(consumer.life, None if borrower is None else borrower.record)
        if leader is not None:
            yield self._dead(world, leader)
            yield find_taken_back(leader)
        yield self._limits.check_resets(world.now - self._lives.reset_ns)
        if leader is not None:
            yield self._disagreement(world, leader)

    def _dead(self, world: Any, leader: LeaderRecord) -> Broken:
        """L9; that a dead member is gone in time is also part of S11."""
        dead = [borrower for borrower, _ in in_order(leader.members) if borrower in self._lives.ended]
        for borrower in dead:
            if leader.members[borrower].status is REGISTERED:
                self._lives.check_gone(leader.id, borrower, world.now)
        return find_dead_members(dead)

    def _disagreement(self, world: Any, leader: LeaderRecord) -> Broken:
        """S10: every pair of leader and borrower agrees, at some moment at which nothing is on its way between them."""
        flying = world.network.in_flight() | list_relayed(world)
        for consumer in list_connected(world, leader):
            borrower = consumer.host.borrower
            pair = (leader.id, borrower)
            if pair in self._agreed or borrower in self._liars:
                continue
            record = consumer.host.nodes[borrower].record
            if pair in flying or (borrower, leader.id) in flying or not is_at_rest(leader, record):
                return find_restless(leader.id, borrower)
            self._judge.report_properties(check_agreement(leader, record))
            self._agreed.add(pair)
        return ()

    def _check_timers(self, world: Any) -> None:
        """L10."""
        for _, process in sorted(world.processes.items()):
            if process.alive:
                for _, node in sorted(process.host.nodes.items()):
                    broken = check_timers(node.fsm.name, node.record, node.armed_timers())
                    self._judge.report_properties(broken)
