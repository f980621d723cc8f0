"""The judge: real and simulated traces hold, and every kind of corruption is found, by its own check."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from statemachines import registry
from statemachines.kernel import ConfigurationError
from statemachines.trace.parquet import TraceWriter
from statemachines_reports import columns as columns_module
from statemachines_reports.columns import Segment, read_columns
from statemachines_reports.judge import Judges
from statemachines_reports.protocol import Finding
from statemachines_reports.trace_set import TraceSet
from statemachines_sim.campaign import run_row
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World

SS = "shared_subscriptions"
JUDGES = Judges([registry.protocol(SS)])
LOOKUP = JUDGES.lookup
MESSAGES = 500


def stormy(number: int) -> World:
    """A run of `storm` with a few messages: as many faults, and a fifth of the rows."""
    scenario = find_scenario("storm")
    load = replace(scenario.own.load, messages=MESSAGES)
    return World(replace(scenario, own=replace(scenario.own, load=load)), number)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stormy runs in a file."""
    directory = tmp_path_factory.mktemp("trace")
    with TraceWriter(directory, "storm") as writer:
        for number in range(2):
            world = stormy(number)
            outcome = world.run()
            writer.add(run_row(world.scenario, outcome, number), world.rows)
    return directory


def judged(path):
    segment = segment_of(path)
    return {name: check.judge(segment) for name, _, check in JUDGES.checks}


def segment_of(path):
    (columns,) = read_columns(path)
    return Segment(columns, LOOKUP, lambda run: {})


def wrong(path):
    return {check for check, verdict in judged(path).items() if len(verdict.run)}


@cache
def rows_of(path):
    """The table, and its rows as dicts: of all that these tests do it takes longest."""
    table = pq.read_table(path)
    return table, table.to_pylist()


def changed(trace, tmp_path, change):
    """The trace with its rows (a list of dicts) changed."""
    table, kept = rows_of(trace / "trace-storm.parquet")
    rows = [dict(row) for row in kept]
    change(rows)
    for number, row in enumerate(rows):
        row["seq"] = number
    path = tmp_path / "trace-changed.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    return path


def find(rows, **wanted):
    return next(number for number, row in enumerate(rows) if all(row[key] == value for key, value in wanted.items()))


def a_step_lost(rows):
    del rows[find(rows, machine=f"{SS}/borrower", event="leader_connect_response", dest="connected")]


def a_grant(rows):
    """One that passes over something that is stored and acknowledged."""
    return next(row for row in rows if row["kind"] == "send" and row["event"] == "grant" and row["first"] > 0)


def test_another_run_is_judged_all_the_same(trace, tmp_path):
    def corrupt(rows):
        rows[:] = [row for row in rows if (row["run"], row["node"]) != (0, "consumer-2")]
        here, there = ([row for row in rows if row["run"] == run] for run in range(2))
        a_grant(here)["first"] = 2**62
        grant = a_grant(there)
        grant["first"], grant["key"] = 2**62, there[find(there, event="published")]["key"]
        double = there[find(there, machine=f"{SS}/assignment", event="assign")]
        again = here[find(here, machine=f"{SS}/assignment", event="assign")]
        for one in (double, again):
            other = one["instance"].rpartition("#")[0] + "#999999"
            rows.insert(rows.index(one) + 1, one | {"instance": other})

    results = [one for _, one in JUDGES.judge(segment_of(changed(trace, tmp_path, corrupt)), {})]
    found = [one for one in results if isinstance(one, Finding)]
    assert {(one.check, one.run) for one in found} == {
        ("assignments", 0),
        ("assignments", 1),
        ("granted", 1),
        ("messages", 1),
    }
    (grant,) = (one for one in found if one.check == "granted")
    rows = pq.read_table(tmp_path / "trace-changed.parquet").to_pylist()
    assert rows[grant.seq]["key"] in grant.detail
    assert rows[grant.seq]["peer"] in grant.detail


def test_whole_runs_are_judged_some_at_a_time(trace, tmp_path, monkeypatch):
    """A file is cut where runs end, never inside one, and what is found is the same."""
    path = changed(trace, tmp_path, a_step_lost)
    table = pq.read_table(path)
    pq.write_table(table, path, row_group_size=1_000)
    (whole,) = read_columns(path)
    expected = {check: len(verdict.run) for check, verdict in judged(path).items()}
    monkeypatch.setattr(columns_module, "SEGMENT", 2_000)
    parts = list(read_columns(path))
    assert [part.runs() for part in parts] == [[one] for one in whole.runs()]
    found = Counter()
    for part in parts:
        segment = Segment(part, LOOKUP, lambda run: {})
        found.update({name: len(check.judge(segment).run) for name, _, check in JUDGES.checks})
    assert found["continuity"] == expected["continuity"] == 1
    assert found["rows"] == 0


# -- what is no trace -----------------------------------------------------------------------------------------------


def rewrite(trace, tmp_path, name, change):
    for path in trace.glob("*.parquet"):
        table = pq.read_table(path)
        pq.write_table(change(table) if path.name.startswith(name) else table, tmp_path / path.name)
    return tmp_path


def opened(directory, tmp_path):
    return TraceSet(directory, tmp_path / "out")


def test_missing_columns_are_named(trace, tmp_path):
    rewrite(trace, tmp_path, "trace", lambda table: table.drop_columns(["row", "grant"]))
    with pytest.raises(ConfigurationError, match="lacks the columns row, grant"):
        list(read_columns(tmp_path / "trace-storm.parquet"))
    rewrite(trace, tmp_path, "runs", lambda table: table.drop_columns(["seed"]))
    with pytest.raises(ConfigurationError, match="lacks the columns seed"):
        opened(tmp_path, tmp_path)


def test_runs_that_do_not_fit_are_named(trace, tmp_path):
    opened_set = opened(trace, tmp_path)
    for found, says in (
        ([0, 1, 7], "run = 7: in the trace files, not"),
        ([0], "run = 1: in the table of runs, not"),
        ([0, 1, 1], "run = 1: in more than one trace file"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            opened_set.check_runs(found)


def test_nothing_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="is no directory"):
        opened(tmp_path / "none", tmp_path)
    with pytest.raises(ConfigurationError, match="holds no trace"):
        opened(tmp_path, tmp_path)
