"""Membership: what a Leader does with what borrowers say (source: "Leader's logic").

Every function here is an action or a guard of the Leader's table.  A message counts only under the registration it
names; whoever is not registered (any more) is told so.
"""

from __future__ import annotations

from heapq import nlargest, nsmallest

from msgspec.structs import replace

from statemachines.kernel import ChildStep, Effects, Event, Send, SetTimer
from statemachines.shared_subscriptions.acknowledged_ranges import find_reach
from statemachines.shared_subscriptions.assignment import (
    GRANTED,
    GrantTimeout,
    Release,
    ResendTimer,
    RevokeTimeout,
    TakeBack,
    is_last,
    join_report,
)
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.failed_deliveries import is_spent, note_loss, note_report
from statemachines.shared_subscriptions.leader_record import LEADING, LeaderRecord, UncoveredProgress
from statemachines.shared_subscriptions.member import (
    FREED_MAX,
    GONE,
    LAPSED,
    MEMBER,
    REGISTERED,
    ExpiryTimer,
    HandOverTimer,
    Heard,
    Kick,
    MemberRecord,
)
from statemachines.shared_subscriptions.message import (
    END_OF_STREAM,
    Disconnect,
    Invalidate,
    LeaderWanted,
    Ping,
    Report,
    RevokeFinished,
    UpdateProgress,
)
from statemachines.shared_subscriptions.plan import Draft, hand_out, reassign, take_back
from statemachines.shared_subscriptions.progress_cover import hold, is_covered
from statemachines.shared_subscriptions.stream import StreamLink, make_update

MEMBERS_MAX = 100_000
"""A leader registers no more borrowers than this."""

HEARD = Heard()

Outcome = tuple[LeaderRecord, Effects, tuple[ChildStep, ...]]
Registered = Ping | UpdateProgress | RevokeFinished


# -- guards ---------------------------------------------------------------------------------------------------------


def is_known(record: LeaderRecord, event: LeaderWanted | Disconnect) -> bool:
    return event.borrower in record.members


def has_room(record: LeaderRecord, event: LeaderWanted) -> bool:
    return len(record.members) < MEMBERS_MAX


def is_of_member(record: LeaderRecord, event: Registered) -> bool:
    """Under a registration of ours, lapsed ones included."""
    member = record.members.get(event.borrower)
    return member is not None and member.link.registration == event.registration and event.epoch == record.epoch


def is_of_registered(record: LeaderRecord, event: Registered) -> bool:
    member = record.members.get(event.borrower)
    return (
        member is not None
        and member.status is REGISTERED
        and member.link.registration == event.registration
        and event.epoch == record.epoch
    )


def is_of_owner(record: LeaderRecord, event: UpdateProgress | RevokeFinished) -> bool:
    """From the current owner, of the current grant."""
    return is_of_registered(record, event) and owns(record, event.borrower, event.stream, event.grant)


def owns(record: LeaderRecord, borrower: str, stream: str, grant: int) -> bool:
    assignment = record.assignments.get(stream)
    return assignment is not None and assignment.grant == grant and assignment.link.borrower == borrower


def ends_stream(record: LeaderRecord, event: UpdateProgress) -> bool:
    """From its owner: the stream has ended and is fully acknowledged."""
    return event.progress == END_OF_STREAM and is_of_owner(record, event)


def is_of_assignment(record: LeaderRecord, event: ResendTimer | GrantTimeout | RevokeTimeout) -> bool:
    return event.key in record.assignments


def is_being_judged(record: LeaderRecord, event: GrantTimeout) -> bool:
    """The grant was answered, and the store is asked whether to believe it."""
    said, assignment = record.held.get(event.key), record.assignments.get(event.key)
    return said is not None and assignment is not None and said.grant == assignment.grant


def is_of_borrower(record: LeaderRecord, event: ExpiryTimer | HandOverTimer) -> bool:
    return event.key in record.members


# -- actions --------------------------------------------------------------------------------------------------------


def register(record: LeaderRecord, event: LeaderWanted, now_ns: int) -> Outcome:
    """A new borrower: a fresh registration, its answer, new shares."""
    number = record.registration + 1
    first = () if record.heard or record.asked else (hear_by(record, now_ns),)
    link = StreamLink(event.borrower, record.id, record.epoch, number)
    member = MemberRecord(link, record.configuration)
    members = record.members.set(event.borrower, member)
    draft = Draft(replace(record, registration=number, members=members, asked=not record.heard), now_ns)
    draft.effects.extend((*first, *MEMBER.start(member, now_ns)))
    draft.step_member(event.borrower, event)
    reassign(draft)
    return draft.finish()


