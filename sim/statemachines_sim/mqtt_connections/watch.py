"""MqttWatch: what `SessionWatch` judges of sessions, but for SUPERSEDED, which MQTT does not promise."""

from __future__ import annotations

from collections import Counter

from statemachines.persistent_sessions.client_message import Delivered
from statemachines_sim.judge import Judge
from statemachines_sim.mqtt_connections.section import MqttSection
from statemachines_sim.persistent_sessions.books import matches
from statemachines_sim.persistent_sessions.watch import SessionClient, SessionWatch


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
