"""What a client and the node that it is connected to say to each other, beside the packets of `message`.

A client dials a node.  As a subscriber it asks to be connected, hears that it is, subscribes, and gets messages, which
it acknowledges; as a publisher it hands messages over, and hears of each when it is stored.  Nothing of this is
between machines: `SessionHost` and those around it turn it into calls of them.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from statemachines.kernel import Message

Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""Counts what a client asks for; the answer has the same."""
Packet = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
Qos = Annotated[int, msgspec.Meta(ge=0, le=2)]
Expiry = Annotated[int, msgspec.Meta(ge=-1, le=2**53)]
"""Milliseconds; -1: never, and where a client leaves: as it said when it connected."""
INSTANCE_MAX: Final = 64
"""Characters of what tells a client from others with its client id."""
MESSAGE_EXPIRY_MAX_S: Final = 2**32 - 1
"""The longest message expiry interval of MQTT 5."""
Head = Annotated[bytes, msgspec.Meta(max_length=16_384)]
"""Headers, key and timestamp of a message, encoded: no machine reads them."""
MessageExpiry = Annotated[int, msgspec.Meta(ge=1, le=MESSAGE_EXPIRY_MAX_S * 1_000)]
"""Milliseconds."""


# -- from a client ----------------------------------------------------------------------------------------------------


class ConnectWanted(Message, frozen=True, gc=False):
    """Connect `client`; `clean`: with no session of before; its session outlives the connection by `expiry_ms`; so
    many messages may be unacknowledged at a time.  `instance`: who connects, of all that ever have this client id ("":
    it does not say); `attempt`: counts its connections."""

    client: str
    clean: bool
    expiry_ms: Expiry
    receive_maximum: Annotated[int, msgspec.Meta(ge=1, le=65_535)]
    instance: Annotated[str, msgspec.Meta(max_length=INSTANCE_MAX)] = ""
    attempt: Number = 0


class SubscribeWanted(Message, frozen=True, gc=False):
    """Subscribe a filter; once more changes its QoS."""

    n: Number
    filter: str
    qos: Qos


class UnsubscribeWanted(Message, frozen=True, gc=False):
    """Nothing is routed by this filter any more."""

    n: Number
    filter: str


class PublishWanted(Message, frozen=True, gc=False):
    """Store a message for every session that subscribes its topic; when it has been stored for `expiry_ms`, it is sent
    to none that it was not sent to before (None: it does not expire)."""

    n: Number
    topic: str
    payload: bytes
    qos: Qos
    expiry_ms: MessageExpiry | None = None


class PublishWithHead(PublishWanted, frozen=True, gc=False):
    """The same, of a message that has headers, a key or a timestamp, encoded as `head`.  A node that does not know
    heads refuses it."""

    head: Head = b""


class LeaveWanted(Message, frozen=True, gc=False):
    """The client leaves; its session outlives that by `expiry_ms` (-1: as it was said)."""

    expiry_ms: Expiry


class Ping(Message, frozen=True, gc=False):
    """Whoever does not answer is taken for dead."""


# -- to a client ------------------------------------------------------------------------------------------------------


class Welcome(Message, frozen=True, gc=False):
    """The client is connected; `present`: its session was there before."""

    session: str
    present: bool


class Subscribed(Message, frozen=True, gc=False):
    """`SubscribeWanted` or `UnsubscribeWanted` number `n` is stored: what is published from now on is routed by it."""

    n: Number


class Delivered(Message, frozen=True, gc=False):
    """A message; a `packet` of 0 is QoS 0, `dup`: it may have come before, under the same packet.  `expiry_ms`: what
    was left of its time when it was handed out (None: it does not expire); `head`: its headers, key and timestamp,
    encoded (None: it has none)."""

    packet: Packet
    topic: str
    payload: bytes
    filter: str
    qos: Qos
    dup: bool
    expiry_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None
    head: Head | None = None


class PublishStored(Message, frozen=True, gc=False):
    """`PublishWanted` number `n` is stored for every session that it is for."""

    n: Number


class Refused(Message, frozen=True, gc=False):
    """Number `n` was not carried out, and why."""

    n: Number
    why: str


class GroupRefused(Message, frozen=True, gc=False):
    """The session subscribes this filter of a group, and nothing of it comes over this connection, and why.  The
    subscription stays."""

    filter: str
    why: str


class Farewell(Message, frozen=True, gc=False):
    """The connection is over: left, refused, superseded, discarded, lost, timeout, failed, full, closing,
    no_store."""

    why: str


class Pong(Message, frozen=True, gc=False):
    """To `Ping`."""
