"""What sequence windows say to the simulator: who takes part, what may go wrong, who judges."""

from __future__ import annotations

from random import Random

from statemachines.sequence_windows.properties import PROPERTIES
from statemachines_sim.cluster import Fixture, Role, SimCluster, Tolerance, Watch
from statemachines_sim.judge import Judge
from statemachines_sim.node_life import NodeLife
from statemachines_sim.protocol import SimProtocol
from statemachines_sim.scenario import Scenario
from statemachines_sim.sequence_windows.application_process import ApplicationProcess
from statemachines_sim.sequence_windows.faults import FAULTS
from statemachines_sim.sequence_windows.load import play
from statemachines_sim.sequence_windows.operator import operator
from statemachines_sim.sequence_windows.publisher_process import WindowPublisherProcess
from statemachines_sim.sequence_windows.receiver_process import ReceiverProcess
from statemachines_sim.sequence_windows.section import WindowSection, check
from statemachines_sim.sequence_windows.watch import DRIFT_PPM, LossWatch
from statemachines_sim.units import S

OF_PEERS = ("crash", "pause", "long_pause", "skew", "drift", "jump", "far_jump", "partition", "set_wall", "wrong_wall")
"""No timer is ever taken back, so late ones hit nobody."""


class LossSim(SimProtocol[WindowSection]):
    """The value of the registration."""

    name = "sequence_windows"
    section = WindowSection
    properties = PROPERTIES
    faults = FAULTS
    scenarios = "statemachines_sim:scenarios/sequence_windows"

    def check(self, own: WindowSection, scenario: Scenario) -> None:
        check(own, scenario)

    def cast(self, own: WindowSection) -> tuple[Role, ...]:
        """Publishers talk to receivers."""

        def publisher(world: SimCluster, node: str, number: int) -> NodeLife:
            return WindowPublisherProcess(world, node, number, own)

        def receiver(world: SimCluster, node: str, number: int) -> NodeLife:
            return ReceiverProcess(world, node, number, own)

        def application(world: SimCluster, node: str, number: int) -> NodeLife:
            return ApplicationProcess(world, node, number, own)

        def times(some: tuple[float, ...]) -> tuple[int, ...]:
            return tuple(int(at * S) for at in some)

        clock = Tolerance(drift_ppm=DRIFT_PPM)
        late, later = times(own.join_publishers_s), times(own.join_receivers_s)
        to = ("receiver", "application")
        return (
            Role("publisher", publisher, own.publishers, late, faults=OF_PEERS, talks_to=to, clock=clock),
            Role("receiver", receiver, own.receivers, later, faults=OF_PEERS, clock=clock),
            Role("application", application, own.applications, faults=OF_PEERS, clock=clock),
        )

    def devices(self, own: WindowSection) -> tuple[Fixture, ...]:
        return (operator(own),)

    def longest_ns(self, own: WindowSection) -> int:
        """A window turns after this, and after twice this it has forgotten."""
        return 2 * max(own.pub_window_s, own.sub_window_s) * S

    def play(self, own: WindowSection, world: SimCluster, chance: Random) -> None:
        play(own, world)

    def watch(self, own: WindowSection, judge: Judge) -> Watch:
        return LossWatch(own, judge)


SIM = LossSim()
