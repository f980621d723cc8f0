"""Sequence windows over zenoh, for applications: the names in one place (extra `zenoh`; docs/sequence_windows.md).

SequencedZenohPublisher: numbers messages over zenoh.

async with declare_sequenced_publisher(session, "room/1") as publisher:
    publisher.put(b"22.5")

SequencedZenohSubscriber: tells what each message over zenoh is, and what is missing before it.

async with declare_sequenced_subscriber(session, "room/*") as subscriber:
    async for message in subscriber:
        print(message.subject, message.verdict, message.payload)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import zenoh

from statemachines.drivers.clock import steady_ns
from statemachines.drivers.missed_samples.layout import PLAIN, Declarations
from statemachines.drivers.missed_samples.mailbox import Item
from statemachines.drivers.missed_samples.publisher import check_options
from statemachines.drivers.missed_samples.received_sample import OVERHEAD
from statemachines.drivers.missed_samples.session import is_matched
from statemachines.drivers.missed_samples.zenoh_reader import ZenohReader
from statemachines.drivers.missed_samples.zenoh_thread import direct
from statemachines.drivers.sequence_windows.publisher import SequencedPublisher
from statemachines.drivers.sequence_windows.subscriber import Delivery, Loss, SequencedSubscriber
from statemachines.kernel import ConfigurationError
from statemachines.missed_samples.keys import check_key
from statemachines.sequence_windows.rotation import Window
from statemachines.sequence_windows.subject_publishers import PLACES

MESSAGE_MAX: Final = 16 << 20
"""Bytes of a message: zenoh is no datagram."""
QUALITY: Final = ("congestion_control", "priority", "express", "reliability")


class SequencedPublisherOptions(msgspec.Struct, frozen=True, kw_only=True):
    """See `declare_sequenced_publisher`."""

    source: str = ""
    window: Window | None = None
    congestion_control: zenoh.CongestionControl | None = None
    priority: zenoh.Priority | None = None
    express: bool | None = None
    reliability: zenoh.Reliability | None = None


class SequencedZenohPublisher:
    """See `declare_sequenced_publisher`.  `source` is its id; for one thread: that of the loop it was declared in."""

    def __init__(self, session: zenoh.Session, key_expr: str, options: SequencedPublisherOptions) -> None:
        self.key_expr = check_key(key_expr)
        self.source = ""
        self._session = session
        self._options = options
        self._declared = Declarations()

    @property
    def is_heard(self) -> bool:
        """Whether there is a subscriber now, as far as zenoh knows."""
        return is_matched(self._zenoh)

    async def __aenter__(self) -> Self:
        options = self._options
        quality = {name: getattr(options, name) for name in QUALITY}
        self._loop = asyncio.get_running_loop()
        try:
            self._zenoh = self._declared.add(self._session.declare_publisher(self.key_expr, **quality))
            self.source = PLAIN.source(self._zenoh, options.source)
            self.sequenced = SequencedPublisher(
                self._zenoh.put,
                publisher=self.source,
                window=options.window,
                size=MESSAGE_MAX,
            )
        except BaseException:
            await self._declared.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self._declared.close()

    def put(self, payload: bytes) -> int:
        """Number a message and publish it; its number.  `MessageTooLarge` above 16 MiB; `zenoh.ZError` where zenoh does
        not take it: then receivers count a loss."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if not here:
            rule = "belongs to the event loop that it was declared in; publish there, or with LoopThread.call"
            raise ConfigurationError("publisher", self.key_expr, rule)
        return self.sequenced.publish(self.key_expr, payload)

    def start_new_streams(self) -> None:
        """The network has converged: a stream that is older begins anew with its next message."""
        self.sequenced.start_new_streams()


def declare_sequenced_publisher(session: zenoh.Session, key_expr: str, **options: Any) -> SequencedZenohPublisher:
    """A publisher on one key, which is its subject, to be entered with `async with`.

    `source`: an id that nobody has, or had (none: one that zenoh gives); `window`: when to forget;
    `congestion_control`, `priority`, `express`, `reliability` as zenoh's.

    Raises `BadKey` for a key with wild cards, or a source that cannot be part of a key, `ConfigurationError` for an
    option that cannot be, `zenoh.ZError`.
    """
    return SequencedZenohPublisher(session, key_expr, check_options(SequencedPublisherOptions, options))


logger = logging.getLogger("gapless")


