"""A folder that is followed: what comes into it is judged at once, and in the end as a batch analysis judges it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pyarrow.parquet as pq
import pytest
from lock_protocol import LOCK, Leave, LockRecord, Take
from waiting import until

from statemachines.cli import Exit, run
from statemachines.commands.following import print_batch
from statemachines.kernel import ConfigurationError, GaplessError, Node
from statemachines.spark.spark_settings import SparkSettings
from statemachines.testing.spark_cluster import kill_session
from statemachines.trace import COLUMNS, list_fingerprints, step_rows
from statemachines.trace.log import FORMAT, Head, TraceLog
from statemachines.trace.log_segments import LogSegments, end_run, list_logs
from statemachines.trace.parquet import TraceWriter
from statemachines_reports.follow.folder_follower import (
    FILES_PER_BATCH,
    BatchSink,
    FollowTimes,
    check_ended,
    count_wrong,
    follow,
)
from statemachines_reports.follow.log_piece import BatchLedger, FileBatch, LifeState, LogPiece, judge_piece
from statemachines_reports.lookup import Lookup
from statemachines_reports.pipeline import analyze
from statemachines_reports.session import Session
from statemachines_sim.campaign import run_row
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
