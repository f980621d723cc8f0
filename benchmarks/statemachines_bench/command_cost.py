"""Command cost: what a whole command takes, with all processes below it: time, processor time and memory."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from statemachines.kernel import GaplessError

LOOK_S: Final = 0.3
"""So often its processes are looked at."""


class CommandCost(NamedTuple):
    """Of one command, in seconds and bytes; memory is the greatest sum of the proportional set sizes."""

    wall_s: float
    processor_s: float
    memory_bytes: int


def measure_command(command: Sequence[str]) -> CommandCost:
    """Run the command; raises `GaplessError` where it fails."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    most, spent_s = 0, dict[int, float]()
    while process.poll() is None:
        pids = list_processes(process.pid)
        most = max(most, sum(map(read_memory_bytes, pids)))
        spent_s |= {pid: read_processor_s(pid) or spent_s.get(pid, 0.0) for pid in pids}
        time.sleep(LOOK_S)
    if process.returncode:
        raise GaplessError(f"{' '.join(command)} ended with {process.returncode}")
    return CommandCost(time.perf_counter() - began, sum(spent_s.values()), most)


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


def read_processor_s(pid: int) -> float:
    """What a process has spent itself so far; 0: it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
