"""A client of raw bytes, and a node that it connects to, for tests."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager

from statemachines.drivers.mqtt_connections import MqttNode
from statemachines.drivers.persistent_sessions import SessionNode
from statemachines.mqtt_codec import ConnackPacket, ConnectPacket, Decoder, MqttVersion, encode
from statemachines.persistent_sessions.times import Times

QUICK = {"lease_ms": 10_000, "look_ms": 100, "times": Times(marker_ms=400, repeat_ms=100)}
"""A loop that stands still on a busy machine keeps its lease."""


def run(body):
    """To its end, and no test waits for ever."""

    async def bounded():
        async with asyncio.timeout(60):
            await body

    asyncio.run(bounded())


@asynccontextmanager
async def mqtt_node(store, name="a", node_options=None, **given):
    async with (
        SessionNode(store, name=name, **(QUICK | (node_options or {}))) as node,
        MqttNode(node, **{"listen": ("127.0.0.1", 0), **given}) as mqtt,
    ):
        yield mqtt


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
