"""Assignment and Member: the leader's side of one stream and of one borrower (SS-60 to SS-89)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from statemachines.kernel import CancelTimer, Map, Send, SetTimer
from statemachines.shared_subscriptions.assignment import (
    ASSIGNMENT,
    Assign,
    AssignmentRecord,
    AssignmentStatus,
    GrantTimeout,
    Release,
    ResendTimer,
    RevokeTimeout,
    TakeBack,
    Vanish,
)
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.member import (
    MEMBER,
    ExpiryTimer,
    HandOverTimer,
    Heard,
    Kick,
    MemberRecord,
    MemberStatus,
)
from statemachines.shared_subscriptions.message import (
    END_OF_STREAM,
    Disconnect,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    Revoke,
    Revoked,
    RevokeFinished,
    UpdateProgress,
)
from statemachines.shared_subscriptions.stream import StreamLink

B = "c1~1/1"
LINK = StreamLink(B, "leader~1/1", 5, 2)
PAIR = (B, 5, 2)
NONE, GRANTING, GRANTED, REVOKING, REVOKED = AssignmentStatus


def assignment(status):
    return AssignmentRecord(LINK, "s", 7, 100, 1000 * MS, 5_000 * MS, 10_000 * MS, status)


def progress(offset, finished=False):
    return UpdateProgress(*PAIR, "s", 7, offset, finished)


def step(status, event, now_ns=0):
    done = ASSIGNMENT.step(assignment(status), event, now_ns)
    assert done == ASSIGNMENT.reference_step(assignment(status), event, now_ns)
    return done.record.status, [effect.message for effect in done.effects if isinstance(effect, Send)]


GRANT, REVOKE, TAKEN = Grant(*PAIR, "s", 7, 100), Revoke(*PAIR, "s", 7), Revoked(*PAIR, "s", 7)


def test_ss80_assign_sends_the_grant_and_arms_the_resend():
    done = ASSIGNMENT.step(assignment(NONE), Assign(), 5)
    resend, timeout = SetTimer("resend", 1000 * MS + 5, "s"), SetTimer("grant_timeout", 5000 * MS + 5, "s")
    assert done.effects == (resend, timeout, Send(B, GRANT))
    assert done.record.status is GRANTING


@pytest.mark.parametrize("status", [GRANTING, GRANTED, REVOKING, REVOKED])
def test_ss80_a_second_assign_changes_nothing(status):
    assert step(status, Assign()) == (status, [])


@pytest.mark.parametrize(("status", "message"), [(GRANTING, GRANT), (REVOKING, REVOKE), (REVOKED, TAKEN)])
def test_ss81_what_is_not_answered_is_sent_again(status, message):
    assert step(status, ResendTimer("s")) == (status, [message])
    effects = ASSIGNMENT.step(assignment(status), ResendTimer("s"), 9).effects
    assert effects[0] == SetTimer("resend", 1000 * MS + 9, "s")


def test_ss82_progress_makes_it_granted_and_is_kept():
    assert step(GRANTING, progress(100)) == (GRANTED, [])
    taken_back = (CancelTimer("resend", "s"), CancelTimer("grant_timeout", "s"))
    assert ASSIGNMENT.step(assignment(GRANTING), progress(100), 0).effects == taken_back
    assert ASSIGNMENT.step(assignment(GRANTED), progress(130), 0).record.progress == 130
    assert ASSIGNMENT.step(assignment(GRANTED), progress(90), 0).record.progress == 100


@pytest.mark.parametrize("status", [NONE, GRANTING, REVOKING, REVOKED])
def test_ss83_only_a_granted_stream_is_taken_back(status):
    assert step(status, TakeBack()) == (status, [])
    assert step(GRANTED, TakeBack()) == (REVOKING, [REVOKE])


@pytest.mark.parametrize("status", [GRANTING, GRANTED, REVOKING])
def test_ss84_the_end_of_the_stream_revokes_from_any_status(status):
    assert step(status, progress(END_OF_STREAM)) == (REVOKED, [TAKEN])


def test_ss84_the_final_progress_ends_the_revoke():
    assert step(REVOKING, progress(120, True)) == (REVOKED, [TAKEN])


def test_ss85_other_progress_never_leaves_revoking_nor_restarts_its_timeout():
    assert step(REVOKING, progress(120)) == (REVOKING, [])
    for status in (REVOKING, REVOKED):
        assert ASSIGNMENT.step(assignment(status), progress(120), 0).record.progress == 120
    assert ASSIGNMENT.step(assignment(REVOKING), progress(120), 50).effects == ()


@pytest.mark.parametrize("status", [GRANTING, GRANTED, REVOKING, REVOKED])
@pytest.mark.parametrize("event", [RevokeFinished(*PAIR, "s", 7), Release()])
def test_ss86_ss88_the_stream_is_free(status, event):
    assert step(status, event) == (NONE, [])


@pytest.mark.parametrize("status", [REVOKING, REVOKED])
def test_ss87_the_revoke_timeout(status):
    assert step(status, RevokeTimeout("s")) == (NONE, [])


def test_ss87_the_timeout_runs_on_from_revoking_to_revoked():
    names = [
        getattr(effect, "timer", "") for effect in ASSIGNMENT.step(assignment(REVOKING), progress(1, True), 0).effects
    ]
    assert "revoke_timeout" not in names


@pytest.mark.parametrize(
    ("status", "event"),
    [
        *((NONE, event) for event in (progress(120), progress(120, True), RevokeFinished(*PAIR, "s", 7), Release())),
        *((status, ResendTimer("s")) for status in (NONE, GRANTED)),
        *((status, RevokeTimeout("s")) for status in (NONE, GRANTING, GRANTED)),
        *((status, GrantTimeout("s")) for status in (NONE, GRANTED, REVOKING, REVOKED)),
    ],
)
def test_ss89_what_comes_after_the_end_and_late_timers_change_nothing(status, event):
    done = ASSIGNMENT.step(assignment(status), event, 0)
    assert (done.record, done.effects) == (assignment(status), ())


def test_ss91_a_grant_that_nobody_answers_is_over():
    assert step(GRANTING, GrantTimeout("s")) == (NONE, [])


def test_ss91_to_say_it_again_waits_no_longer():
    effects = ASSIGNMENT.step(assignment(GRANTING), ResendTimer("s"), 9).effects
    assert [getattr(effect, "timer", "") for effect in effects] == ["resend", ""]


@pytest.mark.parametrize("status", [GRANTING, GRANTED, REVOKING])
def test_ss90_what_the_store_has_dropped_is_revoked_whatever_its_status(status):
    assert step(status, Vanish()) == (REVOKED, [TAKEN])
    assert step(REVOKED, Vanish()) == (REVOKED, [])


# -- member ---------------------------------------------------------------------------------------------------------


def member(**changes):
    return replace(MemberRecord(LINK, Configuration()), **changes)


HELD = {"answered": True, "answered_at_ns": 1000 * MS, "grants": Map({7: "s"}), "count": 1}
GONE_WORD = Send(B, Invalidate(*PAIR))


def expiry(at_ms):
    return SetTimer("expiry", at_ms * MS, B)


def test_ss60_leader_wanted_is_answered_again_with_the_same_registration():
    done = MEMBER.step(member(), LeaderWanted(B, "g", "t/#"), 1000 * MS)
    assert done.effects == (expiry(6000), Send(B, LeaderConnectResponse(B, "leader~1/1", 5, 2)))


def test_ss61_a_ping_is_answered_and_its_receipt_kept():
    done = MEMBER.step(member(), Ping(*PAIR, 9), 1000 * MS)
    assert done.effects == (expiry(6000), Send(B, PingResponse(*PAIR, 9)))
    assert (done.record.answered, done.record.answered_at_ns) == (True, 1000 * MS)


def test_ss62_any_message_moves_the_expiry():
    assert MEMBER.step(member(), Heard(), 2000 * MS).effects == (expiry(7000),)


@pytest.mark.parametrize("event", [ExpiryTimer(B), Kick()])
@pytest.mark.parametrize(
    "record",
    [
        member(),
        member(**HELD | {"answered": False}),
        member(**HELD | {"configuration": Configuration(exclusive=False)}),
    ],
)
def test_ss63_without_a_lease_it_is_gone_at_once(record, event):
    done = MEMBER.step(record, event, 0)
    assert done.record.status is MemberStatus.GONE
    assert GONE_WORD in done.effects


@pytest.mark.parametrize("event", [ExpiryTimer(B), Kick()])
def test_ss64_with_a_lease_its_streams_wait_for_the_surest_end(event):
    done = MEMBER.step(member(**HELD), event, 6000 * MS)
    assert done.record.status is MemberStatus.LAPSED
    # 1000 ms + 3000 ms * 1.01 / 0.99, rounded up to the nanosecond
    assert SetTimer("hand_over", 4_060_606_061, B) in done.effects
    assert GONE_WORD in done.effects


@pytest.mark.parametrize("status", [MemberStatus.REGISTERED, MemberStatus.LAPSED])
def test_ss65_a_disconnect_is_a_final_word(status):
    assert MEMBER.step(member(**HELD, status=status), Disconnect(*PAIR), 0).record.status is MemberStatus.GONE


def test_ss66_a_lapsed_borrower_that_pings_is_told():
    assert MEMBER.step(member(**HELD, status=MemberStatus.LAPSED), Ping(*PAIR, 1), 0).effects == (GONE_WORD,)


@pytest.mark.parametrize("said", [Ping(*PAIR, 7), LeaderWanted(B, "g", "t/#"), Heard(), ExpiryTimer(B)])
def test_ss66_ss68_what_a_lapsed_borrower_says_gives_it_no_time(said):
    """It is told again that it is gone, and its ping is not answered; its lease ends when it would have."""
    lapsed = member(**HELD, status=MemberStatus.LAPSED)
    done = MEMBER.step(lapsed, said, 10**12)
    assert done.record == lapsed
    assert done.effects == ((GONE_WORD,) if isinstance(said, Ping) else ())


def test_ss67_the_hand_over_ends_it():
    lapsed = member(**HELD, status=MemberStatus.LAPSED)
    assert MEMBER.step(lapsed, HandOverTimer(B), 0).record.status is MemberStatus.GONE


def test_ss68_a_late_leader_wanted_does_not_bring_a_lapsed_borrower_back():
    lapsed = member(**HELD, status=MemberStatus.LAPSED)
    done = MEMBER.step(lapsed, LeaderWanted(B, "g", "t/#"), 0)
    assert (done.record, done.effects) == (lapsed, ())


def test_ss68_a_late_hand_over_timer_changes_nothing():
    done = MEMBER.step(member(**HELD), HandOverTimer(B), 0)
    assert (done.record, done.effects) == (member(**HELD), ())
