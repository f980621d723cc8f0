"""Long analysis: `gapless analyze` on traces of up to 98 million rows, each size once: too long for `make bench`.

    python -m statemachines_bench.long_analysis --folder /tmp/long --copies 32 64 129

prints a line for each size and engine: seconds of the whole command, processor seconds, and the greatest proportional
set size of all its processes; then the seconds a million rows between the sizes.  The traces stay in the folder.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

SEEDS: Final = 24
"""Runs of `storm` in one copy: 0.76 million rows."""

FILES: Final = 13
LOOK_S: Final = 0.3
"""So often the memory is looked at."""


class Cost(NamedTuple):
    """Of one command."""

    wall_s: float
    cpu_s: float
    memory_bytes: int


def make_trace(folder: Path, copies: int) -> tuple[Path, int]:
    """A trace of so many copies, made where it is not there yet, and its rows."""
    from statemachines_bench.repeat import repeat
    from statemachines_reports.trace_set import TraceSet
    from statemachines_sim.campaign import campaign
    from statemachines_sim.scenario import find_scenario

    once, many = folder / "once", folder / f"copies-{copies}"
    if not once.exists():
        campaign(find_scenario("storm"), range(SEEDS), out=once)
    if not many.exists():
        repeat(once, many, copies=copies, files=min(FILES, copies))
    return many, TraceSet(many, folder / "out").rows


def measure_command(command: Sequence[str]) -> Cost:
    """Run the command; it must succeed."""
    before, began = os.times(), time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    most = 0
    while process.poll() is None:
        most = max(most, sum(read_memory_bytes(one) for one in list_processes(process.pid)))
        time.sleep(LOOK_S)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    wall_s, after = time.perf_counter() - began, os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(wall_s, cpu_s, most)


def list_processes(pid: int) -> set[int]:
    """A process and all below it."""
    found = {pid}
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found |= {below for child in path.read_text().split() for below in list_processes(int(child))}
        except OSError:
            continue  # it has ended
    return found


def read_memory_bytes(pid: int) -> int:
    """The proportional set size of a process; 0: it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--copies", type=int, nargs="+", default=[32, 64, 129])
    parser.add_argument("--engine", nargs="+", default=["local", "spark"], choices=["local", "spark"])
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for engine in given.engine:
        master = ["--master", "local[2]"] if engine == "spark" else []
        lines = []
        for copies in sorted(given.copies):
            trace, rows = make_trace(given.folder, copies)
            out = Path(tempfile.mkdtemp(dir=given.folder))
            command = [sys.executable, "-m", "statemachines", "analyze", str(trace), "--out", str(out)]
            cost = measure_command([*command, "--engine", engine, *master])
            shutil.rmtree(out)
            lines.append((rows, cost))
            print(
                f"{engine} {rows:,} rows: {cost.wall_s:.1f} s, {cost.cpu_s:.1f} s of processor, "
                f"{cost.memory_bytes / 1e9:.2f} GB",
                flush=True,
            )
        for (fewer, less), (rows, more) in pairwise(lines):
            slope_s = (more.wall_s - less.wall_s) / (rows - fewer) * 1e6
            print(f"{engine} {fewer:,} to {rows:,} rows: {slope_s:.3f} s a million rows")


if __name__ == "__main__":
    main()
