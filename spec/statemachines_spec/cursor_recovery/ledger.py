"""Ledger: what applications were told, judged by `DeliveredBlocks`; and what it takes for TOLD and TRUTH."""

from __future__ import annotations

from typing import Final

import msgspec

from statemachines.cursor_recovery.block import data_of, length_of
from statemachines.cursor_recovery.memory import CELL
from statemachines.cursor_recovery.properties.delivered_blocks import (
    ACK,
    INTEG,
    KEPT,
    ONCE,
    ORDER,
    Delivered,
    DeliveredBlocks,
    Gone,
    Message,
)
from statemachines.cursor_recovery.reader import ReadOutcome, Skipped
from statemachines.kernel import Event
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.property import View

LEDGER = "ledger"
TRUTH: Final = "TRUTH"

BROKEN: Final = {
    INTEG: "delivered what nobody wrote",
    ONCE: "delivered twice",
    ORDER: "delivered after a later one",
    ACK: "skipped what was acknowledged",
    KEPT: "delivered something else than was acknowledged there",
    TRUTH: "told what is not so",
}
"""What it finds, in words."""


class Lied(Event, frozen=True, gc=False):
    """An application was told an outcome that cannot be so."""

    outcome: str


class LedgerLocal(msgspec.Struct, frozen=True, gc=False):
    """`blocks`: what was told of them; `passed`: ranges that were delivered, lost or given up; what is `broken`."""

    blocks: DeliveredBlocks
    passed: tuple[tuple[int, int], ...] = ()
    broken: tuple[str, ...] = ()


class Ledger(Actor):
    """`messages`: all that anybody may write, each different: bytes, and how many messages; `begin`: where the read
    head is at first."""

    def __init__(self, messages: tuple[Message, ...], begin: int = 0) -> None:
        super().__init__(LEDGER)
        self.begin = begin
        self.messages = messages

    def initial(self) -> LedgerLocal:
        return LedgerLocal(DeliveredBlocks())

    def inputs(self, local: LedgerLocal) -> tuple[object, ...]:
        return ()

    def react(self, local: LedgerLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if isinstance(event, Lied):
            return Reaction(LedgerLocal(local.blocks, local.passed, _add_broken(local.broken, TRUTH)))
        blocks, broken = local.blocks.observe(envelope.sender, event, self.messages)
        passed = _add_passed(local.passed, event)
        return Reaction(LedgerLocal(blocks, passed, _add_broken(local.broken, *(one.name for one in broken))))

    def describe(self, local: LedgerLocal) -> str:
        words = [
            f"{word} {', '.join(map(str, sorted(one)))}"
            for word, key in _LISTS.items()
            if (one := getattr(local.blocks, key))
        ]
        words += [BROKEN[name] for name in local.broken]
        return "; ".join(words) or "nothing"

    # -- reading it ---------------------------------------------------------------------------------------------

    def is_broken(self, name: str) -> View:
        """Whether this promise was broken."""
        return View(LEDGER, 2, lambda local: int(name in local.broken))

    def count(self, of: str) -> View:
        """How many positions there are of a kind."""
        return View(LEDGER, len(self.messages) + 2, lambda local: len(getattr(local.blocks, of)))

    def count_taken_along(self) -> View:
        """How many messages readers took along."""
        return View(LEDGER, 2 * len(self.messages) + 2, lambda local: local.blocks.taken_along)

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
        return View(LEDGER, 2, lambda local: int(bool(local.blocks.open)))


_LISTS = {"acknowledged": "acknowledged", "delivered": "delivered", "lost": "gone_blocks"}


def _add_broken(before: tuple[str, ...], *names: str) -> tuple[str, ...]:
    """Those that were broken before, and those found now."""
    return tuple(name for name in BROKEN if name in before or name in names)


def _add_passed(passed: tuple[tuple[int, int], ...], event: Event) -> tuple[tuple[int, int], ...]:
    """With the range that is behind us by this event; ranges that follow each other are one."""
    match event:
        case Delivered(ReadOutcome.DELIVERED, position, payload, messages):
            one = (position, position + length_of(len(data_of(payload, messages))) - 1)
        case Delivered(position=position, end=end) | Gone(position=position, end=end):
            one = (position, end - 1)
        case Skipped(first, last):
            one = (first, last)
        case _:
            return passed
    found: list[tuple[int, int]] = []
    for first, last in sorted((*passed, one)):
        if found and found[-1][1] + 1 == first:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return tuple(found)
