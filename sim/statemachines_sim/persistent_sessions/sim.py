"""What persistent sessions say to the simulator: who takes part, what they share, what may go wrong, who judges."""

from __future__ import annotations

from statemachines_sim.cluster import Fixture, Role, SimCluster, Tolerance, Watch
from statemachines_sim.judge import Judge
from statemachines_sim.node_life import NodeLife
from statemachines_sim.persistent_sessions.database import database
from statemachines_sim.persistent_sessions.faults import FAULTS, OF_NODES
from statemachines_sim.persistent_sessions.node_process import SessionNodeProcess
from statemachines_sim.persistent_sessions.publisher_process import SessionPublisherProcess
from statemachines_sim.persistent_sessions.section import SessionSection, check
from statemachines_sim.persistent_sessions.subscriber_process import SessionSubscriberProcess
from statemachines_sim.persistent_sessions.watch import PROPERTIES, SessionWatch
from statemachines_sim.persistent_sessions.wires import wires
from statemachines_sim.protocol import SimProtocol
from statemachines_sim.scenario import Scenario
from statemachines_sim.units import MS, S

HIT_NODES = (
    "crash", "pause", "long_pause", "late_timer", "skew", "drift", "jump", "far_jump", "partition",
    *(kind.name for kind in OF_NODES),
)  # fmt: skip
OF_CLIENTS = ("crash", "pause", "long_pause", "drift", "partition")
CLOCK = Tolerance(drift_ppm=100_000, jump_ns=5 * S)
"""No clock of a node decides who owns a session."""


class SessionsSim(SimProtocol[SessionSection]):
    """The value of the registration."""

    name = "persistent_sessions"
    section = SessionSection
    properties = PROPERTIES
    faults = FAULTS
    scenarios = "statemachines_sim:scenarios/persistent_sessions"

    def check(self, own: SessionSection, scenario: Scenario) -> None:
        check(own, scenario)

    def cast(self, own: SessionSection) -> tuple[Role, ...]:
        """Clients talk to nodes, nodes to each other and to the database."""

        def node(world: SimCluster, name: str, number: int) -> NodeLife:
            return SessionNodeProcess(world, name, number, own)

        def subscriber(world: SimCluster, name: str, number: int) -> NodeLife:
            return SessionSubscriberProcess(world, name, number, own)

        def publisher(world: SimCluster, name: str, number: int) -> NodeLife:
            return SessionPublisherProcess(world, name, number, own)

        joins = tuple(int(at * S) for at in own.join_nodes_s)
        return (
            Role("node", node, own.nodes, joins, faults=HIT_NODES, talks_to=("node", "database"), clock=CLOCK),
            Role("subscriber", subscriber, own.subscribers, faults=OF_CLIENTS, talks_to=("node",), clock=CLOCK),
            Role("publisher", publisher, own.publishers, faults=OF_CLIENTS, talks_to=("node",), clock=CLOCK),
        )

    def devices(self, own: SessionSection) -> tuple[Fixture, ...]:
        return (wires(own.raw), database(own))

    def longest_ns(self, own: SessionSection) -> int:
        """The lock of a client id, or of a node."""
        return max(own.lock_ms, own.dead_ms, own.lease_ms) * MS

    def watch(self, own: SessionSection, judge: Judge) -> Watch:
        return SessionWatch(own, judge)


SIM = SessionsSim()
