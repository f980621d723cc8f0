"""MQTT over WebSocket: frames of any cut, the subprotocol, origins, bounds, and clients of others."""

import asyncio
import contextlib
import queue

import paho.mqtt.client as paho
import pytest
import waiting
from waiting import HANG_S
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from statemachines.drivers.mqtt_connections import MqttNode, mqtt_node
from statemachines.drivers.mqtt_connections.web_socket import BoundedConnection
from statemachines.drivers.persistent_sessions import SessionNode
from statemachines.kernel import ConfigurationError
from statemachines.mqtt_codec import ConnackPacket, ConnectPacket, Decoder, PublishPacket, encode, packet
from statemachines.mqtt_connections.connection_record import MqttSettings

V3 = packet.MqttVersion.V3_1_1
PLACE = ("127.0.0.1", 0)
CONNECT = encode(ConnectPacket("c", V3), V3)


@contextlib.asynccontextmanager
async def web_node(folder, **given):
    async with (
        SessionNode(folder / "s.db", name="n") as node,
        MqttNode(node, listen=PLACE, ws_listen=PLACE, **given) as mqtt,
    ):
        yield mqtt, "ws://{}:{}/mqtt".format(*mqtt.ws_address)


async def read_packets(socket, count, decoder):
    """So many packets of the server."""
    found = []
    while len(found) < count:
        found += decoder.feed(await socket.recv())
    return found


@pytest.mark.parametrize("cut", [1, 7, 1_000])
async def test_MQ_140_packets_take_several_frames_and_a_frame_several_packets(tmp_path, cut):
    async with web_node(tmp_path) as (_mqtt, url), connect(url, subprotocols=["mqtt"]) as socket:
        assert socket.subprotocol == "mqtt"
        decoder = Decoder(V3)
        await socket.send(CONNECT)
        assert isinstance((await read_packets(socket, 1, decoder))[0], ConnackPacket)
        subscribe = encode(packet.SubscribePacket(1, (packet.TopicSubscription("t", 1),)), V3)
        raw = subscribe + encode(PublishPacket("t", b"x" * 300, 1, packet_id=2), V3)
        for begin in range(0, len(raw), cut):
            await socket.send(raw[begin : begin + cut])
        found = await read_packets(socket, 3, decoder)
        assert packet.PubackPacket(2) in found
        assert [one.payload for one in found if isinstance(one, PublishPacket)] == [b"x" * 300]


async def test_MQ_140_a_text_frame_ends_the_connection(tmp_path):
    async with web_node(tmp_path) as (_mqtt, url):
        async with connect(url, subprotocols=["mqtt"]) as socket:
            await socket.send("text")
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd.code == 1003
        await serve_ping(url)


async def send_often(writer, data, times):
    for _ in range(times):
        writer.write(data)
        await writer.drain()


async def serve_ping(url, **given):
    """A client is served there."""
    async with connect(url, subprotocols=["mqtt"], **given) as socket:
        decoder = Decoder(V3)
        await socket.send(CONNECT)
        await read_packets(socket, 1, decoder)
        await socket.send(encode(packet.PingreqPacket(), V3))
        assert await read_packets(socket, 1, decoder) == [packet.PingrespPacket()]


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({}, 400),
        ({"subprotocols": ["chat"]}, 400),
        ({"subprotocols": ["mqtt"], "origin": "https://elsewhere.example"}, 403),
        ({"subprotocols": ["mqtt"], "origin": "null"}, 403),
        ({"subprotocols": ["mqtt"], "origin": "http://[::1"}, 403),
        (
            {
                "subprotocols": ["mqtt"],
                "origin": "http://rebound.example",
                "additional_headers": {"Host": "rebound.example"},
            },
            403,
        ),
    ],
)
async def test_MQ_141_who_does_not_ask_for_mqtt_or_comes_from_a_foreign_page_is_refused(tmp_path, given, status):
    async with web_node(tmp_path, ws_origins=["https://here.example"]) as (_mqtt, url):
        with pytest.raises(InvalidStatus) as refused:
            async with connect(url, **given):
                pass
        assert refused.value.response.status_code == status
        await serve_ping(url, origin="https://here.example")


def write_head(address, more=""):
    """The request that opens a connection."""
    head = "GET /mqtt HTTP/1.1\r\nHost: {}:{}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n".format(*address)
    head += "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
    return f"{head}Sec-WebSocket-Protocol: mqtt\r\n{more}\r\n".encode()


async def open_raw(address, more=""):
    """(reader, writer) of a connection that is open."""
    reader, writer = await asyncio.open_connection(*address, limit=20_000)
    writer.write(write_head(address, more))
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def make_frame(kind, data=b"", first=0x80):
    """A frame of a client, masked with zeros; `first`: flags."""
    return bytes((first | kind, 0x80 | len(data))) + bytes(4) + data


async def test_MQ_142_pings_whose_answers_nobody_reads_fill_no_memory(tmp_path):
    async with web_node(tmp_path) as (mqtt, url):
        _, writer = await open_raw(mqtt.ws_address)
        with pytest.raises(ConnectionError):
            await send_often(writer, make_frame(9, b"x" * 125) * 8_000, 100)  # the system's buffers take some
        writer.close()
        await serve_ping(url)


