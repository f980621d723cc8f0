"""WirePeer: one connection of an implementation to the kit: its greeting, and its messages."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from typing import Any, Final, Protocol, cast

from statemachines.drivers.credentials import Credentials
from statemachines.drivers.greeting import GREETING_MAX, NONCE_SIZE, Greeting, Terms
from statemachines.drivers.tcp import HELLO_S, TELL_S
from statemachines.testing.conformance.wire_role import WireRole
from statemachines.wire import (
    FRAME_MAX,
    FrameError,
    Frames,
    Hello,
    Packet,
    PacketCodec,
    decode_hello,
    encode_refusal,
    hello_of,
    quote_for_log,
    refusal_in,
)

WRITE_MAX: Final = 4 * 2**20
"""So many bytes may wait for an implementation that does not read."""


class PeerOwner(Protocol):
    """The run that a connection belongs to."""

    wire: WireRole
    store: str
    credentials: Credentials

    def join(self, peer: WirePeer) -> str:
        """The greeting is over; why the peer may not stay ("": it may)."""

    def receive(self, peer: WirePeer, packet: Packet[Any]) -> None:
        """A message has come."""

    def leave(self, peer: WirePeer, why: str) -> None:
        """The connection is gone; `why`: the peer did something wrong ("": it did not)."""


class WirePeer(asyncio.Protocol):
    """One connection of the kit's `life`; `hello` is set when the greeting is over.

    Args:
        place: which of the connections that the kit keeps it is.
        dialled: the kit has made it.  It then says hello second, and names the store that the other side names.
    """

    def __init__(self, owner: PeerOwner, life: str, *, dialled: bool, place: int = 0) -> None:
        self.life = life
        self.place = place
        self.hello: Hello | None = None
        self.closed = asyncio.Event()
        self.name = "?"
        self.is_open = True
        self._owner = owner
        self._dialled = dialled
        self._greeting: Greeting | None = None
        self._codec: PacketCodec[Any] = PacketCodec(owner.wire.takes)
        self._frames = Frames(GREETING_MAX)
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None

    # -- asyncio ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.name = "{}:{}".format(*(transport.get_extra_info("peername") or ("?", "?"))[:2])
        if not self._dialled:
            self._begin_greeting(self._owner.store)
        self._timer = asyncio.get_running_loop().call_later(HELLO_S, self._end_late)

    def _begin_greeting(self, store: str) -> Greeting:
        """Say hello, on this store."""
        owner, credentials = self._owner, self._owner.credentials
        nonce = secrets.token_bytes(NONCE_SIZE) if credentials.secrets else b""
        hello = hello_of(owner.wire.plays.full_name, self.life, nonce=nonce, mutual=credentials.mutual, store=store)
        terms = Terms(credentials.secrets)
        greeting = Greeting(hello, owner.wire.peer, dialled=self._dialled, terms=terms, has_store=lambda role: False)
        self._transport.write(greeting.begin())
        self._greeting = greeting
        return greeting

    def data_received(self, data: bytes) -> None:
        body: bytes | memoryview = b""
        try:
            for body in self._frames.feed(data) if self.is_open else ():
                if self.hello is None:
                    self._greet(body)
                else:
                    packet = self._codec.decode(body)
                    self._check_parties(packet)
                    self._owner.receive(self, packet)
                if not self.is_open:
                    return
        except FrameError as error:
            why = refusal_in(body)
            self.refuse(f"refuses the kit: {why}" if why else str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.closed.set()
        if self.is_open:
            self.is_open = False
            early = (
                "" if self.hello is not None else "has closed its connection before its hello; the first frame is one"
            )
            self._owner.leave(self, f"{early}{_reason(exc)}" if early else "")

    # -- sending ------------------------------------------------------------------------------------------------

    def send(self, sender: str, to: str, message: Any) -> None:
        """Send a message of a party of the kit."""
        self._number += 1
        self._transport.write(self._codec.encode(Packet(sender, to, self._number, message)))
        if self._transport.get_write_buffer_size() > WRITE_MAX:
            self.refuse(f"does not read: {WRITE_MAX:,} bytes wait for it")

    def refuse(self, why: str) -> None:
        """End the connection, and tell the peer why."""
        if self.is_open:
            self.is_open = False
            self._transport.write(encode_refusal(why))
            self._transport.close()
            asyncio.get_running_loop().call_later(TELL_S, self._transport.abort)
            self._owner.leave(self, why)

    def close(self) -> None:
        """The run is over; TLS may never have been set up."""
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
            self._transport.abort()

    # -- the peer -----------------------------------------------------------------------------------------------

    def _end_late(self) -> None:
        if self.hello is None:
            self.refuse(f"has said no hello within {HELLO_S:g} s; the first frame of a connection is one")

    def _greet(self, body: memoryview | bytes) -> None:
        greeting = self._greeting or self._begin_greeting(
            self._owner.store or decode_hello(body, self._owner.wire.peer).store
        )
        answer = greeting.feed(body)
        if answer:
            self._transport.write(answer)
        if greeting.done:
            assert self._timer is not None
            self._timer.cancel()
            self.hello = greeting.peer
            self._frames.frame_max = FRAME_MAX
            if why := self._owner.join(self):
                self.refuse(why)

    def _check_parties(self, packet: Packet[Any]) -> None:
        assert self.hello is not None
        if not f"{packet.sender}/".startswith(f"{self.hello.life}/"):
            rule = f"the id of a party begins with the life of its hello, {quote_for_log(self.hello.life)}"
            raise FrameError(f"sent a message as {quote_for_log(packet.sender)}; {rule}")
        node, wire = self.life.partition("~")[0], self._owner.wire
        if "~" in packet.to and not packet.to.startswith(f"{node}~"):
            raise FrameError(f"sent a message to {quote_for_log(packet.to)}, which does not live on {node}")
        for field, party, how in ((wire.speaker, packet.sender, "as"), (wire.addressee, packet.to, "to")):
            if field and (named := getattr(packet.message, field)) != party:
                said = f"sent a message {how} {quote_for_log(party)} that names {quote_for_log(named)}"
                raise FrameError(f"{said}; the two are equal")


def _reason(exc: Exception | None) -> str:
    if isinstance(exc, ssl.SSLError):
        return f" ({exc.reason})"
    return ""
