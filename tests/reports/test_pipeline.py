"""The pipeline on Spark, the page in a browser, and the command, on a real and on simulated runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from foreign_logs import consumed, mapping, published, write_logs
from msgspec.structs import replace

from statemachines import catalogue, cli
from statemachines.kernel import GaplessError
from statemachines.spark import spark_session
from statemachines.spark.spark_settings import SparkSettings
from statemachines.trace.parquet import TraceWriter
from statemachines_reports import columns, session
from statemachines_reports.foreign_log import judge_files
from statemachines_reports.foreign_log.log_mapping import parse_mapping
from statemachines_reports.judge import NEUTRAL_CHECKS
from statemachines_reports.page import part_of, write_page
from statemachines_reports.pipeline import analyze
from statemachines_reports.trace_set import TraceSet, plan_jobs
from statemachines_sim.campaign import campaign, run_row
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World

OWN = ["assignments", "exclusivity", "duplicates", "order", "acknowledged", "granted"]
CHECKS = [*NEUTRAL_CHECKS, *OWN, "monitors"]

BY_KEY = {"same": ["key"], "order": "none", "promise": "exactly-once"}


@pytest.fixture(scope="module")
def spark_kept():
    """One Spark for all of these tests: starting it takes longer than what they ask.  Its master is named, since the
    Java process of this one keeps the master that it was begun with."""
    with session.Session(SparkSettings("local[*]")):
        yield


@pytest.fixture(scope="module")
def simulated(spark_kept, tmp_path_factory):
    """Two files of runs, their analysis, and where it was written.  Each run is cut for several tasks."""
    directory, out = tmp_path_factory.mktemp("trace"), tmp_path_factory.mktemp("out")
    for name, first_run in (("storm", 0), ("kills", 100)):
        scenario = override(find_scenario(name), ["shared_subscriptions.load.messages=500"])
        campaign(scenario, range(2), out=directory, processes=1, first_run=first_run)
    for path in directory.glob("trace-*"):
        pq.write_table(pq.read_table(path), path, row_group_size=500)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "SMALL", 0)
        patch.setattr(session, "count_task_rows", lambda *_: 2_500)
        tasks = [task for job in plan_jobs(TraceSet(directory, out), 2_500) for task in job]
        assert len([task for task in tasks if task[0].begins_amid]) > 4
        return directory, out, analyze(directory, out, spark=True)


def test_spark_judges_whole_files_and_sql_makes_the_tables(simulated):
    directory, out, analysis = simulated
    assert analysis.is_held
    assert analysis.runs == 4
    assert analysis.rows == sum(pq.read_metadata(path).num_rows for path in directory.glob("trace-*"))
    assert [check.name for check in analysis.checks] == CHECKS
    assert {path.stem for path in (out / "tables").iterdir()} >= {"verdicts", "accounts", "latencies", "coverage"}
    assert sum(line["published"] for line in analysis.tables["accounts"]) == 2_000
    assert {line["fault"] for line in analysis.tables["faults"]} >= {"crash", "leader_crash", "pause"}
    assert not (Path.cwd() / "spark-warehouse").exists()


FRAME = """<div id="width"></div><div id="page"></div><iframe src="{page}" style="width:400px" onload="
const root = this.contentDocument.documentElement;
document.getElementById('width').textContent = 'too wide by ' + (root.scrollWidth - root.clientWidth);
document.getElementById('page').innerHTML = root.innerHTML;"></iframe>"""
"""The page as a telephone shows it."""


