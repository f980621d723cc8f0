"""What shared subscriptions say to the simulator: who takes part, what they ask, what may go wrong, who judges."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Answer
from statemachines.shared_subscriptions.group_store import Commit, Committed, GroupStore, StoreFailed
from statemachines.shared_subscriptions.properties import PROPERTIES
from statemachines.shared_subscriptions.stream_store import FetchFailed, StreamStore
from statemachines_sim.cluster import OF_PROCESSES, OF_STORES, Fixture, Role, SimCluster, Tolerance
from statemachines_sim.devices.remote_store import Batches, remote_store
from statemachines_sim.judge import Judge
from statemachines_sim.local_clock import PPM
from statemachines_sim.node_life import NodeLife
from statemachines_sim.protocol import SimProtocol
from statemachines_sim.scenario import Scenario
from statemachines_sim.shared_subscriptions.consumer import ConsumerNode
from statemachines_sim.shared_subscriptions.faults import FAULTS
from statemachines_sim.shared_subscriptions.leader_host import LeaderNodeLife
from statemachines_sim.shared_subscriptions.load import play
from statemachines_sim.shared_subscriptions.section import GroupSection, check, count_affordable
from statemachines_sim.shared_subscriptions.watch import GroupWatch
from statemachines_sim.units import MS, S

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
