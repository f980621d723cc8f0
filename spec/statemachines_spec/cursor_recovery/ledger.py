"""Ledger: what applications were told, and whether it can be: INTEG, ONCE, ORDER, ACK, KEPT and TRUTH with a memory."""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec.structs import replace

from statemachines.cursor_recovery.block import data_of, length_of
from statemachines.cursor_recovery.memory import CELL
from statemachines.cursor_recovery.reader import ReadOutcome, Skipped
from statemachines.kernel import Event
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.property import View

LEDGER = "ledger"


class Acknowledged(Event, frozen=True, gc=False):
    """A writer was told that its block is written, at `position`: bytes, and how many messages."""

    position: int
    block: tuple[bytes, int]


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


class Lied(Event, frozen=True, gc=False):
    """An application was told an outcome that cannot be so."""

    outcome: str


class QueueViolation(Enum):
    """A promise that was broken."""

    INTEG = "delivered what nobody wrote"
    ONCE = "delivered twice"
    ORDER = "delivered after a later one"
    ACK = "skipped what was acknowledged"
    KEPT = "delivered something else than was acknowledged there"
    TRUTH = "told what is not so"


class LedgerLocal(msgspec.Struct, frozen=True, gc=False):
    """Positions that were `acknowledged`, with what lies there (`blocks`), `delivered`, and `lost` with a reader that
    took along `taken_along` messages in all; `came`: which messages; `skipped`: ranges that were given up; `passed`:
    ranges that were delivered, lost or given up; `last`: reader -> position of what it got last."""

    acknowledged: tuple[int, ...] = ()
    blocks: tuple[tuple[int, int], ...] = ()
    delivered: tuple[int, ...] = ()
    came: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    taken_along: int = 0
    skipped: tuple[tuple[int, int], ...] = ()
    passed: tuple[tuple[int, int], ...] = ()
    last: tuple[tuple[str, int], ...] = ()
    broken: tuple[QueueViolation, ...] = ()


