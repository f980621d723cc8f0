"""Strangers that speak as leaders in the simulator: nobody follows them, and where one is believed S17 breaks."""

from __future__ import annotations

import pytest
from long_cases import mark_long

from statemachines.shared_subscriptions import agent_process
from statemachines_sim.fault import Fault
from statemachines_sim.scenario import find_scenario
from statemachines_sim.units import S
from statemachines_sim.world import World

LIES = tuple(Fault("pretend", at * S, 0, f"consumer-{at % 3 + 1}") for at in range(5, 30, 5))


def run(seed=4):
    return World(find_scenario("shared_subscriptions/pretenders"), seed, schedule=LIES).run()


def test_S17_pretenders_change_nothing():
    outcome = run()
    assert outcome.is_held, outcome
    assert outcome.faults["pretend"] == len(LIES)


@pytest.mark.parametrize("seed", mark_long(range(3), "1", "2"))
def test_S17_pretenders_beside_other_faults_change_nothing(seed):
    outcome = World(find_scenario("shared_subscriptions/pretenders"), seed).run()
    assert outcome.is_held, outcome
    assert outcome.faults["pretend"] > 0


def test_S17_breaks_where_a_pretender_is_believed(monkeypatch):
    monkeypatch.setattr(agent_process, "is_believed", lambda record, sender, message: True)
    outcome = run()
    assert outcome.monitor == "S17", outcome
