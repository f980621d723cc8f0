"""Clients of MQTT that publish, or speak packets of their own."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter, deque

import paho.mqtt.client as paho
from mqtt_judge import SPREAD
from mqtt_subscribers import HOST, KEEP_ALIVE_S, WRITER_ID

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
    """Publishes numbers with QoS 2, so many under way together; it comes again as the standard says.

    `open`: packet id -> (number, whether it was answered by PUBREC); `seen` counts packets of the handshake by name."""

    def __init__(self, chance):
        super().__init__(WRITER_ID)
        self.count, self.answered, self.is_connected = 0, set(), False
        self.open, self.seen, self.handed = {}, Counter(), deque()
        self._chance = chance
        self._free = list(range(1, WINDOW + 1))

    def start(self, port):
        self._task = asyncio.ensure_future(self._run(port))

    async def _run(self, port):
        while True:
            await self.connect(port)
            for packet_id, (_, is_received) in list(self.open.items()):
                if is_received:
                    self.send(mqtt_codec.PubrelPacket(packet_id))
                else:
                    self._send_publish(packet_id, dup=True)
            self.is_connected = True
            with contextlib.suppress(OSError):
                while True:
                    self._fill_window()
                    self._take(await self.read())
            self.is_connected = False

    def publish(self):
        self.count += 1
        self.handed.append(self.count)
        if self.is_connected:
            self._fill_window()

    def name_message(self, count):
        return f"p/{count % 3}", count

    def _fill_window(self):
        while self._free and self.handed:
            packet_id = self._free.pop(self._chance.randrange(len(self._free)))
            self.open[packet_id] = (self.handed.popleft(), False)
            self._send_publish(packet_id)
            self.seen["publish"] += 1

    def _send_publish(self, packet_id, dup=False):
        topic, number = self.name_message(self.open[packet_id][0])
        self.send(mqtt_codec.PublishPacket(topic, b"%d" % number, 2, dup=dup, packet_id=packet_id))

    def _take(self, packet):
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
            self.answered.add(number)
            del self.open[packet.packet_id]
            self._free.append(packet.packet_id)

    async def end(self):
        """At once; that it has ended by itself is an error."""
        assert not self._task.done(), self._task.result()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.close()
