"""What MQTT connections say to the simulator: nodes of persistent sessions, whose clients speak MQTT."""

from __future__ import annotations

from statemachines_sim.cluster import Cluster, Fixture, Role, Watch
from statemachines_sim.judge import Judge
from statemachines_sim.mqtt_connections.mqtt_process import MqttPublisher, MqttSubscriber
from statemachines_sim.mqtt_connections.section import MqttSection, check
from statemachines_sim.mqtt_connections.watch import MqttWatch
from statemachines_sim.node_life import NodeLife
from statemachines_sim.persistent_sessions.database import database
from statemachines_sim.persistent_sessions.faults import FAULTS
from statemachines_sim.persistent_sessions.node_process import SessionNodeProcess
from statemachines_sim.persistent_sessions.sim import CLOCK, OF_CLIENTS
from statemachines_sim.persistent_sessions.wires import wires
from statemachines_sim.protocol import SimProtocol
from statemachines_sim.scenario import Scenario
from statemachines_sim.units import MS

HIT_NODES = ("crash", "pause", "long_pause", "late_timer", "partition", "reset")


class MqttSim(SimProtocol[MqttSection]):
    """The value of the registration.  Its watch judges the properties of persistent sessions."""

    name = "mqtt_connections"
    section = MqttSection
    faults = tuple(kind for kind in FAULTS if kind.name == "reset")
    scenarios = "statemachines_sim:scenarios/mqtt_connections"

    def check(self, own: MqttSection, scenario: Scenario) -> None:
        check(own, scenario)

    def cast(self, own: MqttSection) -> tuple[Role, ...]:
        """Clients talk to nodes, nodes to each other and to the database."""

        def node(world: Cluster, name: str, number: int) -> NodeLife:
            return SessionNodeProcess(world, name, number, own)

        def subscriber(world: Cluster, name: str, number: int) -> NodeLife:
            return MqttSubscriber(world, name, number, own)

        def publisher(world: Cluster, name: str, number: int) -> NodeLife:
            return MqttPublisher(world, name, number, own)

        return (
            Role("node", node, own.nodes, faults=HIT_NODES, talks_to=("node", "database"), clock=CLOCK),
            Role("subscriber", subscriber, own.subscribers, faults=OF_CLIENTS, talks_to=("node",), clock=CLOCK),
            Role("publisher", publisher, own.publishers, faults=OF_CLIENTS, talks_to=("node",), clock=CLOCK),
        )

    def devices(self, own: MqttSection) -> tuple[Fixture, ...]:
        return (wires(own.raw), database(own))

    def longest_ns(self, own: MqttSection) -> int:
        """The lock of a client id, or of a node."""
        return max(own.lock_ms, own.dead_ms, own.lease_ms) * MS

    def watch(self, own: MqttSection, judge: Judge) -> Watch:
        return MqttWatch(own, judge)


SIM = MqttSim()
