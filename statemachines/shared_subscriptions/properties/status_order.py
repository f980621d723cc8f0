"""StatusHistory: S1, the statuses of a machine go one way only."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import msgspec

from statemachines.kernel import BrokenProperty, Fsm
from statemachines.shared_subscriptions.assignment import AssignmentStatus
from statemachines.shared_subscriptions.borrower import BorrowerStatus
from statemachines.shared_subscriptions.leader_record import LeaderStatus
from statemachines.shared_subscriptions.member import MemberStatus
from statemachines.shared_subscriptions.stream import StreamStatus

RANKS: Final[dict[Enum, int]] = {
    **{status: rank for kind in (BorrowerStatus, LeaderStatus, MemberStatus) for rank, status in enumerate(kind)},
    LeaderStatus.FOLLOWER: 0,  # a follower is a candidate again, once the claim is free
    **{status: rank for kind in (StreamStatus, AssignmentStatus) for rank, status in enumerate(kind)},
    StreamStatus.ABSENT: len(StreamStatus),  # as it begins, and as it ends
    AssignmentStatus.NONE: len(AssignmentStatus),
}
"""A status is left for one of a higher rank, or of the same."""

INITIAL: Final[dict[type[Enum], Enum]] = {
    kind: next(iter(kind)) for kind in (BorrowerStatus, LeaderStatus, MemberStatus, StreamStatus, AssignmentStatus)
}
MACHINES: Final = frozenset(("borrower", "member", "stream", "assignment"))
"""Each of these enters no status twice."""


Moves = dict[int, tuple[tuple[Any, ...], Any]]
"""Number of a row -> the statuses it holds in, the one it leads to (None: it leaves none)."""


class StatusHistory(msgspec.Struct, frozen=True, gc=False):
    """Of one machine: the status that it `entered` last (None: it has not moved yet)."""

    entered: Enum | None = None

    def observe(self, name: str, source: Enum, dest: Enum) -> tuple[StatusHistory, tuple[BrokenProperty, ...]]:
        """The machine called `name` goes from one status to another."""
        entered = self.entered
        if entered is None:
            if source is not INITIAL[type(source)]:
                return StatusHistory(dest), (BrokenProperty("S1", f"{name} begins in {source.value}"),)
        elif entered is not source:
            detail = f"{name} is in {source.value}, and its last move led to {entered.value}"
            return StatusHistory(dest), (BrokenProperty("S1", detail),)
        elif goes_back(source, dest):
            return self, (BrokenProperty("S1", f"{name} goes back from {source.value} to {dest.value}"),)
        return StatusHistory(dest), ()


def goes_back(source: Enum, dest: Enum) -> bool:
    """Whether a status is entered again that was left before."""
    return RANKS[dest] < RANKS[source]


def list_moves(fsm: Fsm[Any]) -> Moves:
    """What the rows of a table say."""
    return {line.number: (line.sources, line.dest) for line in fsm.lines}


def check_row(moves: Moves, name: str, row: int, source: Enum, dest: Enum) -> tuple[BrokenProperty, ...]:
    """A machine changes its status as the row that it took says."""
    sources, to = moves.get(row, ((), None))
    if source in sources and to is dest:
        return ()
    return (BrokenProperty("S1", f"{name} goes from {source.value} to {dest.value}, and row {row} does not say so"),)
