"""Traces side by side: what their settings differ in, what came of it; what is not promised is no failure."""

import json
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statemachines import cli
from statemachines_reports.pipeline import NOT_PROMISED, analyze
from statemachines_reports.trace_set import read_parameters, read_runs
from statemachines_sim.campaign import campaign
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario
from statemachines_sim.swarm import settle

OFF = ("configuration.exclusive=false",)


def overlapping(path):
    """What an owner of a stream had delivered last, and not acknowledged, it delivers only amid the next owner.  It
    lives until then."""
    table = pq.read_table(path)
    rows = table.to_pylist()
    told = [row for row in rows if row["kind"] == "tell" and row["event"] in ("deliver", "acknowledged")]
    last = {(row["key"], row["instance"]): row for row in told}
    deaths = [row for row in rows if row["kind"] == "fault" and row["event"] == "crash"]
    late, later = next(
        (row, after)
        for row in last.values()
        for other, after in pairwise(one for one in told if one["key"] == row["key"])
        if row["event"] == other["event"] == "deliver"
        and row["seq"] < other["seq"]
        and row["instance"] != other["instance"]
        and not any(one["node"] == row["node"] and row["seq"] < one["seq"] < after["seq"] for one in deaths)
    )
    step = next(row for row in reversed(rows[: late["seq"]]) if row["instance"] == late["instance"] and row["dest"])
    for row in (late, step):
        rows.remove(row)
        rows.insert(rows.index(later) + 1, row)
        row["t_ns"] = later["t_ns"]
    for number, row in enumerate(rows):
        row["seq"] = number
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """The same seed with and without exclusive hand-over; without, two deliver a stream at a time."""
    directory = tmp_path_factory.mktemp("traces")
    scenario = override(find_scenario("storm"), ["shared_subscriptions.load.messages=500"])
    campaign(scenario, range(1), out=directory / "on", processes=1)
    campaign(override(scenario, OFF), range(1), out=directory / "off", processes=1, settings=OFF)
    overlapping(directory / "off" / "trace-storm-000000.parquet")
    return directory / "on", directory / "off"


@pytest.mark.long
def test_what_is_not_promised_is_a_counterexample_and_no_failure(traces, tmp_path):
    analysis = analyze(traces[1], tmp_path, spark=False)
    checks = {check.name: check for check in analysis.checks}
    assert analysis.is_held
    for name in ("exclusivity", "duplicates"):
        assert (checks[name].verdict, checks[name].wrong) == (NOT_PROMISED, 0)
    assert checks["exclusivity"].waived >= 1
    found = [line for line in analysis.tables["findings"] if line["check"] == "exclusivity"]
    assert not any(line["promised"] for line in found)
    assert " amid " in found[0]["detail"]


@pytest.mark.long
def test_the_command_puts_traces_side_by_side(traces, tmp_path, capsys):
    arguments = ["analyze", *map(str, traces), "--engine=local", "--out", str(tmp_path)]
    assert cli.run(arguments) == cli.Exit.HELD
    said = capsys.readouterr().out
    assert "1 of 1 seeds are on every side" in said
    assert "not promised: " in said
    assert cli.run([*arguments, "--json"]) == cli.Exit.HELD
    compared = json.loads(capsys.readouterr().out)["comparison"]
    assert compared["differences"] == {"configuration.exclusive": ["true", "false"]}
    on, off = compared["lines"]
    assert (on["side"], on["exclusivity"], on["exclusivity_verdict"]) == ("on", 0, "held")
    assert off["exclusivity"] >= 1
    assert off["exclusivity_verdict"] == NOT_PROMISED
    assert on["failover_p50_ns"] > 0
    assert pq.read_table(tmp_path / "tables" / "comparison.parquet").num_rows == 2
    assert (tmp_path / "on" / "summary.json").exists()
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert page.count('<svg class="chart bars"') == 4
    assert "What was delivered of" in page
    assert page.count(", amid another") == 1


def test_the_same_trace_twice_is_a_usage_error(traces, tmp_path, capsys):
    arguments = ["analyze", str(traces[0]), f"{traces[0]}/../on", "--engine=local", "--out", str(tmp_path / "out")]
    assert cli.run(arguments) == cli.Exit.USAGE
    assert "is given twice" in capsys.readouterr().err


@pytest.mark.long
def test_the_settings_of_a_swarm_are_those_that_its_seed_drew(tmp_path):
    """What a judge reckons with is what the run had."""
    scenario = find_scenario("cursor_recovery/any_queue")
    campaign(scenario, range(4), out=tmp_path, processes=1)
    found = {}
    for number, run in read_runs(tmp_path).items():
        told = read_parameters(run)
        found[number] = told["settings"]["threshold_ms"]
        assert found[number] == settle(scenario, run.seed).own.threshold_ms == told["swarm"]["threshold_ms"]
    assert len(set(found.values())) > 1