def hear_by(record: LeaderRecord, now_ns: int) -> SetTimer:
    """If no member has been heard until then, they do not reach us."""
    configuration = record.configuration
    wait_ms = min(configuration.validity_ms, configuration.idle_stop_ms)
    return SetTimer("idle", now_ns + wait_ms * MS)


def answer_again(record: LeaderRecord, event: LeaderWanted, now_ns: int) -> Outcome:
    draft = Draft(record, now_ns)
    draft.step_member(event.borrower, event)
    return draft.finish()


def take_ping(record: LeaderRecord, event: Ping, now_ns: int) -> Outcome:
    """Answer it; its reports are progress."""
    draft = Draft(record, now_ns)
    was_heard = record.members[event.borrower].answered
    member = draft.step_member(event.borrower, event)
    if member.answered and not was_heard:
        draft.record = replace(draft.record, heard=record.heard + 1, asked=False)
    if member.status is REGISTERED:
        ended = [take_report(draft, event, report) for report in event.reports]
        if any(ended):
            reassign(draft)
        elif draft.record.status is LEADING:
            hand_out(draft)
    return draft.finish()


def take_report(draft: Draft, ping: Ping, report: Report) -> bool:
    """As `update_progress`; whether the stream ended by it."""
    if not owns(draft.record, ping.borrower, report.stream, report.grant):
        return False
    if not is_covered(draft.record, report.stream, find_reach(report.progress, report.acked)):
        hold(draft, report.stream, make_held(ping.borrower, report))
        return False
    live = draft.record.live
    step_owned(draft, make_update(ping.borrower, ping.epoch, ping.registration, report))
    return draft.record.live < live


def make_held(borrower: str, said: Report | UpdateProgress) -> UncoveredProgress:
    """What a borrower said, to be kept until it is judged."""
    at = (borrower, said.grant, said.progress, said.finished)
    return UncoveredProgress(*at, failed=said.failed, in_hand=said.in_hand, acked=said.acked, reason=said.reason)


def take_progress(record: LeaderRecord, event: UpdateProgress, now_ns: int) -> Outcome:
    """Progress from the owner of the grant."""
    draft = Draft(record, now_ns)
    draft.step_member(event.borrower, HEARD)
    step_owned(draft, event)
    if draft.record.status is LEADING:
        hand_out(draft)  # an answered grant makes room for the next
    return draft.finish()


def step_owned(draft: Draft, event: UpdateProgress) -> None:
    """To the assignment; what became granted above its owner's share is taken back at once, and so is a stream whose
    next message failed too often."""
    before = draft.record.assignments[event.stream].status
    draft.step_assignment(event.stream, event)
    after = draft.record.assignments[event.stream].status
    if after is not GRANTED or draft.record.status is not LEADING:
        return
    member = draft.record.members[event.borrower]
    is_new = before is not GRANTED
    if is_spent(draft.record, event.stream) or (
        is_new and member.count > member.share and member.revoking < member.configuration.grant_window
    ):
        draft.step_assignment(event.stream, TakeBack())


def take_end(record: LeaderRecord, event: UpdateProgress, now_ns: int) -> Outcome:
    """The stream has ended: there are fewer to share."""
    draft = Draft(record, now_ns)
    draft.step_member(event.borrower, HEARD)
    live = draft.record.live
    step_owned(draft, event)
    if draft.record.live < live:
        reassign(draft)
    return draft.finish()


def hear(record: LeaderRecord, event: UpdateProgress | RevokeFinished, now_ns: int) -> Outcome:
    """Of a grant that is over: it shows that the borrower lives, nothing more."""
    draft = Draft(record, now_ns)
    draft.step_member(event.borrower, HEARD)
    return draft.finish()


def take_back_finished(record: LeaderRecord, event: RevokeFinished, now_ns: int) -> Outcome:
    """The owner has let go: the stream is free."""
    draft = Draft(record, now_ns)
    draft.step_member(event.borrower, HEARD)
    draft.step_assignment(event.stream, event)
    member = draft.record.members[event.borrower]
    draft.set_member(replace(member, grants=member.grants.delete(event.grant)))
    draft.release(event.stream)
    if draft.record.status is LEADING:
        take_back(draft, event.borrower)
        hand_out(draft)
    return draft.finish()


