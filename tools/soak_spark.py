"""Spark: a campaign and its analysis on a cluster of processes, of which a worker is killed each time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
from soak_totals import Totals, empty_folder

from statemachines.kernel import GaplessError
from statemachines.testing.spark_cluster import LOOPBACK, SparkCluster, kill_session
from statemachines.trace.log_segments import end_run
from statemachines_reports.pipeline import analyze
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import find_scenario

PATIENCE_S = 1_800
GAPLESS = (sys.executable, "-m", "statemachines")
ROWS_PER_TASK = 100_000
SCENARIO = "shared_subscriptions/storm"


def run_on_cluster(totals: Totals, seeds: int) -> None:
    """Each time a worker dies with its executor, and another comes: files and tables are those of this process."""
    if not seeds:
        return
    folder = empty_folder("spark")
    first = totals.seed * seeds
    trace, report = folder / "trace", folder / "report"
    cluster = SparkCluster(empty_folder("spark/cluster"))
    try:
        command = ["campaign", SCENARIO, "--seeds", str(seeds), "--from", str(first), "--trace", str(trace)]
        run_hurt(cluster, command, lambda: any(trace.glob("trace-*.parquet")))
        command = ["analyze", str(trace), "--out", str(report), "--conf", f"spark.gapless.rowsPerTask={ROWS_PER_TASK}"]
        run_hurt(cluster, command, lambda: any((folder / "cluster").glob("worker-*/app-*-0001/*/stderr")))
    finally:
        cluster.stop()
    campaign(find_scenario(SCENARIO), range(first, first + seeds), out=folder / "trace-here")
    if list_contents(trace) != list_contents(folder / "trace-here"):
        totals.count_violations(f"the files of {trace} are not those of a local campaign")
    analyze(trace, folder / "report-here", spark=False)
    if read_tables(report) != read_tables(folder / "report-here"):
        totals.count_violations(f"the tables of {report} are not those of a local analysis")
    totals.on_cluster += seeds
    totals.workers_killed += 2


def run_followed(totals: Totals, seeds: int) -> None:
    """A campaign is followed by a driver that is killed after every second file: the tables are those of a batch."""
    if not seeds:
        return
    folder = empty_folder("followed")
    trace, report = folder / "trace", folder / "report"
    campaign(find_scenario(SCENARIO), range(totals.seed * seeds, (totals.seed + 1) * seeds), out=trace)
    end_run(trace)
    command = [*GAPLESS, "analyze", "--follow", str(trace), "--out", str(report), "--lateness", "0"]
    command += ["--master", "local[2]", "--conf", "spark.gapless.filesPerBatch=1"]
    until = time.monotonic() + PATIENCE_S
    kills = 0
    while True:
        driver = subprocess.Popen(command, start_new_session=True)
        try:
            done = len(list(report.glob("batches/batch-*.json")))
            while driver.poll() is None and len(list(report.glob("batches/batch-*.json"))) < done + 2:
                if time.monotonic() > until:
                    raise GaplessError(f"{report} does not come to its end")
                time.sleep(0.2)
            if driver.poll() is not None:
                break
        finally:
            kill_session(driver.pid)
            driver.wait()
        kills += 1
    print(f"followed to its end after {kills} kills of the driver")
    analyze(trace, folder / "report-here", spark=False)
    if read_tables(report) != read_tables(folder / "report-here"):
        totals.count_violations(f"the tables of {report} are not those of a batch analysis")


def run_hurt(cluster: SparkCluster, command: list[str], is_amid: Callable[[], bool]) -> None:
    """Run a command on the cluster; once it is amid its work the oldest worker that lives is killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "statemachines", *command, *cluster.list_options()],
        env={**os.environ, **LOOPBACK},
        start_new_session=True,
    )
    try:
        until = time.monotonic() + PATIENCE_S
        while not is_amid() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        kill_session(cluster.workers[-2])
        cluster.add_worker(f"worker-{len(cluster.workers)}")
        if process.wait(PATIENCE_S):
            raise GaplessError(f"gapless {' '.join(command)} ends with {process.returncode}")
    finally:
        kill_session(process.pid)
        process.wait()


def list_contents(folder: Path) -> dict[str, bytes]:
    """Name -> content of the files of a trace."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.parquet"))}


def read_tables(folder: Path) -> dict[str, object]:
    """Name -> table of an analysis."""
    return {path.name: pq.read_table(path) for path in sorted((folder / "tables").glob("*.parquet"))}
