"""What a node says of itself below `$SYS`."""

from __future__ import annotations

import asyncio

from statemachines import __version__
from statemachines.drivers.mqtt_connections import MqttNode, mqtt_node
from statemachines.drivers.persistent_sessions import SessionNode
from statemachines.testing.mqtt_connections.mqtt_socket import MqttSocket

PLACE = ("127.0.0.1", 0)
TOPICS = ("uptime", "version", "clients/connected", "packets/received", "packets/sent", "messages/dropped")


def listen_to_node(port):
    """The first of each topic that a subscriber of `$SYS/#` gets; one of `#` gets none of them."""
    found = {}
    with MqttSocket(port, "all") as everything, MqttSocket(port, "operator") as operator:
        everything.subscribe("#")
        operator.subscribe("$SYS/#", 0)
        while len(found) < len(TOPICS):
            for one in operator.read_messages():
                found.setdefault(one.topic.decode().removeprefix("$SYS/brokers/n1/"), one.payload.decode())
        everything.subscribe("other")
        assert everything.read_pending() == []
    return found


def test_MQ_144_counters_come_to_those_who_subscribe_them(tmp_path, monkeypatch):
    monkeypatch.setattr(mqtt_node, "PING_S", 0.05)
    monkeypatch.setattr(mqtt_node, "EVERY_S", 0.1)

    async def main():
        async with SessionNode(tmp_path / "s.db", name="n1") as node, MqttNode(node, listen=PLACE) as mqtt:
            found = await asyncio.to_thread(listen_to_node, mqtt.address[1])
            counters = mqtt.read_counters()
            return found, counters

    found, counters = asyncio.run(main())
    assert sorted(found) == sorted(TOPICS)
    assert found["version"] == __version__
    assert found["clients/connected"] in ("0", "1", "2")
    assert int(found["packets/received"]) <= counters["packets/received"]
    assert counters["packets/received"] >= 5  # two CONNECT, three SUBSCRIBE
    assert counters["packets/sent"] >= 5 + len(TOPICS)
