"""A folder that is followed: what comes into it is judged at once, and in the end as a batch analysis judges it.

The pipeline on Spark, the page in a browser, and the command, on a real and on simulated runs.

The baselines that judging is measured against count what the judge counts; repeated traces stay traces.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from foreign_logs import consumed, mapping, published, write_logs
from lock_protocol import LOCK, Leave, LockRecord, Take
from msgspec.structs import replace
from waiting import until

from statemachines import catalogue, cli
from statemachines.cli import Exit, run
from statemachines.commands.following import print_batch
from statemachines.kernel import ConfigurationError, GaplessError, Node
from statemachines.spark import spark_session
from statemachines.spark.spark_settings import SparkSettings
from statemachines.testing.spark_cluster import kill_session
from statemachines.trace import COLUMNS, list_fingerprints, step_rows
from statemachines.trace.log import FORMAT, Head, TraceLog
from statemachines.trace.log_segments import LogSegments, end_run, list_logs
from statemachines.trace.parquet import TraceWriter
from statemachines_bench.judge_baselines import duckdb_judge, our_judge, polars_judge
from statemachines_bench.repeat import repeat
from statemachines_reports import columns, session
from statemachines_reports.follow.folder_follower import (
    FILES_PER_BATCH,
    BatchSink,
    FollowTimes,
    check_ended,
    count_wrong,
    follow,
)
from statemachines_reports.follow.log_piece import BatchLedger, FileBatch, LifeState, LogPiece, judge_piece
from statemachines_reports.foreign_log import judge_files
from statemachines_reports.foreign_log.log_mapping import parse_mapping
from statemachines_reports.judge import NEUTRAL_CHECKS
from statemachines_reports.lookup import Lookup
from statemachines_reports.page import part_of, write_page
from statemachines_reports.pipeline import analyze
from statemachines_reports.session import Session
from statemachines_reports.trace_set import TraceSet, plan_jobs
from statemachines_sim.campaign import campaign, run_row
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World

PAGE = Path(__file__).parents[2] / "docs/follow.md"
ONE_BY_ONE = SparkSettings("local[1]", {FILES_PER_BATCH: "1"})
AT_ONCE = FollowTimes(lateness_s=0)


def lock_rows(count):
    rows = []
    node = Node(
        LOCK, LockRecord("a~1"), name="a~1", now_ns=0, observe=lambda *step: rows.extend(step_rows(*step))
    )  # fmt: skip
    for now in range(count):
        node.feed(Take("door", now + 1) if now % 2 == 0 else Leave(), now)
    return rows


def batched(rows, size):
    return [rows[begin : begin + size] for begin in range(0, len(rows), size)]


def judge_segments(folder, rows, size):
    """The findings of each piece of one segment, of a log with `size` rows a segment."""
    head = Head(FORMAT, "a", "a~1", 1, {}, {})
    with TraceLog(folder, head, LogSegments(2**30, 1e6)) as log:
        for some in batched(rows, size):
            log.write(some)
            log.close_segment()
    state, found = LifeState(), []
    for path in list_logs(folder)["a~1"]:
        piece = LogPiece("a~1", [str(path)], state)
        judged = judge_piece(msgspec.json.decode(msgspec.json.encode(piece), type=LogPiece), Lookup((LOCK,), ()))
        state = judged.state
        found.append([(one.check, one.seq) for one in judged.findings])
        assert sum(judged.wrong.values()) == len(judged.findings)
    assert (state.rows, state.is_ended) == (len(rows), True)
    return found


def change(row, /, **cells):
    return tuple(cells.get(name, cell) for name, cell in zip(COLUMNS[2:], row, strict=True))


def is_step(row):
    return row[COLUMNS.index("kind") - 2] in ("step", "timer")


@pytest.mark.parametrize("size", [1, 3, 100])
def test_segments_show_what_is_wrong_in_them_and_against_those_before(tmp_path, size):
    rows = lock_rows(8)
    assert not any(judge_segments(tmp_path / "right", rows, size))
    wrong = [*rows[:3], change(rows[3], row=7), *rows[4:]]
    assert [*chain(*judge_segments(tmp_path / "row", wrong, size))] == [("rows", 3)]
    missing = [*rows[:3], *rows[4:]]
    assert [*chain(*judge_segments(tmp_path / "missing", missing, size))] == [("continuity", 3)]
    back = [*rows[:5], change(rows[5], t_ns=1), *rows[6:]]
    assert [*chain(*judge_segments(tmp_path / "back", back, size))] == [("clocks", 5)]


def test_what_is_kept_of_a_log_does_not_grow_with_its_rows(tmp_path):
    rows = lock_rows(200)
    with TraceLog(tmp_path, Head(FORMAT, "a", "a~1", 1, {}, {}), LogSegments(2**30, 1e6)) as log:
        log.write(rows)
        log.close_segment()
        (path,) = list_logs(tmp_path)["a~1"]
        judged = judge_piece(LogPiece("a~1", [str(path)], LifeState()), Lookup((LOCK,), ()))
    assert [number for number, _ in judged.state.tail] == [199]


# -- what is refused ---------------------------------------------------------------------------------------------------


class Listed:
    """The names and sizes of a batch, as Spark's frame gives them."""

    def __init__(self, *paths):
        self._paths = paths

    def select(self, *columns):
        return self

    def collect(self):
        return [{"path": f"file:{path}", "length": path.stat().st_size} for path in self._paths]


