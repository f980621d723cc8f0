"""Wills of MQTT clients whose node is killed: the other node sends each once, after its delay."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter

from mqtt_once_run import KEPT, RawClient
from mqtt_run import PATIENCE_S, mqtt_nodes, until

from statemachines.mqtt_codec import (
    ConnectPacket,
    MqttVersion,
    PacketProperties,
    PubackPacket,
    PublishPacket,
    SubscribePacket,
    TopicSubscription,
    WillMessage,
)

COUNT = 20


class LostClient(RawClient):
    """Has a will."""

    def make_connect(self):
        delay = None if int(self.client_id) % 2 else 1
        will = WillMessage("wills", self.client_id.encode(), 1, properties=PacketProperties(will_delay=delay))
        return ConnectPacket(self.client_id, MqttVersion.V5, clean_start=False, will=will, properties=KEPT)


async def take_wills(watcher, found):
    while True:
        packet = await watcher.read()
        if isinstance(packet, PublishPacket):
            found[packet.payload.decode()] += 1
            watcher.send(PubackPacket(packet.packet_id))


async def play(folder):
    """How often each will came, after its node was killed and begun anew."""
    found = Counter()
    async with mqtt_nodes(folder, str(folder / "s.db")) as nodes:
        place, spare = nodes
        watcher = RawClient("watcher")
        await watcher.connect(spare.port)
        watcher.send(SubscribePacket(1, (TopicSubscription("wills", 1),)))
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
