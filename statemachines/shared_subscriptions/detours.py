"""Detours: through whom a process reaches those that it does not reach directly, as a value in its record (D-151)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Map
from statemachines.shared_subscriptions.message import LeaderWanted, RelayedToBorrower, RelayedToLeader
from statemachines.shared_subscriptions.relay import DETOURS_MAX


class Detour(msgspec.Struct, frozen=True, gc=False):
    """`via`: the follower; `turn`: when it was used last, as a running number."""

    via: str
    turn: int


class Detours(msgspec.Struct, frozen=True, gc=False):
    """Of at most `DETOURS_MAX` borrowers, those used last.  `turns`: turn -> borrower; `turn`: the next."""

    of: Map[str, Detour] = Map()
    turns: Map[int, str] = Map()
    turn: int = 0

    def keep(self, borrower: str, via: str) -> Detours:
        """From now on the borrower is reached through `via`, too."""
        kept = self.drop(borrower)
        turn = kept.turn
        kept = Detours(kept.of.set(borrower, Detour(via, turn)), kept.turns.set(turn, borrower), turn + 1)
        return kept.drop(kept.turns[min(kept.turns)]) if len(kept.of) > DETOURS_MAX else kept

    def drop(self, borrower: str) -> Detours:
        """The direct way works, or nobody is there any more."""
        known = self.of.get(borrower)
        if known is None:
            return self
        of, turns = self.of.delete(borrower), self.turns.delete(known.turn)
        return replace(self, of=of, turns=turns) if of else Detours()


def is_detoured(detours: Detours, message: Any) -> bool:
    """Whether the message goes both ways, or around."""
    if not detours.of or type(message) in (LeaderWanted, RelayedToBorrower, RelayedToLeader):
        return False
    return getattr(message, "borrower", "") in detours.of
