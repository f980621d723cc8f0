"""A client and a host around one connection, for tests: what they send, and what they hear."""

from statemachines.kernel import Node, Send, Tell
from statemachines.mqtt_codec import Decoder, MqttVersion, PacketError, encode
from statemachines.mqtt_connections.client_packet import BrokenPacket, list_packets, wrap_packet
from statemachines.mqtt_connections.connection import MQTT_CONNECTION
from statemachines.mqtt_connections.connection_record import MqttConnectionRecord, MqttSettings

SETTINGS = MqttSettings(receive_maximum=3, topic_alias_maximum=2, keep_alive_max_s=60, expiry_max_s=1_000)


class MqttClient:
    """`sent`: packets that came back, through the codec; `events`: what the host was told."""

    def __init__(self, version=5, settings=SETTINGS, observe=None):
        self.version = MqttVersion(version)
        record = MqttConnectionRecord("client", settings)
        self.node = Node(MQTT_CONNECTION, record, name="c", now_ns=0, check=True, observe=observe)
        self.server = Decoder(max_packet=settings.max_packet)
        self.now = 0

    @property
    def status(self):
        return self.node.record.status.value

    def feed(self, event):
        """What the client gets and the host is told for one event."""
        return self._perform(self.node.feed(event, self.now))

    def send(self, packet):
        """The packet goes through the codec as bytes."""
        return self.send_bytes(encode(packet, self.version))

    def send_bytes(self, data):
        found = []
        try:
            for packet in self.server.feed(data):
                found += self.feed(wrap_packet(packet))
        except PacketError as error:
            found += self.feed(BrokenPacket(error.reason_code, error.level))
        return found

    def wait(self, seconds):
        self.now += int(seconds * 1e9)
        return self._perform(self.node.fire(self.now))

    def _perform(self, effects):
        found = []
        for effect in effects:
            if isinstance(effect, Send):
                version = self.node.record.version
                for one in list_packets(effect.message):
                    (packet,) = Decoder(version).feed(encode(one, version))
                    found.append(packet)
            elif isinstance(effect, Tell):
                found.append(effect.event)
        return found
