"""Consumers that answer no grant, in the simulator: what they are granted goes to others, and where nobody gives up,
L11 breaks."""

from __future__ import annotations

from statemachines_sim.fault import Fault
from statemachines_sim.scenario import find_scenario
from statemachines_sim.units import S
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug

MUTES = (
    *(Fault("mute", 9 * S, 15 * S, f"consumer-{number}") for number in (1, 2, 3)),
    Fault("halt", 10 * S, 0, "leader-1"),
)
"""Three of the four are mute when the next leader grants everything anew."""


def run():
    return World(find_scenario("shared_subscriptions/mutes"), 4, schedule=MUTES).run()


def test_L11_who_answers_no_grant_costs_no_message():
    outcome = run()
    assert outcome.is_held, outcome
    assert outcome.faults == {"mute": 3, "halt": 1}


def test_L11_breaks_where_an_unanswered_grant_is_waited_for():
    with plant_bug("shared_subscriptions/unanswered-grant-kept"):
        outcome = run()
    assert outcome.monitor == "L11", outcome
