"""Delivered, Deliveries: messages in the hands of an application.  Neither changes after it was handed over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, SupportsIndex, overload

import msgspec

from statemachines.drivers.message_head import Header, decode_head
from statemachines.kernel import ConfigurationError, GaplessError


class DeliverySession(Protocol):
    """What messages came over: a `SharedSession`."""

    def check_ack(self, messages: Iterable[Delivered]) -> None:
        """Raises `LocalProtocolError` for a message that was given back."""

    def note_ack(self, owner: str, stream: str, grant: int, first: int, last: int) -> None:
        """The messages `first`..`last` of a stream are dealt with."""

    async def wait_durable(self, message: Delivered) -> None:
        """Returns when the group store has the acknowledgement."""

    def give_back(self, message: Delivered, delay_s: float, reason: str = "") -> None:
        """Hand this message over again."""


class DeliveryRevoked(GaplessError):
    """The message was not acknowledged in time, and was taken back: another member may have it, or had it."""

    def __init__(self, stream: str, offset: int) -> None:
        self.stream = stream
        self.offset = offset
        what = "was not acknowledged within ack_wait and was taken back; it is delivered again, if it was not yet"
        super().__init__(f"message {offset} of {stream} {what}")

    def __reduce__(self) -> tuple[type[DeliveryRevoked], tuple[str, int]]:
        """So that it comes back whole from another process."""
        return type(self), (self.stream, self.offset)


class Delivered(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """One message: `payload`, and where it is from."""

    session: DeliverySession
    subscription: str
    """As it was given to `subscribe`."""
    owner: str
    stream: str
    grant: int
    offset: int
    """Its number in the stream, from 0."""
    payload: bytes
    delivery_count: int = 1
    """How often it was handed over so far, by any member; known of the first message of a stream that is not
    acknowledged, of others at least."""
    head: bytes | None = None
    """Its headers, key and timestamp, encoded (`message_head`)."""

    @property
    def headers(self) -> tuple[Header, ...]:
        """Names and values, in the order in which they were published: `dict(message.headers)`.

        Raises `ConfigurationError`, as `key` and `timestamp` do, where the store holds something else.
        """
        return decode_head(self.head).headers

    @property
    def key(self) -> bytes | None:
        """What it is about, if its publisher said so."""
        return decode_head(self.head).key

    @property
    def timestamp(self) -> float | None:
        """Seconds since the epoch, if its publisher said so."""
        return decode_head(self.head).timestamp

    @property
    def redelivered(self) -> bool:
        """It was handed over before, here or by another member."""
        return self.delivery_count > 1

    @property
    def topic(self) -> str:
        """The topic it was published to."""
        return self.stream.partition("/")[2]

    async def ack(self, *, durable: bool = False) -> None:
        """Acknowledge the message.  The leader is told soon, together with others.

        Under a grant that is gone by now it changes nothing: the message is delivered again.

        Args:
            durable: return only when the group store has it, with all messages of the stream before it.

        Raises:
            DeliveryRevoked: it was not acknowledged within `ack_wait`, and was taken back.
            AcknowledgementUncertain: (`durable`) the grant ended before the group store had it, or a message before it
                was given back (`nack`).
            LocalProtocolError: it was given back, or (`durable`) it is of a private subscription.
        """
        self.session.check_ack((self,))
        self.session.note_ack(self.owner, self.stream, self.grant, self.offset, self.offset)
        if durable:
            await self.session.wait_durable(self)

    async def nack(self, *, delay: float = 0.0, reason: str = "") -> None:
        """Give the message back: it is handed over again before anything behind it in its stream, by this member or
        another.  What was handed over behind it comes again as well, unless it is acknowledged meanwhile.

        Args:
            delay: seconds for which the stream waits, a day at most.
            reason: why, in 512 characters at most; the dead letter of the message says it.

        Raises:
            LocalProtocolError: the message is not in hand (any more): it was acknowledged or given back, or the lease
                or grant of its stream has ended.
            ConfigurationError: the delay is none, or the reason is too long or no text.
        """
        self.session.give_back(self, delay, reason)

    def __repr__(self) -> str:
        return f"<message {self.offset} of {self.stream}, {len(self.payload)} bytes>"


class Deliveries(tuple[Delivered, ...]):
    """Some messages of one stream, in order, without a gap: an immutable sequence.

    A slice is a batch as well, so a part can be acknowledged before the rest: `await batch[:10].ack()`.
    """

    __slots__ = ()

    async def ack(self, *, durable: bool = False) -> None:
        """Acknowledge every message of this batch, and no other; `durable` as for one message."""
        if self:
            self[0].session.check_ack(self)
        found = runs(self)
        for first, last in found:
            first.session.note_ack(first.owner, first.stream, first.grant, first.offset, last.offset)
        if durable:
            for _, last in found:
                await last.session.wait_durable(last)

    @overload
    def __getitem__(self, at: SupportsIndex, /) -> Delivered: ...
    @overload
    def __getitem__(self, at: slice, /) -> Deliveries: ...
    def __getitem__(self, at: Any, /) -> Any:
        """A message; of a slice, a batch of these messages."""
        found = super().__getitem__(at)
        return Deliveries(found) if isinstance(at, slice) else found


def check_size(messages: int) -> None:
    """Raises `ConfigurationError` for a batch of so many messages, if that is none."""
    if messages < 1:
        raise ConfigurationError("limit", messages, "must be at least 1 message of a batch")


def runs(messages: Iterable[Delivered]) -> list[tuple[Delivered, Delivered]]:
    """The first and the last message of each run in which offsets of one stream follow each other."""
    found: list[tuple[Delivered, Delivered]] = []
    for message in messages:
        if found:
            first, last = found[-1]
            if message.offset == last.offset + 1 and message.stream == last.stream and message.grant == last.grant:
                found[-1] = (first, message)
                continue
        found.append((message, message))
    return found
