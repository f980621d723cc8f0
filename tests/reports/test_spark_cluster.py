"""A cluster: a master and two workers as processes, whose executors have none of our packages, and one that dies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from test_any_protocol import made

from statemachines import cli
from statemachines.spark import environment_archive
from statemachines.testing.spark_cluster import LOOPBACK, START_S, SparkCluster, kill_session, list_session

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = SparkCluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield cluster
    finally:
        cluster.stop()
        assert not [one for process in cluster.processes for one in list_session(process.pid)]


def begin(*arguments):
    """The command, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(HERE), **LOOPBACK}
    command = [sys.executable, "-m", "statemachines", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, text=True, cwd=HERE, start_new_session=True, **pipes)


def end(process):
    try:
        said, errors = process.communicate(timeout=START_S)
        return process.returncode, said, errors
    finally:
        kill_session(process.pid)


def tables(out):
    return {path.name: pq.read_table(path) for path in sorted((out / "tables").glob("*.parquet"))}


def write_runs(one, folder, runs, about):
    """The run of a trace again and again, a file each."""
    folder.mkdir()
    (rows, table) = (pq.read_table(one / f"{name}-mine.parquet") for name in ("trace", "runs"))
    facts = json.loads(table["parameters"][0].as_py()) | {"folder": about}
    for run in runs:
        numbered = [one.set_column(0, "run", [[run] * len(one)]) for one in (rows, table)]
        place = numbered[1].column_names.index("parameters")
        numbered[1] = numbered[1].set_column(place, "parameters", [[json.dumps(facts)]])
        for name, one in zip(("trace", "runs"), numbered, strict=True):
            pq.write_table(one, folder / f"{name}-{run}.parquet")


def wait_until_there(path, process):
    until = time.monotonic() + START_S
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, f"{path} is not there"
        time.sleep(0.05)


@pytest.mark.long
def test_a_worker_that_dies_with_its_executor_changes_no_table(cluster, tmp_path):
    folder = tmp_path / "trace"
    write_runs(made(tmp_path / "one"), folder, range(4), str(tmp_path))
    named = ("--protocol", "paused_lock:PROTOCOL")
    rows = ("--conf", "spark.gapless.rowsPerTask=5")
    process = begin("analyze", folder, "--out", tmp_path / "spark", *named, *cluster.list_options(), *rows)
    try:
        wait_until_there(tmp_path / "reached", process)
        session = int((tmp_path / "reached").read_text())
        assert session in cluster.workers
        kill_session(session)
        (tmp_path / "go").touch()
    finally:
        code, said, errors = end(process)
    assert code == 0, errors
    assert "4 runs, " in said
    code, _, errors = end(begin("analyze", folder, "--out", tmp_path / "local", *named, "--engine", "local"))
    assert code == 0, errors
    assert tables(tmp_path / "spark") == tables(tmp_path / "local")


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.parquet"))}


def list_times(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}


def wait_until_amid(folder, process):
    """The process that writes a file, when two files of this folder are whole: its partial file is named after it."""
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        if len(list(folder.glob("trace-*.parquet"))) > 1 and (begun := list(folder.glob("trace-*.partial"))):
            return int(begun[0].suffixes[-2].partition("-")[2])
        time.sleep(0.01)
    raise AssertionError(f"nobody writes in {folder}: {process.communicate()}")


@pytest.mark.long
def test_a_worker_that_dies_amid_a_campaign_changes_no_byte(cluster, tmp_path, capsys):
    """Another worker makes its file again.  A campaign that is resumed keeps files that are whole, those of before and
    those of the one that was hurt."""
    own = "shared_subscriptions"
    values = ("phases.safety_s=1", f"{own}.load.messages=20", f"{own}.members.join_s=[]", f"{own}.members.leave_s=[]")
    short = [part for value in values for part in ("--set", value)]
    given = ["campaign", "quiet", "--seeds", "80", *short, "--resume", "--trace"]
    local, folder = tmp_path / "local", tmp_path / "spark"
    assert cli.run([*given, str(local), "--processes", "1"]) == 0
    said = capsys.readouterr().out
    folder.mkdir()
    for path in local.glob("*-000000.parquet"):
        shutil.copy(path, folder)
    kept = list_times(folder)
    process = begin(*given, folder, *cluster.list_options())
    try:
        session = os.getsid(wait_until_amid(folder, process))
        assert session in cluster.workers
        kill_session(session)
        cluster.add_worker("worker-instead")
    finally:
        code, *printed = end(process)
    assert (code, printed[0]) == (0, said), printed
    assert contents(folder) == contents(local)
    assert kept.items() <= list_times(folder).items()
    kept = list_times(folder)
    for path in folder.glob("*-000040.parquet"):
        path.unlink()
        del kept[path.name]
    assert cli.run([*given, str(folder), "--processes", "1"]) == 0
    assert capsys.readouterr().out == said
    assert contents(folder) == contents(local)
    assert kept.items() <= list_times(folder).items()
    assert len(kept) == 6


@pytest.mark.long
def test_a_campaign_on_the_cluster_is_the_local_one_byte_for_byte(cluster, tmp_path, capsys, monkeypatch):
    """Two files; what is printed is the same, too.  The executors run with the interpreter of an archive: there is no
    other Python under its name."""
    archive = tmp_path / "environment.tgz"
    monkeypatch.setattr(environment_archive, "LEVEL", 0)
    assert cli.run(["env-archive", str(archive)]) == 0
    assert f"spark.archives={archive}#environment" in capsys.readouterr().out
    given = ["campaign", "quiet", "--seeds", "25", "--set", "shared_subscriptions.load.messages=20", "--trace"]
    code, said, errors = end(begin(*given, tmp_path / "spark", *cluster.list_options(archive)))
    assert cli.run([*given, str(tmp_path / "local")]) == code == 0, errors
    assert said == capsys.readouterr().out
    assert len(contents(tmp_path / "local")) == 4
    assert contents(tmp_path / "spark") == contents(tmp_path / "local")
    assert sorted(cluster.folder.glob("worker-*/app-*/*/environment/bin/python"))
