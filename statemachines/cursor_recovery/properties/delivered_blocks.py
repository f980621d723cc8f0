"""DeliveredBlocks: what applications are told of blocks, and whether it can be: INTEG, ONCE, ORDER, ACK, KEPT and READ.

seen, broken = seen.observe("writer-1", Acknowledged(0, (b"AAAA", 1)))
seen, broken = seen.observe("reader-1", Delivered(ReadOutcome.DELIVERED, 0, b"AAAA", 1, 20), written)
seen, broken = seen.observe("reader-1", Gone(20, 1, 40))         a reader dies that had taken this block
seen, broken = seen.observe("reader-1", Skipped(40, 59))
seen.open                                                        READ: these have still to come
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from statemachines.cursor_recovery.properties.memory_rules import Broken
from statemachines.cursor_recovery.reader import ReadOutcome, Skipped
from statemachines.kernel import BrokenProperty, Event, Map

INTEG: Final = "INTEG"
ONCE: Final = "ONCE"
ORDER: Final = "ORDER"
ACK: Final = "ACK"
KEPT: Final = "KEPT"
READ: Final = "READ"

Message = tuple[bytes, int]
"""The bytes of a block, and how many messages that is."""
Open = Map[tuple[int, Message], bool]
Judged = tuple["DeliveredBlocks", Broken]


class Acknowledged(Event, frozen=True, gc=False):
    """A writer was told that its block is written, at `position`."""

    position: int
    block: Message


class Delivered(Event, frozen=True, gc=False):
    """A reader was told of the block at `position`: it has its bytes, or discarded them; `end`: where it took it to
    end."""

    outcome: ReadOutcome
    position: int
    payload: bytes
    messages: int
    end: int


class Gone(Event, frozen=True, gc=False):
    """A reader died that had taken the block from `position` to `end`, with so many messages."""

    position: int
    messages: int
    end: int


class DeliveredBlocks(msgspec.Struct, frozen=True, gc=False):
    """What was told so far.

    With `repeats` several blocks may hold the same, so only positions tell them apart.  Without `awaits_broken` an
    acknowledged block that was skipped, or in whose place something else came, is not awaited any more: a run goes on
    where ACK or INTEG is out of its scope.
    """

    repeats: bool = False
    awaits_broken: bool = True
    acknowledged: Map[int, Message] = Map()
    """Position -> what was acknowledged there; of two, which only a mistake makes, the greater."""
    positions: Map[Message, int] = Map()
    """The reverse of it; empty where messages may repeat, as is `came`."""
    open: Open = Map()
    """(position, what is acknowledged there): that which has neither come nor was taken along."""
    came: Map[Message, bool] = Map()
    delivered: Map[int, bool] = Map()
    """Positions from which something came."""
    gone_blocks: Map[int, bool] = Map()
    """Positions of blocks that a reader took along, or discarded."""
    taken_along: int = 0
    """How many messages that was."""
    skipped: Map[int, int] = Map()
    """Each byte that was given up -> the first byte of its range."""
    last: Map[str, int] = Map()
    """Reader -> position of what it got last."""

    def observe(
        self, party: str, event: Event, written: Container[Message] = (), filling: Iterable[int] = ()
    ) -> Judged:
        """What is known behind this event, and what it breaks.

        Args:
            party: Who was told, or died.
            event: One of those above, or `Skipped`.
            written: What a block that is delivered may hold.
            filling: Positions of the blocks that living writers are filling, where that is known.
        """
        match event:
            case Acknowledged(position, block):
                return self._acknowledge(party, position, block)
            case Delivered(ReadOutcome.DELIVERED, position, payload, messages):
                return self._deliver(party, position, (payload, messages), written)
            case Delivered(_, position, _, messages) | Gone(position, messages):
                return self._lose(party, position, messages)
            case Skipped(first, last):
                return self._skip(party, first, last, filling)
        raise TypeError(f"no block is told of by a {type(event).__name__}")

    def _acknowledge(self, party: str, position: int, block: Message) -> Judged:
        is_skipped = position in self.skipped
        is_elsewhere = block in self.came and position not in self.delivered
        is_over = block in self.came or position in self.gone_blocks or (self.repeats and position in self.delivered)
        is_open = not is_over and (self.awaits_broken or not is_skipped)
        kept = max(block, self.acknowledged.get(position, block))
        after = replace(
            self,
            acknowledged=self.acknowledged.set(position, kept),
            positions=self.positions if self.repeats else self.positions.set(block, position),
            open=self.open.set((position, block), True) if is_open else self.open,
        )
        how = f"{party} is told that {block} is written at {position}, which was skipped, or came from elsewhere"
        return after, _list_broken(how, (ACK, is_skipped), (KEPT, is_elsewhere))

    def _deliver(self, party: str, position: int, block: Message, written: Container[Message]) -> Judged:
        there, last = self.acknowledged.get(position), self.last.get(party, -1)
        is_written = block in written
        # One that is neither written nor as long as what is there was cut out of the middle of others.
        is_other = there not in (None, block) and (is_written or len(there[0]) == len(block[0]))
        own = self.positions.get(block, position)
        is_elsewhere = own != position
        still = _drop(self.open, own, block)
        is_again = block in self.came or position in self.delivered
        after = replace(
            self,
            came=self.came.set(block, True) if is_written and not self.repeats else self.came,
            open=still if self.awaits_broken else _drop(still, position, there),
            delivered=self.delivered.set(position, True),
            last=self.last.set(party, position),
        )
        is_late = position <= last
        how = f"{party} gets {block} of {position} after {last}, and {there} is acknowledged there"
        return after, _list_broken(
            how, (KEPT, is_other or is_elsewhere), (INTEG, not is_written), (ONCE, is_again), (ORDER, is_late)
        )

    def _lose(self, party: str, position: int, messages: int) -> Judged:
        there = self.acknowledged.get(position)
        after = replace(
            self,
            gone_blocks=self.gone_blocks.set(position, True),
            taken_along=self.taken_along + messages,
            open=_drop(self.open, position, there),
        )
        how = f"{party} takes {messages} messages of {position} along, and {there} is acknowledged there"
        return after, _list_broken(how, (KEPT, there is not None and there[1] != messages))

    def _skip(self, party: str, first: int, last: int, filling: Iterable[int]) -> Judged:
        places = range(first, last + 1)
        there = [at for at in places if at in self.acknowledged]
        busy = [at for at in filling if at in places]
        still = self.open
        for at in there if not self.awaits_broken else ():
            still = _drop(still, at, self.acknowledged[at])
        after = replace(self, open=still, skipped=self.skipped.update(dict.fromkeys(places, first)))
        how = f"{party} skips {first}..{last}; acknowledged: {there}; writers are busy at {busy}"
        return after, _list_broken(how, (ACK, bool(there or busy)))


def _drop(still: Open, position: int, block: Message | None) -> Open:
    """Without this one, if it is there."""
    return still.delete((position, block)) if block is not None and (position, block) in still else still


def _list_broken(how: str, *rules: tuple[str, bool]) -> Broken:
    """Of (name, whether it is broken) those that are."""
    return tuple(BrokenProperty(name, how) for name, is_broken in rules if is_broken)