class SequencedSubscriberOptions(msgspec.Struct, frozen=True, kw_only=True):
    """See `declare_sequenced_subscriber`."""

    on_loss: Callable[[Loss], object] | None = None
    on_advisory: Callable[[dict[str, str | int]], object] | None = None
    window: Window | None = None
    allowed_origin: zenoh.Locality | None = None
    queue_max: int = 50_000
    queue_bytes_max: int = 64 << 20
    publishers_max: int = PLACES
    waiting_max: int = 10_000

    def __post_init__(self) -> None:
        for name in ("queue_max", "queue_bytes_max", "publishers_max", "waiting_max"):
            if getattr(self, name) < 1:
                raise ConfigurationError(name, getattr(self, name), "at least 1")


class SequencedZenohSubscriber(ZenohReader[Delivery]):
    """See `declare_sequenced_subscriber`.  For one thread: that of the loop it was declared in.  `misplaced` counts
    messages that came under another key than that of their subject, `failed` calls of the application that raised."""

    def __init__(
        self,
        session: zenoh.Session,
        key_expr: str,
        handler: Callable[[Delivery], object] | None,
        options: SequencedSubscriberOptions,
    ) -> None:
        super().__init__(session, key_expr, handler, options)
        self.misplaced = 0
        self._timer: asyncio.TimerHandle | None = None
        self.sequenced = SequencedSubscriber(
            lambda one: self.outlet.put(one),
            on_loss=self._guarded(options.on_loss),
            on_advisory=self._guarded(options.on_advisory),
            everything=True,
            window=options.window,
            publishers_max=options.publishers_max,
        )

    # -- its life -------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._make(f"sequenced {self.key_expr}")
        await self._open()
        return self

    def _declare(self) -> None:
        """In a thread: declarations may wait for the network."""
        put = self._mailbox.put

        def take_sample(sample: zenoh.Sample) -> None:
            put(self._hear, sample, OVERHEAD + len(sample.payload))

        hear, origin = direct(take_sample), self._options.allowed_origin
        self._declared.add(self._session.declare_subscriber(self.key_expr, hear, allowed_origin=origin))

    async def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await super()._stop()

    # -- the application ------------------------------------------------------------------------------------------

    @property
    def overflow_count(self) -> int:
        """Messages that found no room because the loop, or the reader, was too slow: they are lost like any other."""
        return self._mailbox.refused

    def _guarded(self, callback: Callable[[Any], object] | None) -> Callable[[Any], object] | None:
        return None if callback is None else lambda given: self._call(callback, given)

    # -- what comes -----------------------------------------------------------------------------------------------

    def _take(self, items: list[Item]) -> None:
        for act, given, _ in items:
            act(given)
        self._set_timer()

    def _hear(self, sample: zenoh.Sample) -> None:
        one = self.sequenced.decode_datagram(sample.payload.to_bytes())
        if one is None:
            return
        if one.subject != str(sample.key_expr):
            self.misplaced += 1
            return
        parts = (one.payload, one.time_ns, one.chain, one.life)
        self.sequenced.receive_message(one.publisher, one.subject, one.number, *parts)

    def _set_timer(self) -> None:
        deadline = self.sequenced.deadline()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            self._timer = self._loop.call_later(max(0, deadline - steady_ns()) / 1e9, self._wake_up)

    def _wake_up(self) -> None:
        self._timer = None
        self.sequenced.poll()
        self._set_timer()


def declare_sequenced_subscriber(
    session: zenoh.Session,
    key_expr: str,
    handler: Callable[[Delivery], object] | None = None,
    **options: Any,
) -> SequencedZenohSubscriber:
    """A subscriber under a key expression, to be entered with `async with`, and iterated with `async for` unless
    `handler(delivery)` gets the messages.  `sequenced` is the `SequencedSubscriber`, with its counts.

    `on_loss(loss)` and `on_advisory(fields)` get what is lost; `window`: when to forget; `allowed_origin` as zenoh's;
    `queue_max`, `queue_bytes_max`: what may wait for the loop; `publishers_max`: so many of one key are remembered;
    `waiting_max`: what may wait for `async for`.

    Raises `BadKey` for what is no key expression, `ConfigurationError` for an option that cannot be, `zenoh.ZError`.
    """
    return SequencedZenohSubscriber(session, key_expr, handler, check_options(SequencedSubscriberOptions, options))
