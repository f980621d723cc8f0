"""Simulated queues: they hold, they repeat, what is counted adds up, and faults do what they say."""

from __future__ import annotations

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.cursor_recovery.memory import LOST, READ_HEAD
from statemachines.kernel import ConfigurationError
from statemachines_sim.campaign import campaign
from statemachines_sim.cursor_recovery import SIM
from statemachines_sim.cursor_recovery.section import QueueSection
from statemachines_sim.fault import Fault
from statemachines_sim.scenario import Phases, Scenario, check_scenario, find_scenario, from_plain, list_shipped_with
from statemachines_sim.units import S
from statemachines_sim.world import World

NAMES = sorted(list_shipped_with(SIM.name))
SHORT = Scenario("short", SIM.name, QueueSection(messages=20), phases=Phases(safety_s=6.0, liveness_s=60.0))


def short(**keys):
    return replace(SHORT, own=replace(SHORT.own, **keys))


def memory_of(world):
    return world.devices["memory"]


@pytest.mark.parametrize("seed", mark_long(range(2), "1"))
@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_of_the_queue_holds(name, seed):
    (outcome,) = campaign(find_scenario(f"{SIM.name}/{name}"), [seed], processes=1)
    assert outcome.is_held, outcome
    tally = outcome.tally
    assert tally["delivered"] > 0
    assert outcome.noted.keys() <= {"ACK", "EXCL", "SPACE", "KEPT", "INTEG"}
    assert name == "by_age" or not outcome.noted
    assert name == "by_age" or not (tally["fenced"] or tally["discarded"])


@pytest.mark.long
def test_by_age_alone_breaks_what_it_is_said_to_break():
    noted = {}
    for outcome in campaign(find_scenario(f"{SIM.name}/by_age"), range(4), processes=1):
        assert outcome.is_held
        noted |= outcome.noted
    assert "ACK" in noted


@pytest.mark.long
def test_positions_are_conserved_under_deaths():
    """Every byte between the beginning and the read head was delivered, skipped, or lost with a reader that died."""
    for seed in range(2):
        world = World(find_scenario(f"{SIM.name}/deaths"), seed)
        assert world.run().is_held
        told, head = world.watch.blocks.deliveries, memory_of(world).state[READ_HEAD]
        blocks = [block for at, block in world.watch.blocks.blocks.items() if at < head]
        assert sum(block.end - block.start for block in blocks) == head
        assert {block.start for block in blocks} <= {*told.delivered, *told.skipped, *told.gone_blocks}
        assert not told.gone_blocks or memory_of(world).state.get(LOST, 0) >= told.taken_along > 0


# -- faults ---------------------------------------------------------------------------------------------------------


def test_a_clock_that_is_ahead_is_its_process_s_alone():
    ahead = Fault("apart_clock", 0, 6 * S, "writer-1", amount=5 * S)
    world = World(SHORT, 1, schedule=(ahead,))
    world.run(until_ns=S)
    assert world.processes["writer-1"].local_now() == 6 * S
    assert world.processes["writer-2"].local_now() == S


# -- what a scenario may say ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "named_key"),
    [
        ("capacity", 30, "capacity"),
        ("capacity", 64, "capacity"),
        ("writers", 1_000, "writers"),
        ("write_cursors", 0, "write_cursors"),
        ("access_us", [0, 10], "access_us"),
        ("poll_ms", [0, 10], "poll_ms"),
        ("size", [9, 3], "size"),
        ("threshold_ms", 0, "threshold_ms"),
        ("batch", 0, "batch"),
    ],
)
def test_a_value_that_cannot_be_is_named(key, value, named_key):
    with pytest.raises(ConfigurationError, match=named_key):
        check_scenario(from_plain({"name": "mine", "protocol": SIM.name, SIM.name: {key: value}}))
