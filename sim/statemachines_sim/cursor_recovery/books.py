"""Books: what became of every block, as a run knows it that sees every access; no process could.

A block is what a writer reserved by moving the write head.  The records of the machines are not asked: the books know
the accesses that were made, what applications were told, and who died.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from enum import Enum


class Fate(Enum):
    """What became of a block."""

    OPEN = "there"
    TAKEN = "taken"
    DELIVERED = "delivered"
    SKIPPED = "skipped"
    LOST = "lost with its reader"


class Block:
    """The bytes `start`..`end` (not included) of a writer's life; `acknowledged`: it was told WRITTEN."""

    __slots__ = ("acknowledged", "end", "fate", "life", "messages", "payload", "start")

    def __init__(self, start: int, end: int, life: str, payload: bytes, messages: int) -> None:
        self.start = start
        self.end = end
        self.life = life
        self.payload = payload
        self.messages = messages
        self.acknowledged = False
        self.fate = Fate.OPEN

    def __str__(self) -> str:
        return f"the block at {self.start} of {self.life} ({self.payload!r})"


class Books:
    """`writing`, `taken`: by life, the block that it is filling, or has moved the read head over; `open`: how many
    acknowledged blocks have neither come nor been lost."""

    def __init__(self) -> None:
        self.writing: dict[str, Block] = {}
        self.taken: dict[str, Block] = {}
        self.open = 0
        self.blocks: dict[int, Block] = {}
        self._starts: list[int] = []

    def reserve(self, block: Block) -> None:
        """A writer has moved the write head."""
        self.blocks[block.start] = block
        self._starts.append(block.start)
        self.writing[block.life] = block

    def acknowledge(self, life: str) -> Block | None:
        """A writer is told WRITTEN."""
        block = self.writing.pop(life, None)
        if block is not None:
            block.acknowledged = True
            self.open += block.fate in (Fate.OPEN, Fate.TAKEN)
        return block

    def settle(self, block: Block, fate: Fate) -> None:
        """It has come, or will never come."""
        self.open -= block.acknowledged and block.fate in (Fate.OPEN, Fate.TAKEN)
        block.fate = fate

    def within(self, first: int, end: int) -> Iterator[Block]:
        """The blocks that begin there."""
        for index in range(bisect_left(self._starts, first), bisect_left(self._starts, end)):
            yield self.blocks[self._starts[index]]

    def furthest(self, read_head: int) -> int:
        """Where the oldest bytes lie that somebody still needs: unread, or being copied."""
        return min((block.start for block in self.taken.values()), default=read_head)