def dom(page):
    """What a browser makes of the page."""
    chromium = shutil.which("chromium")
    assert chromium, "the set-up installs chromium"
    frame = page.with_name("frame.html")
    frame.write_text(FRAME.format(page=page.name))
    files = "--allow-file-access-from-files"
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", files, "--dump-dom", frame.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_the_page_opens_in_a_browser_and_shows_everything(simulated, tmp_path):
    _, _, analysis = simulated
    page = tmp_path / "index.html"
    write_page(page, "A <trace> & more", "lead", [part_of("Simulated runs", analysis)])
    text = page.read_text(encoding="utf-8")
    assert not re.search(r'(src|href)="(?!#)', text), "nothing is loaded from elsewhere"
    shown = dom(page)
    assert "too wide by 0<" in shown, "nothing but tables and pictures in their own frames is wider than the screen"
    assert "A &lt;trace&gt; &amp; more" in shown
    assert shown.count("<td>rows</td>") >= 1
    assert shown.count('<svg class="machine"') == len(catalogue.machines("shared_subscriptions"))
    assert shown.count('<svg class="chart"') == 3
    assert shown.count('<svg class="sequence"') == shown.count('<svg class="timeline"') == 1
    assert 'class="edge unused"' in shown
    assert "Fail-over" in shown
    assert "pairs of consecutive rows" in shown
    assert "rows never taken" in shown
    assert "Faults against outcomes" in shown


@pytest.fixture(scope="module")
def quiet_run():
    """A run without faults: its scenario, its outcome and its rows."""
    world = World(find_scenario("quiet"), 2)
    outcome = world.run()
    assert outcome.is_held
    return world.scenario, outcome, world.rows


def corrupted(directory, quiet_run):
    """A run in which a step of a borrower takes another row than the table has."""
    scenario, outcome, rows = quiet_run
    rows = list(rows)
    place = next(n for n, row in enumerate(rows) if row[2].endswith("/borrower") and row[5] == "ping_response")
    rows[place] = (*rows[place][:8], 3, *rows[place][9:])
    with TraceWriter(directory, "corrupt") as writer:
        writer.add(run_row(scenario, outcome, 5), rows)


@pytest.mark.long
@pytest.mark.usefixtures("spark_kept")
def test_the_command_judges_a_corrupt_trace_and_exits_with_1(tmp_path, capsys, quiet_run):
    corrupted(tmp_path / "trace", quiet_run)
    out = tmp_path / "out"
    assert (
        cli.run(["analyze", str(tmp_path / "trace"), "--out", str(out), "--json", "--engine=spark"])
        == cli.Exit.VIOLATED
    )
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert (checks["rows"]["held"], checks["rows"]["wrong"]) == (False, 1)
    assert checks["continuity"]["held"]
    plain = analyze(tmp_path / "trace", tmp_path / "plain", spark=False)
    assert plain.tables["findings"] == pq.read_table(out / "tables" / "findings.parquet").to_pylist()
    assert len(plain.tables["findings"]) == 1
    assert "VIOLATED" in (out / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("logged", "told"),
    [
        (
            "x.SparkException: no such Master\n  at x.Main",
            "x.SparkException: no such Master; look at --master and --conf",
        ),
        ("", "Spark does not start: gone; look at --master and --conf"),
        ("x.UnsupportedClassVersionError: 61", "UnsupportedClassVersionError: 61; install Java 17 or later"),
    ],
)
def test_what_spark_says_of_a_start_that_fails_is_shown(tmp_path, logged, told):
    def start():
        os.write(2, logged.encode())
        raise RuntimeError("gone")

    with pytest.raises(GaplessError, match=re.escape(told)), spark_session.quiet_start(tmp_path / "log"):
        start()


def test_missing_java_is_named(monkeypatch):
    monkeypatch.setattr(spark_session.shutil, "which", lambda name: None)
    with pytest.raises(GaplessError, match="default-jre-headless"), session.Session():
        pass


def spoilt(tmp_path, change, quiet_run):
    """A quiet run whose trace table was changed."""
    scenario, outcome, rows = quiet_run
    with TraceWriter(tmp_path / "trace", "spoilt") as writer:
        writer.add(run_row(scenario, outcome, 0), rows)
    path = tmp_path / "trace" / "trace-spoilt.parquet"
    pq.write_table(change(pq.read_table(path)), path)
    return tmp_path / "trace"