@pytest.mark.parametrize("frames", [make_frame(9), make_frame(2), make_frame(10)], ids=["ping", "empty", "pong"])
async def test_MQ_202_small_frames_of_all_connections_share_the_turns_of_the_loop(tmp_path, monkeypatch, frames):
    turns, take = [0], BoundedConnection.take_bytes

    def note_bytes(self, most):
        count = take(self, most)
        turns[-1] += count
        return count

    async def count_turns():
        while True:
            turns.append(0)
            await waiting.turns()

    async with web_node(tmp_path) as (mqtt, url):
        monkeypatch.setattr(BoundedConnection, "take_bytes", note_bytes)
        counting = asyncio.ensure_future(count_turns())
        opened = [await open_raw(mqtt.ws_address) for _ in range(3)]
        for _, writer in opened:
            writer.write(frames * 10_000)
        await serve_ping(url)
        for reader, writer in opened:
            writer.write(b"\xff\xff")  # no frame: the end
            while await reader.read(65_536):
                pass
            writer.close()
        counting.cancel()
        assert sum(turns) > 180_000
        assert max(turns) < 20_000  # those of two turns may be counted as one


async def test_MQ_203_a_long_head_of_a_request_is_cut_off(tmp_path):
    async with web_node(tmp_path, settings=MqttSettings(connect_timeout_s=3_600)) as (mqtt, url):
        cookie = "Cookie: " + "c" * 5_000 + "\r\n"
        _, writer = await open_raw(mqtt.ws_address, 2 * cookie)
        writer.close()
        reader, writer = await asyncio.open_connection(*mqtt.ws_address)
        writer.write(write_head(mqtt.ws_address, 20 * cookie)[:-2])
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        await serve_ping(url)


async def test_MQ_204_of_connections_that_are_not_open_the_oldest_makes_room(tmp_path, monkeypatch):
    monkeypatch.setattr(mqtt_node, "CONNECTING_MAX", 5)

    async with web_node(tmp_path, settings=MqttSettings(connect_timeout_s=3_600)) as (mqtt, url):
        opened = await open_raw(mqtt.ws_address)  # it counts no more
        await serve_ping(url)
        silent = [await asyncio.open_connection(*mqtt.ws_address) for _ in range(8)]
        for reader, _ in silent[:3]:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        await serve_ping(url)
        for _, writer in (opened, *silent):
            writer.close()


BROKEN = {
    "not masked": (b"\x82\x02\x10\x00", 1002),
    "compressed, and no extension was agreed": (make_frame(2, b"x", 0xC0), 1002),
    "2^63 bytes": (b"\x82\xff\x80" + bytes(11), 1009),
    "2^63 - 1 bytes": (b"\x82\xff\x7f" + b"\xff" * 7 + bytes(4), 1009),
    "an opcode of nobody": (make_frame(3), 1002),
    "a ping in pieces": (make_frame(9, b"x", 0), 1002),
    "a long ping": (b"\x89\xfe\x00\x7e" + bytes(130), 1002),
    "the middle of no message": (make_frame(0), 1002),
    "a message within another": (make_frame(2, b"x", 0) + make_frame(2), 1002),
    "very many empty pieces": (make_frame(2, b"", 0) + make_frame(0, b"", 0) * 40_000, 1009),
    "a close of one byte": (make_frame(8, b"\x03"), 1002),
    "a close with no code": (make_frame(8, b"\x00\x05"), 1002),
    "a close that is no UTF-8": (make_frame(8, b"\x03\xe8\xff"), 1007),
    "a text in pieces": (make_frame(1, b"\xff", 0) + make_frame(0, b"\xff"), 1007),
}


@pytest.mark.long
async def test_who_breaks_the_rules_of_frames_is_closed_with_the_code_for_it(tmp_path):
    async with web_node(tmp_path) as (mqtt, url):
        for what, (data, code) in BROKEN.items():
            reader, writer = await open_raw(mqtt.ws_address, "Sec-WebSocket-Extensions: permessage-deflate\r\n")
            writer.write(data)
            head = await reader.readexactly(4)
            assert (what, head[0], int.from_bytes(head[2:], "big")) == (what, 0x88, code)
            writer.close()
        await serve_ping(url)


async def test_MQ_142_silent_connections_end_and_keep_nobody_out(tmp_path):
    async with web_node(tmp_path, settings=MqttSettings(connect_timeout_s=1)) as (mqtt, url):
        silent = [await asyncio.open_connection(*mqtt.ws_address) for _ in range(20)]
        silent[0][1].write(b"GET / HTTP/1.1\r\nHost: ")
        await serve_ping(url)
        for reader, writer in silent:
            while await reader.read(1_000):
                pass
            writer.close()


async def test_MQ_140_paho_is_served_over_web_sockets_and_resumes_its_session(tmp_path):
    def talk(port):
        found, messages = [], queue.SimpleQueue()
        for life in range(2):
            client = paho.Client(paho.CallbackAPIVersion.VERSION2, "p", transport="websockets", clean_session=False)
            client.on_message = lambda client, userdata, message: messages.put(message.payload)
            client.on_connect = lambda client, userdata, flags, code, properties: found.append(flags.session_present)
            client.on_subscribe = lambda client, userdata, mid, codes, properties: messages.put(b"subscribed")
            client.connect("127.0.0.1", port)
            client.loop_start()
            if not life:
                client.subscribe("t", qos=1)
                assert messages.get(timeout=HANG_S) == b"subscribed"
            client.publish("t", b"%d" % life, qos=1)
            assert messages.get(timeout=HANG_S) == b"%d" % life
            client.disconnect()
            client.loop_stop()
        return found

    async with web_node(tmp_path) as (mqtt, _url):
        assert await asyncio.to_thread(talk, mqtt.ws_address[1]) == [False, True]


def test_MQ_143_a_listener_for_web_sockets_beyond_loopback_needs_users(tmp_path):
    with pytest.raises(ConfigurationError, match="ws_listen"):
        MqttNode(SessionNode(tmp_path / "s.db", name="n"), ws_listen=("0.0.0.0", 0))
