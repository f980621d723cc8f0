"""Contracts of single machines: they hold, every rule is met, and one small mistake breaks each."""

from __future__ import annotations

from functools import cache

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines_spec.contract import Counterpart
from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.explore import VIOLATED, explore
from statemachines_spec.liveness.judge import live
from statemachines_spec.mutants.campaign import CampaignScope, CampaignShape
from statemachines_spec.mutants.mutant import plant
from statemachines_spec.shared_subscriptions import SPEC, contracts


def rules_of(name):
    made = contracts.BUILDS[name](name)
    return next(one for one in made.actors if isinstance(one, Counterpart))


@cache
def mutants():
    return {one.name: one for one in CampaignScope(CampaignShape("shared_subscriptions")).mutants}


LONG = (
    "session-told", "streams-told", "timed-private", "session-owners", "timed-borrower", "two-streams-told",
    "session-leases",
)  # fmt: skip
"""`make soak` explores these again.  Their certificates say the same, and are stale after a change of the code."""


@pytest.mark.parametrize("name", mark_long(contracts.BUILDS, *LONG))
def test_a_contract_is_kept_and_every_rule_met(name):
    made = SPEC.system(name)
    entries = Entries(made)  # tabulated once: that is most of the time
    found = explore(made, engine="plain", hashing=False, entries=entries)
    assert found.path is None
    assert not [one for one, times in found.sometimes.items() if not times]
    owed = SPEC.obligations(made)
    assert not owed or all(one.is_held for one in live(made, owed, engine="plain", entries=entries))


def test_every_rule_is_met_somewhere():
    for part in ("told", "session"):
        idle = [set(rules_of(name).idle) for name in contracts.BUILDS if part in name]
        assert idle
        assert not set.intersection(*idle)


BROKEN = {
    "borrower-told": [
        ("borrower/0/deleted", "S19 asks"),
        ("borrower/2/negated", "S19 adopts"),
        ("borrower/14/negated", "S19 deaf"),
        ("borrower/9/deleted", "S19 follows"),
        ("borrower/3/deleted", "S19 invalidated"),
        ("borrower/15/deleted", "S19 revoke"),
        ("borrower/26/after-27", "S19 late revoke"),
        ("borrower/30/to-unsubscribing", "S1 ends"),
    ],
    "streams-told": [("borrower/12/after-13", "S19 grant"), ("stream/9/deleted", "S19 revoke")],
    "two-streams-told": [
        ("borrower/6/negated", "S19 repeated"),
        ("borrower/24/negated", "S19 pings"),
        ("borrower/8/negated", "S19 lease"),
        ("borrower/11/deleted", "S19 lease ends"),
        ("borrower/10/deleted", "S19 gives up"),
        ("borrower/28/negated", "S19 progress"),
        ("borrower/22/deleted", "S19 leaves"),
        ("borrower/23/deleted", "S19 goes"),
        ("borrower/30/deleted", "S19 in time"),
    ],
    "timed-borrower": [
        ("borrower/1/timer-doubled", "S19 asks on time"),
        ("borrower/8/timer-halved", "S19 pings on time"),
        ("borrower/7/timer-doubled", "S19 gives up on time"),
        ("borrower/24/timer-doubled", "S19 pings on time"),
        ("borrower/unsubscribe/timer-doubled", "S19 leaves on time"),
    ],
    "session-told": [
        ("session.fetch/5/1-is-0", "S19 turns"),
        ("session.deliver/8/no-Tell", "S19 hands over"),
        ("session.finish_idle/1/no-report", "S19 finishes"),
    ],
    "session-leases": [
        ("session.begin/3/no-Tell", "S19 ready"),
        ("session.dismiss_last/1/no-Tell", "S19 dismisses"),
        ("session/4/deleted", "S19 dismisses"),
    ],
    "session-acks": [("session.join/1/gt-is-gte", "S19 counts")],
    "timed-session": [("session/11/timer-halved", "S19 polls"), ("session/10/timer-doubled", "S19 polls")],
    "timed-witness": [
        ("witness/0/deleted", "S19 doubts"),
        ("witness/3/deleted", "S19 tells"),
        ("witness/rest/timer-halved", "S19 rests"),
    ],
    "timed-private": [
        ("private/0/deleted", "S19 begins"),
        ("private/3/deleted", "S19 lists"),
        ("private/renew/timer-doubled", "S19 renews"),
        ("private/7/deleted", "S19 progress"),
        ("private/9/deleted", "S19 ends"),
    ],
}


@pytest.mark.parametrize(
    ("name", "mutant", "rule"), [(name, *pair) for name, pairs in BROKEN.items() for pair in pairs]
)
def test_a_mistake_breaks_a_rule(name, mutant, rule):
    with plant(mutants()[mutant]):
        found = explore(replace(contracts.BUILDS[name](name), origin=None), engine="plain", hashing=False)
    assert found.ended == VIOLATED
    assert found.path is not None
    assert [one for one, held in found.always.items() if not held] == [rule]
