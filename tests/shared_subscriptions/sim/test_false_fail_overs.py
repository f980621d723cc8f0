"""False fail-overs: in a quiet hour, and while a leader host stands still for 2 s, nobody else takes the lead."""

from __future__ import annotations

import pytest
from long_cases import mark_long

from statemachines.shared_subscriptions.configuration import Configuration
from statemachines_sim.fault import Fault
from statemachines_sim.scenario import Phases
from statemachines_sim.shared_subscriptions import GroupLoad, Members, scenario
from statemachines_sim.units import S
from statemachines_sim.world import World

HOUR = scenario(
    "hour",
    load=GroupLoad(messages=0),
    members=Members(consumers=2, leaders=2),
    configuration=Configuration(),
    phases=Phases(safety_s=3_600, liveness_s=10),
)
"""With the default times, over the default network: some messages are late."""


def count_leaders(seconds, schedule=()):
    """How many leaders had the claim of the group, one after the other."""
    world = World(HOUR, 3, schedule=schedule)
    outcome = world.run(until_ns=seconds * S)
    assert not outcome.monitor, outcome
    return len(world.watch.commits.named)


def stand_still(seconds, for_ns):
    """Both leader hosts stand still, one after the other, again and again, each time later within a second."""
    return tuple(
        Fault("pause", at * S + at * S // 970 % S, for_ns, f"leader-{1 + at // 10 % 2}")
        for at in range(30, seconds, 10)
    )


@pytest.mark.long
def test_SS_127_a_quiet_hour_has_no_false_fail_over():
    assert count_leaders(3_600) == 1


@pytest.mark.parametrize("tenths", mark_long((20, 24), "24"))
def test_SS_127_a_leader_that_stands_still_for_two_seconds_leads_on(tenths):
    """More than 200 times, at any moment between two heartbeats."""
    pauses = stand_still(2_200, tenths * S // 10)
    assert len(pauses) > 200
    assert count_leaders(2_200, pauses) == 1


def test_one_that_stands_still_for_longer_than_its_claim_is_followed():
    assert count_leaders(120, stand_still(120, 9 * S)) > 1
