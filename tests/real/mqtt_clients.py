"""Clients of MQTT that publish, or speak packets of their own."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter

import paho.mqtt.client as paho
from mqtt_judge import SPREAD
from mqtt_subscribers import HOST, KEEP_ALIVE_S, WRITER_ID
from node_processes import PATIENCE_S

from statemachines import mqtt_codec

SENT = re.compile(r"Sending PUBLISH \(d\d, q\d, r\d, m(\d+)\)")
"""What paho's log says of a PUBLISH that it sends."""
KEPT = mqtt_codec.PacketProperties(session_expiry=3_600)
WINDOW = 8
"""Messages of a publisher of QoS 2 that are under way together."""


class PahoPublisher:
    """Publishes numbers, QoS 1, a few at a time; `answered` are those whose PUBACK came.

    What it sends, in which order and how often, paho's log tells.  No lock is held here: paho holds one of its own
    while it tells of a PUBACK, and takes the same one to publish.
    """

    def __init__(self, files=None):
        self.count = 0
        self._numbers = {}
        self._acknowledged = set()
        self._log = []
        self._client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, WRITER_ID, protocol=paho.MQTTv311, clean_session=False
        )
        if files is not None:
            self._client.tls_set_context(files.make_context())
        self._client.reconnect_delay_set(0.05, 0.2)
        self._client.on_publish = lambda client, userdata, mid, *given: self._acknowledged.add(mid)
        self._client.on_log = lambda client, userdata, level, text: self._log.append(text)

    @property
    def answered(self):
        return {self._numbers[mid] for mid in self._acknowledged & self._numbers.keys()}

    def list_sent(self):
        """A list for each connection: the numbers that were sent over it, in their order."""
        connections = [[]]
        for text in list(self._log):
            found = SENT.match(text)
            if found:
                connections[-1].append(self._numbers[int(found[1])])
            elif text.startswith("Sending CONNECT"):
                connections.append([])
        return connections

    def publish(self):
        self.count += 1
        topic, number = self.name_message(self.count)
        self._numbers[self._client.publish(topic, str(number), qos=1).mid] = number

    def name_message(self, count):
        """Its topic, and the number that it carries."""
        return "p/1", count

    @property
    def is_connected(self):
        """Whether it sends in order: what paho is given before CONNACK it sends before what it repeats."""
        return self._client.is_connected()

    def start(self, port):
        self._client.connect_async(HOST, port, keepalive=KEEP_ALIVE_S)
        self._client.loop_start()

    async def end(self):
        await asyncio.to_thread(self._client.disconnect)
        await asyncio.to_thread(self._client.loop_stop)


class TopicPublisher(PahoPublisher):
    """Publishes to so many topics in turn."""

    def __init__(self, topics):
        super().__init__()
        self.topics = topics

    def name_message(self, count):
        topic, number = count % self.topics, count // self.topics
        return f"jobs/{topic}", topic * SPREAD + number


class RawClient:
    """Packets over TCP, to one node after the other."""

    def __init__(self, client_id):
        self.client_id = client_id
        self.present = False
        self._writer = None

    async def connect(self, port):
        """Until a node accepts it."""
        while True:
            self.close()
            try:
                self.reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
                self._decoder, self._packets = mqtt_codec.Decoder(5), []
                self.send(self.make_connect())
                connack = await self.read()
                if connack.reason_code == 0:
                    self.present = connack.session_present
                    return
            except OSError:
                pass
            await asyncio.sleep(0.05)

    def make_connect(self):
        return mqtt_codec.ConnectPacket(self.client_id, mqtt_codec.MqttVersion.V5, clean_start=False, properties=KEPT)

    def send(self, packet):
        self._writer.write(mqtt_codec.encode(packet, mqtt_codec.MqttVersion.V5))

    async def read(self):
        """The next packet; raises `OSError` when the connection is gone."""
        while not self._packets:
            data = await self.reader.read(65_536)
            if not data:
                raise ConnectionError
            self._packets += self._decoder.feed(data)
        packet = self._packets.pop(0)
        if isinstance(packet, mqtt_codec.DisconnectPacket):
            raise ConnectionError
        return packet

    def close(self):
        """At once."""
        if self._writer is not None:
            self._writer.transport.abort()


class OncePublisher(RawClient):
    """Publishes numbers; `sent`: packet id -> (number, whether it was answered by PUBREC)."""

    def __init__(self, chance):
        super().__init__("writer")
        self._chance = chance
        self.open = {}
        self.count = 0
        self.seen = Counter()
        self._free = list(range(1, WINDOW + 1))

    async def begin(self, port):
        """As a client does that comes again: what is open, in its order."""
        await self.connect(port)
        for packet_id, (number, is_received) in list(self.open.items()):
            if is_received:
                self.send(mqtt_codec.PubrelPacket(packet_id))
            else:
                self.send(mqtt_codec.PublishPacket(topic_of(number), b"%d" % number, 2, dup=True, packet_id=packet_id))

    def publish(self):
        self.count += 1
        packet_id = self._free.pop(self._chance.randrange(len(self._free)))
        self.open[packet_id] = (self.count, False)
        self.send(mqtt_codec.PublishPacket(topic_of(self.count), b"%d" % self.count, 2, packet_id=packet_id))

    async def go_on(self, place="", after=0, most=10**9):
        """Until the `after`-th packet at this place, or until `most` are published and complete."""
        begun = self.seen[place]
        while True:
            while self._free and self.count < most:
                self.publish()
                self.seen["publish"] += 1
                if place == "publish" and self.seen[place] - begun >= after:
                    return
            if not self.open:
                return
            packet = await asyncio.wait_for(self.read(), PATIENCE_S)
            self.take(packet)
            if place and self.seen[place] - begun >= after:
                return

    def take(self, packet):
        number, is_received = self.open.get(packet.packet_id, (0, False))
        if isinstance(packet, mqtt_codec.PubrecPacket):
            assert packet.reason_code in (0, 0x10), packet
            self.seen["pubrec"] += 1
            self.open[packet.packet_id] = (number, True)
            self.send(mqtt_codec.PubrelPacket(packet.packet_id))
            self.seen["pubrel"] += 1
        else:
            assert isinstance(packet, mqtt_codec.PubcompPacket), packet
            assert is_received
            assert packet.reason_code in (0, 0x92), packet
            self.seen["pubcomp"] += 1
            del self.open[packet.packet_id]
            self._free.append(packet.packet_id)


def topic_of(number):
    return f"p/{number % 3}"


class OnceSubscriber(RawClient):
    """Takes messages with QoS 1, and notes each that is not marked as a repetition of one that it had."""

    def __init__(self, name):
        super().__init__(name)
        self.numbers = []
        self._had = {}

    async def run(self, ports):
        """For ever, from node to node."""
        for place in range(10**6):
            with contextlib.suppress(OSError), contextlib.closing(self):
                await self.connect(ports[place % len(ports)])
                if not self.present:
                    self._had.clear()
                    filters = (mqtt_codec.TopicSubscription("p/#", 1),)
                    self.send(mqtt_codec.SubscribePacket(1, filters))
                while True:
                    packet = await self.read()
                    if not isinstance(packet, mqtt_codec.PublishPacket):
                        continue
                    number = int(packet.payload)
                    if not (packet.dup and self._had.get(packet.packet_id) == number):
                        self.numbers.append(number)
                    self._had[packet.packet_id] = number
                    self.send(mqtt_codec.PubackPacket(packet.packet_id))
            await asyncio.sleep(0.02)
