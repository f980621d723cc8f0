"""What a connection and the session behind it say to each other.

A connection tells the host what its client wants (`SessionWanted`, `MessagePublished`, ...), and the host calls it when
that is durable (`MqttSessionOpened`, `PublishStoredAs`, ...).
"""

from __future__ import annotations

from typing import ClassVar

from statemachines.kernel import Call, Event, TraceColumns
from statemachines.mqtt_codec import packet as p

# -- to the session ---------------------------------------------------------------------------------------------------


class SessionWanted(Event, frozen=True, gc=False):
    """The client wants its session.  An empty `client_id` asks for an assigned one; `expiry_s` is in seconds, 2^32 - 1:
    for ever.  The host checks the credentials."""

    client_id: str
    clean_start: bool
    expiry_s: int
    receive_maximum: int
    will: p.WillMessage | None
    user_name: str | None
    password: bytes | None


class MessagePublished(Event, frozen=True, gc=False):
    """Store this message, whose topic is resolved.  At QoS 1 and 2 `PublishStoredAs` answers."""

    packet: p.PublishPacket


class MessagesPublished(Event, frozen=True, gc=False):
    """Store these messages of QoS 1, in this order; `PublishStoredAs` or `PublishesStored` answers each."""

    packets: tuple[p.PublishPacket, ...]


class MessageReleased(Event, frozen=True, gc=False):
    """Forget this packet id of QoS 2; `ReleaseStored` answers."""

    packet_id: int


class FiltersWanted(Event, frozen=True, gc=False):
    """Subscribe these filters; `FiltersStored` answers."""

    packet_id: int
    subscriptions: tuple[p.TopicSubscription, ...]
    subscription_id: int | None


class FiltersUnwanted(Event, frozen=True, gc=False):
    """Unsubscribe these filters; `FiltersRemoved` answers."""

    packet_id: int
    filters: tuple[str, ...]


class DeliveryAnswered(Event, frozen=True, gc=False):
    """The client answered a message: `answer` is puback, pubrec or pubcomp."""

    packet_id: int
    answer: str
    reason_code: int
    more: tuple[int, ...] = ()
    """Packet ids of other messages that it acknowledged behind this one, in this order."""


class DeliveryDropped(Event, frozen=True, gc=False):
    """The message is larger than the client takes, and was not sent: it counts as acknowledged."""

    packet_id: int


class MqttConnectionOver(Event, frozen=True, gc=False):
    """The connection is over: the driver closes it.  `has_session`: the session had been asked for.  `expiry_s`: it
    lives on for so long.  `sends_will`: the client did not leave in peace."""

    reason_code: int
    has_session: bool
    expiry_s: int
    sends_will: bool


# -- from the session -------------------------------------------------------------------------------------------------


class MqttSessionOpened(Call, frozen=True, gc=False):
    """The client has its session, under this client id.  `received`: packet ids of QoS 2 that it has not released."""

    columns: ClassVar[TraceColumns] = TraceColumns(key="client_id")

    client_id: str
    present: bool
    received: tuple[int, ...] = ()


class SessionRefused(Call, frozen=True, gc=False):
    """The client gets no session, for this reason of MQTT 5."""

    reason_code: int


class PublishStoredAs(Call, frozen=True, gc=False):
    """A message is durable (below 0x80), or refused."""

    packet_id: int
    reason_code: int


class PublishesStored(Call, frozen=True, gc=False):
    """Messages of QoS 1 are durable."""

    packet_ids: tuple[int, ...]


class ReleaseStored(Call, frozen=True, gc=False):
    """A packet id of QoS 2 is forgotten, and that is durable."""

    packet_id: int


class FiltersStored(Call, frozen=True, gc=False):
    """A reason code for each filter."""

    packet_id: int
    reason_codes: tuple[int, ...]


class FiltersRemoved(Call, frozen=True, gc=False):
    """A reason code for each filter."""

    packet_id: int
    reason_codes: tuple[int, ...]


class DeliveryReady(Call, frozen=True, gc=False):
    """Send this message to the client, and `more` behind it."""

    packet: p.PublishPacket
    more: tuple[p.PublishPacket, ...] = ()


class ReleaseReady(Call, frozen=True, gc=False):
    """Send PUBREL: that the client received the message is durable."""

    packet_id: int


class UnexpectedAnswer(Call, frozen=True, gc=False):
    """The client answered a message by an acknowledgement that does not belong to it."""


class MqttSessionTaken(Call, frozen=True, gc=False):
    """Another connection has the session."""


class ServerStopping(Call, frozen=True, gc=False):
    """The server ends the connection, for this reason."""

    reason_code: int


class TransportLost(Call, frozen=True, gc=False):
    """The network connection is gone."""
