"""SettledGroup: what must come true once faults have stopped (L1 to L9), each as what of it is still missing.

For the explorer that is an obligation, to be met at last; where nothing is under way, it must not be there at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from statemachines.kernel import BrokenProperty, in_order
from statemachines.shared_subscriptions.assignment import GRANTED, GRANTING, REVOKED, REVOKING
from statemachines.shared_subscriptions.borrower import CONNECTING, BorrowerRecord
from statemachines.shared_subscriptions.leader_record import LeaderRecord
from statemachines.shared_subscriptions.member import REGISTERED
from statemachines.shared_subscriptions.message import END_OF_STREAM

NAMED_MOST = 3
"""So many streams are named where more are meant."""

Broken = tuple[BrokenProperty, ...]


def find_unconnected(life: str, borrower: BorrowerRecord | None) -> Broken:
    """L1: a borrower has no leader."""
    if borrower is not None and borrower.status is not CONNECTING:
        return ()
    return (BrokenProperty("L1", f"{life} has no leader"),)


def find_ungranted(leader: LeaderRecord) -> Broken:
    """L2 and L11: a stream is to become granted, or free."""
    for stream, one in in_order(leader.assignments):
        if one.status is GRANTING:
            return (BrokenProperty("L2", f"{one.link.borrower} has not answered for {stream}"),)
    return ()


def find_taken_back(leader: LeaderRecord) -> Broken:
    """L3: a stream is to become free."""
    for stream, one in in_order(leader.assignments):
        if one.status in (REVOKING, REVOKED):
            return (BrokenProperty("L3", f"{stream} is being taken back from {one.link.borrower}"),)
    return ()


def find_kick(borrower: str, stream: str) -> Broken:
    """L3, where nothing is wrong and applications are quick: a member is given up over a revoke."""
    return (BrokenProperty("L3", f"{borrower} is kicked over {stream}, and nothing is wrong"),)


def find_unbalanced(leader: LeaderRecord) -> Broken:
    """L4: the numbers of streams of registered members differ by more than one."""
    counts = [member.count for _, member in in_order(leader.members) if member.status is REGISTERED]
    if not counts or max(counts) - min(counts) <= 1:
        return ()
    return (BrokenProperty("L4", "the members' numbers of streams differ by more than one"),)


def find_unshared(leader: LeaderRecord) -> Broken:
    """L4: that, or a stream is free that is not read to its end, and somebody is there."""
    if not any(member.status is REGISTERED for _, member in in_order(leader.members)):
        return ()
    for _, rank in in_order(leader.ranks):
        for stream, _ in in_order(rank.streams) if rank.open else ():
            if stream not in leader.assignments and leader.streams[stream].progress != END_OF_STREAM:
                return (BrokenProperty("L4", f"{stream} is free"),)
    return find_unbalanced(leader)


def hands_nothing_over(leader: LeaderRecord) -> bool:
    """Everybody is registered, and all that is assigned is granted."""
    return all(member.status is REGISTERED for _, member in in_order(leader.members)) and all(
        one.status is GRANTED for _, one in in_order(leader.assignments)
    )


def find_unread(leader: LeaderRecord | None, unread: Sequence[str]) -> Broken:
    """L2 and L5, of streams of which something is `unread`."""
    lost = [] if leader is None else [stream for stream in unread if not _is_served(leader, stream)]
    if lost:
        named = ", ".join(lost[:NAMED_MOST])
        return (BrokenProperty("L2", f"{named}: unread messages, and granted to no live member"),)
    named = ", ".join(unread[:NAMED_MOST])
    return (BrokenProperty("L5", f"{named}: published and never acknowledged"),) if unread else ()


def find_uncommitted(stream: str, published: int, durable: int) -> Broken:
    """L5, of a stream that is acknowledged."""
    if durable >= published:
        return ()
    return (BrokenProperty("L5", f"{stream}: acknowledged, and no leader has committed it"),)


def find_waiting_publisher(waiting: int) -> Broken:
    """L5, of what is to be published."""
    return (BrokenProperty("L5", "a publisher still tries to reach the stream store"),) if waiting else ()


def find_leaderless(leaders: Sequence[str], is_needed: bool) -> Broken:
    """L6: more than one leads, or nobody does."""
    if len(leaders) > 1:
        return (BrokenProperty("L6", f"{', '.join(leaders)} lead the group"),)
    return (BrokenProperty("L6", "nobody leads the group"),) if is_needed and not leaders else ()


def find_lost_claim(leader: str) -> Broken:
    """L6, where nothing is wrong: a leader ends since its claim has."""
    return (BrokenProperty("L6", f"{leader} loses its claim, and nothing is wrong"),)


def find_unended(life: str, has_left: bool, is_ended: bool) -> Broken:
    """L7: who unsubscribed is to end."""
    return (BrokenProperty("L7", f"{life} unsubscribed, and has not ended"),) if has_left and not is_ended else ()


def find_begun_again(borrower: str, has_left: bool, begins: bool) -> Broken:
    """L7: a borrower begins though its client has unsubscribed, or another in its place."""
    return (BrokenProperty("L7", f"{borrower} has left for good, and begins again"),) if has_left and begins else ()


def find_resets(resets: int, faults: int) -> Broken:
    """L8: more borrowers ended themselves than there were faults that end one."""
    return (BrokenProperty("L8", f"{resets} borrowers ended themselves by {faults} faults"),) if resets > faults else ()


def find_dead_members(dead: Sequence[str]) -> Broken:
    """L9: who is dead, and still a member."""
    return (BrokenProperty("L9", f"{dead[0]} is dead, and still a member"),) if dead else ()


def find_restless(leader: str, borrower: str) -> Broken:
    """S10, of two that must come to rest."""
    return (BrokenProperty("S10", f"{leader} and {borrower} never come to rest"),)


def _is_served(leader: LeaderRecord, stream: str) -> bool:
    assignment = leader.assignments.get(stream)
    member = None if assignment is None else leader.members.get(assignment.link.borrower)
    return member is not None and member.status is REGISTERED
