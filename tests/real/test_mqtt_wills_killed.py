"""Wills of MQTT clients whose node is killed: the other node sends each once, after its delay."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter

from mqtt_clients import KEPT, RawClient
from node_processes import PATIENCE_S, mqtt_nodes, until

from statemachines import mqtt_codec

COUNT = 20


class LostClient(RawClient):
    """Has a will."""

    def make_connect(self):
        delay = None if int(self.client_id) % 2 else 1
        will = mqtt_codec.WillMessage(
            "wills", self.client_id.encode(), 1, properties=mqtt_codec.PacketProperties(will_delay=delay)
        )
        return mqtt_codec.ConnectPacket(
            self.client_id, mqtt_codec.MqttVersion.V5, clean_start=False, will=will, properties=KEPT
        )


async def take_wills(watcher, found):
    while True:
        packet = await watcher.read()
        if isinstance(packet, mqtt_codec.PublishPacket):
            found[packet.payload.decode()] += 1
            watcher.send(mqtt_codec.PubackPacket(packet.packet_id))


async def play(folder):
    """How often each will came, after its node was killed and begun anew."""
    found = Counter()
    async with mqtt_nodes(folder, str(folder / "s.db")) as nodes:
        place, spare = nodes
        watcher = RawClient("watcher")
        await watcher.connect(spare.port)
        watcher.send(mqtt_codec.SubscribePacket(1, (mqtt_codec.TopicSubscription("wills", 1),)))
        await watcher.read()
        task = asyncio.ensure_future(take_wills(watcher, found))
        clients = [LostClient(str(number)) for number in range(COUNT)]
        for client in clients:
            await client.connect(place.port)
        await place.end(signal.SIGKILL)
        await clients[0].connect(spare.port)  # before its will is due
        await until(lambda: len(found) >= COUNT - 1, PATIENCE_S)
        await place.start(nodes)
        await clients[0].connect(place.port)
        for client in clients:
            client.close()
        await until(lambda: "0" in found, PATIENCE_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        watcher.close()
    return found


def test_MQ_121_PS_479_the_wills_of_a_killed_nodes_clients_are_sent_once_by_the_other(tmp_path):
    found = asyncio.run(play(tmp_path))
    assert found == Counter(str(number) for number in range(COUNT))