def sink_of(directory, out):
    (out / "checkpoint").mkdir(parents=True)
    (out / "checkpoint" / "metadata").write_text('{"id":"7"}')
    return BatchSink(None, directory, out, BatchLedger(out / "batches"), print)


def test_a_file_that_grows_is_refused_by_name(tmp_path):
    path = tmp_path / "a~1.ndjson"
    log = TraceLog(tmp_path, Head(FORMAT, "a", "a~1", 1, {}, {}))
    log.write(lock_rows(2))
    sink = sink_of(tmp_path, tmp_path / "out")
    with pytest.raises(ConfigurationError, match=r"a~1\.ndjson.* has no end line: .*GAPLESS_SEGMENT_SECONDS"):
        sink(Listed(path), 0)
    log.close()
    check_ended(path)
    listed = Listed(path)
    lines = listed.collect()
    listed.collect = lambda: lines
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ConfigurationError, match=r"a~1\.ndjson.* has changed its size"):
        sink(listed, 0)
    cut = tmp_path / "b~1@000001.ndjson"
    cut.write_bytes(b"{}\n" + path.read_bytes().splitlines()[1])
    with pytest.raises(ConfigurationError, match=r"b~1@000001\.ndjson.* line 2 is cut"):
        judge_piece(LogPiece("b~1", [str(cut)], LifeState()), Lookup((LOCK,), ()))


def test_folders_that_do_not_belong_to_a_query_are_refused(tmp_path):
    (tmp_path / "a~1@000001.ndjson").touch()
    (tmp_path / "trace-1.parquet").touch()
    sink = sink_of(tmp_path, tmp_path / "out")
    with pytest.raises(ConfigurationError, match=r"holds logs .* beside a trace"):
        sink(Listed(tmp_path / "a~1@000001.ndjson", tmp_path / "trace-1.parquet"), 0)
    with pytest.raises(ConfigurationError, match="lacks batch 0 of the query"):
        sink(Listed(), 1)
    BatchLedger(tmp_path / "out" / "batches").write_batch(FileBatch("another", 0), None)
    with pytest.raises(ConfigurationError, match="holds what another query has followed"):
        sink(Listed(), 1)
    (tmp_path / "out" / "batches" / "batch-000000000.json").write_text("{")
    with pytest.raises(ConfigurationError, match="is no batch"):
        BatchLedger(tmp_path / "out" / "batches").read_batches()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("there",), "follows one folder"),
        (("--engine", "local"), "does not follow: Spark does"),
        (("--master", "sc://host"), "Spark Connect"),
    ],
)
def test_options_that_do_not_fit_following_are_named(tmp_path, capsys, options, says):
    assert run(["analyze", "--follow", str(tmp_path), "--out", str(tmp_path / "out"), *options]) == Exit.USAGE
    assert says in capsys.readouterr().err


# -- with Spark --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spark():
    with Session(ONE_BY_ONE) as session:
        yield session


@pytest.fixture(scope="module")
def worlds():
    scenario = override(find_scenario("quiet"), ["shared_subscriptions.load.messages=5"])
    found = [World(scenario, seed) for seed in range(3)]
    return [(scenario, world, world.run()) for world in found]


def tables(out):
    return {path.name: pq.read_table(path) for path in sorted((out / "tables").glob("*.parquet"))}


def write_run(folder, number, given):
    scenario, world, outcome = given
    with TraceWriter(folder, str(number)) as writer:
        writer.add(run_row(scenario, outcome, number), world.rows)


