"""A member that has lost the stream store alone, in the simulator: its streams go to members that can read."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from statemachines_sim.fault import Fault
from statemachines_sim.scenario import Phases, find_scenario
from statemachines_sim.shared_subscriptions.watch import list_leaders
from statemachines_sim.units import S
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug

SCENARIO = find_scenario("shared_subscriptions/unreadable")
LASTING = replace(SCENARIO, faults={}, phases=Phases(safety_s=60.0, liveness_s=60.0))
CONSUMERS = tuple(f"consumer-{number}" for number in range(1, 6))


def cut(*consumers):
    """From the sixth second until everything heals these read nothing."""
    return World(LASTING, 4, schedule=tuple(Fault("unreadable", 6 * S, 1_000 * S, one) for one in consumers))


def owners(world):
    """Who is granted streams, and the leader."""
    (leader,) = list_leaders(world.processes)
    return {one.link.borrower.partition("~")[0] for one in leader.assignments.values()}, leader


@pytest.mark.parametrize("unread", [CONSUMERS[:1], CONSUMERS[:4]])
def test_SS_292_streams_go_to_those_that_can_read_for_as_long_as_it_lasts(unread):
    world = cut(*unread)
    for second in (25, 40, 55):
        world.run(until_ns=second * S)
        assert owners(world)[0] == set(CONSUMERS) - set(unread)
    assert not world.watch.list_unacknowledged()
    assert world.run().is_held
    assert owners(world)[0] == set(CONSUMERS)


def test_SS_293_where_no_member_can_read_nobody_asks_for_streams():
    world = cut(*CONSUMERS)
    world.run(until_ns=25 * S)
    before = len(world.rows)
    world.run(until_ns=35 * S)
    said = [row[5] for row in world.rows[before:]]
    assert not {"leader_wanted", "grant", "ping"} & set(said)
    assert said.count("fetch_failed") in range(12, 19)
    assert world.run().is_held


def test_L2_breaks_where_a_member_that_cannot_read_keeps_its_streams():
    with plant_bug("shared_subscriptions/unreadable-streams-kept"):
        outcome = cut("consumer-1").run()
    assert outcome.monitor == "L2", outcome
