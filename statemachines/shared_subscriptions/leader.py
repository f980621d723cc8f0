"""Leader: of one group and topic filter (source: "Leader", "Leader's logic", "Leader's state").

`candidate -> loading -> waiting -> leading -> releasing -> resigned`, and to resigned from everywhere; while somebody
else holds the claim, `candidate -> follower -> candidate`.  It takes the claim of the group, loads what earlier leaders
committed, waits until nobody can hold a lease from before, registers borrowers, shares the streams among them, and
commits the progress that they report.  After the end of its claim, by its own clock, it handles nothing more.  A
follower passes borrowers on to the holder of the claim.

What it does with the claim stands in `claim`, with streams in `listing`, with borrowers in `membership`, with progress
that is not believed yet in `measuring`, with shares in `plan`.
"""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Delegate,
    Effect,
    Effects,
    Event,
    Fsm,
    Ignore,
    Invariant,
    Row,
    Send,
    SetTimer,
    Stop,
    Tell,
    Timer,
    TimerFired,
    in_order,
    keys_in_order,
    node_of,
)
from statemachines.shared_subscriptions import claim
from statemachines.shared_subscriptions.assignment import ASSIGNMENT, GrantTimeout, ResendTimer, RevokeTimeout
from statemachines.shared_subscriptions.claim import (
    ClaimEnd,
    CommitTimer,
    Halt,
    HeartbeatTimer,
    RecheckTimer,
    RetryTimer,
    StartLeader,
)
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.dead_letter import LetterRefused, LetterStored
from statemachines.shared_subscriptions.dead_letter_queue import (
    and_ask,
    begin,
    finish_letter,
    is_letter,
    keep_message,
)
from statemachines.shared_subscriptions.failed_deliveries import is_look_at_parked
from statemachines.shared_subscriptions.group_store import (
    Committed,
    ReadDone,
    Refused,
    Scanned,
    StoreFailed,
)
from statemachines.shared_subscriptions.leader_record import (
    CANDIDATE,
    CLAIMED,
    FOLLOWER,
    HOLDING,
    LEADING,
    LOADING,
    LOOKING,
    RELEASING,
    RESIGNED,
    SERVING,
    WAITING,
    LeaderRecord,
    LeaderStatus,
    Rank,
)
from statemachines.shared_subscriptions.listing import (
    RenewTimer,
    is_blind,
    is_listing,
    is_partial,
    is_whole_with_grace,
    learn_and_share,
    learn_last,
    learn_page,
    load_streams,
    look_again,
    resume_skipped,
    try_load_later,
    try_renew_later,
)
from statemachines.shared_subscriptions.member import MEMBER, REGISTERED, ExpiryTimer, HandOverTimer
from statemachines.shared_subscriptions.membership import (
    Outcome,
    answer_again,
    ends_stream,
    expire,
    give_up,
    has_room,
    hear,
    is_being_judged,
    is_known,
    is_of_assignment,
    is_of_borrower,
    is_of_member,
    is_of_owner,
    is_of_registered,
    register,
    resend,
    say_invalid,
    take_back_finished,
    take_end,
    take_farewell,
    take_ping,
    take_progress,
)
from statemachines.shared_subscriptions.message import (
    Disconnect,
    Invalidate,
    LeaderWanted,
    Ping,
    RelayedToBorrower,
    RelayedToLeader,
    RevokeFinished,
    Undeclared,
    UpdateProgress,
)
from statemachines.shared_subscriptions.plan import COUNTED, Draft, has_ended, reassign
from statemachines.shared_subscriptions.progress_cover import MeasureTimer
from statemachines.shared_subscriptions.stream_measure import (
    hold_progress,
    is_beyond,
    is_measure,
    judge_held,
    measure_again,
    measure_later,
)
from statemachines.shared_subscriptions.stream_store import FetchFailed, Measured, StreamsListed

ASKERS_MAX = 1_000
"""A leader that cannot answer yet remembers no more borrowers than this; the others ask again."""


class GraceEnd(TimerFired, frozen=True, gc=False):
    """Every lease from before the claim has surely ended."""


class IdleTimer(TimerFired, frozen=True, gc=False):
    """Nobody has been heard as a member for a while."""


