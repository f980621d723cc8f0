"""MqttSocket: a blocking MQTT 3.1.1 client that costs little, so that a measurement is of the broker.

    with MqttSocket(port, "reader", clean=False) as reader:
        reader.subscribe("t/#")
        for message in reader.read_messages(): ...

It sends PUBLISH of QoS 1 and reads frames by their length alone; it is no client for an application.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Final, NamedTuple, Self

from statemachines.kernel import GaplessError
from statemachines.mqtt_codec import MqttVersion, encode
from statemachines.mqtt_codec.packet import (
    ConnectPacket,
    DisconnectPacket,
    PublishPacket,
    SubscribePacket,
    TopicSubscription,
)

V3: Final = MqttVersion.V3_1_1
PATIENCE_S: Final = 60.0
IN_FLIGHT: Final = 20
"""Messages of a publisher that are not acknowledged: the default of paho-mqtt and mosquitto_pub."""

CONNACK, PUBLISH, PUBACK, SUBACK = 2, 3, 4, 9
READ_SIZE: Final = 262_144


class SocketMessage(NamedTuple):
    """A message that came."""

    topic: bytes
    payload: bytes
    qos: int
    packet_id: int
    dup: bool


class Frame(NamedTuple):
    """A packet as it came."""

    kind: int
    flags: int
    body: bytes


class MqttSocket:
    """One connection.

    Args:
        port: of the broker, on this machine.
        client_id: of the client.
        clean: the session ends with the connection, and an earlier one is discarded.
    """

    def __init__(self, port: int, client_id: str, *, clean: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self._frames: list[Frame] = []
        self._packet_id = 0
        self.socket.sendall(encode(ConnectPacket(client_id, V3, clean), V3))
        answer = self._await_frame(CONNACK)
        if answer[1]:
            raise GaplessError(f"CONNACK refuses {client_id}: {answer[1]}")
        self.is_present = bool(answer[0] & 1)
        """Whether the broker had the session."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """DISCONNECT, and the end."""
        with contextlib.suppress(OSError):
            self.socket.sendall(encode(DisconnectPacket(), V3))
        self.socket.close()

    def subscribe(self, topic_filter: str, qos: int = 1) -> None:
        """Wait for SUBACK."""
        packet = SubscribePacket(self._take_packet_id(), (TopicSubscription(topic_filter, qos),))
        self.socket.sendall(encode(packet, V3))
        if self._await_frame(SUBACK)[2] >= 0x80:
            raise GaplessError(f"SUBACK refuses {topic_filter}")

    def publish(self, packet: bytearray, place: int) -> None:
        """Send what `make_publish` has made, under the next packet id; PUBACK is read by `read_frames`."""
        packet_id = self._take_packet_id()
        packet[place], packet[place + 1] = packet_id >> 8, packet_id & 255
        self.socket.sendall(packet)

    def acknowledge(self, messages: Iterable[SocketMessage]) -> None:
        """PUBACK for those of QoS 1."""
        answers = bytearray()
        for one in messages:
            if one.qos:
                answers += bytes((0x40, 2, one.packet_id >> 8, one.packet_id & 255))
        if answers:
            self.socket.sendall(answers)

    def read_messages(self) -> list[SocketMessage]:
        """What is there, one or more; they are not acknowledged yet."""
        found: list[SocketMessage] = []
        while not found:
            found = [read_message(one) for one in self.read_frames() if one.kind == PUBLISH]
        return found

    def read_pending(self) -> list[SocketMessage]:
        """Messages that came before an answer that was waited for."""
        return [read_message(one) for one in self._frames if one.kind == PUBLISH]

    def read_frames(self) -> list[Frame]:
        """All frames that are there; waits for bytes where there is none.

        Raises:
            GaplessError: The broker has closed the connection.
        """
        if self._frames:
            frames, self._frames = self._frames, []
            return frames
        data = self.socket.recv(READ_SIZE)
        if not data:
            raise GaplessError("the broker has closed the connection")
        self._buffer += data
        return self._take_frames()

    def _take_frames(self) -> list[Frame]:
        buffer, frames = self._buffer, []
        place, count = 0, len(self._buffer)
        while count - place >= 2:
            first, length, at, shift = buffer[place], 0, place + 1, 0
            while at < count:
                one = buffer[at]
                length |= (one & 127) << shift
                at, shift = at + 1, shift + 7
                if one < 128:
                    break
            else:
                break
            if at + length > count:
                break
            frames.append(Frame(first >> 4, first & 15, bytes(buffer[at : at + length])))
            place = at + length
        del buffer[:place]
        return frames

    def _await_frame(self, wanted: int) -> bytes:
        """The body of the next frame of this kind; messages before it are for `read_frames`."""
        kept: list[Frame] = []
        while True:
            frames = self.read_frames()
            for place, frame in enumerate(frames):
                if frame.kind == wanted:
                    self._frames = kept + frames[:place] + frames[place + 1 :]
                    return frame.body
            kept += frames

    def _take_packet_id(self) -> int:
        self._packet_id = self._packet_id % 65_535 + 1
        return self._packet_id


def read_message(frame: Frame) -> SocketMessage:
    """A PUBLISH of 3.1.1."""
    flags, body = frame.flags, frame.body
    size = body[0] << 8 | body[1]
    topic, rest, qos = body[2 : 2 + size], body[2 + size :], flags >> 1 & 3
    packet_id = rest[0] << 8 | rest[1] if qos else 0
    return SocketMessage(topic, rest[2:] if qos else rest, qos, packet_id, bool(flags & 8))


def make_publish(topic: str, payload: bytes) -> tuple[bytearray, int]:
    """A PUBLISH of QoS 1, and the place of its packet id."""
    packet = bytearray(encode(PublishPacket(topic, payload, 1, packet_id=1), V3))
    return packet, len(packet) - len(payload) - 2


def publish_all(clients: list[MqttSocket], topic: str, payloads: list[bytes], in_flight: int = IN_FLIGHT) -> None:
    """Each client publishes; of each so many are not acknowledged at most."""
    waiting, left = iter(payloads), len(payloads)
    poll, by_number = select.poll(), {one.socket.fileno(): one for one in clients}

    def send_next(client: MqttSocket) -> None:
        payload = next(waiting, None)
        if payload is not None:
            client.publish(*make_publish(topic, payload))

    for number in by_number:
        poll.register(number, select.POLLIN)
    for _ in range(in_flight):
        for client in clients:
            send_next(client)
    while left:
        ready = poll.poll(PATIENCE_S * 1_000)
        if not ready:
            raise GaplessError(f"no PUBACK for {PATIENCE_S:g} s; {left} messages are not acknowledged")
        for number, _ in ready:
            for frame in by_number[number].read_frames():
                if frame.kind == PUBACK:
                    left -= 1
                    send_next(by_number[number])