@pytest.mark.long
def test_a_driver_that_is_killed_goes_on_where_it_was(spark, worlds, tmp_path, capsys):
    """One file comes before the kill; one while nobody looks; one that is wrong after that.  The driver is the command
    of the page, and prints what that shows."""
    (console,) = re.findall(r"```console\n\$ gapless (.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    words, *shown = console.splitlines()
    folder, out = tmp_path / "trace", tmp_path / "out"
    write_run(folder, 0, worlds[0])
    places = {"out/sim": str(folder), "out/followed": str(out)}
    command = [sys.executable, "-m", "statemachines", *(places.get(word, word) for word in words.split())]
    driver = subprocess.Popen(
        [*command, "--master", "local[1]"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        until(lambda: (out / "batches" / "batch-000000000.json").exists(), "the first batch", child=driver)
    finally:
        kill_session(driver.pid)
        said, _ = driver.communicate()
    assert said.decode().splitlines() in ([], ["batch 0: 1 files, 0 violations"])  # it is noted before it is printed
    write_run(folder, 1, worlds[1])
    scenario, world, outcome = worlds[2]
    rows = list(world.rows)
    step = next(place for place, row in enumerate(rows) if is_step(row))
    rows[step] = change(rows[step], dest="nowhere")
    seen = []

    def report(batch):
        seen.append(batch)
        if len(seen) == 1:
            write_run(folder, 2, (scenario, SimpleNamespace(rows=rows), outcome))
        if batch.wrong:
            end_run(folder)

    done = follow(folder, out, ONE_BY_ONE, AT_ONCE, report)
    assert sorted(name for batch in done.batches for name in batch.files) == [f"trace-{n}.parquet" for n in range(3)]
    assert {(one.where, one.seq) for one in seen[-1].findings if one.check == "rows"} == {("run 2", step)}
    assert count_wrong(done.batches)["rows"] == 1
    capsys.readouterr()
    print_batch(seen[0], json=False)
    print_batch(seen[-1], json=False)
    begins = [re.sub(r"\d+", "N", line).partition(" row ")[0] for line in capsys.readouterr().out.splitlines()]
    assert begins[:2] == [re.sub(r"\d+", "N", line) for line in shown[:2]]
    assert "  rows: run N" in begins, "as the third line of the page, of another check"
    assert (done.is_ended, done.is_stopped, done.analysis.is_held) == (True, False, False)
    analyze(folder, tmp_path / "batch", spark=False)
    assert tables(out) == tables(tmp_path / "batch")


def test_logs_of_a_cluster_are_judged_segment_by_segment(spark, worlds, tmp_path):
    """A segment waits for those before it.  Without an end nothing is said of what needs all logs."""
    ready, folder, out = tmp_path / "ready", tmp_path / "logs", tmp_path / "out"
    folder.mkdir()
    _, world, _ = worlds[0]
    rows = [row for row in world.rows if is_step(row)]
    tables_of = list_fingerprints(["shared_subscriptions"])
    node = next(name for name in {row[1] for row in rows} if name.startswith("leader"))
    own = [row for row in rows if row[1] == node]
    own[len(own) // 2] = change(own[len(own) // 2], row=900)
    with TraceLog(ready, Head(FORMAT, node, f"{node}~1", 1, tables_of, {}), LogSegments(2**30, 1e6)) as log:
        for some in batched(own, len(own) // 3 + 1):
            log.write(some)
            log.close_segment()
    first, second, *others = sorted(ready.iterdir())
    shutil.copy(second, folder)

    def bring(*paths):
        for path in paths:
            path.rename(folder / path.name)

    def report(batch):
        seen.append((len(batch.files), batch.wrong))

    seen = []
    done = follow(folder, out, ONE_BY_ONE, FollowTimes(idle_s=0), report)
    assert (done.analysis, done.is_ended, seen) == (None, False, [(1, {})])
    bring(first)
    done = follow(folder, out, ONE_BY_ONE, FollowTimes(idle_s=0), report)
    assert (done.analysis, seen[1:]) == (None, [(1, {"rows": 1})])
    assert [one.where for one in done.batches[-1].findings] == [f"{node}~1"]
    bring(*others)
    end_run(folder)
    done = follow(folder, out, ONE_BY_ONE, AT_ONCE, report)
    assert not done.analysis.is_held
    analyze(folder, tmp_path / "batch", spark=False)
    assert tables(out) == tables(tmp_path / "batch")
    (folder / "b~1.ndjson").write_bytes(others[-1].name.encode())
    with pytest.raises(GaplessError, match=r"b~1\.ndjson.* has no end line"):
        follow(folder, out, ONE_BY_ONE, AT_ONCE, report)


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


@pytest.fixture(scope="module")
def corrupt(tmp_path_factory):
    """Two files of two runs each; in one of them a row, a state and an owner are wrong."""
    directory = tmp_path_factory.mktemp("trace")
    campaign(find_scenario("storm"), range(2), out=directory, processes=1)
    campaign(find_scenario("kills"), range(2), out=directory, processes=1, first_run=100)
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