class Resigned(Event, frozen=True, gc=False):
    """To the registry: this leader is gone, and why.  `unfit`: another had better lead: borrowers asked for
    this one, and none of them hears it, or it does not reach the stream store."""

    leader: str
    group: str
    filter: str
    why: str
    unfit: bool = False


# -- guards ---------------------------------------------------------------------------------------------------------


def has_room_to_remember(record: LeaderRecord, event: LeaderWanted) -> bool:
    return len(record.askers) < ASKERS_MAX


def nobody_is_heard(record: LeaderRecord, event: IdleTimer) -> bool:
    return not record.heard


def is_idle(record: LeaderRecord, event: IdleTimer) -> bool:
    return nobody_is_heard(record, event) and claim.can_commit(record, event)


def knows_holder(record: LeaderRecord, event: LeaderWanted) -> bool:
    return record.holder != ""


def is_for_holder(record: LeaderRecord, event: RelayedToLeader) -> bool:
    return event.leader == record.holder


def is_of_holder(record: LeaderRecord, event: RelayedToBorrower) -> bool:
    """Of the leader that we follow, or of the node that it lived on."""
    return node_of(event.leader) == node_of(record.holder)


# -- until it leads -------------------------------------------------------------------------------------------------


def remember(record: LeaderRecord, event: LeaderWanted, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """Whether there is a group at all is not known yet."""
    return replace(record, askers=record.askers.set(event.borrower, True)), ()


def pass_on(record: LeaderRecord, event: LeaderWanted, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """To the leader, which answers through us."""
    relayed = RelayedToLeader(record.holder, record.id, event)
    return record, (claim.idle_later(record, now_ns), Send(record.holder, relayed))


def relay_to_leader(record: LeaderRecord, event: RelayedToLeader, now_ns: int) -> tuple[LeaderRecord, Effects]:
    return record, (claim.idle_later(record, now_ns), Send(record.holder, event))


def relay_to_borrower(record: LeaderRecord, event: RelayedToBorrower, now_ns: int) -> tuple[LeaderRecord, Effects]:
    return record, (Send(event.borrower, event),)


def refuse_undeclared(record: LeaderRecord, event: ReadDone, now_ns: int) -> tuple[LeaderRecord, Effects]:
    told = tuple(Send(borrower, Undeclared(borrower)) for borrower in keys_in_order(record.askers))
    return record, (*told, *tell_resigned(record, "the group is not declared"))


# -- being idle -----------------------------------------------------------------------------------------------------


def stay_idle(record: LeaderRecord, event: IdleTimer, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """A commit is under way: stop after it.  Not a whole interval later, when the next may be under way."""
    return record, (SetTimer("idle", now_ns + record.configuration.commit_interval_ms * MS // 2),)


# -- the grace ------------------------------------------------------------------------------------------------------


def end_grace(record: LeaderRecord, event: GraceEnd, now_ns: int) -> tuple[LeaderRecord, Effects]:
    return replace(record, grace=False), ()


def end_grace_and_share(record: LeaderRecord, event: GraceEnd, now_ns: int) -> Outcome:
    """The leader leads from here on, so that the plan may assign."""
    draft = Draft(replace(record, grace=False, status=LEADING), now_ns)
    reassign(draft)
    return draft.finish()


# -- the end --------------------------------------------------------------------------------------------------------


def make_farewells(record: LeaderRecord) -> Effects:
    """Every registered borrower is told to look for another leader."""
    return tuple(
        Send(borrower, Invalidate(borrower, record.epoch, member.link.registration))
        for borrower, member in in_order(record.members)
        if member.status is REGISTERED
    )


def tell_resigned(record: LeaderRecord, why: str) -> tuple[Effect, ...]:
    return (Tell(Resigned(record.id, record.group, record.filter, why, record.unfit)), Stop())


def resign(record: LeaderRecord, event: Event, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """The claim is lost, or may be."""
    return record, (*make_farewells(record), *tell_resigned(record, "the claim is lost"))


def resign_unclaimed(record: LeaderRecord, event: Halt | IdleTimer, now_ns: int) -> tuple[LeaderRecord, Effects]:
    return record, tell_resigned(record, "it never led")


def refuse_group(record: LeaderRecord, event: ReadDone, now_ns: int) -> tuple[LeaderRecord, Effects]:
    return record, tell_resigned(record, "the group lives by other ping or claim times")


def resign_released(record: LeaderRecord, event: Event, now_ns: int) -> tuple[LeaderRecord, Effects]:
    return record, tell_resigned(record, "it cannot serve, and gave the claim up" if record.unfit else "released")


def say_farewell(record: LeaderRecord, event: Halt, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """A commit is under way: the claim is given up after it."""
    return record, make_farewells(record)


def say_farewell_and_release(
    record: LeaderRecord, event: Halt | IdleTimer | FetchFailed, now_ns: int
) -> tuple[LeaderRecord, Effects]:
    told = make_farewells(record)
    record, asked = claim.release(record, now_ns)
    return record, (*told, *asked)


def let_go_idle(record: LeaderRecord, event: IdleTimer, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """Nobody is here, or nobody who is here was ever heard: they do not reach us."""
    return say_farewell_and_release(replace(record, unfit=record.asked), event, now_ns)


def let_go_blind(record: LeaderRecord, event: FetchFailed, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """It does not reach the stream store; another host may."""
    return say_farewell_and_release(replace(record, unfit=True), event, now_ns)


def say_farewell_disowned(record: LeaderRecord, event: Refused, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """The group was destroyed: everybody is told, and the claim is given up."""
    told = make_farewells(record)
    record, asked = claim.release_disowned(record, event, now_ns)
    return record, (*told, *asked)


def release_now(record: LeaderRecord, event: Committed, now_ns: int) -> tuple[LeaderRecord, Effects]:
    record, kept = claim.renew_claim(record, event, now_ns)
    record, asked = claim.release(record, now_ns)
    return record, (*kept, *asked)


BORROWERS = (LeaderWanted, Ping, UpdateProgress, RevokeFinished, Disconnect)
CHILD_TIMERS = (ExpiryTimer, HandOverTimer, ResendTimer, GrantTimeout, RevokeTimeout)

# fmt: off
ROWS = (
    #   on             from        to         do                           when                       clause
    Row(StartLeader,   CANDIDATE,  STAY,      begin,                       None,                      "SS-120"),
    Row(LeaderWanted,  CANDIDATE,  STAY,      remember,                    has_room_to_remember,      "SS-138"),
    Row(LeaderWanted,  FOLLOWER,   STAY,      pass_on,                     knows_holder,              "SS-135"),
    Row(RelayedToLeader,   FOLLOWER, STAY,    relay_to_leader,             is_for_holder,             "SS-274"),
    Row(RelayedToBorrower, FOLLOWER, STAY,    relay_to_borrower,           is_of_holder,              "SS-274"),
    Row(RetryTimer,    LOOKING,    STAY,      claim.look,                  None,                      "SS-121"),
    Row(ReadDone,      LOOKING,    RESIGNED,  refuse_undeclared,           claim.is_undeclared,       "SS-138"),
    Row(ReadDone,      LOOKING,    RESIGNED,  refuse_group,                claim.differs,             "SS-122"),
    Row(ReadDone,      CANDIDATE,  LOADING,   claim.took_before,           claim.is_ours_already,     "SS-123"),
    Row(ReadDone,      CANDIDATE,  STAY,      claim.take,                  claim.is_claimable,        "SS-120"),
    Row(ReadDone,      CANDIDATE,  FOLLOWER,  claim.follow_from_now,       claim.is_load,             "SS-135"),
    Row(ReadDone,      FOLLOWER,   CANDIDATE, claim.take,                  claim.is_claimable,        "SS-136"),
    Row(ReadDone,      FOLLOWER,   STAY,      claim.follow,                claim.is_load,             "SS-135"),
    Row(StoreFailed,   FOLLOWER,   STAY,      claim.look_later,            claim.is_load,             "SS-121"),
    Row(IdleTimer,     FOLLOWER,   RESIGNED,  resign_unclaimed,            None,                      "SS-137"),
    Row(Committed,     CANDIDATE,  LOADING,   claim.took,                  claim.is_trial,            "SS-123"),
    Row(Refused,       CANDIDATE,  STAY,      claim.look_later,            claim.is_trial,            "SS-121"),
    Row(StoreFailed,   CANDIDATE,  STAY,      claim.look_later,            claim.is_awaited,          "SS-121"),

    Row(ReadDone,      LOADING,    STAY,      claim.load_progress,         claim.is_load,             "SS-124"),
    Row(Scanned,       LOADING,    STAY,      load_streams,                claim.is_last_page,        "SS-124"),
    Row(Scanned,       LOADING,    STAY,      claim.load_page,             claim.is_load,             "SS-124"),
    Row(StreamsListed, LOADING,    STAY,      learn_page,                  is_partial,                "SS-125"),
    Row(StreamsListed, LOADING,    WAITING,   learn_last,                  is_whole_with_grace,       "SS-126"),
    Row(StreamsListed, LOADING,    LEADING,   learn_last,                  is_listing,                "SS-125"),
    Row(StoreFailed,   LOADING,    STAY,      claim.look_later,            claim.is_load,             "SS-121"),
    Row(FetchFailed,   LOADING,    RELEASING, let_go_blind,                is_blind,                  "SS-280"),
    Row(FetchFailed,   LOADING,    STAY,      try_load_later,              is_listing,                "SS-121"),
    Row(RetryTimer,    LOADING,    STAY,      claim.load,                  None,                      "SS-121"),
    Row(GraceEnd,      LOADING,    STAY,      end_grace,                   None,                      "SS-126"),
    Row(GraceEnd,      WAITING,    LEADING,   Delegate(end_grace_and_share), None,                    "SS-126"),

    Row(RenewTimer,    SERVING,    STAY,      look_again,                  None,                      "SS-125"),
    Row(Scanned,       SERVING,    STAY,      Delegate(resume_skipped),    is_look_at_parked,         "SS-343"),
    Row(LetterStored,  SERVING,    STAY,      Delegate(finish_letter),     is_letter,                 "SS-346"),
    Row(LetterRefused, SERVING,    STAY,      keep_message,                is_letter,                 "SS-348"),
    Row(FetchFailed,   SERVING,    STAY,      keep_message,                is_letter,                 "SS-348"),
    Row(StreamsListed, SERVING,    STAY,      Delegate(learn_and_share),   is_listing,                "SS-125"),
    Row(FetchFailed,   SERVING,    RELEASING, let_go_blind,                is_blind,                  "SS-280"),
    Row(FetchFailed,   SERVING,    STAY,      try_renew_later,             is_listing,                "SS-125"),

    Row(LeaderWanted,  SERVING,    STAY,      Delegate(answer_again),      is_known,                  "SS-140"),
    Row(LeaderWanted,  SERVING,    STAY,      Delegate(register),          has_room,                  "SS-140"),
    Row(Ping,          SERVING,    STAY,      Delegate(take_ping),         is_of_member,              "SS-141"),
    Row(Ping,          SERVING,    STAY,      say_invalid,                 None,                      "SS-142"),
    Row(UpdateProgress, SERVING,   STAY,      Delegate(hold_progress),     is_beyond,                 "SS-157"),
    Row(UpdateProgress, SERVING,   STAY,      Delegate(take_end),          ends_stream,               "SS-144"),
    Row(UpdateProgress, SERVING,   STAY,      Delegate(take_progress),     is_of_owner,               "SS-143"),
    Row(UpdateProgress, SERVING,   STAY,      Delegate(hear),              is_of_registered,          "SS-145"),
    Row(UpdateProgress, SERVING,   STAY,      say_invalid,                 None,                      "SS-142"),
    Row(Measured,      SERVING,    STAY,      Delegate(judge_held),        is_measure,                "SS-158"),
    Row(FetchFailed,   SERVING,    STAY,      measure_later,               is_measure,                "SS-159"),
    Row(MeasureTimer,  SERVING,    STAY,      Delegate(measure_again),     None,                      "SS-159"),
    Row(RevokeFinished, SERVING,   STAY,      Delegate(take_back_finished), is_of_owner,              "SS-146"),
    Row(RevokeFinished, SERVING,   STAY,      Delegate(hear),              is_of_registered,          "SS-145"),
    Row(Disconnect,    SERVING,    STAY,      Delegate(take_farewell),     is_known,                  "SS-147"),
    Row(ExpiryTimer,   SERVING,    STAY,      Delegate(expire),            is_of_borrower,            "SS-148"),
    Row(HandOverTimer, SERVING,    STAY,      Delegate(expire),            is_of_borrower,            "SS-148"),
    Row(ResendTimer,   SERVING,    STAY,      Delegate(resend),            is_of_assignment,          "SS-149"),
    Row(GrantTimeout,  SERVING,    STAY,      None,                        is_being_judged,           "SS-91"),
    Row(GrantTimeout,  SERVING,    STAY,      Delegate(give_up),           is_of_assignment,          "SS-91"),
    Row(RevokeTimeout, SERVING,    STAY,      Delegate(give_up),           is_of_assignment,          "SS-149"),

    Row(HeartbeatTimer, CLAIMED,   STAY,      claim.commit,                claim.can_commit,          "SS-127"),
    Row(HeartbeatTimer, CLAIMED,   STAY,      claim.heartbeat_later,       None,                      "SS-127"),
    Row(CommitTimer,   SERVING,    STAY,      claim.commit,                claim.can_commit_staged,   "SS-128"),
    Row(Committed,     CLAIMED,    STAY,      and_ask(claim.renew_claim),  claim.is_trial,            "SS-129"),
    Row(Refused,       CLAIMED,    RELEASING, say_farewell_disowned,       claim.was_destroyed,       "SS-139"),
    Row(Refused,       CLAIMED,    RESIGNED,  resign,                      claim.is_trial,            "SS-130"),
    Row(StoreFailed,   CLAIMED,    STAY,      claim.recheck_later,         claim.is_trial,            "SS-131"),
    Row(StoreFailed,   CLAIMED,    STAY,      claim.recheck_later,         claim.is_check,            "SS-131"),
    Row(RecheckTimer,  CLAIMED,    STAY,      claim.check,                 claim.is_in_doubt,         "SS-131"),
    Row(ReadDone,      CLAIMED,    STAY,      and_ask(claim.renew_confirmed_claim), claim.is_written, "SS-131"),
    Row(ReadDone,      CLAIMED,    STAY,      claim.commit_again,          claim.is_unwritten,        "SS-131"),
    Row(ReadDone,      CLAIMED,    RESIGNED,  resign,                      claim.is_check,            "SS-130"),
    Row(ClaimEnd,      HOLDING,    RESIGNED,  resign,                      None,                      "SS-132"),

    Row(Halt,          SERVING,    RELEASING, say_farewell_and_release,    claim.can_commit,          "SS-133"),
    Row(Halt,          SERVING,    RELEASING, say_farewell,                None,                      "SS-133"),
    Row(Halt,          (*LOOKING, LOADING), RESIGNED, resign_unclaimed,    None,                      "SS-133"),
    Row(IdleTimer,     SERVING,    RELEASING, let_go_idle,                 is_idle,                   "SS-134"),
    Row(IdleTimer,     SERVING,    STAY,      stay_idle,                   nobody_is_heard,           "SS-134"),
    Row(Committed,     RELEASING,  RESIGNED,  resign_released,             claim.is_release,          "SS-133"),
    Row(Committed,     RELEASING,  STAY,      release_now,                 claim.is_trial,            "SS-133"),
    Row(Refused,       RELEASING,  STAY,      claim.release_disowned,      claim.was_destroyed,       "SS-139"),
    Row(Refused,       RELEASING,  RESIGNED,  resign_released,             claim.is_trial,            "SS-133"),
    Row(StoreFailed,   RELEASING,  RESIGNED,  resign_released,             claim.is_trial,            "SS-133"),

    Ignore(BORROWERS,                             (*LOOKING, LOADING, RELEASING),       "SS-150"),
    Ignore((LeaderWanted, RevokeFinished, Disconnect), SERVING,                         "SS-151"),
    Ignore((RelayedToLeader, RelayedToBorrower),  (*LOOKING, *HOLDING),                 "SS-274"),
    Ignore(CHILD_TIMERS,                          (*LOOKING, *HOLDING),                "SS-152"),
    Ignore((ReadDone, Committed, Refused, StoreFailed, Scanned, StreamsListed, Measured, FetchFailed, LetterStored,
            LetterRefused),                       (*LOOKING, *HOLDING),                "SS-153"),
    Ignore((RetryTimer, GraceEnd, RenewTimer, CommitTimer, RecheckTimer, HeartbeatTimer, ClaimEnd, IdleTimer,
            MeasureTimer),                        (*LOOKING, *HOLDING),                "SS-152"),
    Ignore((StartLeader,),                        (FOLLOWER, *HOLDING),                 "SS-120"),
    Ignore((Halt,),                               RELEASING,                            "SS-133"),
)

TIMERS = (
    Timer("retry",     RetryTimer,     (*LOOKING, LOADING)),
    Timer("claim_end", ClaimEnd,       HOLDING, authority=True),
    Timer("heartbeat", HeartbeatTimer, CLAIMED),
    Timer("grace",     GraceEnd,       (LOADING, WAITING)),
    Timer("renew",     RenewTimer,     SERVING),
    Timer("commit",    CommitTimer,    SERVING),
    Timer("recheck",   RecheckTimer,   CLAIMED),
    Timer("measure",   MeasureTimer,   SERVING),
    Timer("idle",      IdleTimer,      (FOLLOWER, *SERVING)),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def assignments_have_owners(record: LeaderRecord) -> bool:
    """Each assignment is one of its borrower's grants; with one per stream by its key, nobody else has it (S2)."""
    return all(has_owner(record, stream) for stream, _ in in_order(record.assignments))


def has_owner(record: LeaderRecord, stream: str) -> bool:
    assignment = record.assignments.get(stream)
    if assignment is None:
        return True
    member = record.members.get(assignment.link.borrower)
    return member is not None and member.grants.get(assignment.grant) == stream


def has_owner_of_touched(record: LeaderRecord, event: Event) -> bool:
    stream = getattr(event, "stream", None)
    return stream is None or has_owner(record, stream)


def counts_agree(record: LeaderRecord) -> bool:
    """What members count is what is assigned to them, and every live stream is assigned, free or held back."""
    counted: dict[str, int] = {}
    for _, assignment in in_order(record.assignments):
        if assignment.status in COUNTED:
            counted[assignment.link.borrower] = counted.get(assignment.link.borrower, 0) + 1
    return (
        all(member.count == counted.get(borrower, 0) for borrower, member in in_order(record.members))
        and record.live == sum(rank.live for _, rank in in_order(record.ranks) if rank.open)
        and all(rank.live == count_unread(record, rank) for _, rank in in_order(record.ranks))
        and record.live == len(list_waiting(record)) + len(list_held_streams(record) | list_unjudged_streams(record))
    )


def count_unread(record: LeaderRecord, rank: Rank) -> int:
    return sum(not has_ended(record, stream) for stream in keys_in_order(rank.streams))


def list_waiting(record: LeaderRecord) -> set[str]:
    """Streams that are free; what has vanished since does not count."""
    return {stream for _, stream in in_order(record.free.items) if stream in record.streams}


def list_held_streams(record: LeaderRecord) -> set[str]:
    """Unread streams that members hold, or may still hold."""
    return {
        stream
        for _, member in in_order(record.members)
        for _, stream in in_order(member.grants)
        if stream in record.streams and not has_ended(record, stream)
    }


def list_unjudged_streams(record: LeaderRecord) -> set[str]:
    """Unread streams of open ranks of which something is said that is not believed yet."""
    streams = ((stream, record.streams[stream]) for stream in keys_in_order(record.held))
    return {stream for stream, known in streams if record.ranks[known.rank].open and not has_ended(record, stream)}


LEADER = Fsm(
    "leader",
    protocol="shared_subscriptions",
    record=LeaderRecord,
    states=LeaderStatus,
    initial=CANDIDATE,
    final=(RESIGNED,),
    rows=ROWS,
    timers=TIMERS,
    children=(MEMBER, ASSIGNMENT),
    invariants=(
        Invariant("assignments-have-owners", "SS-160", assignments_have_owners, has_owner_of_touched),
        Invariant("counts-agree", "SS-161", counts_agree, lambda record, event: record.live >= 0),
    ),
)
