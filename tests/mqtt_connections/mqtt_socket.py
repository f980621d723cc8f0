"""A client of raw bytes, nodes that it connects to, and members of quick groups, for tests."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager

from statemachines import mqtt_codec
from statemachines.drivers.mqtt_connections import MqttNode
from statemachines.drivers.persistent_sessions import SessionNode
from statemachines.drivers.shared_subscriptions.open_stores import open_stores
from statemachines.mqtt_codec import ConnackPacket, ConnectPacket, Decoder, MqttVersion, encode
from statemachines.persistent_sessions.times import Times
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.stream_store import ListStreams
from statemachines.testing.process_harness import free_port

QUICK = {"lease_ms": 10_000, "look_ms": 100, "times": Times(marker_ms=400, repeat_ms=100)}
"""A loop that stands still on a busy machine keeps its lease."""
KEPT = mqtt_codec.PacketProperties(session_expiry=100)
TIMES = Configuration(
    find_leader_ms=50, ping_interval_ms=100, ping_timeout_ms=1_000, validity_ms=1_800, max_delay_ms=200,
    unsubscribe_timeout_ms=1_000, resend_interval_ms=100, renew_streams_ms=50, revoke_timeout_ms=2_000,
    claim_ttl_ms=1_500, claim_heartbeat_ms=400, commit_interval_ms=50, idle_stop_ms=10_000,
)  # fmt: skip


@asynccontextmanager
async def mqtt_node(store, name="a", node_options=None, **given):
    async with (
        SessionNode(store, name=name, **(QUICK | (node_options or {}))) as node,
        MqttNode(node, **{"listen": ("127.0.0.1", 0), **given}) as mqtt,
    ):
        yield mqtt


@asynccontextmanager
async def linked_nodes(store, options, **given):
    """Two nodes that have dialled each other, with these options of nodes of sessions."""
    places = {name: ("127.0.0.1", free_port()) for name in "ab"}
    async with contextlib.AsyncExitStack() as stack:
        nodes = []
        for name, place in places.items():
            own = {"listen": place, "peers": [*{*places.values()} - {place}], **options}
            nodes.append(await stack.enter_async_context(mqtt_node(store, name, own, **given)))
        while not all(len(one._node._transport._peers) == 2 for one in nodes):
            await asyncio.sleep(0.01)
        yield nodes


class MqttSocket:
    """Packets of either side, over TCP."""

    def __init__(self, address, version=5):
        self.address = address
        self.version = MqttVersion(version)
        self._decoder = Decoder(version)
        self._packets = []

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection(*self.address)
        return self

    async def __aexit__(self, *_):
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def send(self, packet):
        self.writer.write(encode(packet, self.version))

    async def read(self):
        """The next packet; None: the server has closed the connection."""
        while not self._packets:
            data = await self.reader.read(65_536)
            if not data:
                return None
            self._packets += self._decoder.feed(data)
        return self._packets.pop(0)

    async def ask(self, packet):
        self.send(packet)
        return await self.read()

    async def connect(self, client_id="c", **fields):
        connack = await self.ask(ConnectPacket(client_id, self.version, **fields))
        assert isinstance(connack, ConnackPacket)
        return connack


async def count_streams(store):
    """Topic -> how many messages its stream has."""
    groups, streams = open_stores(store)
    try:
        (listed,) = await streams.ask(ListStreams(1, "#", 0, "", 1_000))
        return {one.stream.partition("/")[2]: one.count for one in listed.streams}
    finally:
        await groups.close()
        await streams.close()
