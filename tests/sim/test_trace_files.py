"""Trace files: what is read back is what was written, and some runs are found without reading the others."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from statemachines.trace import parquet
from statemachines.trace.parquet import SCHEMA, SOUGHT, TraceWriter
from statemachines_sim.campaign import run_row
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World

SEEDS = (3, 4)


@pytest.fixture(scope="module")
def worlds():
    scenario = override(find_scenario("storm"), ["shared_subscriptions.load.messages=500"])
    made = [World(scenario, seed, trace=True, data=True) for seed in SEEDS]
    return scenario, made, [world.run() for world in made]


@pytest.mark.parametrize(
    ("group", "at_once"),
    [(131_072, 512), (1_000, 64), (1_000, 1_000), (64, 1_000), pytest.param(7, 1, marks=pytest.mark.long)],
)
def test_what_is_read_is_what_was_written(tmp_path, monkeypatch, worlds, group, at_once):
    monkeypatch.setattr(parquet, "ROWS_PER_GROUP", group)
    monkeypatch.setattr(parquet, "ROWS_AT_ONCE", at_once)
    scenario, made, results = worlds
    rows = [world.rows[:2_003] for world in made]
    with TraceWriter(tmp_path, "kept") as writer:
        for number, (result, some) in enumerate(zip(results, rows, strict=True)):
            writer.add(run_row(scenario, result, number), some)
    read = [tuple(one.values()) for one in pq.read_table(tmp_path / "trace-kept.parquet").to_pylist()]
    assert read == [(run, seq, *row) for run, some in enumerate(rows) for seq, row in enumerate(some)]
    assert writer.rows == len(read) == 2 * 2_003


def test_row_groups_say_which_runs_they_hold(tmp_path, monkeypatch, worlds):
    monkeypatch.setattr(parquet, "ROWS_PER_GROUP", 1_000)
    scenario, made, results = worlds
    with TraceWriter(tmp_path, "kept") as writer:
        for number, (world, result) in enumerate(zip(made, results, strict=True)):
            writer.add(run_row(scenario, result, number), world.rows)
    kept = pq.ParquetFile(tmp_path / "trace-kept.parquet").metadata
    runs = []
    for group in range(kept.num_row_groups):
        known = {name: kept.row_group(group).column(place).statistics for place, name in enumerate(SCHEMA.names)}
        assert [name for name, one in known.items() if one is not None] == SOUGHT
        runs.append((known["run"].min, known["run"].max))
    assert set(runs) == {(0, 0), (1, 1)}
    assert runs == sorted(runs)


def test_a_run_without_rows_is_a_run(tmp_path, worlds):
    scenario, _, results = worlds
    with TraceWriter(tmp_path, "kept") as writer:
        writer.add(run_row(scenario, results[0], 0), [])
    assert pq.read_table(tmp_path / "trace-kept.parquet").num_rows == 0
    assert pq.read_table(tmp_path / "runs-kept.parquet").num_rows == 1
