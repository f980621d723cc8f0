"""Ledger: what applications were told, and whether it can be: INTEG, ONCE, ORDER and ACK with a memory."""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec.structs import replace

from statemachines.cursor_recovery.reader import ReadOutcome, Skipped
from statemachines.kernel import Event
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.property import View

LEDGER = "ledger"


class Acknowledged(Event, frozen=True, gc=False):
    """A writer was told that `payload` is written, at `position`."""

    position: int
    payload: bytes


class Delivered(Event, frozen=True, gc=False):
    """A reader was told of the block at `position`: it has its bytes, or discarded them."""

    outcome: ReadOutcome
    position: int
    payload: bytes


class Gone(Event, frozen=True, gc=False):
    """A reader died that had taken the block at `position`."""

    position: int


class Broken(Enum):
    """The first promise that was broken."""

    NOTHING = "nothing"
    INTEG = "delivered what nobody wrote"
    ONCE = "delivered twice"
    ORDER = "delivered after a later one"
    ACK = "skipped what was acknowledged"


class LedgerLocal(msgspec.Struct, frozen=True, gc=False):
    """`acknowledged`, `delivered`: positions; `lost`: those that a reader took along, or discarded; `skipped`:
    ranges that were given up; `last`: reader -> position of what it got last."""

    acknowledged: tuple[int, ...] = ()
    delivered: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    skipped: tuple[tuple[int, int], ...] = ()
    last: tuple[tuple[str, int], ...] = ()
    broken: Broken = Broken.NOTHING


class Ledger(Actor):
    """`messages`: all that anybody may write, each different."""

    def __init__(self, messages: tuple[bytes, ...]) -> None:
        super().__init__(LEDGER)
        self.messages = messages

    def initial(self) -> LedgerLocal:
        return LedgerLocal()

    def inputs(self, local: LedgerLocal) -> tuple[object, ...]:
        return ()

    def react(self, local: LedgerLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case Acknowledged(position):
                passed = any(first <= position <= last for first, last in local.skipped)
                broken = _first(local.broken, Broken.ACK if passed else Broken.NOTHING)
                return Reaction(replace(local, acknowledged=_with(local.acknowledged, position), broken=broken))
            case Delivered(ReadOutcome.DELIVERED, position, payload):
                return Reaction(self._delivered(local, envelope.sender, position, payload))
            case Delivered(_, position) | Gone(position):
                return Reaction(replace(local, lost=_with(local.lost, position)))
            case Skipped(first, last):
                skipped = [at for at in local.acknowledged if first <= at <= last]
                broken = _first(local.broken, Broken.ACK if skipped else Broken.NOTHING)
                return Reaction(replace(local, skipped=(*local.skipped, (first, last)), broken=broken))
        raise TypeError(f"the ledger does not take a {type(envelope.event).__name__}")

    def _delivered(self, local: LedgerLocal, reader: str, position: int, payload: bytes) -> LedgerLocal:
        last = dict(local.last)
        if payload not in self.messages:
            broken = Broken.INTEG
        elif position in local.delivered:
            broken = Broken.ONCE
        elif position <= last.get(reader, -1):
            broken = Broken.ORDER
        else:
            broken = Broken.NOTHING
        last[reader] = position
        return replace(
            local,
            delivered=_with(local.delivered, position),
            last=tuple(sorted(last.items())),
            broken=_first(local.broken, broken),
        )

    def describe(self, local: LedgerLocal) -> str:
        words = [f"{key} {', '.join(map(str, one))}" for key in _LISTS if (one := getattr(local, key))]
        words += [local.broken.value] if local.broken is not Broken.NOTHING else []
        return "; ".join(words) or "nothing"

    # -- reading it ---------------------------------------------------------------------------------------------

    def is_broken(self, how: Broken) -> View:
        """Whether this promise was the first that was broken."""
        return View(LEDGER, 2, lambda local: int(local.broken is how))

    def count(self, of: str) -> View:
        """How many positions there are of a kind."""
        return View(LEDGER, len(self.messages) + 2, lambda local: len(getattr(local, of)))

    def open(self) -> View:
        """Whether something acknowledged is neither delivered nor lost with a reader."""
        return View(LEDGER, 2, lambda local: int(bool({*local.acknowledged} - {*local.delivered, *local.lost})))


_LISTS = ("acknowledged", "delivered", "lost")


def _with(positions: tuple[int, ...], one: int) -> tuple[int, ...]:
    return tuple(sorted({*positions, one}))


def _first(before: Broken, now: Broken) -> Broken:
    return now if before is Broken.NOTHING else before
