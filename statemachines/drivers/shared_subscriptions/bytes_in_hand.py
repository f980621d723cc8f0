"""BytesInHand: how many bytes of messages a consumer has in hand, and whether it may read more.

In hand is what was fetched and is not acknowledged, whether the application has it yet or not.  What is acknowledged
says the session, so sizes are counted exactly, but only when the bound could be reached.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import accumulate
from typing import Final

from statemachines.drivers.shared_subscriptions.store import StoredPayload, size_of
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.relaxed_order import find_held_again, find_low
from statemachines.shared_subscriptions.session_record import StreamReading

logger = logging.getLogger("gapless")

LOOK_S: Final = 0.5
"""How often a consumer that may read nothing looks whether streams were taken from it."""

KEPT_MAX: Final = 1_024
"""Sizes of one stream, beyond which those of acknowledged messages are forgotten."""

IN_HAND_MAX: Final = 64 * 2**20
"""Bytes, unless the application says otherwise."""

FULL: Final = (
    "%s: %d bytes of messages are in hand, and %d may be (buffer_bytes): nothing more is read for %g s now; acknowledge"
    " what is done, or raise the bound"
)


class MessageSizes:
    """Of one stream and grant: sizes of messages from offset `first` on, summed up."""

    __slots__ = ("first", "grant", "sums")

    def __init__(self, grant: int, first: int) -> None:
        self.grant = grant
        self.first = first
        self.sums = [0]

    @property
    def end(self) -> int:
        """The offset behind the last message."""
        return self.first + len(self.sums) - 1

    def leave(self, end: int) -> None:
        """Messages from `end` on were given back, and come again."""
        del self.sums[end - self.first + 1 :]

    def forget(self, first: int) -> None:
        """Messages before `first` are acknowledged."""
        done = min(max(first - self.first, 0), len(self.sums) - 1)
        del self.sums[:done]
        self.first += done

    def between(self, first: int, end: int) -> int:
        """Bytes of messages `first`..`end` - 1, as far as they are known."""
        low, high = (min(max(at - self.first, 0), len(self.sums) - 1) for at in (first, end))
        return self.sums[max(low, high)] - self.sums[low]


class BytesInHand:
    """At most `most` bytes, and one message; `readings`: of the session, by key; `warning_s`: a consumer that reads
    nothing for so long says so."""

    def __init__(self, most: int, readings: Callable[[], Mapping[str, StreamReading]], warning_s: float) -> None:
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise ConfigurationError("buffer_bytes", most, "must be a number of bytes, at least 1")
        self.node = ""
        """For the log."""
        self._most = most
        self._readings = readings
        self._warning_s = warning_s
        self._sizes: dict[str, MessageSizes] = {}
        self._again: dict[tuple[str, int, int], int] = {}
        """Of messages that were given back while their stream went on, and were fetched again."""
        self._counted = 0
        """No less than what is in hand."""
        self._change: asyncio.Event | None = None
        """Somebody waits for it."""

    def put(self, key: str, grant: int, first: int, messages: list[StoredPayload]) -> None:
        """These were fetched, from offset `first` on."""
        known = self._sizes.get(key)
        if known is None or known.grant != grant or not known.first <= first <= known.end:
            known = self._sizes[key] = MessageSizes(grant, first)
        known.leave(first)
        before = known.sums[-1]
        known.sums += accumulate(map(size_of, messages), initial=known.sums.pop())
        self._counted += known.sums[-1] - before
        if len(known.sums) > KEPT_MAX:
            self._forget_done(key, known)

    def put_again(self, key: str, grant: int, first: int, messages: list[StoredPayload]) -> None:
        """A message was fetched again that was given back."""
        size = sum(map(size_of, messages))
        self._again[key, grant, first] = size
        self._counted += size

    def note_change(self) -> None:
        """Messages were acknowledged, or readings have ended."""
        if self._change is not None:
            self._change.set()

    async def wait_room(self) -> int:
        """Returns when there is room, and for how many bytes; there is always room for one message where nothing is in
        hand."""
        waited_s, warning_s = 0.0, self._warning_s
        while (room := self._find_room()) <= 0:
            self._change = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._change.wait()
                    waited_s, warning_s = 0.0, self._warning_s
                    continue
            waited_s += LOOK_S
            if waited_s >= warning_s:
                logger.warning(FULL, self.node, self._counted, self._most, waited_s)
                warning_s *= 2
        self._change = None
        return room

    def _find_room(self) -> int:
        if self._counted >= self._most:
            self._count()
        return self._most - self._counted

    def _forget_done(self, key: str, sizes: MessageSizes) -> None:
        reading = self._readings().get(key)
        if reading is not None and reading.grant == sizes.grant:
            sizes.forget(find_low(reading))

    def _count(self) -> None:
        """Exactly; what is acknowledged is forgotten."""
        readings, self._counted = self._readings(), 0
        for key, sizes in list(self._sizes.items()):
            reading = readings.get(key)
            if reading is None or reading.grant != sizes.grant or reading.progress >= sizes.end:
                del self._sizes[key]
                continue
            sizes.forget(find_low(reading))
            self._counted += sizes.between(reading.progress, reading.fetched)
            self._counted -= sum(sizes.between(first, last + 1) for first, last in reading.acked.items())
            self._counted -= sum(sizes.between(at, at + 1) for at in reading.returned)
        living = find_held_again(readings)
        self._again = {one: size for one, size in self._again.items() if one in living}
        self._counted += sum(self._again.values())
