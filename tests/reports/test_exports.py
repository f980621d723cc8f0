"""Runs in the formats of other tools: what these tools read from them is what the trace says."""

import json

import pytest

from statemachines import cli
from statemachines_reports.export.exported_run import read_exported, write_perfetto
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import find_scenario


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports") / "trace"
    campaign(find_scenario("missed_samples/lost_replies"), range(2), out=folder, processes=1)
    return folder


@pytest.fixture(scope="module")
def run(trace):
    return read_exported(trace, 1)


def count(run, *kinds):
    return sum(row.kind in kinds for row in run.rows)


@pytest.mark.long
def test_perfetto_has_every_row_and_the_states_of_a_thread_follow_each_other(run):
    events = json.loads("".join(write_perfetto(run)))["traceEvents"]
    assert all({"ph", "pid", "tid", "name"} <= event.keys() for event in events)
    assert sum(event["ph"] == "i" for event in events) == len(run.rows) - count(run, "send", "deliver")
    assert sum(event["ph"] == "s" for event in events) == count(run, "send")
    assert sum(event["ph"] == "f" for event in events) == count(run, "deliver")
    processes = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert processes == {"network", *run.nodes}
    ends = {}
    for event in events:
        if event.get("cat") == "state":
            place = event["pid"], event["tid"]
            assert event["ts"] == pytest.approx(ends.get(place, event["ts"]))
            ends[place] = event["ts"] + event["dur"]
    assert len(ends) == len({(row.node, row.instance) for row in run.rows if row.kind in ("step", "timer")})


@pytest.mark.parametrize("form", ["perfetto", "shiviz", "otlp"])
def test_a_run_is_written_to_a_file(trace, tmp_path, capsys, form):
    out = tmp_path / "run"
    assert cli.run(["export", str(trace), "--run", "0", "--to", form, "--out", str(out)]) == 0
    assert f"run 0 of lost_replies, {len(read_exported(trace, 0).rows):,} rows, as {form}" in capsys.readouterr().out
    assert out.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--run = '': is missing"),
        (("--run", "7"), "is in no file of"),
    ],
)
def test_a_run_that_is_not_there_is_refused_in_one_line(trace, tmp_path, capsys, arguments, said):
    out = tmp_path / "run"
    assert cli.run(["export", str(trace), "--to", "otlp", "--out", str(out), *arguments]) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert printed.count("\n") == 1
    assert not out.exists()
