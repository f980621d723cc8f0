"""What MQTT connections say to the simulator: nodes of persistent sessions, whose clients speak MQTT.

MqttWatch: what `SessionWatch` judges of sessions, but for SUPERSEDED, which MQTT does not promise.
"""

from __future__ import annotations

from collections import Counter

from statemachines.persistent_sessions.message import Delivered
from statemachines_sim.cluster import Fixture, Role, SimCluster, Watch
from statemachines_sim.judge import Judge
from statemachines_sim.mqtt_connections.mqtt_process import MqttPublisher, MqttSubscriber
from statemachines_sim.mqtt_connections.section import MqttSection, check
from statemachines_sim.node_life import NodeLife
from statemachines_sim.persistent_sessions.books import matches
from statemachines_sim.persistent_sessions.database import database
from statemachines_sim.persistent_sessions.faults import FAULTS
from statemachines_sim.persistent_sessions.node_process import SessionNodeProcess
from statemachines_sim.persistent_sessions.sim import CLOCK, OF_CLIENTS
from statemachines_sim.persistent_sessions.watch import SessionClient, SessionWatch
from statemachines_sim.persistent_sessions.wires import wires
from statemachines_sim.protocol import SimProtocol
from statemachines_sim.scenario import Scenario
from statemachines_sim.units import MS


class MqttWatch(SessionWatch):
    """MQTT has no number of an attempt.  The CONNECT of a client that died may arrive behind that of its next life,
    and takes the session; the client connects once more (D-654).  A message that comes with QoS 0 is in no row: it
    comes once for each time that it was published, at most, in the order of its publisher and topic, to who subscribes
    it (MQ-192)."""

    def __init__(self, own: MqttSection, judge: Judge) -> None:
        super().__init__(own, judge)
        self._counts |= {"qos_0": 0, "repeated": 0}
        self._last: dict[tuple[str, str, str], int] = {}
        """(client, topic, publisher) -> number of the message of QoS 0 that came last."""
        self._published = Counter[str]()
        """How often each message was handed over: one that was once more may come behind what is newer."""
        self._given = Counter[tuple[str, str]]()
        """(client, message) -> how often it came with QoS 0."""

    def observe_repeat(self) -> None:
        """A publisher goes on with a message of QoS 2 where it was."""
        self._counts["repeated"] += 1

    def observe_publish(self, name: str, topic: str, again: bool) -> None:
        self._published[name] += 1
        super().observe_publish(name, topic, again)

    def observe_end(self, client: SessionClient, why: str) -> None:
        """Nothing is promised of why."""

    def observe_subscription(self, client: SessionClient, topic_filter: str) -> None:
        """One with QoS 0 is promised no row: nothing is kept for its client while that is away (MQ-191)."""
        if client.wanted[topic_filter]:
            super().observe_subscription(client, topic_filter)

    def observe_delivery(self, client: SessionClient, message: Delivered) -> None:
        name = message.payload.decode()
        publisher, _, number = name.rpartition(":")
        if message.packet and not publisher.endswith("/0"):
            super().observe_delivery(client, message)
            return
        self._counts["qos_0"] += 1
        topic, _ = self._handed.get(name, ("", 0))
        is_right = topic == message.topic and matches(topic, message.filter) and not message.packet
        self.check("STRANGER", is_right, f"{client.node} is given {name} of {message.topic}")
        which = (client.node, topic, publisher)
        last = self._last.get(which, 0)
        self._given[client.node, name] += 1
        times = self._published[name]
        is_new = self._given[client.node, name] <= times and (int(number) > last or times > 1)
        self.check("TWICE", is_new, f"{client.node} is given {name} after number {last}")
        self._last[which] = max(last, int(number))


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

        def node(world: SimCluster, name: str, number: int) -> NodeLife:
            return SessionNodeProcess(world, name, number, own)

        def subscriber(world: SimCluster, name: str, number: int) -> NodeLife:
            return MqttSubscriber(world, name, number, own)

        def publisher(world: SimCluster, name: str, number: int) -> NodeLife:
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
