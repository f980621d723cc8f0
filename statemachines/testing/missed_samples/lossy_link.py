"""LossyLink: a proxy between two sessions of zenoh that loses single samples, replies, or any message.

    async with LossyLink(("127.0.0.1", 7447)) as link:        # the other session connects to link.endpoint
        link.lose = lambda batch: b"#7;" in batch

Over TCP zenoh sends batches, each behind its length in two bytes.  It takes TCP for reliable, so a loss there stands
for what is lost with a router.  A batch that begins with
a sample that is pushed (not asked for) is given to `lose`, one that begins with a reply to `lose_reply`, and dropped
where that says so; zenoh takes a hole in the numbers of its transport for nothing worse.  Whoever must not lose
replies publishes with a priority of its own: then they never share a batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Self

from statemachines.testing.fault_proxy import BOTH, FaultProxy

Address = tuple[str, int]

FRAME: Final = 0x05
PUSH: Final = 0x1D
REPLY: Final = 0x1B
KIND: Final = 0x1F
MORE: Final = 0x80

UNDER_WAY_MAX: Final = 10_000
"""So many batches are on a slow link in one direction; the sender waits for room."""


class BatchLoss:
    """`lost` and `passed` count batches of samples, `lost_replies` those of replies; `lose(batch)` and
    `lose_reply(batch)` decide, and `lose_any(batch)` of all batches that carry messages."""

    def __init__(self) -> None:
        self.lost = 0
        self.passed = 0
        self.lost_replies = 0
        self.lose: Callable[[bytes], bool] = lambda batch: False
        self.lose_reply: Callable[[bytes], bool] = lambda batch: False
        self.lose_any: Callable[[bytes], bool] = lambda batch: False

    def _loses(self, batch: bytes) -> bool:
        first = first_message(batch)
        if first is not None and self.lose_any(batch):
            self.lost += 1
            return True
        if first == PUSH:
            lost = self.lose(batch)
            self.lost += lost
            self.passed += not lost
            return lost
        if first == REPLY and self.lose_reply(batch):
            self.lost_replies += 1
            return True
        return False


class LossyLink(BatchLoss, FaultProxy):
    """`target`: where connections go on to; each batch comes `delay_s` seconds later."""

    held_max = UNDER_WAY_MAX

    def __init__(self, target: Address, *, delay_s: float = 0.0) -> None:
        BatchLoss.__init__(self)
        FaultProxy.__init__(self, target)
        self._delay_s = delay_s

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.delay(BOTH, self._delay_s * 1_000)
        return self

    @property
    def endpoint(self) -> str:
        """Where the other session connects to."""
        return "tcp/{}:{}".format(*self.address)

    def down(self) -> None:
        """Cut, and no new connection goes on before `up`."""
        self.block()
        self.cut()

    def up(self) -> None:
        """Connections go on again."""
        self.unblock()

    async def read(self, reader: asyncio.StreamReader) -> bytes:
        """The next batch that is not lost."""
        while True:
            length = await reader.readexactly(2)
            batch = await reader.readexactly(int.from_bytes(length, "little"))
            if not self._loses(batch):
                return length + batch


def first_message(batch: bytes) -> int | None:
    """The kind of message that the frame begins with (None: it begins with no frame, or that is empty)."""
    if not batch or batch[0] & KIND != FRAME:
        return None
    place = _behind_number(batch, 1)
    more = batch[0] & MORE
    while more and place < len(batch):  # extensions: nothing, a number, or so many bytes
        header = batch[place]
        more, form, place = header & MORE, header >> 5 & 3, place + 1
        if form == 1:
            place = _behind_number(batch, place)
        elif form == 2:
            size, place = _number(batch, place)
            place += size
    return batch[place] & KIND if place < len(batch) else None


def _behind_number(batch: bytes, place: int) -> int:
    return _number(batch, place)[1]


def _number(batch: bytes, place: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first; and where it ends."""
    value = shift = 0
    while place < len(batch):
        byte = batch[place]
        value |= (byte & 0x7F) << shift
        shift, place = shift + 7, place + 1
        if byte < 0x80:
            break
    return value, place
