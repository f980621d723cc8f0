"""A node that does not reach a store which all others reach."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from statemachines_sim.fault import Fault
from statemachines_sim.scenario import Phases, find_scenario
from statemachines_sim.schedule import draw
from statemachines_sim.units import S
from statemachines_sim.world import World

SHORT = replace(find_scenario("cut_off"), faults={}, phases=Phases(safety_s=20.0, liveness_s=60.0))


def steps(world, party, name):
    """How often a life of the node took such an event while it was cut off, from the moment when it may know."""
    return sum(row[3].startswith(party) and row[5] == name and 8 * S <= row[0] < 18 * S for row in world.rows)


def test_consumers_and_leader_hosts_are_cut_from_both_stores():
    ends = {(one.target, one.peer) for seed in range(20) for one in draw(find_scenario("cut_off"), seed) if one.peer}
    stores = {"group_store", "stream_store"}
    assert {one for pair in ends for one in pair} >= {"leader-1", "consumer-1", "consumer-2", *stores}
    assert {one in stores for one, _ in ends} == {True, False}


@pytest.mark.parametrize(
    "ends", [("consumer-1", "stream_store"), pytest.param(("stream_store", "consumer-1"), marks=pytest.mark.long)]
)
def test_a_consumer_that_is_cut_off_reads_nothing_and_others_read(ends):
    cut, whole = (World(SHORT, 4, schedule=schedule) for schedule in ((Fault("store_cut", 6 * S, 12 * S, *ends),), ()))
    for world in (cut, whole):
        outcome = world.run()
        assert outcome.is_held, outcome
    assert steps(cut, "consumer-1", "fetched") == 0 < steps(whole, "consumer-1", "fetched")
    assert steps(cut, "consumer-1", "fetch_failed") > 0 == steps(cut, "consumer-2", "fetch_failed")
    assert steps(cut, "consumer-2", "fetched") > 0
