"""Plan: which member gets how many streams, and the moves that lead there (source: "Leader's logic", reassignment).

With S live streams and n members in the order of their ids, the share of member i is S div n, plus 1 for the first
S mod n.  Only what a member has above its share is taken back, and only granted streams are; free streams go to those
below their share in turn.  A pass over all members runs when one comes or goes or the set of streams changes; a stream
that becomes free is handed out without one.  A member has at most `grant_window` grants that it has not answered, and
at most so many streams that are being taken back: other streams wait for their turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from msgspec.structs import replace

from statemachines.kernel import ChildStep, Effect, Event, Fifo, in_order, keys_in_order
from statemachines.shared_subscriptions.acknowledged_ranges import join_ranges
from statemachines.shared_subscriptions.assignment import (
    ASSIGNMENT,
    GRANTED,
    GRANTING,
    NONE,
    REVOKED,
    REVOKING,
    Assign,
    AssignmentRecord,
    AssignmentStatus,
    TakeBack,
)
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.failed_deliveries import (
    count_failures,
    is_spent,
    note_failed,
    set_aside,
    stage_progress,
)
from statemachines.shared_subscriptions.leader_record import LEADING, LeaderRecord
from statemachines.shared_subscriptions.member import MEMBER, REGISTERED, MemberRecord
from statemachines.shared_subscriptions.message import END_OF_STREAM, Ranges

COUNTED = (GRANTING, GRANTED)
"""Statuses in which an assignment counts as the member's."""

TAKEN = (REVOKING, REVOKED)
"""Statuses in which it is being taken back from the member."""

LATEST_MAX: Final = 2_000
"""Of a member with more grants than this the latest are sorted out once for so many that are taken back."""


