"""What shared subscriptions say to the simulator: who takes part, what they ask, what may go wrong, who judges.

Load: what a run of shared subscriptions plans beside its members: who leaves, what is published, what the store
does.

Kinds of faults that only shared subscriptions have: of leader hosts, and of consumers' applications.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Answer
from statemachines.shared_subscriptions import stream_store
from statemachines.shared_subscriptions.group_store import Commit, Committed, GroupStore, StoreFailed
from statemachines.shared_subscriptions.properties import PROPERTIES
from statemachines.shared_subscriptions.stream_store import (
    Append,
    Appended,
    Drop,
    Dropped,
    FetchFailed,
    Published,
    Rotate,
    StreamStore,
    matches,
)
from statemachines_sim.cluster import OF_PROCESSES, OF_STORES, Fixture, Role, SimCluster, Tolerance
from statemachines_sim.devices.remote_store import Batches, RemoteStore, remote_store
from statemachines_sim.fault import Fault
from statemachines_sim.faults import Crash, FaultKind
from statemachines_sim.faults.fault_sampler import FaultSampler
from statemachines_sim.forged_message import Forger
from statemachines_sim.judge import Judge
from statemachines_sim.local_clock import PPM
from statemachines_sim.node_life import NodeLife
from statemachines_sim.protocol import SimProtocol
from statemachines_sim.scenario import Scenario
from statemachines_sim.shared_subscriptions.consumer import ConsumerNode
from statemachines_sim.shared_subscriptions.leader_host import LeaderNodeLife
from statemachines_sim.shared_subscriptions.section import GroupSection, check, count_affordable
from statemachines_sim.shared_subscriptions.watch import GroupWatch
from statemachines_sim.units import MS, S

RESUBSCRIBES, RESUBSCRIBE_NS = 10, S // 200
"""A quick resubscribe is so many, so far apart."""


class LoadPublisher:
    """Publishes into the stream store of a world, and tells its watch; `waiting`: publishes that wait for the store."""

    def __init__(self, world: SimCluster, topic_filter: str) -> None:
        self._world = world
        self._filter = topic_filter
        self._watch: GroupWatch = world.watch  # type: ignore[assignment]
        self.waiting = 0

    @property
    def store(self) -> RemoteStore:
        """Where messages go."""
        store: Any = self._world.devices[stream_store.SERVICE]
        return store  # type: ignore[no-any-return]

    def publish(self, topic: str, count: int) -> None:
        """A publisher tries again until the store is there; what it published once is there for good."""
        if self.store.down:
            self.waiting += 1
            self._watch.waiting = self.waiting
            self._world.after(S // 10, self._publish_again, topic, count)
            return
        (answer,) = self.store.apply(Append(0, topic, count))
        assert isinstance(answer, Appended)
        if not matches(self._filter, topic):
            return  # no business of the group's: whoever delivers it all the same delivers what nobody published
        published = Published(answer.stream, answer.first, answer.last)
        self._world.recorder.tell(self._world.now, "publisher-1", "publisher-1~1", "", published)
        self._watch.publish(answer.stream, answer.first, answer.last)

    def rotate(self) -> None:
        """A new generation begins: every stream so far has ended."""
        self.store.apply(Rotate(0))
        self._watch.progress.generation = self.store.state.generation
        self._world.note("rotate", stream_store.SERVICE)

    def drop(self) -> None:
        """All generations but the current one are gone, read or not."""
        (dropped,) = self.store.apply(Drop(0, self.store.state.generation))
        assert isinstance(dropped, Dropped)
        self._watch.progress.oldest = dropped.oldest
        self._world.note("drop", stream_store.SERVICE)

    def _publish_again(self, topic: str, count: int) -> None:
        self.waiting -= 1
        self._watch.waiting = self.waiting
        self.publish(topic, count)


def play(own: GroupSection, world: SimCluster, chance: Random) -> None:
    """Who leaves, and publishes, spread over most of the safety phase."""
    for number, at in enumerate(own.members.leave_s):
        world.after(int(at * S), leave, world, f"consumer-{number + 1}")
    for number, at in enumerate(own.members.resubscribe_s):
        for turn in range(RESUBSCRIBES):
            world.after(int(at * S) + turn * RESUBSCRIBE_NS, resubscribe, world, f"consumer-{number + 1}")
    load, publisher = own.load, LoadPublisher(world, own.group_and_filter[1])
    end = int(world.scenario.phases.safety_s * 0.9 * S)
    left = load.messages
    while left > 0:
        count = min(left, load.batch)
        left -= count
        topic = f"t{chance.randrange(load.topics):03}"
        world.after(chance.randrange(end), publisher.publish, topic, count)
    for _ in range(0, load.stray, load.batch):
        topic = f"stray/t{chance.randrange(load.topics):03}"
        world.after(chance.randrange(end), publisher.publish, topic, load.batch)
    for at in load.rotate_s:
        world.after(int(at * S), publisher.rotate)
    for at in load.drop_s:
        world.after(int(at * S), publisher.drop)


def leave(world: SimCluster, node: str) -> None:
    """Unsubscribe."""
    process = world.living(node)
    if isinstance(process, ConsumerNode):
        world.note("unsubscribe", node)
        process.leave()


def resubscribe(world: SimCluster, node: str) -> None:
    """Unsubscribe, and subscribe again at once."""
    process = world.living(node)
    if isinstance(process, ConsumerNode) and not process.host.is_ended:
        world.note("unsubscribe", node)
        process.resubscribe()


class LeaderCrash(Crash):
    """The same as a crash, counted by itself."""

    name = "leader_crash"
    hits = "a leader host"


class SlowConsumer(FaultKind):
    """An application works slower."""

    name = "slow_consumer"
    hits = "a consumer"
    about = "its application works slower"
    unit = "times"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, pot.for_ns, pot.target(), amount=pot.chance.choice((3, 10, 30)))

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if not isinstance(process, ConsumerNode) or process.slow > 1:
            return False
        world.note(self.name, fault.target, times=fault.amount)
        process.slow = fault.amount
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        process = world.processes.get(fault.target)
        if isinstance(process, ConsumerNode):
            process.slow = 1
        world.note(f"end_{self.name}", fault.target)


class Halt(FaultKind):
    """Leaders stop in good order."""

    name = "halt"
    hits = "a leader host"
    about = "its leaders are told to stop in good order; who is asked next starts another"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, 0, pot.target())

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if not isinstance(process, LeaderNodeLife) or process.is_paused or not process.host.nodes:
            return False
        world.note(self.name, fault.target)
        process.halt()
        return True


class Unsubscribe(FaultKind):
    """A client goes, and comes back."""

    name = "unsubscribe"
    hits = "a consumer"
    about = "its client unsubscribes, and subscribes again when the fault ends"

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if not isinstance(process, ConsumerNode) or process.left:
            return False
        world.note(self.name, fault.target)
        process.leave_for_a_while()
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        process = world.living(fault.target)
        if isinstance(process, ConsumerNode) and process.left_for_a_while:
            world.note("subscribe", fault.target)
            process.come_back()


class Lie(FaultKind):
    """A consumer reports progress that nothing stored covers."""

    name = "lie"
    hits = "a consumer"
    about = "it reports more of a stream than is stored, and of another that it has ended"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, 0, pot.target())

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if not isinstance(process, ConsumerNode) or process.is_paused or not process.lies():
            return False
        world.note(self.name, fault.target)
        process.lie()
        return True


class Forge(FaultKind):
    """A consumer lies in whatever it says."""

    name = "forge"
    hits = "a consumer"
    about = "of a share of what it says to leaders one field says something else, any field of any message"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, pot.for_ns, pot.target(), rate=pot.rate())

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if not isinstance(process, ConsumerNode) or process.forges:
            return False
        world.note(self.name, fault.target, rate=fault.rate)
        process.begin_forging(
            Forger(Random(f"{world.seed}/{process.life}/{fault.at_ns}"), list_names(world)), fault.rate
        )
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        process = world.processes.get(fault.target)
        if process is not None:
            process.end_forging()
        world.note(f"end_{self.name}", fault.target)


class Mute(FaultKind):
    """A consumer answers no grant."""

    name = "mute"
    hits = "a consumer"
    about = "it answers no grant that comes, and says everything else"

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if not isinstance(process, ConsumerNode) or process.mute:
            return False
        world.note(self.name, fault.target)
        process.mute = True
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        process = world.processes.get(fault.target)
        if isinstance(process, ConsumerNode):
            process.mute = False
        world.note(f"end_{self.name}", fault.target)


class Unreadable(FaultKind):
    """A consumer has lost the stream store."""

    name = "unreadable"
    hits = "a consumer"
    about = (
        "what it asks of the stream store fails for twice the longest period; its leader and the others notice nothing"
    )

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, 2 * pot.longest_ns, pot.target())

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        world.cut(fault.target, stream_store.SERVICE, self.name)
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        world.mend(fault.target, stream_store.SERVICE, self.name)


class Pretend(FaultKind):
    """A stranger speaks as a leader."""

    name = "pretend"
    hits = "a consumer"
    about = "a stranger answers it as the leader of an epoch that nobody will reach, and says whatever a leader may"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, 0, pot.target())

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if not isinstance(process, ConsumerNode) or process.is_paused or not process.host.borrower:
            return False
        world.note(self.name, fault.target)
        process.hear_pretender()
        return True


def list_names(world: SimCluster) -> list[str]:
    """Every party that lives, and every stream: a liar may have heard of them."""
    parties = [party for _, process in sorted(world.processes.items()) for party in process.host.nodes]
    return parties + sorted(world.devices[stream_store.SERVICE].state.by_id)  # type: ignore[attr-defined]


FAULTS = (LeaderCrash(), SlowConsumer(), Halt(), Unsubscribe(), Lie(), Forge(), Mute(), Pretend(), Unreadable())


APART_NS = S // 50
"""Consumers of the beginning start one after the other, so far apart."""

CLOCKS = ("skew", "drift", "jump")
OF_CONSUMERS = (
    *OF_PROCESSES, "lost_disk", "twin", "slow_consumer", "unsubscribe", "lie", "forge", "mute", "pretend", "unreadable",
)  # fmt: skip
OF_LEADERS = (*(kind for kind in OF_PROCESSES if kind != "crash"), "leader_crash", "twin", "halt", "far_jump")
OF_GROUP_STORE = (*OF_STORES, "torn_write", "power_loss", "wall_step", *CLOCKS)


class Batch(Batches):
    """A commit of the group store is written record by record."""

    def size(self, request: Any, answers: tuple[Answer, ...]) -> int:
        if not isinstance(request, Commit) or not isinstance(answers[0], Committed):
            return 0
        return len(request.put)

    def first(self, request: Any, count: int) -> Any:
        return replace(request, put=request.put[:count])


class SubscriptionsSim(SimProtocol[GroupSection]):
    """The value of the registration."""

    name = "shared_subscriptions"
    section = GroupSection
    properties = PROPERTIES
    faults = FAULTS
    scenarios = "statemachines_sim:scenarios/shared_subscriptions"

    def check(self, own: GroupSection, scenario: Scenario) -> None:
        check(own, scenario)

    def settle(self, own: GroupSection, scenario: Scenario) -> GroupSection:
        most = count_affordable(own, scenario)
        return replace(own, load=replace(own.load, messages=min(own.load.messages, most)))

    def cast(self, own: GroupSection) -> tuple[Role, ...]:
        """Leader hosts first: they are there when the first consumer comes.  Of a consumer's clock any leap is
        tolerated, its lease only ends sooner; of a leader's all leaps together are an error of the rate over a lease
        (the shortest that it reckons for others), within half of `clock_drift`."""

        def leader(world: SimCluster, node: str, number: int) -> NodeLife:
            return LeaderNodeLife(world, node, number, own.configuration, own.members.leaders == 1)

        def consumer(world: SimCluster, node: str, number: int) -> NodeLife:
            return ConsumerNode(world, node, number, own)

        members = own.members
        joins = [number * APART_NS for number in range(members.consumers)] + [int(at * S) for at in members.join_s]
        return (
            Role(
                "leader", leader, members.leaders, faults=OF_LEADERS, clock=self._clock(own, own.configuration.lease_ms)
            ),
            Role(
                "consumer",
                consumer,
                joins_ns=tuple(joins),
                faults=OF_CONSUMERS,
                talks_to=("leader",),
                clock=replace(self._clock(own, 0), jump_ns=60 * S),
            ),
        )

    def devices(self, own: GroupSection) -> tuple[Fixture, ...]:
        """Of the group store's clock any leap is tolerated: nobody is told by it who leads."""
        clock = replace(self._clock(own, 0), jump_ns=60 * S)
        return (
            remote_store(GroupStore(), failed=make_failed_answer, batches=Batch(), faults=OF_GROUP_STORE, clock=clock),
            remote_store(StreamStore(), failed=not_fetched),
        )

    def longest_ns(self, own: GroupSection) -> int:
        """Every timeout but the idle stop, at which a leader only goes when nobody needs it."""
        times = [one for one in own.configuration.__struct_fields__ if one.endswith("_ms") and one != "idle_stop_ms"]
        longest: int = max(getattr(own.configuration, one) for one in times)
        return longest * MS

    def play(self, own: GroupSection, world: SimCluster, chance: Random) -> None:
        play(own, world, chance)

    def watch(self, own: GroupSection, judge: Judge) -> GroupWatch:
        return GroupWatch(own.configuration, own.group_and_filter[1], judge, own)

    def facts(self, own: GroupSection, scenario: Scenario) -> Mapping[str, object]:
        # Where a second owner is out of scope, judges of the trace must allow what they allow in the source's mode.
        return {"exclusive": own.configuration.exclusive and not {"S5", "S13"} & set(scenario.out_of_scope)}

    def _clock(self, own: GroupSection, span_ms: int) -> Tolerance:
        drift = own.configuration.clock_drift
        return Tolerance(round(drift * PPM), jumps_ns=int(span_ms * MS * drift / 2))


def make_failed_answer(request: Any) -> Answer:
    """What the group store answers when it cannot."""
    return StoreFailed(request.n)


def not_fetched(request: Any) -> Answer:
    """What the stream store answers when it cannot."""
    return FetchFailed(request.n)


SIM = SubscriptionsSim()
