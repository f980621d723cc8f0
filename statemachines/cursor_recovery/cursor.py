"""Cursor: one cursor of a pool as an observer sees it: who has it, and what must never be done to it.

It decides nothing: it is fed the accesses to the cursor's words that changed them (`observers`), and refuses those that
cannot be where the death of an owner is known.  By age alone others free what the living use (CR-06): it does not hold
there.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec.structs import replace

from statemachines.cursor_recovery.memory import FREE, NONE, incarnation_in, slot_in
from statemachines.kernel import Call, Effects, Event, Fsm, Invariant, Refuse, Row, Status


class Taken(Call, frozen=True, gc=False):
    """A swap put the word of an owner into a free cursor."""

    word: int


class Cleared(Call, frozen=True, gc=False):
    """Its owner set its position to none."""


class Placed(Call, frozen=True, gc=False):
    """Its owner set its position."""

    position: int


class PlacedByOther(Call, frozen=True, gc=False):
    """Somebody else set or cleared its position."""


class Released(Call, frozen=True, gc=False):
    """Its owner freed it."""


class Died(Call, frozen=True, gc=False):
    """The process of its owner is dead."""


class Aged(Call, frozen=True, gc=False):
    """It is older than the threshold."""


class Reclaimed(Call, frozen=True, gc=False):
    """Somebody else freed it."""


class CursorStatus(Status):
    """`ORPHANED`: its owner is dead; `STALE`: and it is aged."""

    FREE = "free"
    ALLOCATED = "allocated"
    POSITIONED = "positioned"
    ORPHANED = "orphaned"
    STALE = "stale"


S = CursorStatus
OWNED = (S.ALLOCATED, S.POSITIONED)
DEAD = (S.ORPHANED, S.STALE)


class CursorRecord(msgspec.Struct, frozen=True, gc=False):
    """Number `cursor` of a pool; `word`: its state word, `position`: where it is, NONE: nowhere."""

    pool: str
    cursor: int
    word: int = FREE
    position: int = NONE
    status: CursorStatus = S.FREE

    def is_of(self, slot: int, incarnation: int) -> bool:
        """It has this owner."""
        is_taken = self.word != FREE
        return is_taken and slot_in(self.word) == slot and incarnation_in(self.word) == incarnation % (1 << 12)


E = TypeVar("E", bound=Event)
Done = tuple[CursorRecord, Effects]


def take(record: CursorRecord, event: Taken, now_ns: int) -> Done:
    return replace(record, word=event.word), ()


def clear(record: CursorRecord, event: Cleared, now_ns: int) -> Done:
    return replace(record, position=NONE), ()


def place(record: CursorRecord, event: Placed, now_ns: int) -> Done:
    return replace(record, position=event.position), ()


def free(record: CursorRecord, event: Event, now_ns: int) -> Done:
    return replace(record, word=FREE), ()


# fmt: off
ROWS = (
    #   on          from            to              do      when  clause
    Row(Taken,      S.FREE,         S.ALLOCATED,    take,   None, "CR-03"),
    Row(Cleared,    S.ALLOCATED,    S.ALLOCATED,    clear,  None, "CR-03"),
    Row(Placed,     OWNED,          S.POSITIONED,   place,  None, "CR-31"),
    Row(Released,   OWNED,          S.FREE,         free,   None, "CR-31"),
    Row(Died,       OWNED,          S.ORPHANED,     None,   None, "CR-05"),
    Row(Aged,       S.ORPHANED,     S.STALE,        None,   None, "CR-04"),
    Row(Reclaimed,  S.STALE,        S.FREE,         free,   None, "CR-07"),
    Refuse((Taken,),         (*OWNED, *DEAD),               "CR-34"),
    Refuse((PlacedByOther,), tuple(S),                      "CR-34"),
    Refuse((Cleared,),       (S.FREE, S.POSITIONED, *DEAD), "CR-31"),
    Refuse((Placed,),        (S.FREE, *DEAD),               "CR-31"),
    Refuse((Released,),      (S.FREE, *DEAD),               "CR-31"),
    Refuse((Died,),          (S.FREE, *DEAD),               "CR-05"),
    Refuse((Aged,),          (S.FREE, *OWNED, S.STALE),     "CR-04"),
    Refuse((Reclaimed,),     (S.FREE, *OWNED, S.ORPHANED),  "CR-34"),
)
# fmt: on


def has_a_word_or_is_free(record: CursorRecord) -> bool:
    """A cursor is free if and only if its word says so."""
    return (record.status is S.FREE) == (record.word == FREE)


CURSOR = Fsm(
    "cursor",
    protocol="cursor_recovery",
    record=CursorRecord,
    states=CursorStatus,
    initial=S.FREE,
    rows=ROWS,
    invariants=(Invariant("has-a-word-or-is-free", "CR-34", has_a_word_or_is_free),),
)