def say_invalid(record: LeaderRecord, event: Ping | UpdateProgress, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """Told under the numbers it believes in."""
    return record, (Send(event.borrower, Invalidate(event.borrower, event.epoch, event.registration)),)


def take_farewell(record: LeaderRecord, event: Disconnect, now_ns: int) -> Outcome:
    """Its last word: progress of what it held under its grants; all that it held is free."""
    draft = Draft(record, now_ns)
    grants = record.members[event.borrower].grants
    for report in event.reports:
        if grants.get(report.grant) != report.stream:
            continue
        if is_covered(draft.record, report.stream, find_reach(report.progress, report.acked)):
            take_last_word(draft, report)
        else:
            hold(draft, report.stream, make_held(event.borrower, report))
    step_out(draft, event.borrower, event)
    return draft.finish()


def take_last_word(draft: Draft, report: Report) -> None:
    """The progress counts whether or not the assignment still stands (it does not, once the borrower lapsed)."""
    record = draft.record
    assignment = record.assignments.get(report.stream)
    if assignment is not None and assignment.grant == report.grant:
        if is_last(report):
            assignment = replace(assignment, finished=True)
            record = draft.record = replace(record, assignments=record.assignments.set(report.stream, assignment))
        progress, acked = join_report(assignment, report)
        if progress > assignment.progress or acked != assignment.acked:
            failed = report.failed if progress == report.progress else 0
            moved = replace(assignment, progress=progress, failed=failed, acked=acked)
            draft.record = replace(record, assignments=record.assignments.set(report.stream, moved))
            draft.note_progress(report.stream, progress, acked)
        if report.failed and report.progress >= assignment.progress:
            note_report(draft, report)
        return
    if assignment is None:
        draft.learn_progress(report.stream, report.progress, report.acked)


def let_go(draft: Draft, borrower: str) -> None:
    """The latest assignments of the member are over, in the order of the grants; the member keeps the grants."""
    member = draft.record.members[borrower]
    for grant in sorted(nlargest(FREED_MAX, member.grants)):
        end_assignment(draft, member.grants[grant], grant, member.left)


def end_assignment(draft: Draft, stream: str, grant: int, has_left: bool) -> None:
    """The assignment of this grant is over, if it still stands.  `has_left`: its borrower had a final word."""
    assignment = draft.record.assignments.get(stream)
    if assignment is not None and assignment.grant == grant:
        if not has_left:
            note_loss(draft, stream)
        draft.step_assignment(stream, Release())


def free_some(draft: Draft, borrower: str, has_left: bool) -> None:
    """The earliest streams of a member that is out are free."""
    grants = draft.record.members[borrower].grants
    for grant in nsmallest(FREED_MAX, grants):
        end_assignment(draft, grants[grant], grant, has_left)
        draft.release(grants[grant])
        grants = grants.delete(grant)
    draft.set_member(replace(draft.record.members[borrower], grants=grants))


def forget(draft: Draft, borrower: str, heard: bool = False) -> None:
    """A member that is gone: its streams are free, it is known no more, the others share anew.  `heard`: just now."""
    free_some(draft, borrower, heard or draft.record.members[borrower].left)
    record = draft.record
    member = record.members[borrower]
    draft.record = replace(record, members=record.members.delete(borrower), heard=record.heard - member.answered)
    if (heard or member.answered) and not draft.record.heard:
        fall_silent(draft)
    reassign(draft)


def fall_silent(draft: Draft) -> None:
    """The last member that was heard is gone: the idle time begins, or those who are left are to be heard soon."""
    record = draft.record = replace(draft.record, asked=bool(draft.record.members))
    idle = SetTimer("idle", draft.now_ns + record.configuration.idle_stop_ms * MS)
    draft.effects.append(hear_by(record, draft.now_ns) if record.asked else idle)


def step_out(draft: Draft, borrower: str, event: Event) -> None:
    """Expiry, kick, hand-over or disconnect: the member lapses, frees some of its streams, or is gone."""
    before = draft.record.members[borrower].status
    after = draft.step_member(borrower, event).status
    if after is GONE:
        forget(draft, borrower, heard=type(event) is Disconnect)
    elif after is LAPSED and before is not LAPSED:
        let_go(draft, borrower)
        reassign(draft)
    elif after is LAPSED and type(event) is HandOverTimer:
        free_some(draft, borrower, draft.record.members[borrower].left)
        if draft.record.status is LEADING:
            hand_out(draft)


def expire(record: LeaderRecord, event: ExpiryTimer | HandOverTimer, now_ns: int) -> Outcome:
    draft = Draft(record, now_ns)
    step_out(draft, event.key, event)
    return draft.finish()


def resend(record: LeaderRecord, event: ResendTimer, now_ns: int) -> Outcome:
    draft = Draft(record, now_ns)
    draft.step_assignment(event.key, event)
    return draft.finish()


def give_up(record: LeaderRecord, event: GrantTimeout | RevokeTimeout, now_ns: int) -> Outcome:
    """The assignment is over, and the borrower that did not answer the grant or finish the revoke is kicked."""
    draft = Draft(record, now_ns)
    borrower = record.assignments[event.key].link.borrower
    note_loss(draft, event.key)
    draft.step_assignment(event.key, event)
    if event.key not in draft.record.assignments:
        step_out(draft, borrower, Kick())
    return draft.finish()
