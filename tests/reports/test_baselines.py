"""The baselines that judging is measured against count what the judge counts; repeated traces stay traces."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statemachines import catalogue
from statemachines.kernel import ConfigurationError
from statemachines_bench.judge_baselines import duckdb_judge, our_judge, polars_judge
from statemachines_bench.repeat import repeat
from statemachines_reports.pipeline import analyze
from statemachines_sim.campaign import campaign
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario


@pytest.fixture(scope="module")
def corrupt(tmp_path_factory):
    """Two files of two runs each; in one of them a row, a state and an owner are wrong."""
    directory = tmp_path_factory.mktemp("trace")
    for name, first_run in (("storm", 0), ("kills", 100)):
        scenario = override(find_scenario(name), ["shared_subscriptions.load.messages=500"])
        campaign(scenario, range(2), out=directory, processes=1, first_run=first_run)
    path = sorted(directory.glob("trace-*"))[0]
    table = pq.read_table(path)
    rows = table.to_pylist()
    pings = [row for row in rows if row["machine"].endswith("/borrower") and row["event"] == "ping_response"]
    for ping in pings[:7]:
        ping["row"] += 1
    for ping in pings[10:13]:
        ping["source"] = "connecting"
    told = [row for row in rows if row["kind"] == "tell" and row["event"] == "deliver"]
    later = next(row for row in told if row["key"] == told[0]["key"] and row["instance"] != told[0]["instance"])
    rows.insert(rows.index(later) + 1, {**told[0], "run": later["run"], "t_ns": later["t_ns"]})
    for message in [row for row in rows if row["kind"] == "deliver" and row["term"]][:5]:
        message["term"] += 1
    rows.remove(next(row for row in reversed(rows) if row["kind"] == "send"))
    for number, row in enumerate(rows):
        row["seq"] = number
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    return sorted(directory.glob("trace-*"))


@pytest.mark.parametrize("judge", [polars_judge, duckdb_judge])
def test_the_baselines_count_the_same(corrupt, judge):
    ours = our_judge(corrupt, catalogue.machines("shared_subscriptions"))
    assert ours["rows"] >= 10
    assert ours["continuity"] >= 3
    assert ours["exclusivity"] >= 1
    assert ours["messages"] >= 6
    assert judge(corrupt, catalogue.machines("shared_subscriptions")) == ours


@pytest.mark.long
def test_a_repeated_trace_is_a_trace(tmp_path):
    campaign(find_scenario("quiet"), range(2), out=tmp_path / "short", processes=1)
    rows = repeat(tmp_path / "short", tmp_path / "long", copies=3, files=2)
    short = analyze(tmp_path / "short", tmp_path / "out", spark=False)
    long = analyze(tmp_path / "long", tmp_path / "out", spark=False)
    assert long.is_held
    assert (long.runs, long.rows) == (3 * short.runs, 3 * short.rows) == (6, rows)
    assert [line["run"] for line in long.tables["runs"]] == list(range(6))


def test_files_without_copies_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="at least the number of files"):
        repeat(tmp_path, tmp_path / "long", copies=1, files=2)
