"""TLS handshakes of strangers are bounded in number and in time, and keep nobody out."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

import pytest
import trustme
from mqtt_socket import MqttSocket, mqtt_node, run
from websockets.asyncio.client import connect

from statemachines.drivers.mqtt_connections import mqtt_node as listener
from statemachines.mqtt_codec import ConnackPacket, ConnectPacket, Decoder, PingreqPacket, PingrespPacket, encode
from statemachines.mqtt_connections.connection_record import MqttSettings

PLACE = ("127.0.0.1", 0)


class TlsSocket(MqttSocket):
    """A client that sends CONNECT together with the last bytes of its handshake."""

    def __init__(self, address, context):
        super().__init__(address)
        self._context = context

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection(*self.address, ssl=self._context)
        return self


@pytest.fixture
def contexts():
    """(of a server, of its clients)."""
    authority, server, client = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    return server, client


async def serve_both(node, context):
    """A client of each listener is served."""
    async with TlsSocket(node.address, context) as client:
        assert (await client.connect("tcp")).reason_code == 0
        assert await client.ask(PingreqPacket()) == PingrespPacket()
    async with connect("wss://{}:{}".format(*node.ws_address), subprotocols=["mqtt"], ssl=context) as client:
        await client.send(encode(ConnectPacket("web"), 5))
        (answer,) = Decoder(5).feed(await client.recv())
        assert isinstance(answer, ConnackPacket)


async def wait_for_end(reader):
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""


@pytest.mark.parametrize("limit_s", [1, 3_600])
def test_MQ_205_handshakes_are_bounded_in_number_and_in_time(store, monkeypatch, contexts, limit_s):
    """The oldest one makes room, over both listeners."""
    monkeypatch.setattr(listener, "CONNECTING_MAX", 6)

    async def main():
        settings = MqttSettings(connect_timeout_s=limit_s)
        async with mqtt_node(store, tls=contexts[0], listen=PLACE, ws_listen=PLACE, settings=settings) as node:
            await serve_both(node, contexts[1])
            silent = [await asyncio.open_connection(*place) for place in [node.address, node.ws_address] * 5]
            for reader, _ in silent[: 10 if limit_s == 1 else 4]:
                await wait_for_end(reader)
            await serve_both(node, contexts[1])
            reader, writer = await asyncio.open_connection(*node.address)
            writer.write(b"\x10\x00" * 100)  # no handshake
            await wait_for_end(reader)
            for _, other in (*silent, (reader, writer)):
                other.close()
            while node._gate._open:
                await asyncio.sleep(0.01)

    run(main())


def test_a_node_that_stops_ends_handshakes(store, contexts):
    async def main():
        async with mqtt_node(store, tls=contexts[0]) as node:
            reader, writer = await asyncio.open_connection(*node.address)
            while not node._gate._open:
                await asyncio.sleep(0.01)
        await wait_for_end(reader)
        writer.close()

    run(main())
