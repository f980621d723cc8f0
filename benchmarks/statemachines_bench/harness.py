"""Harness: how two sides are run in turns, in which processes and folders, and what a process has spent.

A row names two measures and the sizes of its workload.  A measure is a function or a coroutine function that gives one
value; a coroutine runs on a loop of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from inspect import iscoroutine
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Generic, TypeVar

from statemachines.kernel import GaplessError
from statemachines_bench.row import Measure, Size, TurnPair

T = TypeVar("T")
Prepare = Callable[[Size], TurnPair]
Sides = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Arguments of ours, and of the baseline."""


# -- turns ----------------------------------------------------------------------------------------------------------


def run_measure(measure: Callable[..., Any], *given: Any) -> Any:
    """The value of one run."""
    value = measure(*given)
    return asyncio.run(value) if iscoroutine(value) else value


def run_alone(measure: Callable[..., Any], *given: Any) -> Any:
    """The same in a fresh process, so that nothing that ran before it is in its way: memory in pieces, a heap that is
    slow to be collected, open files.  Making the process is not part of it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(run_measure, measure, *given).result()


def compare(
    ours: Callable[..., Any],
    baseline: Callable[..., Any],
    full: tuple[Any, ...] = (),
    small: tuple[Any, ...] = (),
    make: Callable[..., tuple[Any, ...]] | None = None,
) -> Prepare:
    """Two measures of one workload: both take `full` or `small`, or what `make` makes of it before anything is
    timed."""

    def prepare(size: Size) -> TurnPair:
        given = size.pick(full, small)
        if make is not None:
            given = make(*given)
        return TurnPair(partial(run_measure, ours, *given), partial(run_measure, baseline, *given))

    return prepare


def compare_sizes(
    measure: Callable[..., Any], full: Sides, small: Sides, ready: Callable[..., object] = lambda *given: None
) -> Prepare:
    """One measure of two workloads; `ready` makes ready what each needs, before anything is timed."""

    def prepare(size: Size) -> TurnPair:
        ours, baseline = size.pick(full, small)
        ready(*ours), ready(*baseline)
        return TurnPair(partial(run_measure, measure, *ours), partial(run_measure, measure, *baseline))

    return prepare


class SharedRuns(Generic[T]):
    """What `run` gives, kept in the order in which it was made: several rows read a value each of every run.

    A run measures ours and the baselines of all these rows one behind the other, so each row has them in turns.
    """

    def __init__(self, run: Callable[[], T]) -> None:
        self._run = run
        self._made: list[T] = []

    def read(self, value: Callable[[T], float]) -> Measure:
        """A measure of one row: its n-th call reads the n-th run, which is made if no other row has read it."""
        numbers = count()

        def measure() -> float:
            number = next(numbers)
            while len(self._made) <= number:
                self._made.append(self._run())
            return value(self._made[number])

        return measure


# -- folders --------------------------------------------------------------------------------------------------------


def make_folder() -> Path:
    """A folder that is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="gapless-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder for one turn."""
    with tempfile.TemporaryDirectory(prefix="gapless-bench-") as folder:
        yield Path(folder)


@cache
def fill_store(fill: Callable[..., Awaitable[None]], *given: int) -> Path:
    """A database that takes long to fill: it is filled once, by `fill(path, *given)`."""
    path = make_folder() / "kept.db"
    run_measure(fill, path, *given)
    return path


@contextmanager
def copy_store(kept: Path) -> Iterator[Path]:
    """A copy of it for one turn."""
    with open_folder() as folder:
        yield Path(shutil.copy(kept, folder / "s.db"))


# -- processes ------------------------------------------------------------------------------------------------------


@contextmanager
def run_child(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """(`python -m WORDS`, last word of the line that it begins with); it is gone when this is left."""
    command = (sys.executable, "-m", *words)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            if not line:
                raise GaplessError(f"{' '.join(words)} ended")
            yield child, line.split()[-1]
        finally:
            child.kill()


def run_node(role: str, name: str, store: Path | str, *options: str) -> Any:
    """A node of ours, and where it listens."""
    words = ("statemachines", "node", role, "--name", name, "--store", str(store), "--listen", "127.0.0.1:0")
    return run_child(*words, *options)


def read_cpu_s(pid: int) -> float:
    """Processor time that a process has taken, with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_memory(pid: int) -> int:
    """Bytes of resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (found,) = (line for line in lines if line.startswith("VmRSS:"))
    return int(found.split()[1]) * 1_024
