"""What missed samples say to the simulator: who takes part, what may go wrong, who judges."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from statemachines.missed_samples.keys import matches
from statemachines_sim.cluster import Fixture, Role, SimCluster, Watch
from statemachines_sim.judge import Judge
from statemachines_sim.missed_samples.cache_process import CacheProcess
from statemachines_sim.missed_samples.faults import FAULTS
from statemachines_sim.missed_samples.publisher_process import SamplePublisherProcess
from statemachines_sim.missed_samples.query_fabric import sample_fabric
from statemachines_sim.missed_samples.section import SampleSection, check
from statemachines_sim.missed_samples.stranger_process import StrangerProcess
from statemachines_sim.missed_samples.subscriber_process import SampleSubscriberProcess
from statemachines_sim.missed_samples.watch import PROPERTIES, SampleWatch
from statemachines_sim.node_life import NodeLife
from statemachines_sim.protocol import SimProtocol
from statemachines_sim.scenario import Scenario
from statemachines_sim.units import MS, S

OF_PEERS = ("crash", "pause", "long_pause", "late_timer", "partition")
"""No clock is compared with another's: how wrong they are changes only how long things take."""
OF_READERS = (*OF_PEERS, "slow_reader")


class MissedSim(SimProtocol[SampleSection]):
    """The value of the registration."""

    name = "missed_samples"
    section = SampleSection
    properties = PROPERTIES
    faults = FAULTS
    scenarios = "statemachines_sim:scenarios/missed_samples"

    def check(self, own: SampleSection, scenario: Scenario) -> None:
        check(own, scenario)

    def cast(self, own: SampleSection) -> tuple[Role, ...]:
        """Publishers talk to subscribers and caches, and caches to subscribers."""

        def of(
            kind: Callable[[SimCluster, str, int, SampleSection], NodeLife],
        ) -> Callable[[SimCluster, str, int], NodeLife]:
            return lambda world, node, number: kind(world, node, number, own)

        late = tuple(int(at * S) for at in own.join_subscribers_s)
        strangers = int(own.strangers_ms[1] > 0)
        return (
            Role("cache", of(CacheProcess), own.caches, faults=OF_PEERS, talks_to=("subscriber",)),
            Role("subscriber", of(SampleSubscriberProcess), own.subscribers, late, faults=OF_READERS),
            Role(
                "publisher",
                of(SamplePublisherProcess),
                own.publishers,
                faults=OF_PEERS,
                talks_to=("cache", "subscriber"),
            ),
            Role("stranger", of(StrangerProcess), strangers, faults=()),
        )

    def devices(self, own: SampleSection) -> tuple[Fixture, ...]:
        return (sample_fabric(own),)

    def longest_ns(self, own: SampleSection) -> int:
        return own.recovery.timeout_ms * MS

    def play(self, own: SampleSection, world: SimCluster, chance: Random) -> None:
        """A sample goes to every cache, and to every subscriber that is interested in its key."""

        def route(to: str) -> list[str]:
            return [
                node
                for node in world.processes
                if node.startswith("cache-")
                or (node.startswith("subscriber-") and matches(own.expression_of(node), to))
            ]

        world.network.route_by(route)

    def watch(self, own: SampleSection, judge: Judge) -> Watch:
        return SampleWatch(own, judge)


SIM = MissedSim()
