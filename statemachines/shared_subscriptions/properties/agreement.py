"""Agreement: S10, what a leader and a borrower know of each other.

They agree about a stream where the leader has nothing to repeat.  Where it has, the borrower is one message behind or
ahead of it.  Nothing is said of a borrower that the leader has let go: it is told when it speaks.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from statemachines.kernel import BrokenProperty, in_order
from statemachines.shared_subscriptions.assignment import GRANTED as GIVEN
from statemachines.shared_subscriptions.assignment import GRANTING, NONE, REVOKED, AssignmentStatus
from statemachines.shared_subscriptions.borrower import CONNECTED, UNSUBSCRIBING, BorrowerRecord
from statemachines.shared_subscriptions.leader_record import LeaderRecord
from statemachines.shared_subscriptions.member import REGISTERED
from statemachines.shared_subscriptions.stream import ABSENT, GRANTED

NOT_HELD, HELD, REVOKED_HELD, LEAVING = range(4)
"""What a borrower makes of a stream; `LEAVING`: it finishes the stream since it unsubscribes."""

OWNED: Final[dict[AssignmentStatus, tuple[int, ...]]] = {GRANTING: (HELD, LEAVING), GIVEN: (HELD, LEAVING)}
"""What the owner of a stream may make of it, by what its leader does; while it is taken back, all of that."""


class BorrowerSide(NamedTuple):
    """What the borrower knows of a stream: what it does with it, the grant held or seen."""

    kind: int
    grant: int


def read_borrower(record: BorrowerRecord, stream: str) -> BorrowerSide:
    """What it knows of this stream."""
    child = record.streams.get(stream)
    if child is None:
        return BorrowerSide(NOT_HELD, 0)
    if child.status is ABSENT:
        return BorrowerSide(NOT_HELD, child.grant)
    kind = HELD if child.status is GRANTED else LEAVING if record.status is UNSUBSCRIBING else REVOKED_HELD
    return BorrowerSide(kind, child.grant)


def fits(side: BorrowerSide, is_owner: bool, status: AssignmentStatus, grant: int) -> bool:
    """Whether a borrower that is registered can be where it is about a stream, each side having said what it had to
    say.  `is_owner`: the stream is assigned to it, under this grant."""
    if not is_owner or status is NONE:
        return side.kind == NOT_HELD
    if side.kind == NOT_HELD:
        if status is GRANTING:
            return side.grant < grant
        return status is REVOKED and side.grant <= grant  # lower: it has vanished before it was granted
    return side.grant == grant and side.kind in OWNED.get(status, (HELD, REVOKED_HELD, LEAVING))


def is_confirmed(record: BorrowerRecord, stream: str) -> bool:
    """The borrower has nothing to report of the stream that was not answered."""
    return not any(stream in unconfirmed for unconfirmed in (record.changed, record.carried, record.late))


def is_at_rest(leader: LeaderRecord, borrower: BorrowerRecord) -> bool:
    """Both know each other, and nothing is to be told or repeated.  Progress that the store has not covered yet is
    echoed, and does not count before it has (SS-157)."""
    member = leader.members.get(borrower.id)
    if member is None or member.status is not REGISTERED or borrower.link != member.link:
        return False
    if borrower.status is not CONNECTED or borrower.changed or borrower.carried or borrower.late:
        return False
    owned = ((stream, one) for stream, one in in_order(leader.assignments) if one.link.borrower == borrower.id)
    return not any(one.status in (GRANTING, REVOKED) or stream in leader.held for stream, one in owned)


def check_agreement(leader: LeaderRecord, borrower: BorrowerRecord) -> tuple[BrokenProperty, ...]:
    """Of all streams, where both are at rest."""
    for stream in sorted({*leader.assignments, *borrower.streams}):
        one = leader.assignments.get(stream)
        is_owner = one is not None and one.link == borrower.link
        status, grant, progress = (NONE, 0, 0) if one is None else (one.status, one.grant, one.progress)
        side = read_borrower(borrower, stream)
        seen = borrower.streams[stream].progress if side.kind != NOT_HELD else progress
        if not fits(side, is_owner, status, grant) or (is_owner and seen != progress):
            what = f"{stream} as {side.kind}, under {side.grant}, at {seen}"
            theirs = f"{status.value} under {grant}, at {progress}" if is_owner else "somebody else's"
            return (BrokenProperty("S10", f"{borrower.id} sees {what}; for {leader.id} it is {theirs}"),)
    return ()
