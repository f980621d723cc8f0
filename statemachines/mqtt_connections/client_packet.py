"""Packets as messages of a connection: one class for each packet, whoever sends it.

The driver wraps what its decoder yields (`wrap_packet`), and encodes `message.packet` of what the connection sends.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from statemachines.kernel import Message
from statemachines.mqtt_codec import packet as p


class ConnectMessage(Message, frozen=True, gc=False):
    """CONNECT came."""

    packet: p.ConnectPacket


class ConnackMessage(Message, frozen=True, gc=False):
    """CONNACK leaves."""

    packet: p.ConnackPacket


class PublishMessage(Message, frozen=True, gc=False):
    """PUBLISH, in either direction."""

    packet: p.PublishPacket
    more: tuple[p.PublishPacket, ...] = ()
    """To the client: those that leave behind it."""


class PublishRun(Message, frozen=True, gc=False):
    """Plain PUBLISHes of QoS 1 that came together (`fits_run`), in their order."""

    packets: Annotated[tuple[p.PublishPacket, ...], msgspec.Meta(min_length=1)]


class PubackMessage(Message, frozen=True, gc=False):
    """PUBACK, in either direction."""

    packet: p.PubackPacket
    more: tuple[int, ...] = ()
    """Packet ids of the PUBACKs of success that come behind it."""


class PubrecMessage(Message, frozen=True, gc=False):
    """PUBREC, in either direction."""

    packet: p.PubrecPacket


class PubrelMessage(Message, frozen=True, gc=False):
    """PUBREL, in either direction."""

    packet: p.PubrelPacket


class PubcompMessage(Message, frozen=True, gc=False):
    """PUBCOMP, in either direction."""

    packet: p.PubcompPacket


class SubscribeMessage(Message, frozen=True, gc=False):
    """SUBSCRIBE came."""

    packet: p.SubscribePacket


class SubackMessage(Message, frozen=True, gc=False):
    """SUBACK leaves."""

    packet: p.SubackPacket


class UnsubscribeMessage(Message, frozen=True, gc=False):
    """UNSUBSCRIBE came."""

    packet: p.UnsubscribePacket


class UnsubackMessage(Message, frozen=True, gc=False):
    """UNSUBACK leaves."""

    packet: p.UnsubackPacket


class PingreqMessage(Message, frozen=True, gc=False):
    """PINGREQ came."""


class PingrespMessage(Message, frozen=True, gc=False):
    """PINGRESP leaves."""

    packet: p.PingrespPacket = p.PingrespPacket()


class DisconnectMessage(Message, frozen=True, gc=False):
    """DISCONNECT, in either direction."""

    packet: p.DisconnectPacket


class ForbiddenPacket(Message, frozen=True, gc=False):
    """A packet came that no client may send here: AUTH, or one of a server.  `kind` is the name of its class."""

    kind: str


class BrokenPacket(Message, frozen=True, gc=False):
    """Bytes came that are no packet: what the `PacketError` of the decoder says."""

    reason_code: int
    level: int | None = None


_MESSAGES: Final[dict[type[Any], type[Any]]] = {
    p.ConnectPacket: ConnectMessage,
    p.PublishPacket: PublishMessage,
    p.PubackPacket: PubackMessage,
    p.PubrecPacket: PubrecMessage,
    p.PubrelPacket: PubrelMessage,
    p.PubcompPacket: PubcompMessage,
    p.SubscribePacket: SubscribeMessage,
    p.UnsubscribePacket: UnsubscribeMessage,
    p.DisconnectPacket: DisconnectMessage,
}


def list_packets(message: Any) -> tuple[p.PacketValue, ...]:
    """The packets that leave as this message."""
    if isinstance(message, PubackMessage):
        return (message.packet, *map(p.PubackPacket, message.more))
    return (message.packet, *message.more) if isinstance(message, PublishMessage) else (message.packet,)


def wrap_packet(packet: p.PacketValue) -> Message:
    """The message that a packet of a client is."""
    if isinstance(packet, p.PingreqPacket):
        return PingreqMessage()
    kind = _MESSAGES.get(type(packet))
    message: Message = ForbiddenPacket(type(packet).__name__) if kind is None else kind(packet)
    return message
