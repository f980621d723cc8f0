"""Faults are counted once: the tables of a trace say what the campaign says, and nothing else that is done to a node is
a fault."""

from __future__ import annotations

import msgspec
import pytest

from statemachines.kernel import ConfigurationError
from statemachines.trace.parquet import TraceWriter
from statemachines_reports.pipeline import analyze
from statemachines_sim.campaign import run_row
from statemachines_sim.fault import Fault
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World

RUNS = {
    "missed_samples/history_comes_round": "join",
    "sequence_windows/wrong_walls": "subscribe",
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
    outcome = World(override(find_scenario(name), ["phases.safety_s=8.0"]), 1, monitors=False).run()
    assert (outcome.monitor, outcome.detail) == ("", "")
    assert sum(outcome.tally.values()) > 0, "its watch has heard of what happened"


def write_crash(folder, schedule=None, change=lambda run: run):
    """The trace of a run of sequence windows with one crash; in its table of runs stands `schedule`."""
    scenario = find_scenario("sequence_windows/drizzle")
    crash = Fault("crash", 2_000_000_000, 500_000_000, "receiver-1")
    world = World(scenario, 1, schedule=(crash,))
    outcome = world.run()
    with TraceWriter(folder, "one") as writer:
        writer.add(change(run_row(scenario, outcome, 0, (), schedule or (crash,))), world.rows)
    return folder


def test_D_1010_a_run_with_a_schedule_of_its_own_is_judged_by_that(tmp_path):
    assert analyze(write_crash(tmp_path / "trace"), tmp_path / "out", spark=False).is_held


@pytest.mark.parametrize(
    "planned",
    [
        Fault("crash", 2_000_000_000, 500_000_000, "receiver-2"),
        Fault("crash", 2_000_000_001, 500_000_000, "receiver-1"),
        Fault("pause", 2_000_000_000, 500_000_000, "receiver-1"),
    ],
)
def test_D_1010_a_fault_that_the_schedule_has_otherwise_is_seen(tmp_path, planned):
    found = analyze(write_crash(tmp_path / "trace", (planned,)), tmp_path / "out", spark=False)
    details = [one["detail"] for one in found.tables["findings"] if one["check"] == "faults"]
    assert details == ["crash at 2000000000 ns of receiver-1 is not in the schedule of the run"]


def test_D_1011_a_row_later_than_the_end_of_its_run_is_seen(tmp_path):
    def end_sooner(run):
        facts = msgspec.json.decode(run.parameters)
        return msgspec.structs.replace(
            run, parameters=msgspec.json.encode(facts | {"lasted_ns": 3_000_000_000}).decode()
        )

    found = analyze(write_crash(tmp_path / "trace", change=end_sooner), tmp_path / "out", spark=False)
    (detail,) = [one["detail"] for one in found.tables["findings"] if one["check"] == "faults"]
    assert detail.startswith("the run ended at 3000000000 ns, and its last row is at ")


def test_D_1012_empty_parameters_of_a_simulated_run_are_refused(tmp_path):
    folder = write_crash(tmp_path / "trace", change=lambda run: msgspec.structs.replace(run, parameters="{}"))
    with pytest.raises(ConfigurationError, match="of run 0, which was simulated, count no faults: restore them"):
        analyze(folder, tmp_path / "out", spark=False)
