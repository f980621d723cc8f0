"""What leaders come to once faults have stopped (L4, L6, L9); resets come of faults only (L8): all can break."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from msgspec.structs import replace

from statemachines.kernel import Delegate
from statemachines.shared_subscriptions import member, membership
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.member import MEMBER
from statemachines.shared_subscriptions.membership import forget, register
from statemachines.shared_subscriptions.plan import Draft
from statemachines_spec.bug import change_rows, plant_bug, replace_call
from statemachines_spec.explorer.explore import explore
from statemachines_spec.explorer.network import Network
from statemachines_spec.liveness.judge import live
from statemachines_spec.shared_subscriptions.group_setting import GroupSetting
from statemachines_spec.shared_subscriptions.quiescent_properties import number_of
from statemachines_spec.shared_subscriptions.systems import SYSTEMS, build, obligations_of

CRASH = GroupSetting(consumers=1, crashes=1)
FAIL_OVER = GroupSetting(
    consumers=1, lives=3, leader_crashes=1, host_lives=2, epochs=2, claims_age=True, renews=True
)  # fmt: skip
SHARED = GroupSetting(topics=2, grants=4)
EXPIRES = GroupSetting(consumers=1, lives=2, timeouts=1, registrations=3)


def explored(setting):
    return explore(build("here", "", setting), engine="plain", hashing=False)


def met(setting, *starting):
    """Obligation -> what came of it, of those whose name starts so."""
    one = build("here", "", setting)
    chosen = [each for each in obligations_of(one) if each.name.startswith(starting)]
    return {result.name: result for result in live(one, chosen)}


def test_a_number_is_read_from_an_id():
    assert number_of("consumer-1~1/12") == 12


# -- L4 -------------------------------------------------------------------------------------------------------------


def test_a_leader_that_takes_nothing_back_rests_where_it_is_not_fair():
    with plant_bug("nothing-taken-back"):
        result = explored(SHARED)
    assert result.path.broken == "L4 at rest"


def test_the_streams_of_whoever_has_expired_are_shared_again():
    results = met(EXPIRES, "L4", "L9")
    assert all((result.is_held, result.bounded) == (True, 0) for result in results.values())
    assert results["L4 leader-1"].open_states > 0


def test_a_leader_that_never_shares_again_leaves_them_unshared():
    def expire_only(record, event, now_ns):
        with ExitStack() as stack:
            replace_call(membership, "reassign", lambda draft: None)(stack)
            return membership.expire(record, event, now_ns)

    with ExitStack() as stack:
        change_rows(LEADER, "expire", do=Delegate(expire_only))(stack)
        results = met(EXPIRES, "L4")
    assert not results["L4 leader-1"].is_held


# -- L6 -------------------------------------------------------------------------------------------------------------


def test_after_a_crash_somebody_leads_again():
    results = met(FAIL_OVER, "L1", "L6")
    assert all((result.is_held, result.bounded) == (True, 0) for result in results.values())
    assert results["L6"].open_states > 0


def test_a_leader_that_never_takes_an_old_claim_leaves_everybody_alone():
    def only_unclaimed(record, event):
        return event.n == record.load_n and event.records[0] is None

    with ExitStack() as stack:
        change_rows(LEADER, "take", when=only_unclaimed)(stack)
        results = met(FAIL_OVER, "L1", "L6")
    assert not results["L6"].is_held
    assert not results["L1 consumer-1"].is_held


# -- L8 -------------------------------------------------------------------------------------------------------------


LEAVING = ("unsubscribe", "idle-stop", "fire-and-forget", "leaving")
"""There consumers unsubscribe, which looks like a reset from outside."""

KICKED = ("lies", "two-lies")
"""There they say what the store does not cover, and are kicked for it."""


PUT_BACK = ("restored-claim",)
"""There a store forgets who leads, and whoever follows that begins anew."""


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name not in (*LEAVING, *KICKED, *PUT_BACK, "election")])
def test_every_system_says_how_many_resets_its_faults_explain(name):
    about, sizes = SYSTEMS[name]
    one = build(name, about, replace(GroupSetting(), **sizes["small"]))
    assert "L8" in [each.name for each in one.properties]


def test_a_leader_that_registers_anew_whoever_asks_twice_resets_borrowers_without_a_fault():
    def forget_and_register(record, event, now_ns):
        draft = Draft(record, now_ns)
        forget(draft, event.borrower)
        gone, first, old = draft.finish()
        after, second, new = register(gone, event, now_ns)
        return after, first + second, old + new

    late = GroupSetting(consumers=1, registrations=3, network=Network(2))
    assert explored(late).is_held
    with ExitStack() as stack:
        change_rows(LEADER, "answer_again", do=Delegate(forget_and_register))(stack)
        result = explored(late)
    assert result.path.broken == "L8"


# -- L9 -------------------------------------------------------------------------------------------------------------


def test_whoever_is_dead_is_gone_at_last():
    (result,) = met(CRASH, "L9").values()
    assert (result.is_held, result.bounded) == (True, 0)
    assert result.open_states > 0


def test_a_lapsed_member_whose_lease_end_nobody_waits_for_stays_for_ever():
    with ExitStack() as stack:
        change_rows(MEMBER, "wait_for_lease_end", do=member.invalidate)(stack)
        (result,) = met(CRASH, "L9").values()
    assert not result.is_held
    assert result.way is not None
