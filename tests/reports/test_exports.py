"""Runs in the formats of other tools: what these tools read from them is what the trace says."""

from __future__ import annotations

import json
import re

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from statemachines import cli
from statemachines_reports.export.exported_run import read_exported
from statemachines_reports.export.otlp import write_otlp
from statemachines_reports.export.perfetto import write_perfetto
from statemachines_reports.export.shiviz import write_shiviz
from statemachines_reports.pipeline import analyze
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import find_scenario

LINES = re.compile(r"(?P<host>\S*) (?P<clock>{.*})\n(?P<event>.*)")
"""The default of ShiViz."""


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


def test_a_delivery_in_shiviz_comes_after_its_send(run):
    events = [match.groupdict() for match in LINES.finditer("".join(write_shiviz(run)))]
    told = [row for row in run.rows if row.node and row.kind not in ("drop", "duplicate")]
    assert len(events) == len(told)
    sent, own = {}, {}
    for row, event in zip(told, events, strict=True):
        clock = json.loads(event["clock"])
        assert event["host"] == row.node
        assert clock[row.node] == own.get(row.node, 0) + 1
        own[row.node] = clock[row.node]
        if row.kind == "send":
            sent[row.msg] = clock
        elif row.kind == "deliver":
            assert all(clock[node] >= number for node, number in sent[row.msg].items())
    assert len(sent) > 10


def test_spans_have_parents_that_began_before_and_lost_messages_are_errors(run):
    spans = []
    for line in write_otlp(run):
        (resource,) = json.loads(line)["resourceSpans"]
        assert resource["resource"]["attributes"][0]["key"] == "service.name"
        spans += resource["scopeSpans"][0]["spans"]
    known = {span["spanId"]: span for span in spans}
    assert len(known) == len(spans)
    children = 0
    for span in spans:
        assert re.fullmatch("[0-9a-f]{32}", span["traceId"])
        assert re.fullmatch("[0-9a-f]{16}", span["spanId"])
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        if "parentSpanId" in span:
            parent = known[span["parentSpanId"]]
            assert int(parent["startTimeUnixNano"]) <= int(span["startTimeUnixNano"])
            assert parent["traceId"] == span["traceId"]
            children += 1
    assert children >= count(run, "deliver")
    lost = {row.msg for row in run.rows if row.kind == "drop"} & {row.msg for row in run.rows if row.kind == "send"}
    assert sum("status" in span for span in spans) == len(lost)
    assert sum(len(span["events"]) for span in spans) == sum(
        bool(row.node) and row.kind in ("step", "timer", "tell", "ask", "fault") for row in run.rows
    )


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


def test_a_node_that_joins_is_no_fault_and_tables_and_campaign_count_the_same(tmp_path):
    scenario = find_scenario("shared_subscriptions/storm")
    short = replace(scenario, phases=replace(scenario.phases, safety_s=4.0))
    (outcome,) = campaign(short, range(1), out=tmp_path / "t", processes=1)
    analysis = analyze(tmp_path / "t", tmp_path / "r", spark=False)
    rows = pq.read_table(next((tmp_path / "t").glob("trace-*.parquet")), columns=["kind", "event"]).to_pylist()
    assert any(row["event"] == "join" for row in rows)
    counted = {line["fault"]: line["injected"] for line in analysis.tables["faults"]}
    assert counted == outcome.faults