@pytest.mark.parametrize(
    ("change", "says", "how"),
    [
        (lambda table: table.drop_columns(["row"]), "lacks the columns row", "--engine=local"),
        (
            lambda table: table.set_column(10, "row", table.column("row").cast("float64")),
            "row is double",
            "--engine=local",
        ),
        (lambda table: table.take(list(range(table.num_rows - 1, -1, -1))), "trace-spoilt.parquet", "--engine=spark"),
    ],
    ids=["column missing", "column of another type", "out of order, found in a task"],
)
def test_the_command_names_what_is_wrong_with_a_trace_on_spark_too(tmp_path, capsys, change, says, how, quiet_run):
    trace = spoilt(tmp_path, change, quiet_run)
    assert cli.run(["analyze", str(trace), "--out", str(tmp_path / "out"), how]) == cli.Exit.USAGE
    said = capsys.readouterr().err
    assert says in said
    assert "Traceback" not in said


def written_without(tmp_path, absent, quiet_run):
    """A quiet run in which rows of these nodes or kinds were never written."""
    scenario, outcome, rows = quiet_run
    kept = [row for row in rows if not {row[1], row[4]} & absent]
    with TraceWriter(tmp_path / "trace", "spoilt") as writer:
        writer.add(run_row(scenario, replace(outcome, rows=len(kept)), 0), kept)
    return tmp_path / "trace"


def test_a_trace_without_a_step_is_inconclusive(tmp_path, capsys, quiet_run):
    trace = written_without(tmp_path, {"step", "timer"}, quiet_run)
    arguments = ["analyze", f"file://{trace}", "--out", f"file:{tmp_path}/out", "--engine=local"]
    assert cli.run(arguments) == cli.Exit.INCONCLUSIVE
    assert "no step in this trace" in capsys.readouterr().err


@pytest.mark.parametrize("scheme", ["s3a", "hdfs", "abfss", "gs"])
def test_an_address_that_is_not_read_is_named(tmp_path, capsys, scheme):
    for trace, out in ((f"{scheme}://bucket/trace", str(tmp_path)), (str(tmp_path), f"{scheme}://bucket/out")):
        assert cli.run(["analyze", trace, "--out", out, "--engine", "spark"]) == cli.Exit.USAGE
        assert f"is an address of {scheme}, which is not reached; mount it, or copy it" in capsys.readouterr().err


def counts_of(verdict):
    return [(one.name, one.verdict, one.checked, one.found) for one in verdict.checks]


def test_foreign_logs_are_judged_on_spark_as_in_this_process(spark_kept, tmp_path):
    """Rows of all levels and of several files; lines that were cut, and what is refused in a task."""
    first = [*published(range(1, 9)), *consumed("c1", [1, 3, 2, 3])]
    logs = write_logs(tmp_path, a=first, b=[*consumed("c2", [4, 6, 5, 9]), *consumed("c3", [2], at=900)])
    logs[1].write_text(logs[1].read_text() + '{"cut')
    given = mapping(columns={"key": "id"}, without=["id", "consumer"], rules=BY_KEY, complete=True)
    here, there = judge_files(logs, given), judge_files(logs, given, master="local[*]")
    assert msgspec.structs.replace(there, checks=()) == msgspec.structs.replace(here, checks=())
    assert counts_of(there) == counts_of(here)
    assert here.verdict == "VIOLATED"
    steps = [{"order": number % 5, "what": "on_disconnect", "n": number + number // 6} for number in range(9)]
    pq.write_table(pa.Table.from_pylist(steps), tmp_path / "log.parquet", row_group_size=2)
    events = {
        "level": "events",
        "machine": "borrower",
        "columns": {"event": "what", "instance": "order", "number": "n"},
    }
    given = parse_mapping(events | {"from_start": True}, "map.toml")
    here, there = (judge_files([tmp_path / "log.parquet"], given, master) for master in ("", "local[*]"))
    assert counts_of(there) == counts_of(here)
    assert {one.name: one.found for one in here.checks} == {"events": 1, "lines": 1}
    logs[0].write_text(logs[0].read_text().replace('"ack"', '"hack"', 1))
    with pytest.raises(GaplessError, match=r"kind = 'hack': in line 10 of a.ndjson is none of publish"):
        judge_files(logs, mapping(), master="local[*]")
