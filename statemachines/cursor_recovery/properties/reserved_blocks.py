"""ReservedBlocks: the blocks that writers reserve and readers take, for who sees the accesses to the heads: INTEG and
SPACE, and by its `deliveries` all that `DeliveredBlocks` judges.

    seen, broken = seen.observe("writer-1", Reservation(0, 20, (b"AAAA", 1)))     it moves the write head
    seen, broken = seen.observe("writer-1", Reserved(0, 19))                      and all that its host is told
    seen, broken = seen.observe("reader-1", BlockClaim(0, 20))                    it moves the read head over a block
    seen, broken = seen.observe("reader-1", BlockSkip(20, 40))                    and over what it takes for none
    seen, broken = seen.observe("reader-1", ProcessDied())
    seen.check_copy("writer-1", 16, 4)
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.cursor_recovery.block import data_of, length_of
from statemachines.cursor_recovery.memory import HEADER
from statemachines.cursor_recovery.properties.delivered_blocks import (
    INTEG,
    Acknowledged,
    Delivered,
    DeliveredBlocks,
    Gone,
    Message,
)
from statemachines.cursor_recovery.properties.memory_rules import SPACE, Broken
from statemachines.cursor_recovery.reader import ReadDone, ReadOutcome, Skipped, Taken
from statemachines.cursor_recovery.writer import Outcome, Reserved, WriteDone
from statemachines.kernel import BrokenProperty, Event, Map


class Reservation(Event, frozen=True, gc=False):
    """A writer has moved the write head from `start` to `end`, for this block."""

    start: int
    end: int
    block: Message


class BlockClaim(Event, frozen=True, gc=False):
    """A reader that has its position at `start` has moved the read head from there to `end`."""

    start: int
    end: int


class BlockSkip(Event, frozen=True, gc=False):
    """A reader that has no position there has moved the read head from `start` to `end`."""

    start: int
    end: int


class ProcessDied(Event, frozen=True, gc=False):
    """The process is dead."""


class ReservedBlock(msgspec.Struct, frozen=True, gc=False):
    """The bytes `start`..`end` (not included), and what their writer puts there."""

    start: int
    end: int
    block: Message


Judged = tuple["ReservedBlocks", Broken]


class ReservedBlocks(msgspec.Struct, frozen=True, gc=False):
    """`blocks` by their start; by process the block that it is `filling`, or has `taken`."""

    blocks: Map[int, ReservedBlock] = Map()
    filling: Map[str, ReservedBlock] = Map()
    taken: Map[str, ReservedBlock] = Map()
    deliveries: DeliveredBlocks = DeliveredBlocks()

    def observe(self, party: str, event: Event) -> Judged:
        """What is known behind this event of the process, and what it breaks."""
        filling, taken = self.filling.get(party), self.taken.get(party)
        match event:
            case Reservation(start, end, block):
                return self._reserve(party, ReservedBlock(start, end, block))
            case BlockClaim(start, end):
                return self._take(party, start, end)
            case BlockSkip(start, end):
                return self._judge(party, Skipped(start, end - 1))
            case Reserved(first, last):
                return self, _check_range(party, filling, first, last)
            case Taken(first, last):
                return self, _check_range(party, taken, first, last)
            case WriteDone(outcome, position):
                after = replace(self, filling=self.filling.delete(party)) if filling else self
                if outcome is not Outcome.WRITTEN:
                    return after, ()
                return after._end(party, filling, position, Acknowledged(position, filling.block) if filling else event)
            case ReadDone(outcome, position, messages, payload):
                after = replace(self, taken=self.taken.delete(party)) if taken else self
                if outcome not in (ReadOutcome.DELIVERED, ReadOutcome.DISCARDED):
                    return after, ()
                end = taken.end if taken else position
                return after._end(party, taken, position, Delivered(outcome, position, payload, messages, end))
            case Skipped() if taken:  # its copy was not whole
                return replace(self, taken=self.taken.delete(party))._judge(party, event)
            case ProcessDied():
                after = replace(self, filling=_drop(self.filling, party), taken=_drop(self.taken, party))
                return after._judge(party, Gone(taken.start, taken.block[1], taken.end)) if taken else (after, ())
        return self, ()

    def find_needed(self, read_head: int) -> int:
        """Where the oldest bytes lie that somebody still needs: unread, or being copied."""
        return min((block.start for _, block in self.taken.items()), default=read_head)

    def list_filling(self) -> list[int]:
        """Where the blocks begin that living writers are filling."""
        return sorted(block.start for _, block in self.filling.items())

    def check_copy(self, party: str, position: int, size: int) -> Broken:
        """SPACE: the data that the process copies to `position` lies in its own block."""
        block = self.filling.get(party)
        if block is not None and block.start + HEADER <= position <= position + size <= block.end:
            return ()
        return (BrokenProperty(SPACE, f"{party} writes {size} bytes at {position}, beside its block"),)

    def check_header(self, party: str, cell: int, capacity: int) -> Broken:
        """SPACE: the cell of the data area into which the process stores a word is in the header of its own block."""
        block = self.filling.get(party)
        if block is not None and (cell - block.start) % capacity < HEADER:
            return ()
        return (BrokenProperty(SPACE, f"{party} writes cell {cell}, which is not in a header of its own"),)

    def _reserve(self, party: str, block: ReservedBlock) -> Judged:
        after = replace(self, blocks=self.blocks.set(block.start, block), filling=self.filling.set(party, block))
        if block.end - block.start == length_of(len(data_of(*block.block))):
            return after, ()
        return after, (BrokenProperty(SPACE, f"{party} reserves {block.start}..{block.end - 1} for {block.block}"),)

    def _take(self, party: str, start: int, end: int) -> Judged:
        block = self.blocks.get(start)
        if block is not None and block.end == end:
            return replace(self, taken=self.taken.set(party, block)), ()
        return self, (BrokenProperty(INTEG, f"{party} takes {start}..{end - 1}, which is no block"),)

    def _end(self, party: str, block: ReservedBlock | None, position: int, event: Event) -> Judged:
        """It is told of the block that it has."""
        if block is not None and block.start == position:
            return self._judge(party, event, block)
        return self, (BrokenProperty(INTEG, f"{party} is told of a block at {position}, and has {block}"),)

    def _judge(self, party: str, event: Event, block: ReservedBlock | None = None) -> Judged:
        """What the deliveries say of it."""
        filling = self.list_filling() if isinstance(event, Skipped) else ()
        deliveries, broken = self.deliveries.observe(party, event, (block.block,) if block else (), filling)
        return replace(self, deliveries=deliveries), broken


def _drop(blocks: Map[str, ReservedBlock], party: str) -> Map[str, ReservedBlock]:
    return blocks.delete(party) if party in blocks else blocks


def _check_range(party: str, block: ReservedBlock | None, first: int, last: int) -> Broken:
    if block is not None and (block.start, block.end) == (first, last + 1):
        return ()
    return (BrokenProperty(SPACE, f"{party} says that {first}..{last} is its own, and has {block}"),)
