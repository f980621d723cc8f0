"""ZenohReader: what subscribers over zenoh have in common, from zenoh's threads to the application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import zenoh

from statemachines.drivers.missed_samples.layout import Declarations
from statemachines.drivers.missed_samples.mailbox import Item, Mailbox, Outlet
from statemachines.drivers.opening import closed_on_failure
from statemachines.kernel import ConfigurationError
from statemachines.missed_samples.keys import check_expression

logger = logging.getLogger("gapless")

T = TypeVar("T")


class ZenohReader(Generic[T]):
    """`options` say how much may wait (`queue_max`, `queue_bytes_max`, `waiting_max`); `failed` counts what calls of
    the application raised."""

    failed = 0

    def __init__(
        self, session: zenoh.Session, key_expr: str, handler: Callable[[T], object] | None, options: Any
    ) -> None:  # fmt: skip
        self.key_expr = check_expression(key_expr)
        self._session = session
        self._handler = handler
        self._options = options
        self._declared = Declarations()

    def _make(self, name: str, **kind: Any) -> None:
        """In the loop; `name` stands in the log, `kind` as of an `Outlet`."""
        options = self._options
        self.outlet: Outlet[T] = Outlet(options.waiting_max, self._handler, failed=self._note_failure, **kind)
        self._mailbox = Mailbox(name, self._take_all, count_max=options.queue_max, bytes_max=options.queue_bytes_max)
        self._declared.on_close(self._stop)

    async def _open(self) -> None:
        """Declare, then take out what comes."""
        async with closed_on_failure(self._declared.close):
            await asyncio.to_thread(self._declare)
            self._begin()
            self._mailbox.start(self.outlet)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self._declared.close()

    def _declare(self) -> None:
        """In a thread: declarations may wait for the network."""
        raise NotImplementedError

    def _begin(self) -> None:
        """What came since the declaration waits in the mailbox."""

    def _take(self, items: list[Item]) -> None:
        """Out of the mailbox."""
        raise NotImplementedError

    def _take_all(self, items: list[Item]) -> None:
        try:
            self._take(items)
        except Exception as error:
            self.fail(error)
            raise

    async def _stop(self) -> None:
        self._mailbox.close()
        if self._handler is not None:
            self.outlet.items.clear()
        self.fail(None)

    def fail(self, error: BaseException | None) -> None:
        """Nothing more comes, for this reason (None: it was closed)."""
        self.outlet.end(error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """The next one; waits for it."""
        if self._handler is not None:
            raise ConfigurationError("handler", self._handler, "gets everything already; leave it out to iterate")
        return await self.outlet.get()

    def _call(self, callback: Callable[[Any], object], given: object) -> None:
        try:
            callback(given)
        except Exception:
            self._note_failure()

    def _note_failure(self) -> None:
        """What a callback raises is said and counted, and stops nobody."""
        self.failed += 1
        if self.failed.bit_count() == 1:  # the 1st, 2nd, 4th ...
            logger.exception("a callback raised, %d times so far", self.failed)