class Ledger(Actor):
    """`messages`: all that anybody may write, each different: bytes, and how many messages; `begin`: where the read
    head is at first; `wraps`: positions come round, so they say nothing about order."""

    def __init__(self, messages: tuple[tuple[bytes, int], ...], begin: int = 0, wraps: bool = False) -> None:
        super().__init__(LEDGER)
        self.begin = begin
        self.messages = messages
        self.wraps = wraps

    def initial(self) -> LedgerLocal:
        return LedgerLocal()

    def inputs(self, local: LedgerLocal) -> tuple[object, ...]:
        return ()

    def react(self, local: LedgerLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case Acknowledged(position, block):
                blocks = tuple(sorted({*local.blocks, (position, self.messages.index(block))}))
                local = replace(local, blocks=blocks)
                passed = any(first <= position <= last for first, last in local.skipped)
                known = self.messages.index(block) in local.came and position not in local.delivered
                broken = _broken(local, {QueueViolation.ACK: passed, QueueViolation.KEPT: known and not self.wraps})
                return Reaction(replace(local, acknowledged=_with(local.acknowledged, position), broken=broken))
            case Delivered(ReadOutcome.DELIVERED, position, payload, messages):
                return Reaction(self._delivered(local, envelope.sender, position, (payload, messages)))
            case Delivered(_, position, _, messages, end) | Gone(position, messages, end):
                taken = local.taken_along + messages
                there = dict(local.blocks).get(position)
                wrong = there is not None and self.messages[there][1] != messages
                broken = _broken(local, {QueueViolation.KEPT: wrong})
                local = replace(local, lost=_with(local.lost, position), taken_along=taken, broken=broken)
                return Reaction(self._add_passed(local, position, end - 1))
            case Skipped(first, last):
                skipped = [at for at in local.acknowledged if first <= at <= last]
                broken = _broken(local, {QueueViolation.ACK: bool(skipped)})
                local = replace(local, skipped=tuple(sorted({*local.skipped, (first, last)})), broken=broken)
                return Reaction(self._add_passed(local, first, last))
            case Lied():
                return Reaction(replace(local, broken=_broken(local, {QueueViolation.TRUTH: True})))
        raise TypeError(f"the ledger does not take a {type(envelope.event).__name__}")

    def _delivered(self, local: LedgerLocal, reader: str, position: int, block: tuple[bytes, int]) -> LedgerLocal:
        last = dict(local.last)
        there = dict(local.blocks).get(position)
        number = self.messages.index(block) if block in self.messages else -1
        broken = {
            QueueViolation.INTEG: number < 0,
            QueueViolation.KEPT: (there not in (None, number) and (number >= 0 or self._is_as_long(there, block)))
            or (not self.wraps and self._is_elsewhere(local, number, position)),
            QueueViolation.ONCE: number in local.came or (not self.wraps and position in local.delivered),
            QueueViolation.ORDER: not self.wraps and position <= last.get(reader, -1),
        }
        last[reader] = position
        came = (number,) if number >= 0 else ()
        local = self._add_passed(local, position, position + length_of(len(data_of(*block))) - 1)
        return replace(
            local,
            came=tuple(sorted({*local.came, *came})),
            delivered=_with(local.delivered, position),
            last=tuple(sorted(last.items())),
            broken=_broken(local, broken),
        )

    def _is_as_long(self, number: int, block: tuple[bytes, int]) -> bool:
        """It was taken for the block that was acknowledged there: it was not cut out of the middle of others."""
        return len(self.messages[number][0]) == len(block[0])

    def _is_elsewhere(self, local: LedgerLocal, number: int, position: int) -> bool:
        """Its writer was told another position."""
        return not self.wraps and any(one == number and at != position for at, one in local.blocks)

    def _add_passed(self, local: LedgerLocal, first: int, last: int) -> LedgerLocal:
        """A range more that is behind us; ranges that follow each other are one."""
        if self.wraps:
            return local
        found: list[tuple[int, int]] = []
        for one in sorted((*local.passed, (first, last))):
            if found and found[-1][1] + 1 == one[0]:
                found[-1] = (found[-1][0], one[1])
            else:
                found.append(one)
        return replace(local, passed=tuple(found))

    def describe(self, local: LedgerLocal) -> str:
        words = [f"{key} {', '.join(map(str, one))}" for key in _LISTS if (one := getattr(local, key))]
        words += [how.value for how in local.broken]
        return "; ".join(words) or "nothing"

    # -- reading it ---------------------------------------------------------------------------------------------

    def is_broken(self, how: QueueViolation) -> View:
        """Whether this promise was broken."""
        return View(LEDGER, 2, lambda local: int(how in local.broken))

    def count(self, of: str) -> View:
        """How many positions there are of a kind."""
        return View(LEDGER, len(self.messages) + 2, lambda local: len(getattr(local, of)))

    def count_taken_along(self) -> View:
        """How many messages readers took along."""
        return View(LEDGER, 2 * len(self.messages) + 2, lambda local: local.taken_along)

    def count_passed(self, size: int) -> View:
        """How many cells from the beginning applications know of, one after the other; a gap, or a cell that comes
        twice, is as if it were none, and one more than none is 1."""

        def to(local: LedgerLocal) -> int:
            if not local.passed:
                return self.begin // CELL + 1
            (first, last), *others = local.passed
            whole = not others and first == self.begin <= last and (last + 1) % CELL == 0
            return (last + 1) // CELL + 1 if whole else 0

        return View(LEDGER, size, lambda local: min(to(local), size - 1))

    def open(self) -> View:
        """Whether something acknowledged has neither come nor was lost with a reader."""

        def is_open(local: LedgerLocal) -> bool:
            return any(number not in local.came and at not in local.lost for at, number in local.blocks)

        return View(LEDGER, 2, lambda local: int(is_open(local)))


_LISTS = ("acknowledged", "delivered", "lost")


def _with(positions: tuple[int, ...], one: int) -> tuple[int, ...]:
    return tuple(sorted({*positions, one}))


def _broken(local: LedgerLocal, found: dict[QueueViolation, bool]) -> tuple[QueueViolation, ...]:
    """Those that were broken before, and those found now."""
    return tuple(how for how in QueueViolation if how in local.broken or found.get(how, False))
