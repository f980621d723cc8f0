"""Lives that come twice, in the simulator: whichever process hears what is for either, no two of a name deliver one
stream; where an Agent speaks for the other life, S15 breaks, and where ids do not tell the two apart, S1 does."""

from __future__ import annotations

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines_sim.fault import Fault
from statemachines_sim.scenario import find_scenario
from statemachines_sim.shared_subscriptions.section import Members
from statemachines_sim.units import S
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug

SHIPPED = find_scenario("shared_subscriptions/twins")
ALONE = replace(SHIPPED, own=replace(SHIPPED.own, members=Members(consumers=1)))
"""Of two sessions that deliver one stream here both are of one name."""
TWINS = tuple(Fault("twin", at * S, 8 * S, "consumer-1") for at in range(5, 30, 10))


def fault_rows(world):
    return [(row[5], row[1]) for row in world.rows if row[4] == "fault"]


@pytest.mark.parametrize("scenario", [SHIPPED, ALONE], ids=("shipped", "alone"))
@pytest.mark.parametrize("seed", mark_long(range(3), "1", "2"))
def test_S15_lives_that_come_twice_cost_no_message(scenario, seed):
    outcome = World(scenario, seed).run()
    assert outcome.is_held, outcome
    assert outcome.faults["twin"] > 3


def test_both_go_on_under_one_number_until_the_first_has_learnt_of_the_second():
    world = World(ALONE, 1, schedule=TWINS[:1])
    world.run(until_ns=6 * S)
    (first,), second = world.earlier_lives["consumer-1"], world.processes["consumer-1"]
    assert first.life == "consumer-1~1" != second.life
    assert second.life.startswith("consumer-1~1.")
    assert first.alive
    world.run(until_ns=14 * S)
    assert not world.earlier_lives
    assert (first.alive, second.alive) == (False, True)
    assert {first.life, second.life} <= {row[3].partition("/")[0] for row in world.rows if row[5] == "deliver"}


def test_who_is_a_twin_already_gets_no_other():
    world = World(ALONE, 1, schedule=(TWINS[0], replace(TWINS[0], at_ns=6 * S)))
    assert world.run().faults == {"twin": 1}


def test_what_is_for_the_first_reaches_either_and_what_is_for_the_second_that_one_alone():
    world = World(ALONE, 1, schedule=TWINS[:1])
    world.run(until_ns=5 * S + 1)
    (first,), second = world.earlier_lives["consumer-1"], world.processes["consumer-1"]
    heard = []
    for process in (first, second):
        process.receive = lambda packet, process=process: heard.append((process.life, packet[4], packet[5] % 2))
    world.run(until_ns=9 * S)
    of_first = {(life, odd) for life, to, odd in heard if to.startswith(f"{first.life}/")}
    assert of_first == {(first.life, 1), (second.life, 0)}
    assert {life for life, to, _ in heard if to.startswith(f"{second.life}/")} == {second.life}


def test_a_twin_that_the_run_leaves_behind_ends_when_everything_heals():
    late = (Fault("twin", 39 * S, 60 * S, "consumer-1"), Fault("twin", 39 * S, 60 * S, "leader-1"))
    world = World(ALONE, 2, schedule=late)
    outcome = world.run()
    assert outcome.is_held, outcome
    assert not world.earlier_lives
    assert {("end_twin", "consumer-1"), ("end_twin", "leader-1")} <= {*fault_rows(world)}


def test_S15_breaks_where_one_life_says_of_the_other_that_it_is_gone():
    with plant_bug("shared_subscriptions/speaks-for-other-life"):
        found = [World(ALONE, seed, schedule=TWINS).run().monitor for seed in range(3)]
    assert "S15" in found, found


def test_S1_breaks_where_ids_do_not_tell_the_two_apart():
    with plant_bug("shared_subscriptions/lives-not-told-apart"):
        assert World(ALONE, 1, schedule=TWINS).run().monitor == "S1"
