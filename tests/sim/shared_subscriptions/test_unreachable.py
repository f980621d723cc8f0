"""Ways that nothing heals: what the fault `unreachable` does, and what comes true all the same."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError
from statemachines_sim.fault import Fault, draw
from statemachines_sim.scenario import named
from statemachines_sim.units import S
from statemachines_sim.world import World

LEADERS, STORES = named("unreachable_leaders"), named("unreachable_stores")


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


@pytest.mark.parametrize(
    "pair", ["consumer", "consumer -> nobody", "group_store -> stream_store", "leader-1 -> leader-1"]
)
def test_a_pair_that_nobody_could_be_is_refused(pair):
    with pytest.raises(ConfigurationError, match="unreachable"):
        replace(LEADERS, unreachable=(pair,)).check()


@pytest.mark.parametrize("way", [("consumer", "leader-1"), ("leader-1", "consumer")])
def test_members_that_do_not_reach_the_leader_are_served_through_the_other_host(way):
    world = World(LEADERS, 1, schedule=lasting(way))
    outcome = world.run()
    assert outcome.held, outcome
    assert set(world.network.cuts) == {
        tuple(f"consumer-{number}" if end == "consumer" else end for end in way) for number in range(1, 5)
    }
    assert [node for node, _ in elections(world)] == ["leader-1"], "it need not go"
    assert {"relayed_to_leader", "relayed_to_borrower"} <= {row[5] for row in world.rows if row[4] == "deliver"}


@pytest.mark.parametrize("seed", range(3))
def test_a_leader_that_nobody_hears_lets_the_claim_go_to_a_host_that_is_heard(seed):
    """What leader-1 says reaches neither the members nor the other host; what they say reaches it."""
    world = World(LEADERS, seed, schedule=lasting(("leader-1", "consumer"), ("leader-1", "leader-2")))
    outcome = world.run()
    assert outcome.held, outcome
    (first, _), *others, (last, at_s) = elections(world)
    assert (first, last) == ("leader-1", "leader-2")
    assert len(others) <= 1
    assert at_s < 30


@pytest.mark.parametrize("way", [("leader-1", "stream_store"), ("stream_store", "leader-1")])
def test_a_leader_that_does_not_reach_the_stream_store_lets_the_claim_go(way):
    world = World(STORES, 0, schedule=lasting(way))
    outcome = world.run()
    assert outcome.held, outcome
    assert [node for node, _ in elections(world)] == ["leader-1", "leader-2"]
