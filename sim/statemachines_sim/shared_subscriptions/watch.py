"""Watch: every S and L property of shared subscriptions, judged while a run goes on, from what every node did.

The rules are those of `statemachines.shared_subscriptions.properties`.  Each part feeds some of
them, and keeps books of the run apart from the records of the machines; by subject they stand in `monitors/`.  What
must come true in the end stands in `liveness`.  The simulator, scripted runs and tests with Hypothesis use this one.

Liveness: what must come true once everything has healed: L1 to L10, and S10 when it is quiet.

Ways that nothing heals are left (`Unreachable`).  A member that does not reach a store can be nobody's; all else holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any, Final

from statemachines.kernel import Answer, Event, Message, Node, Request, Step, in_order, node_of
from statemachines.shared_subscriptions import group_store
from statemachines.shared_subscriptions.assignment import Assign
from statemachines.shared_subscriptions.borrower import CONNECTED, DESTROYED, Start
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.handler import Subscription
from statemachines.shared_subscriptions.leader_record import LEADING, RESIGNED, LeaderRecord
from statemachines.shared_subscriptions.member import REGISTERED
from statemachines.shared_subscriptions.message import (
    Disconnect,
    LeaderConnectResponse,
    Ping,
    RelayedToBorrower,
    RelayedToLeader,
    UpdateProgress,
)
from statemachines.shared_subscriptions.properties.agreement import check_agreement, is_at_rest
from statemachines.shared_subscriptions.properties.committed_claim import check_leader
from statemachines.shared_subscriptions.properties.settled_group import (
    Broken,
    find_begun_again,
    find_dead_members,
    find_leaderless,
    find_lost_claim,
    find_restless,
    find_taken_back,
    find_unbalanced,
    find_unconnected,
    find_unread,
    find_waiting_publisher,
)
from statemachines.shared_subscriptions.properties.time_limits import TimeLimits, derive_limits
from statemachines.shared_subscriptions.properties.timers_needed import check_timers
from statemachines.shared_subscriptions.registry import Registry
from statemachines.shared_subscriptions.session import Acknowledged, Deliver, Nack
from statemachines.shared_subscriptions.stream import StreamLink
from statemachines.shared_subscriptions.stream_store import Fetched, FetchFailed
from statemachines_sim import cluster
from statemachines_sim.cluster import Missing
from statemachines_sim.judge import Judge
from statemachines_sim.shared_subscriptions.monitors.answers import Answers
from statemachines_sim.shared_subscriptions.monitors.assignments import Assignments
from statemachines_sim.shared_subscriptions.monitors.commits import Commits
from statemachines_sim.shared_subscriptions.monitors.deliveries import DeliveryMonitor
from statemachines_sim.shared_subscriptions.monitors.letters import Letters
from statemachines_sim.shared_subscriptions.monitors.lives import LifeMonitor
from statemachines_sim.shared_subscriptions.monitors.progress import Progress
from statemachines_sim.shared_subscriptions.monitors.reads import Reads
from statemachines_sim.shared_subscriptions.monitors.set_aside import SetAside
from statemachines_sim.shared_subscriptions.monitors.statuses import Statuses
from statemachines_sim.shared_subscriptions.section import GroupSection, is_quick


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


EXCUSES: Final = ("crash", "poisoned", "lost_disk", "leader_crash", "end_twin", "unsubscribe")
"""What may be done that leads to a second delivery."""

CLAIM_LOST: Final = ("SS-130", "SS-132")
"""The clauses by which a leader resigns because it has lost its claim."""


ANSWERS: Final = (UpdateProgress, Ping)
"""What may answer a grant."""

READ: Final = (Fetched, FetchFailed)
"""How a read ends."""

REPORTING: Final = (*ANSWERS, Disconnect)
"""What tells of progress."""


class GroupWatch(cluster.Watch):
    """Of one run.  `steady`: nothing is wrong and nothing may go wrong any more; `waiting`: publishers that wait for
    their store; `liars`: borrowers that have said what was not so.  What a liar says of its own streams, and does with
    them, is not held against the protocol; what becomes of others is."""

    always_hears = False

    def __init__(
        self,
        configuration: Configuration,
        topic_filter: str = "#",
        judge: Judge | None = None,
        own: GroupSection | None = None,
    ) -> None:
        super().__init__(judge)
        limits = derive_limits(configuration)
        self.progress = Progress(self.judge)
        self.commits = Commits(self.judge, limits, self.progress)
        self.assignments = Assignments(self.judge, self.commits, self.progress)
        self.deliveries = DeliveryMonitor(self.judge, self.assignments, topic_filter, configuration.exclusive)
        self.statuses = Statuses(self.judge)
        self.lives = LifeMonitor(self.judge, limits)
        self.answers = Answers(self.judge, limits)
        self.reads = Reads(self.judge, limits)
        self.set_aside = SetAside(self.judge, self.progress, configuration.max_deliver)
        self.letters = Letters(self.judge)
        self.liars = self.deliveries.liars
        self.liveness = Liveness(limits, self.judge, self.lives, self.liars)
        self.steady = False
        self.waiting = 0
        self._own = own
        self._number = 0
        self._left: set[str] = set()

    def begin(self, world: Any) -> None:
        self.commits.true_ns = lambda: world.env.now
        self.commits.local_ns = lambda party: world.processes[node_of(party)].local_now()
        if self._own is not None:
            self.assignments.calm = not world.schedule and is_quick(self._own, world.scenario)

    def settle(self, steady: bool = True) -> None:
        """From now on nothing may go wrong (or, with False, it may again): nobody is kicked over a revoke (L3), and no
        leader loses its claim (L6)."""
        self.steady = self.assignments.calm = steady

    def observe_unsubscribed(self, life: str) -> None:
        """L7: the client of this life has unsubscribed for good; no borrower of it may begin any more."""
        self._left.add(life)

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        self._number += 1
        status = step.record.status
        if status is not before:
            self._moved(node, event, before, step, now_ns)
        if type(event) is LeaderConnectResponse and status is CONNECTED:
            self._connected(node.name, step.record.link)
        if type(event) in ANSWERS:
            self.answers.hear(node.name, event)  # type: ignore[arg-type]
        if self.liars and type(event) in REPORTING and event.borrower in self.liars:  # type: ignore[attr-defined]
            reports = (event,) if isinstance(event, UpdateProgress) else event.reports  # type: ignore[attr-defined]
            self.assignments.observe_lie(node.name, event.borrower, reports)  # type: ignore[attr-defined]
        if type(event) in READ:
            self.reads.step(node, event, before, now_ns)
        if node.fsm.name == "leader":
            self.commits.act(node, event, before, now_ns)
            self.answers.say(node.name, step.effects, now_ns)
            self.set_aside.step(step)
            self.letters.step(step)
        for child in step.children:
            if child.source is not child.record.status:
                self.statuses.observe_child(node.name, child)
            machine = child.fsm.name
            if machine == "assignment":
                self.assignments.step(node.name, child)
                self.answers.step(node.name, child, now_ns)
                if type(child.event) is Assign:
                    self.lives.observe_assignment(node.name, child, now_ns)
            elif machine == "member":
                if type(child.event) is Disconnect and child.event.borrower not in self.liars:
                    self.assignments.farewell(node.name, child.event)
                if self.lives.ended:
                    self.lives.member_step(node.name, child, now_ns)
                if child.source is REGISTERED and child.record.status is not REGISTERED:
                    self.deliveries.excuse = self._number

    def _connected(self, borrower: str, link: StreamLink) -> None:
        """S17."""
        self.judge.report_properties(check_leader(borrower, link, self.commits.named))

    def tell(self, process: Any, party: str, event: Event, now_ns: int) -> None:
        if type(event) is Deliver:
            if self.judging:
                self.deliver(process, event, now_ns)
        elif type(event) is Acknowledged:
            self.acknowledge(event)

    def observe_request(
        self, service: str, party: str, request: Request, answers: tuple[Answer, ...], now_ns: int
    ) -> None:
        if service == group_store.SERVICE:
            self.commits.commit(party, request, answers, now_ns)
        else:
            self.letters.store(request, answers)

    def fault(self, kind: str, node: str, now_ns: int) -> None:
        self._number += 1
        if kind in EXCUSES:
            self.deliveries.excuse = self._number
        elif kind == "resume":
            self.lives.observe_resume(node, now_ns)
            self.answers.observe_resume(node, now_ns)
        elif kind == "far_jump":
            self.answers.observe_leap(node)

    def hit(self, kind: str, node: str, sender: str, to: str, message: Message, now_ns: int) -> None:
        if kind == "forge":
            self._number += 1
            self.deliveries.observe_lie(sender, self._number)

    def observe_death(self, process: Any, now_ns: int) -> None:
        for party in process.host.nodes:
            self.lives.observe_death(party, now_ns)
            self.answers.forget(party)

    def missing(self, world: Any) -> Missing | None:
        return self.liveness.missing(world, self.list_unacknowledged(), self.waiting, self.judging)

    def tally(self) -> dict[str, int]:
        return {
            "delivered": self.delivered_count,
            "duplicates": self.duplicates,
            "acknowledged": self.acknowledged_count,
        }

    def deliver(self, consumer: Any, event: Deliver, now_ns: int) -> None:
        """The application of a process gets messages."""
        self._number += 1
        self.deliveries.deliver(consumer, event, now_ns, self._number)
        self.set_aside.deliver(consumer, event)
        self.letters.deliver(event)

    def give_back(self, consumer: Any, event: Nack) -> None:
        """The application of a process gives a message back: it comes again, with what is behind it."""
        self._number += 1
        self.deliveries.give_back(consumer, event, self._number)
        self.set_aside.give_back(event.stream, event.offset)

    def acknowledge(self, event: Acknowledged) -> None:
        """An application has dealt with messages."""
        self.progress.acknowledge(event.stream, event.first, event.last)

    def publish(self, stream: str, first: int, last: int) -> None:
        """Messages are in the stream store."""
        self.progress.published[stream] = last + 1

    @property
    def delivered_count(self) -> int:
        """Messages that applications got, again and again included."""
        return self.deliveries.delivered

    @property
    def duplicates(self) -> int:
        """Messages that applications got again."""
        return self.deliveries.duplicates

    @property
    def acknowledged_count(self) -> int:
        """Messages that are dealt with."""
        return sum(covered.prefix for covered in self.progress.acked.values())

    def list_unacknowledged(self) -> list[str]:
        """L5: streams of which something published is not acknowledged."""
        return self.progress.list_unacknowledged()

    def report_unread(self) -> None:
        """L5, where it is over."""
        self.judge.report_properties(find_unread(None, self.list_unacknowledged()))

    def _moved(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        self.statuses.observe_move(node, before, step)
        status = step.record.status
        if status is DESTROYED or status is RESIGNED:
            self.deliveries.excuse = self._number
            self.answers.forget(node.name)
        if self.steady and status is RESIGNED and node.fsm.lines[step.row].clause in CLAIM_LOST:
            self.judge.report_properties(find_lost_claim(node.name))
        if node.fsm.name == "borrower":
            self.lives.observe_move(node, step, now_ns)
            if type(event) is Start:
                has_left = node.name.partition("/")[0] in self._left
                self.judge.report_properties(find_begun_again(node.name, has_left, begins=True))
