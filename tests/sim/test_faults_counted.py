"""Faults are counted once: the tables of a trace say what the campaign says, and nothing else that is done to a node is
a fault."""

from __future__ import annotations

import pytest

from statemachines.trace.parquet import TraceWriter
from statemachines_reports.pipeline import analyze
from statemachines_sim.campaign import run_row
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World

RUNS = {
    "missed_samples/history_comes_round": "join",
    "sequence_windows/asked_again": "subscribe",
    "shared_subscriptions/generations": "rotate",
    "cursor_recovery/deaths": "cut",
}
"""Scenario -> what its rows note more often, or less, than it takes effect as a fault."""


@pytest.mark.parametrize("name", RUNS)
def test_the_tables_and_the_campaign_count_the_same_faults(tmp_path, name):
    few = ("load.messages=50",) if name.startswith("shared") else ()
    scenario = override(find_scenario(name), few)
    world = World(scenario, 1)
    outcome = world.run()
    with TraceWriter(tmp_path / "trace", "one") as writer:
        writer.add(run_row(scenario, outcome, 0), world.rows)
    noted = sum(row[5] == RUNS[name] for row in world.rows if row[4] == "fault")
    assert noted != outcome.faults.get(RUNS[name], 0), "it would be counted wrong by its rows"
    found = analyze(tmp_path / "trace", tmp_path / "out", spark=False)
    assert {line["fault"]: line["injected"] for line in found.tables["faults"]} == outcome.faults
    assert found.tables["scenarios"][0]["faults"] == sum(outcome.faults.values())


@pytest.mark.parametrize("name", ["cursor_recovery/deaths", "persistent_sessions/calm_sessions"])
def test_without_monitors_a_run_comes_to_its_end_and_nothing_breaks(name):
    outcome = World(find_scenario(name), 1, monitors=False).run()
    assert (outcome.monitor, outcome.detail) == ("", "")
    assert sum(outcome.tally.values()) > 0, "its watch has heard of what happened"
