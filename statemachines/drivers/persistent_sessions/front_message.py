"""What a front within the process says to its node beside `client_message`, and hears: it speaks for clients of another
protocol, such as MQTT.  Nothing of it goes over the wire.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from statemachines.drivers.identity import Identity
from statemachines.kernel import Message
from statemachines.persistent_sessions.message import (
    ConnectWanted,
    Delivered,
    Number,
    PublishStored,
    PublishWithHead,
    Pubrel,
    SubscribeWanted,
)

FROM_STORE: Final = "mqtt.retained"
"""The header of a message that a subscriber gets since it was retained."""

PUBLISHER: Final = "mqtt.publisher"
"""The header of a retained message that says who published it (`RetainedPublisher`)."""

PUBLISHER_BYTES_MAX: Final = 4_096
"""Of that header; a message with a longer one is not retained."""


FRONT_INSTANCE: Final = "front:"
"""How the instance of a client begins that connects by a front."""


class RetainHandling(IntEnum):
    """Which retained messages a subscription brings, as MQTT 5 numbers it (3.8.3.1)."""

    ALWAYS = 0
    IF_NEW = 1
    NEVER = 2


class SessionWill(msgspec.Struct, frozen=True, gc=False):
    """A message that is sent `delay_ms` after the connection has ended, or when the session ends, unless the client
    connects to the session before, or drops it; an empty `head` is none.  `identity`: who may publish it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    expiry_ms: int | None
    head: bytes
    delay_ms: int
    identity: Identity


class RetainedPublisher(msgspec.Struct, frozen=True, gc=False):
    """Who published a retained message, where permissions are limited."""

    identity: Identity
    client: str


class FrontConnect(ConnectWanted, frozen=True, gc=False):
    """Connect, with a will (None: without)."""

    will: SessionWill | None = None


class WillDropped(Message, frozen=True, gc=False):
    """The will of the connection is not to be sent."""


class FrontPublish(PublishWithHead, frozen=True, gc=False):
    """Publish; an empty `head` is none.  `retain`: keep it as the retained message of its topic, or with an empty
    payload delete that.  `PublishStored` or `PublishUnmatched` answers."""

    retain: bool = False
    not_by: frozenset[str] = frozenset()
    """Filters by which it does not come to the publisher's own session (No Local)."""
    packet: int = 0
    """The packet id under which it is kept until the client releases it (QoS 2; 0: none)."""


class PacketReleased(Message, frozen=True, gc=False):
    """The client has released the packet id; the node says the same when that is durable."""

    packet: Number


class FrontSubscribe(SubscribeWanted, frozen=True, gc=False):
    """Subscribe; `options` are kept with the filter, and read by `OptionsWanted`."""

    options: int = 0
    handling: RetainHandling = RetainHandling.NEVER


class RetainedBrought(Message, frozen=True, gc=False):
    """A subscription has brought so many retained messages: ahead of its `Subscribed`, and again when all of them
    `are_stored` for the session or were sent."""

    count: int
    are_stored: bool = False


class OptionsWanted(Message, frozen=True, gc=False):
    """Which filters does the session subscribe, and which packet ids has its client not released?"""

    n: Number


class PublishUnmatched(PublishStored, frozen=True, gc=False):
    """Number `n` is carried out, and no session subscribes its topic."""


class OptionsFound(Message, frozen=True, gc=False):
    """`filters`: filter -> its options; `packets`: ids of QoS 2 whose messages are stored, and not released."""

    n: Number
    filters: dict[str, int]
    packets: tuple[int, ...] = ()


class DeliveryRun(Message, frozen=True, gc=False):
    """To a front: messages of its session that came together, in their order."""

    messages: tuple[Delivered | Pubrel, ...]
