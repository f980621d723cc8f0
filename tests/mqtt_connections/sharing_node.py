"""An MQTT node whose clients may share streams, with quick groups, for tests."""

from __future__ import annotations

from contextlib import asynccontextmanager

from mqtt_socket import QUICK, MqttSocket

from statemachines import mqtt_codec
from statemachines.drivers.mqtt_connections import MqttNode
from statemachines.drivers.persistent_sessions import SessionNode
from statemachines.drivers.persistent_sessions.group_host import GroupHost
from statemachines.drivers.shared_subscriptions.open_stores import open_stores
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.stream_store import ListStreams

KEPT = mqtt_codec.PacketProperties(session_expiry=100)
TIMES = Configuration(
    find_leader_ms=50, ping_interval_ms=100, ping_timeout_ms=1_000, validity_ms=1_800, max_delay_ms=200,
    unsubscribe_timeout_ms=1_000, resend_interval_ms=100, renew_streams_ms=50, revoke_timeout_ms=2_000,
    claim_ttl_ms=1_500, claim_heartbeat_ms=400, commit_interval_ms=50, idle_stop_ms=10_000,
)  # fmt: skip


@asynccontextmanager
async def sharing_node(store, name="a", times=TIMES, **given):
    async with (
        GroupHost(store, configuration=times, **given) as host,
        SessionNode(store, name=name, groups=host.groups, **QUICK) as node,
        MqttNode(node, listen=("127.0.0.1", 0)) as mqtt,
    ):
        yield mqtt


class Member(MqttSocket):
    """A client that is connected, of a session that is kept unless it is said otherwise."""

    def __init__(self, address, client_id, version=5, properties=KEPT):
        super().__init__(address, version)
        self._client_id, self._properties = client_id, properties

    async def __aenter__(self):
        await super().__aenter__()
        given = {"properties": self._properties} if self.version == 5 else {}
        self.connack = await self.connect(self._client_id, clean_start=False, **given)
        return self

    async def join(self, topic_filter="$share/g/jobs/#", qos=1, ids=(), **options):
        """The reason code of SUBACK, or the packet that came in its place."""
        properties = mqtt_codec.PacketProperties(subscription_ids=ids)
        answer = await self.ask(
            mqtt_codec.SubscribePacket(9, (mqtt_codec.TopicSubscription(topic_filter, qos, **options),), properties)
        )
        return answer.reason_codes[0] if isinstance(answer, mqtt_codec.SubackPacket) else answer

    async def publish(self, topic, payload, qos=1, **fields):
        """The reason code of PUBACK."""
        answer = await self.ask(mqtt_codec.PublishPacket(topic, payload, qos, packet_id=7 if qos else 0, **fields))
        return answer.reason_code

    async def take(self, code=0):
        """The next message, answered with this code (None: not answered)."""
        packet = await self.read()
        assert isinstance(packet, mqtt_codec.PublishPacket), packet
        if packet.qos == 1 and code is not None:
            self.send(mqtt_codec.PubackPacket(packet.packet_id, code))
        return packet


async def count_streams(store):
    """Topic -> how many messages its stream has."""
    groups, streams = open_stores(store)
    try:
        (listed,) = await streams.ask(ListStreams(1, "#", 0, "", 1_000))
        return {one.stream.partition("/")[2]: one.count for one in listed.streams}
    finally:
        await groups.close()
        await streams.close()