class Draft:
    """What one step of a Leader is made of, while it is being made: the record so far, effects, child steps."""

    __slots__ = ("children", "effects", "now_ns", "record")

    def __init__(self, record: LeaderRecord, now_ns: int) -> None:
        self.record = record
        self.now_ns = now_ns
        self.effects: list[Effect] = []
        self.children: list[ChildStep] = []

    def finish(self) -> tuple[LeaderRecord, tuple[Effect, ...], tuple[ChildStep, ...]]:
        """The outcome, as a delegating action returns it."""
        return self.record, tuple(self.effects), tuple(self.children)

    def set_member(self, member: MemberRecord) -> None:
        """Keep `member` as it is now; one that may have another stream from now on waits for its turn."""
        record, borrower = self.record, member.link.borrower
        is_new = wants(member) and not wants(record.members[borrower])
        wanting = record.wanting.push(borrower) if is_new else record.wanting
        self.record = replace(record, members=record.members.set(borrower, member), wanting=wanting)

    def step_member(self, borrower: str, event: Event) -> MemberRecord:
        """The event to the Member machine; what it is afterwards."""
        member = self.record.members[borrower]
        after, effects, seen = MEMBER.child_step(member, event, self.now_ns, member.link.registration)
        self.effects.extend(effects)
        self.children.append(seen)
        if after is not member:
            self.set_member(after)
        return after

    def step_assignment(self, stream: str, event: Event) -> None:
        """The event to the Assignment machine; its progress is staged, its member counted, its end noticed."""
        record = self.record
        before = record.assignments[stream]
        after, effects, seen = ASSIGNMENT.child_step(before, event, self.now_ns, before.grant)
        self.effects.extend(effects)
        self.children.append(seen)
        if after is before:
            return
        self.record = replace(record, assignments=record.assignments.set(stream, after))
        if after.progress > before.progress or after.acked != before.acked:
            self.note_progress(stream, after.progress, after.acked)
        if after.failed and (after.progress, after.failed) != (before.progress, before.failed):
            note_failed(self, stream, after.progress, after.failed, is_sure=True, reason=after.reason)
        if after.status is not before.status:
            self._count(before.link.borrower, before.status, after.status)
        if after.status is NONE:
            self.record = replace(self.record, assignments=self.record.assignments.delete(stream))
            self.keep_progress(stream, after.progress)
            if not before.finished:
                self.note_repeats(stream)

    def _count(self, borrower: str, before: AssignmentStatus, after: AssignmentStatus) -> None:
        """What the member has, has not answered, and gives back, after one of its assignments moved."""
        member = self.record.members[borrower]
        self.set_member(
            replace(
                member,
                count=member.count + (after in COUNTED) - (before in COUNTED),
                granting=member.granting + (after is GRANTING) - (before is GRANTING),
                revoking=member.revoking + (after in TAKEN) - (before in TAKEN),
            )
        )

    def keep_progress(self, stream: str, progress: int) -> None:
        """Where the next owner of the stream begins."""
        known = self.record.streams.get(stream)
        if known is not None and progress > known.progress:
            kept = replace(known, progress=progress)
            self.record = replace(self.record, streams=self.record.streams.set(stream, kept))

    def note_repeats(self, stream: str) -> None:
        """Its owner went without a last word: nobody knows how many messages it was handed."""
        known = self.record.streams.get(stream)
        if known is not None:
            unknown = replace(known, repeats=END_OF_STREAM)
            self.record = replace(self.record, streams=self.record.streams.set(stream, unknown))

    def learn_progress(self, stream: str, progress: int, acked: Ranges) -> None:
        """The same for what is said of a stream that its owner has lost; it is staged, where it is news."""
        known, before = self.record.streams.get(stream), self.record.find_acked(stream)
        if known is None:
            return
        said = acked if self.record.is_relaxed else ()
        progress, acked = join_ranges(max(progress, known.progress), before, said)
        if progress > known.progress or acked != before:
            self.keep_progress(stream, progress)
            self.note_progress(stream, progress, acked)

    def note_progress(self, stream: str, progress: int, acked: Ranges = ()) -> None:
        """Stage it; a stream that ended is live no more.  Of one that has vanished nothing is kept."""
        known = self.record.streams.get(stream)
        if known is None:
            return
        stage_progress(self, stream, progress, acked)
        if progress == END_OF_STREAM:
            ranks = self.record.ranks
            rank = ranks[known.rank]
            ranks = ranks.set(known.rank, replace(rank, live=rank.live - 1))
            self.record = replace(self.record, ranks=ranks, live=self.record.live - 1)

    def has_ended(self, stream: str) -> bool:
        """Read to its end, by what is known or by what its owner has reported."""
        return has_ended(self.record, stream)

    def release(self, stream: str) -> None:
        """Nobody holds it any more: it is free, unless it has ended, or its next message failed too often; not before
        what was said of it last is judged."""
        record = self.record
        said = record.held.get(stream)
        if said is not None:
            self.record = replace(record, held=record.held.set(stream, replace(said, free=True)))
            return
        if stream not in record.streams or record.streams[stream].progress == END_OF_STREAM:
            return
        if is_spent(record, stream):
            set_aside(self, stream)
        else:
            self.record = replace(record, free=record.free.push(stream))

    def assign(self, stream: str, member: MemberRecord) -> MemberRecord:
        """Begin an assignment; the member with it."""
        record = self.record
        configuration = record.configuration
        grant = record.grant + 1
        known = record.streams[stream]
        assignment = AssignmentRecord(
            member.link,
            stream,
            grant,
            known.progress,
            configuration.resend_interval_ms * MS,
            configuration.grant_wait_ms * MS,
            configuration.revoke_timeout_ms * MS,
            failed=count_failures(record, stream),
            most=configuration.max_deliver or 0,
            relaxed=record.is_relaxed,
            acked=record.find_acked(stream),
            repeats=known.repeats if known.repeats > known.progress else 0,
        )
        assignment, effects, seen = ASSIGNMENT.child_step(assignment, Assign(), self.now_ns, grant)
        self.effects.extend(effects)
        self.children.append(seen)
        grants = member.grants.set(grant, stream)
        member = replace(member, count=member.count + 1, granting=member.granting + 1, grants=grants)
        self.record = replace(
            record,
            grant=grant,
            assignments=record.assignments.set(stream, assignment),
            members=record.members.set(member.link.borrower, member),
            repeat_n=record.number if known.repeats == END_OF_STREAM else record.repeat_n,
        )
        return member


