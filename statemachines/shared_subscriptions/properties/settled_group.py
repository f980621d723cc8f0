"""SettledGroup: what must come true once faults have stopped: L1 to L9.

Each rule says of a record what is still open.  The simulator names what is missing by them; for the explorer they are
obligations, which must be met at last, and the safe halves of these, which hold wherever nothing is under way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from statemachines.kernel import BrokenProperty, in_order
from statemachines.shared_subscriptions.assignment import GRANTED, GRANTING, REVOKED, REVOKING
from statemachines.shared_subscriptions.borrower import CONNECTING, UNSUBSCRIBING, BorrowerRecord
from statemachines.shared_subscriptions.leader_record import LEADING, SERVING, LeaderRecord
from statemachines.shared_subscriptions.member import REGISTERED
from statemachines.shared_subscriptions.message import END_OF_STREAM

NAMED_MOST = 3
"""So many streams are named where more are meant."""

Broken = tuple[BrokenProperty, ...]


def looks_for_leader(record: BorrowerRecord | None) -> bool:
    """L1: a borrower has no leader."""
    return record is None or record.status is CONNECTING


def is_unsubscribing(record: BorrowerRecord) -> bool:
    """L7: it is to end."""
    return record.status is UNSUBSCRIBING


def is_granting(record: LeaderRecord) -> bool:
    """L2 and L11: something is to become granted, or free."""
    return any(one.status is GRANTING for _, one in in_order(record.assignments))


def list_taken_back(record: LeaderRecord) -> list[str]:
    """L3: what is being taken back."""
    return [stream for stream, one in in_order(record.assignments) if one.status in (REVOKING, REVOKED)]


def is_served(record: LeaderRecord, stream: str) -> bool:
    """L2: it is assigned to a member that is registered."""
    assignment = record.assignments.get(stream)
    member = None if assignment is None else record.members.get(assignment.link.borrower)
    return member is not None and member.status is REGISTERED


def is_balanced(record: LeaderRecord) -> bool:
    """L4: the numbers of streams of registered members differ by at most one."""
    counts = [member.count for _, member in in_order(record.members) if member.status is REGISTERED]
    return not counts or max(counts) - min(counts) <= 1


def is_fair(record: LeaderRecord) -> bool:
    """L4: and while somebody is there, no stream is free that is not read to its end."""
    if not any(member.status is REGISTERED for _, member in in_order(record.members)):
        return True
    return is_balanced(record) and not any(
        rank.open and stream not in record.assignments and record.streams[stream].progress != END_OF_STREAM
        for _, rank in in_order(record.ranks)
        for stream, _ in in_order(rank.streams)
    )


def hands_nothing_over(record: LeaderRecord) -> bool:
    """Everybody is registered, and all that is assigned is granted."""
    return all(member.status is REGISTERED for _, member in in_order(record.members)) and all(
        one.status is GRANTED for _, one in in_order(record.assignments)
    )


def leads(record: LeaderRecord) -> bool:
    """L6: its host serves the group by it."""
    return record.status in SERVING


def is_alone(serving: int) -> bool:
    """L6: of all leaders at most one serves."""
    return serving <= 1


def list_members(record: LeaderRecord, gone: Collection[str]) -> list[str]:
    """L9: of those that are `gone`, who is still a member."""
    return [borrower for borrower, _ in in_order(record.members) if borrower in gone]


def begins_again(has_left: bool, begins: bool) -> bool:
    """L7: a borrower begins in the place of one whose client has unsubscribed."""
    return has_left and begins


def has_too_many_resets(resets: int, faults: int) -> bool:
    """L8: more borrowers ended themselves than there were faults that end one."""
    return resets > faults


# -- as the simulator names it --------------------------------------------------------------------------------------


def find_leaderless(leaders: Iterable[LeaderRecord], is_needed: bool) -> Broken:
    """L6."""
    leading = [one.id for one in leaders if one.status is LEADING]
    if not is_alone(len(leading)):
        return (BrokenProperty("L6", f"{', '.join(leading)} lead the group"),)
    return () if leading or not is_needed else (BrokenProperty("L6", "nobody leads the group"),)


def find_unread(leader: LeaderRecord | None, unread: list[str]) -> Broken:
    """L2 and L5, of streams of which something is `unread`."""
    if not unread:
        return ()
    lost = [] if leader is None else [stream for stream in unread if not is_served(leader, stream)]
    if lost:
        named = ", ".join(lost[:NAMED_MOST])
        return (BrokenProperty("L2", f"{named}: unread messages, and granted to no live member"),)
    return (BrokenProperty("L5", f"{', '.join(unread[:NAMED_MOST])}: published and never acknowledged"),)


def find_unbalanced(leader: LeaderRecord) -> Broken:
    """L4."""
    if is_balanced(leader):
        return ()
    return (BrokenProperty("L4", "the members' numbers of streams differ by more than one"),)


def find_unconnected(life: str, borrower: BorrowerRecord | None) -> Broken:
    """L1."""
    return (BrokenProperty("L1", f"{life} has no leader"),) if looks_for_leader(borrower) else ()


def find_taken_back(leader: LeaderRecord) -> Broken:
    """L3."""
    for stream in list_taken_back(leader):
        owner = leader.assignments[stream].link.borrower
        return (BrokenProperty("L3", f"{stream} is being taken back from {owner}"),)
    return ()


def find_dead_members(leader: LeaderRecord, gone: Collection[str]) -> Broken:
    """L9."""
    dead = list_members(leader, gone)
    return (BrokenProperty("L9", f"{dead[0]} is dead, and still a member"),) if dead else ()


def find_begun_again(borrower: str, has_left: bool, begins: bool) -> Broken:
    """L7."""
    if not begins_again(has_left, begins):
        return ()
    return (BrokenProperty("L7", f"{borrower} has unsubscribed for good, and begins, or asks for another"),)


def find_kick(borrower: str, stream: str) -> Broken:
    """L3, where nothing is wrong and applications are quick: a member is given up over a revoke."""
    return (BrokenProperty("L3", f"{borrower} is kicked over {stream}, and nothing is wrong"),)


def find_lost_claim(leader: str) -> Broken:
    """L6, where nothing is wrong: a leader ends since its claim has."""
    return (BrokenProperty("L6", f"{leader} loses its claim, and nothing is wrong"),)


def find_unended(life: str, has_left: bool, is_ended: bool) -> Broken:
    """L7, where faults have stopped."""
    return (BrokenProperty("L7", f"{life} unsubscribed, and has not ended"),) if has_left and not is_ended else ()


def find_uncommitted(stream: str, published: int, durable: int) -> Broken:
    """L5, of a stream that is acknowledged."""
    if durable >= published:
        return ()
    return (BrokenProperty("L5", f"{stream}: acknowledged, and no leader has committed it"),)


def find_waiting_publisher(waiting: int) -> Broken:
    """L5."""
    return (BrokenProperty("L5", "a publisher still tries to reach the stream store"),) if waiting else ()


def find_restless(leader: str, borrower: str) -> Broken:
    """S10, of two that must come to rest."""
    return (BrokenProperty("S10", f"{leader} and {borrower} never come to rest"),)
