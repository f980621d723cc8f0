"""Rows about idle sessions: processor time and memory of a node whose clients only say that they live."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from time import sleep
from typing import Final, NamedTuple

from statemachines_bench.mqtt_traffic import read_memory
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair
from statemachines_bench.shared_runs import SharedRuns

SESSIONS: Final = 2_000
AT_ONCE: Final = 50
"""Clients that connect at a time."""

SETTLE_S: Final = 3.0
WATCH_S: Final = 10.0
LEAST: Final = 0.01
"""Percent of a core: a tick of the system's account in 100 s."""


def allow_files() -> None:
    """As many open files as the system lets this process have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def read_cpu_s(pid: int) -> float:
    """Processor time that a process has taken, with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def run_child(*command: str) -> Iterator[tuple[int, str]]:
    """(pid, last word of the line that it begins with); it is gone when this is left."""
    words = (sys.executable, "-m", *command)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            assert line, "a process ended"
            yield child.pid, line.split()[-1]
        finally:
            child.kill()


@contextmanager
def run_idle(count: int) -> Iterator[tuple[int, int]]:
    """(pid of a node with so many idle sessions, bytes of its memory before they came)."""
    allow_files()
    with tempfile.TemporaryDirectory(prefix="gapless-bench-") as folder, ExitStack() as stack:
        node = ("statemachines", "node", "sessions", "--store", f"{folder}/s.db", "--name", "a", "--listen")
        pid, address = stack.enter_context(run_child(*node, "127.0.0.1:0", "--max-connections", str(2 * count + 10)))
        before = read_memory(pid)
        stack.enter_context(run_child("statemachines_bench.session_idle", address, str(count)))
        sleep(SETTLE_S)
        yield pid, before


class IdleCost(NamedTuple):
    """What idle sessions cost a node."""

    cpu: float
    """Percent of a core."""
    memory: float
    """Bytes for each session."""


def measure_idle(count: int, watch_s: float) -> IdleCost:
    """Of so many sessions."""
    with run_idle(count) as (pid, memory_before):
        memory = max(1, read_memory(pid) - memory_before) / count
        before = read_cpu_s(pid)
        sleep(watch_s)
        watched_s = max(watch_s, LEAST)
        return IdleCost(max(LEAST, 100 * (read_cpu_s(pid) - before) / watched_s), memory)


@cache
def share_idle(size: Size) -> SharedRuns[IdleCost]:
    """Of many sessions: both rows read the same runs."""
    return SharedRuns(partial(measure_idle, *size.pick((SESSIONS, WATCH_S), (20, 0.5))))


async def connect_all(address: str, count: int) -> None:
    """Connect so many clients with a subscription each, say so, and stay."""
    from statemachines.drivers.persistent_sessions import PersistentSession

    sessions = [PersistentSession(f"c{number}", nodes=(address,)) for number in range(count)]
    for place in range(0, count, AT_ONCE):
        some = sessions[place : place + AT_ONCE]
        await asyncio.gather(*(one.__aenter__() for one in some))
        await asyncio.gather(*(one.subscribe(f"t/{number}") for number, one in enumerate(some, place)))
    print("connected", flush=True)
    await asyncio.Event().wait()


def prepare_cpu(size: Size) -> TurnPair:
    """Many sessions and one."""
    watch_s = size.pick(WATCH_S, 0.5)
    return TurnPair(share_idle(size).read(lambda cost: cost.cpu), lambda: measure_idle(1, watch_s).cpu)


def prepare_memory(size: Size) -> TurnPair:
    """Many sessions, and a twentieth of them."""
    few = size.pick(SESSIONS, 20) // 20
    return TurnPair(share_idle(size).read(lambda cost: cost.memory), lambda: measure_idle(few, 0.0).memory)


ROWS: Final = (
    BenchRow(
        name="session-idle",
        about=f"processor time of a node with {SESSIONS} idle sessions, each of which its client asks once a second",
        unit="% of a core",
        baseline_name="the same with one session",
        prepare=prepare_cpu,
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
    BenchRow(
        name="session-idle-memory",
        about=f"memory of a node for each of {SESSIONS} idle sessions with one subscription",
        unit="bytes / session",
        baseline_name=f"the same with {SESSIONS // 20} sessions, which share what the node takes for any",
        prepare=prepare_memory,
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
)


if __name__ == "__main__":
    allow_files()
    with suppress(KeyboardInterrupt):
        asyncio.run(connect_all(sys.argv[1], int(sys.argv[2])))
