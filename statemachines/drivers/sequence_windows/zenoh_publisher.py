"""SequencedZenohPublisher: numbers messages over zenoh.

async with declare_sequenced_publisher(session, "room/1") as publisher:
    publisher.put(b"22.5")
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import zenoh

from statemachines.drivers.missed_samples.declaration import Declarations
from statemachines.drivers.missed_samples.layout import PLAIN
from statemachines.drivers.missed_samples.publisher import check_options
from statemachines.drivers.missed_samples.session import is_matched
from statemachines.drivers.sequence_windows.publisher import SequencedPublisher
from statemachines.kernel import ConfigurationError
from statemachines.missed_samples.keys import check_key
from statemachines.sequence_windows.rotation import Window

MESSAGE_MAX: Final = 16 << 20
"""Bytes of a message: zenoh is no datagram."""


class SequencedPublisherOptions(msgspec.Struct, frozen=True, kw_only=True):
    """See `declare_sequenced_publisher`."""

    source: str = ""
    window: Window | None = None
    congestion_control: zenoh.CongestionControl | None = None
    priority: zenoh.Priority | None = None
    express: bool | None = None
    reliability: zenoh.Reliability | None = None

    def quality(self) -> dict[str, Any]:
        """What zenoh's publisher is declared with."""
        return {name: getattr(self, name) for name in ("congestion_control", "priority", "express", "reliability")}


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
        self._loop = asyncio.get_running_loop()
        try:
            self._zenoh = self._declared.add(self._session.declare_publisher(self.key_expr, **options.quality()))
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
