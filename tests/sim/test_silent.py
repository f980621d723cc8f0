"""A run without its trace is the same run."""

from __future__ import annotations

import msgspec

from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World


def test_without_rows_a_run_comes_to_the_same():
    storm = override(find_scenario("storm"), ["shared_subscriptions.load.messages=500"])
    traced, silent = World(storm, 5), World(storm, 5, trace=False)
    outcome = traced.run()
    assert outcome.rows == len(traced.rows) > 0
    assert silent.run() == msgspec.structs.replace(outcome, rows=0)
    assert silent.rows == []
