"""Ways that nothing heals, explored: between a member and a leader, and between a leader and its stores."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.kernel import STAY, ConfigurationError
from statemachines.shared_subscriptions import claim, leader, membership
from statemachines.shared_subscriptions.borrower import BORROWER
from statemachines_spec.bug import change_rows, replace_call, wrap_call
from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.explore import COMPLETE, explore
from statemachines_spec.liveness.judge import live
from statemachines_spec.shared_subscriptions import SPEC
from statemachines_spec.shared_subscriptions.unreachable import ABOUT, WORKS_IN_TIME

UNSERVED = {"L1 consumer-1", "L2 served", "L5", "L6 reachable"}
"""What a member misses that no leader reaches any more."""


def find_broken(made):
    """Names of the properties and obligations that do not hold, and what happens how often; obligations are judged only
    where all else holds.

    Without an origin nothing is made once more in another process, where no mistake is planted.
    """
    made = replace(made, origin=None)
    entries = Entries(made)
    result = explore(made, engine="plain", hashing=False, entries=entries)
    if broken := {name for name, held in result.always.items() if not held}:
        return broken, result.sometimes
    assert result.ended == COMPLETE
    judged = live(made, SPEC.obligations_of(made), engine="plain", entries=entries)
    assert not any(one.bounded for one in judged), "of some runs beyond the bounds nothing is known"
    return {one.name for one in judged if not one.is_held}, result.sometimes


LARGE = ("leader-to-group-store", "leader-to-stream-store", "member-to-leader")
"""`make soak` explores these."""


@pytest.mark.parametrize("name", mark_long(ABOUT, *LARGE))
def test_a_way_is_cut_and_the_path_that_is_left_serves_the_member(name):
    broken, shown = find_broken(SPEC.system(name))
    assert broken == set()
    assert {"consumer-1 delivers", "L4 rest"} < set(shown)
    assert all(shown.values())


def count_unheard_members(record, event):
    """The rule before SS-279: who is registered keeps the leader from being idle."""
    return not record.members


def keep_heard(forget):
    def count_no_more(draft, borrower, heard=False):
        before = draft.record.heard
        forget(draft, borrower, heard)
        draft.record = replace(draft.record, heard=before)

    return count_no_more


def is_taken_at_once(record, event):
    return claim.is_claimable(replace(record, willing=True), event)


def is_taken_if_released(record, event):
    return claim.is_claimable(replace(record, ripe=False), event)


@pytest.mark.parametrize(
    ("mistake", "name", "what"),
    [
        pytest.param(
            replace_call(leader, "nobody_is_heard", count_unheard_members),
            "leader-to-member",
            UNSERVED | {"L2 leader-1"},
            id="unheard-members-keep-the-claim",
        ),
        pytest.param(
            change_rows(leader.LEADER, "take", when=is_taken_at_once),
            "leader-to-member",
            {"L6 held back"},
            id="claim-taken-again-at-once",
        ),
        pytest.param(
            wrap_call(membership, "forget", keep_heard),
            "member-to-leader",
            UNSERVED,
            id="members-that-are-gone-keep-the-claim",
            marks=pytest.mark.long,
        ),
        pytest.param(
            change_rows(leader.LEADER, "take", when=is_taken_if_released),
            "leader-to-group-store",
            UNSERVED | {"L6"},
            id="old-claim-never-taken",
        ),
        pytest.param(
            change_rows(leader.LEADER, "let_go_blind", when=lambda record, event: False),
            "leader-to-stream-store",
            UNSERVED | {"L6"},
            id="claim-kept-without-streams",
        ),
        pytest.param(
            change_rows(BORROWER, "leave_for_now", to=STAY, do=None),
            "member-to-stream-store",
            {"L2 served", "L5"},
            id="unreadable-streams-kept",
        ),
    ],
)
def test_a_mistake_leaves_the_member_unserved(mistake, name, what):
    with ExitStack() as stack:
        mistake(stack)
        assert find_broken(SPEC.system(name))[0] == what


def test_deadlines_that_do_not_wait_for_what_works_end_a_second_borrower():
    """The deadline order is no decoration."""
    made = SPEC.system("leader-to-member", without=(WORKS_IN_TIME.name,))
    assert find_broken(made)[0] == {"L8"}


def test_an_unknown_size_is_refused():
    with pytest.raises(ConfigurationError, match="size"):
        SPEC.system("leader-to-member", size="tiny")
