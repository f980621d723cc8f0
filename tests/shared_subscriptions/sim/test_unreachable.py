"""Ways that nothing heals: what the fault `unreachable` does, and what comes true all the same."""

from __future__ import annotations

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError
from statemachines_sim.fault import Fault
from statemachines_sim.scenario import check_scenario, find_scenario
from statemachines_sim.schedule import draw
from statemachines_sim.units import MS, S
from statemachines_sim.world import World

LEADERS, STORES = find_scenario("unreachable_leaders"), find_scenario("unreachable_stores")
UNHEARD, STREAMS = find_scenario("unheard_leaders"), find_scenario("unreachable_streams")


def lasting(*ways, at_s=6):
    return tuple(Fault("unreachable", at_s * S, 0, one, other) for one, other in ways)


def elections(world):
    """Who took the claim, and when, in seconds."""
    return [
        (row[1], row[0] / S)
        for row in world.rows
        if row[2].endswith("/leader") and row[6:8] == ("candidate", "loading")
    ]


def test_one_end_of_each_way_is_a_single_node_or_a_store():
    ends = {(fault.target, fault.peer) for seed in range(80) for fault in draw(LEADERS, seed)}
    assert all(sum(end in ("consumer", "leader") for end in pair) <= 1 for pair in ends)
    assert {pair for pair in ends if "consumer" in pair} >= {("consumer", "leader-1"), ("leader-1", "consumer")}
    stores = {(fault.target, fault.peer) for seed in range(60) for fault in draw(STORES, seed)}
    assert {("leader-1", "stream_store"), ("group_store", "leader-1"), ("consumer-1", "group_store")} <= stores
    assert not [pair for pair in stores if {"leader", "consumer"} & {*pair}]
    streams = {(fault.target, fault.peer) for seed in range(60) for fault in draw(STREAMS, seed)}
    assert {("consumer-1", "stream_store"), ("stream_store", "consumer-2"), ("leader-1", "stream_store")} <= streams


@pytest.mark.parametrize(
    "pair", ["consumer", "consumer -> nobody", "group_store -> stream_store", "leader-1 -> leader-1"]
)
def test_a_pair_that_nobody_could_be_is_refused(pair):
    with pytest.raises(ConfigurationError, match="unreachable"):
        check_scenario(replace(LEADERS, unreachable=(pair,)))


@pytest.mark.parametrize("way", [("consumer", "leader-1"), ("leader-1", "consumer")])
def test_members_that_do_not_reach_the_leader_are_served_through_the_other_host(way):
    world = World(LEADERS, 1, schedule=lasting(way))
    outcome = world.run()
    assert outcome.is_held, outcome
    assert set(world.network.cuts) == {
        tuple(f"consumer-{number}" if end == "consumer" else end for end in way) for number in range(1, 5)
    }
    assert [node for node, _ in elections(world)] == ["leader-1"], "it need not go"
    assert {"relayed_to_leader", "relayed_to_borrower"} <= {row[5] for row in world.rows if row[4] == "deliver"}


@pytest.mark.parametrize("seed", mark_long(range(3), "1", "2"))
def test_a_leader_that_nobody_hears_lets_the_claim_go_to_a_host_that_is_heard(seed):
    """What leader-1 says reaches neither the members nor the other host; what they say reaches it."""
    world = World(LEADERS, seed, schedule=lasting(("leader-1", "consumer"), ("leader-1", "leader-2")))
    outcome = world.run()
    assert outcome.is_held, outcome
    (first, _), *others, (last, at_s) = elections(world)
    assert (first, last) == ("leader-1", "leader-2")
    assert len(others) <= 1
    assert at_s < 30


@pytest.mark.parametrize("seed", mark_long((1, 3, 11), "3", "11"))
def test_SS_279_a_leader_that_hears_and_is_not_heard_costs_a_group_two_validities_and_two_leases(seed):
    """What docs/consumer_group.md says of it, in simulated time: from the cut until another host's members deliver."""
    load, times = UNHEARD.own.load, UNHEARD.own.configuration
    scenario = replace(UNHEARD, own=replace(UNHEARD.own, load=replace(load, messages=4_000)))
    scenario = replace(scenario, phases=replace(scenario.phases, safety_s=25.0))
    cut_ns = 8 * S
    ways = (("leader-1", "consumer"), ("leader-1", "leader-2"))
    world = World(scenario, seed, schedule=lasting(*ways, at_s=8))
    assert world.run().is_held
    (_, led_s) = elections(world)[-1]
    delivered = [row[0] for row in world.rows if row[4:6] == ("tell", "deliver") and row[0] > led_s * S]
    waited_ms = (delivered[0] - cut_ns) // MS
    least = 2 * times.validity_ms + times.ping_interval_ms
    looks = 2 * times.commit_interval_ms
    assert least < waited_ms < 2 * times.validity_ms + looks + 2 * times.lease_ms + times.find_leader_ms


@pytest.mark.parametrize("way", [("leader-1", "stream_store"), ("stream_store", "leader-1")])
def test_a_leader_that_does_not_reach_the_stream_store_lets_the_claim_go(way):
    world = World(STORES, 0, schedule=lasting(way))
    outcome = world.run()
    assert outcome.is_held, outcome
    assert [node for node, _ in elections(world)] == ["leader-1", "leader-2"]


@pytest.mark.parametrize("way", [("consumer-1", "stream_store"), ("stream_store", "consumer-1")])
def test_a_member_that_does_not_reach_the_stream_store_alone_gives_its_streams_to_others(way):
    """It reaches the group store and its leader, so nobody takes it for dead."""
    world = World(STREAMS, 2, schedule=lasting(way))
    outcome = world.run()
    assert outcome.is_held, outcome
    late = {row[1] for row in world.rows if row[4:6] == ("tell", "deliver") and row[0] > 14 * S}
    assert late
    assert "consumer-1" not in late
