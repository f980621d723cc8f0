"""Traces of protocols that are not ours: judged by what they register, and as far as may be where they are missing.

What registers a protocol registers it no more in the end: processes and Spark start slowly, so all tests share one.
"""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from lock_protocol import LOCK, Leave, LockRecord, Take, Written
from long_cases import mark_long

from statemachines import cli, registry
from statemachines.kernel import Node
from statemachines.trace import event_row, fault_row, fingerprint, step_rows
from statemachines.trace.parquet import Run, TraceWriter
from statemachines_reports.session import Session
from statemachines_sim.campaign import run_row
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World

HERE = Path(__file__).parent


def made(out, wrong="nothing", fenced="fenced"):
    """A trace of the other protocol: three holders, one after another."""
    rows = []
    node = Node(LOCK, LockRecord("a~1"), name="a~1", now_ns=0, observe=lambda *step: rows.extend(step_rows(*step)))
    for now, token in enumerate((1, 2, 1 if wrong == "token" else 3)):
        node.feed(Take("door", token), now)
        rows.append(event_row(now, "a", "a~1", "tell", Written("door", token), machine=LOCK.full_name))
        node.feed(Leave(), now)
    rows.append(fault_row(9, "a", "crash"))
    if wrong == "row":
        rows[0] = (*rows[0][:8], 1, *rows[0][9:])
    tables = {"mine": fingerprint((LOCK,))}
    with TraceWriter(out, "mine") as writer:
        writer.add(
            Run(500, "locks", 0, json.dumps({"fenced": fenced == "fenced"}), "held", "{}", json.dumps(tables)), rows
        )
    return out


def analyzed(trace, out, *options):
    """Exit code, what was said, and the summary; the protocol is registered for this one."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            code = cli.run(["analyze", str(trace), "--out", str(out), *options])
    finally:
        registry._REGISTERED.pop("mine", None)
    summary = json.loads((out / "summary.json").read_text()) if (out / "summary.json").exists() else None
    return code, said.getvalue(), summary


def checks(summary):
    return {check["name"]: check for check in summary["checks"]}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A directory with runs of two protocols."""
    directory = tmp_path_factory.mktemp("both")
    world = World(override(find_scenario("quiet"), ["shared_subscriptions.load.messages=200"]), 1)
    outcome = world.run()
    with TraceWriter(directory, "ours") as writer:
        writer.add(run_row(world.scenario, outcome, 0), world.rows)
    return made(directory)


@pytest.fixture(scope="module")
def on_spark(both, tmp_path_factory):
    """Whether the other protocol is installed -> exit code, what was said, folder.  Spark is that of this process:
    first nothing of the other protocol is registered, then it is, here and in the tasks."""
    found = {}
    try:
        with Session() as session:
            session._spark.sparkContext.addPyFile(str(HERE / "lock_protocol.py"))
            for at, more in enumerate([(), ("--protocol", "lock_protocol:PROTOCOL")]):
                out, said = tmp_path_factory.mktemp("spark"), io.StringIO()
                with contextlib.redirect_stderr(said):
                    code = cli.run(["analyze", str(both), "--out", str(out), "--engine=spark", *more])
                found[bool(at)] = code, said.getvalue(), out
    finally:
        registry._REGISTERED.pop("mine", None)
    return found


@pytest.fixture(scope="module")
def without_spark(both, tmp_path_factory):
    """The same."""
    found = {}
    for at, more in enumerate([(), ("--protocol", "lock_protocol:PROTOCOL")]):
        out = tmp_path_factory.mktemp("plain")
        code, said, _ = analyzed(both, out, "--engine=local", *more)
        found[bool(at)] = code, said, out
    return found


@pytest.fixture
def judged(request, spark):
    return request.getfixturevalue("on_spark" if spark == "--engine=spark" else "without_spark")


@pytest.mark.long
@pytest.mark.parametrize("spark", mark_long(("--engine=spark", "--engine=local"), "--engine=spark"))
def test_two_protocols_in_one_directory_are_judged_side_by_side(judged, spark):
    code, said, out = judged[True]
    summary = json.loads((out / "summary.json").read_text())
    assert code == cli.Exit.HELD, said
    found = checks(summary)
    assert found["fencing"]["checked"] == 3
    assert (found["fencing"]["protocol"], found["rows"]["protocol"]) == ("mine", "")
    assert {"mine/exclusivity", "shared_subscriptions/exclusivity"} <= found.keys(), (
        "a name that both use is said whole"
    )
    assert {line["machine"] for line in summary["coverage"]} >= {"mine/lock", "shared_subscriptions/borrower"}
    lock = next(line for line in summary["coverage"] if line["machine"] == "mine/lock")
    assert (lock["taken"], lock["rows"]) == (2, 4)
    scenarios = {line["scenario"]: line for line in summary["scenarios"]}
    assert scenarios["locks"]["mine/delivered"] == 3
    assert scenarios["locks"]["shared_subscriptions/delivered"] == 0
    assert scenarios["quiet"]["shared_subscriptions/delivered"] == 200
    measured = {(line["scenario"], line["measure"]): line for line in summary["latencies"]}
    assert measured["locks", "mine/grant"]["measured"] == 3
    assert measured["locks", "mine/grant"]["p50_units"] is None, "the other protocol's unit is not this one's"
    assert measured["quiet", "shared_subscriptions/grant"]["p50_units"] > 0
    holds = pq.read_table(out / "tables" / "holds.parquet").to_pylist()
    assert holds == [{"lock": "door", "fenced": "True", "held": 3}]
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "<b>Wait</b>" in page
    assert "from asking to holding" in page
    assert "shared_subscriptions: What was sent again" in page
    mine, theirs = (page.index(f'<h4 id="checks-1-{name}">') for name in ("mine", "shared_subscriptions"))
    assert page.index('<h4 id="checks-1-all">') < min(mine, theirs)
    assert max(mine, theirs) > page.index("<td>fencing</td>", mine) > mine, "each protocol's checks stand under it"
    assert '<a href="#checks-1-mine">mine</a>' in page


def test_what_a_run_does_not_promise_is_no_failure(tmp_path):
    trace = made(tmp_path / "trace", "token", "unfenced")
    code, said, summary = analyzed(trace, tmp_path / "out", "--engine=local", "--protocol", "lock_protocol:PROTOCOL")
    assert code == cli.Exit.HELD, said
    found = checks(summary)["fencing"]
    assert (found["wrong"], found["waived"], found["verdict"]) == (0, 1, "not promised by this configuration")


def test_what_is_wrong_besides_counts_more_than_what_is_missing(tmp_path):
    trace = made(tmp_path / "trace")
    table = pq.read_table(trace / "runs-mine.parquet")
    outcome = table.column_names.index("outcome")
    pq.write_table(table.set_column(outcome, "outcome", [["fencing: broken"]]), trace / "runs-mine.parquet")
    code, _, summary = analyzed(trace, tmp_path / "out", "--engine=local")
    assert code == cli.Exit.VIOLATED
    assert checks(summary)["monitors"]["wrong"] == 1
