"""Attacks on a node: each function takes its address and says what was wrong with the answers ([] = nothing)."""

import asyncio
import contextlib
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

from exchanges import MQTT_SOCKET_KEPT, MqttSocket, open_scene, read_blocks
from waiting import pause_async

from statemachines import mqtt_codec


async def open_and_say_nothing(address, count):
    """So many connections that never say CONNECT; whether the last one is closed by the node."""
    found = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            found.append(await asyncio.open_connection(*address))
    is_closed = await found[-1][0].read(1) == b""
    for _, writer in found:
        writer.transport.abort()
    return [] if is_closed else ["a client that says nothing is answered"]


async def send_slowly(address, count):
    """So many connections that send a CONNECT byte by byte, and never its last."""
    data = b"\x10\x7f\x00\x04MQTT\x05\x02\x00\x3c\x00" + b"\x00" * 100

    async def send():
        reader, writer = await asyncio.open_connection(*address)
        with contextlib.suppress(OSError):
            for place in range(len(data)):
                if reader.at_eof():
                    break
                writer.write(data[place : place + 1])
                await writer.drain()
                await pause_async(0.05, "the attack is slow")
        is_closed = await reader.read(1) == b""
        writer.transport.abort()
        return is_closed

    closed = await asyncio.gather(*(send() for _ in range(count)))
    return [] if all(closed) else ["a slow CONNECT is answered"]


async def subscribe_many(address, count):
    """So many filters in one SUBSCRIBE; no more than a session may have are granted."""
    async with MqttSocket(address) as client:
        await client.connect("many", properties=MQTT_SOCKET_KEPT, clean_start=False)
        filters = tuple(mqtt_codec.TopicSubscription(f"f/{number}", 1) for number in range(count))
        answer = await client.ask(mqtt_codec.SubscribePacket(1, filters))
    codes = answer.reason_codes
    is_right = codes == (1,) * 1_000 + (0x97,) * (count - 1_000)
    return [] if is_right else [f"{count} filters: {codes.count(1)} granted of {len(codes)}"]


async def take_each_other_over(address, count):
    """Two clients of one id take the session from each other, so many times: the older one is told, until both are
    refused (MQ-124)."""
    for _ in range(count):
        async with MqttSocket(address) as one:
            older = (await one.connect("twin", properties=MQTT_SOCKET_KEPT, clean_start=False)).reason_code
            async with MqttSocket(address) as two:
                newer = (await two.connect("twin", properties=MQTT_SOCKET_KEPT, clean_start=False)).reason_code
                if not {older, newer} <= {0, 0x97}:
                    return [f"two of one id: {older}, {newer}"]
                if not older and not newer and await one.read() != mqtt_codec.DisconnectPacket(0x8E):
                    return ["a connection whose session was taken is not told"]
    return []


async def send_fragments(address, count):
    """Half of a CONNECT, and the end, so many times."""
    data = mqtt_codec.encode(mqtt_codec.ConnackPacket(), mqtt_codec.MqttVersion.V5)
    for _ in range(count):
        _, writer = await asyncio.open_connection(*address)
        writer.write(data[:2])
        writer.transport.abort()
    return []


async def end_no_connect(address, count):
    """CONNECTs of 250 kB without their last byte, which are held; whether all of them are cut off."""
    will = mqtt_codec.WillMessage(
        "w", b"x" * 65_000, properties=mqtt_codec.PacketProperties(correlation_data=b"x" * 65_000)
    )
    fields = {"will": will, "user_name": "x" * 60_000, "password": b"x" * 60_000}
    data = mqtt_codec.encode(mqtt_codec.ConnectPacket("c", **fields), mqtt_codec.MqttVersion.V5)[:-1]

    async def send():
        reader, writer = await asyncio.open_connection(*address)
        with contextlib.suppress(OSError):
            writer.write(data)
            while await reader.read(65_536):
                pass
        writer.transport.abort()

    await asyncio.gather(*(send() for _ in range(count)))
    return []


def play_text(title, steps):
    """An attack that plays a block of `exchanges/attacks.txt` so many times."""

    async def play(address, count):
        with TemporaryDirectory() as folder:
            for _ in range(count):
                async with open_scene(Path(folder), nodes={"a": SimpleNamespace(address=address)}) as scene:
                    await scene.play(*[step for step in steps if not step.startswith("node ")])
        return []

    play.__name__ = title
    return play


TEXTS = Path(__file__).parent.joinpath("exchanges/attacks.txt").read_text()
ATTACKS = (
    # attack, how many in `make test`, and in the long run
    (open_and_say_nothing, 1_100, 10_000),
    (send_slowly, 50, 500),
    (subscribe_many, 10_000, 10_000),
    (take_each_other_over, 5, 40),
    (send_fragments, 100, 5_000),
    (end_no_connect, 700, 5_000),
    *[(play_text(*block), 5, 200) for block in read_blocks(TEXTS)],
)
