"""Delivered, Deliveries: messages in the hands of an application.  Neither changes after it was handed over.

DurableProgress: tells an application when what it acknowledged is in the group store.

A leader commits the progress of a stream at most a commit interval after it was reported.  While somebody waits, the
records of the streams in question are read, all of them in one request, several times in a commit interval.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Protocol, SupportsIndex, overload

import msgspec

from statemachines.drivers.message_head import Header, decode_head
from statemachines.kernel import Answer, ConfigurationError, GaplessError
from statemachines.shared_subscriptions.acknowledged_ranges import is_acknowledged_in
from statemachines.shared_subscriptions.claim import PAGE
from statemachines.shared_subscriptions.group_store import Read, ReadDone, StoredRecord
from statemachines.shared_subscriptions.returned_messages import find_awaited
from statemachines.shared_subscriptions.session_record import StreamReading


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


LOOKS: Final = 4
"""The records are read so often in a commit interval."""
LOOK_MIN_S: Final = 0.01
INTERVALS: Final = 3
"""A grant that is over for so many commit intervals commits nothing more."""


class AcknowledgementUncertain(GaplessError):
    """An acknowledgement is not known to be durable: the message may be delivered again."""


class Waiter(msgspec.Struct, eq=False):
    """Somebody who waits until the records `keys` (of the progress, and of what stands beside it) cover `offset`.
    `reading`: what is read under the grant, while it stands; `over_s`: when it was first seen to be over (0: it was
    not)."""

    keys: tuple[str, str]
    stream: str
    offset: int
    reading: Callable[[], StreamReading | None]
    outcome: asyncio.Future[None]
    over_s: float = 0.0


class DurableProgress:
    """`ask`: the group store; `commit_interval_s`: how long a leader collects progress."""

    def __init__(self, ask: Callable[[Read], Awaitable[tuple[Answer, ...]]], commit_interval_s: float) -> None:
        self._ask = ask
        self._look_s = max(commit_interval_s / LOOKS, LOOK_MIN_S)
        self._patience_s = INTERVALS * commit_interval_s
        self._waiters: list[Waiter] = []
        self._task: asyncio.Task[None] | None = None

    async def wait(
        self, keys: tuple[str, str], stream: str, offset: int, reading: Callable[[], StreamReading | None]
    ) -> None:
        """Returns when the records `keys` say that `offset` is acknowledged.

        Raises `AcknowledgementUncertain` where the grant ends, a message before it is given back, or this is closed.
        """
        loop = asyncio.get_running_loop()
        waiter = Waiter(keys, stream, offset, reading, loop.create_future())
        self._waiters.append(waiter)
        self.check_returned()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._look())
        try:
            await waiter.outcome
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def check_returned(self) -> None:
        """Give up where a message before the awaited one was given back: the application would wait for itself."""
        for waiter in self._waiters:
            returned = find_awaited(waiter.reading(), waiter.offset)
            if returned is not None:
                give_up(waiter, f"message {returned} was given back, and progress waits until it is acknowledged")

    def close(self) -> None:
        """Nobody learns anything any more."""
        if self._task is not None:
            self._task.cancel()
        for waiter in self._waiters:
            give_up(waiter, "the session has ended")

    async def _look(self) -> None:
        """Read what is waited for, again and again, until nobody waits."""
        while self._waiters:
            keys = tuple(dict.fromkeys(key for waiter in self._waiters for key in waiter.keys))[:PAGE]
            (answer,) = await self._ask(Read(0, keys))
            if isinstance(answer, ReadDone):
                self._judge(dict(zip(keys, answer.records, strict=True)))
            await asyncio.sleep(self._look_s)

    def _judge(self, records: dict[str, StoredRecord | None]) -> None:
        now_s = asyncio.get_running_loop().time()
        for waiter in [waiter for waiter in self._waiters if waiter.keys[1] in records]:
            if any(is_acknowledged_in(records[key], waiter.offset) for key in waiter.keys):
                self._waiters.remove(waiter)
                if not waiter.outcome.done():
                    waiter.outcome.set_result(None)
            elif waiter.reading() is not None:
                waiter.over_s = 0.0
            elif not waiter.over_s:
                waiter.over_s = now_s
            elif now_s - waiter.over_s > self._patience_s:
                self._waiters.remove(waiter)
                give_up(waiter, "the stream was given to another member, or the group was destroyed")


def give_up(waiter: Waiter, why: str) -> None:
    """Say that nobody knows."""
    if not waiter.outcome.done():
        what = f"message {waiter.offset} of {waiter.stream} is not known to be acknowledged durably: {why}"
        waiter.outcome.set_exception(AcknowledgementUncertain(f"{what}; it may be delivered again"))