def has_ended(record: LeaderRecord, stream: str) -> bool:
    """Read to its end, by what is known or by what its owner has reported."""
    assignment = record.assignments.get(stream)
    is_reported = assignment is not None and assignment.progress == END_OF_STREAM
    return is_reported or record.streams[stream].progress == END_OF_STREAM


def wants(member: MemberRecord) -> bool:
    """It is below its share, and its window of unanswered grants has room."""
    return (
        member.count < member.share
        and member.granting < member.configuration.grant_window
        and member.status is REGISTERED
    )


def split_shares(live: int, members: int) -> Iterator[int]:
    """How many streams each of so many members is to have, in the order of their ids."""
    for number in range(members):
        yield live // members + (number < live % members)


def reassign(draft: Draft) -> None:
    """A pass over all members: new shares, take back what is above them, hand out what is free."""
    record = draft.record
    present = [member for _, member in in_order(record.members) if member.status is REGISTERED]
    members = record.members.mutate()
    over: list[str] = []
    wanting = Fifo()
    for member, share in zip(present, split_shares(record.live, len(present)), strict=True):
        borrower = member.link.borrower
        if member.share != share:
            member = members[borrower] = replace(member, share=share)
        if member.count > share:
            over.append(borrower)
        elif wants(member):
            wanting = wanting.push(borrower)
    draft.record = replace(record, members=members.finish(), wanting=wanting)
    if record.status is not LEADING:
        return
    for borrower in over:
        take_back(draft, borrower)
    hand_out(draft)


def take_back(draft: Draft, borrower: str) -> None:
    """Revoke what the member has above its share, of the latest grants first, as far as its window allows; what is
    being granted must wait."""
    member = draft.record.members[borrower]
    room = min(member.count - member.share, member.configuration.grant_window - member.revoking)
    latest = member.latest
    while room > 0:
        latest = latest or latest_granted(draft.record, member)
        if not latest:
            break
        stream, latest = latest[-1], latest[:-1]
        if is_granted(draft.record, stream, borrower):
            draft.step_assignment(stream, TakeBack())
            room -= 1
    if len(member.grants) <= LATEST_MAX:
        latest = ()  # sorted anew each time
    member = draft.record.members[borrower]
    if latest != member.latest:
        draft.set_member(replace(member, latest=latest))


def latest_granted(record: LeaderRecord, member: MemberRecord) -> tuple[str, ...]:
    """Streams that the member was granted last and has answered, the last at the end."""
    borrower = member.link.borrower
    latest = (member.grants[grant] for grant in reversed(keys_in_order(member.grants)))
    return tuple(islice((one for one in latest if is_granted(record, one, borrower)), LATEST_MAX))[::-1]


def is_granted(record: LeaderRecord, stream: str, borrower: str) -> bool:
    """To this borrower, which has answered the grant."""
    assignment = record.assignments.get(stream)
    return assignment is not None and assignment.status is GRANTED and assignment.link.borrower == borrower


def hand_out(draft: Draft) -> None:
    """Free streams to members below their share whose window has room, one each in turn."""
    while draft.record.free and draft.record.wanting:
        borrower, wanting = draft.record.wanting.pop()
        draft.record = replace(draft.record, wanting=wanting)
        member = draft.record.members.get(borrower)
        if member is None or not wants(member):
            continue
        stream, free = draft.record.free.pop()
        draft.record = replace(draft.record, free=free)
        if stream in draft.record.streams:  # else it has vanished since
            member = draft.assign(stream, member)
        if wants(member):
            draft.record = replace(draft.record, wanting=draft.record.wanting.push(borrower))
