"""Consumers that lie in the simulator: nothing is lost, and with lies believed S16 breaks; S10 meanwhile."""

from __future__ import annotations

from statemachines_sim.fault import Fault
from statemachines_sim.scenario import find_scenario
from statemachines_sim.units import S
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug

LIES = tuple(Fault("lie", at * S, 0, f"consumer-{at % 3 + 1}") for at in range(5, 30, 5))


def run():
    return World(find_scenario("shared_subscriptions/lies"), 4, schedule=LIES).run()


def test_S16_lies_cost_a_reset_and_no_message():
    outcome = run()
    assert outcome.is_held, outcome
    assert outcome.faults["lie"] == len(LIES)


def test_S16_breaks_where_a_lie_is_believed():
    with plant_bug("shared_subscriptions/progress-believed"):
        outcome = run()
    assert outcome.monitor == "S16", outcome


def test_S10_what_is_held_until_the_store_has_said_is_no_disagreement():
    """The store takes twenty seconds to answer how far the stream goes; until then the leader counts nothing."""
    outcome = World(find_scenario("shared_subscriptions/lies"), 24).run()
    assert outcome.is_held, outcome
