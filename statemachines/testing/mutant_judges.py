"""Mutant judges: whether the other judges notice a mutant: the tests of a protocol, simulation, and Hypothesis.

Each has some seconds of processor time, and none knows what it looks for.  A search that raises has noticed as well.
Each looks in a process of its own; for tests the mutant is planted before pytest collects anything.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from math import ceil
from pathlib import Path
from resource import RLIMIT_CPU, RUSAGE_CHILDREN, getrusage, setrlimit
from tempfile import TemporaryFile
from time import monotonic, sleep
from typing import Final, NamedTuple

from statemachines.kernel import ConfigurationError
from statemachines.testing.bug_search import search, searches_of
from statemachines_spec.mutants.mutant import Mutant, Unmade, plant
from statemachines_spec.mutants.notice import Notice

TESTS: Final = "tests"
JUDGES: Final = (TESTS, "simulation", "hypothesis")
"""In the order in which they are asked: tests say soonest what they notice."""
NEVER_DONE: Final = "the tests are never done"
TIMES: Final = 5
"""With a mutant the tests may take so many times what they take without."""
TOO_LONG: Final = (-signal.SIGXCPU, -signal.SIGKILL)
"""How a process ends that has used up its processor time."""
LOOK_S: Final = 0.05
STANDS_STILL: Final = 60
"""Tests may take so many times their seconds by the wall clock: one that waits for ever takes no processor time, and
nobody can say of what it waits."""


class PytestExit(NamedTuple):
    """A pytest: its exit code (below zero: the signal that ended it), and what it `said`."""

    code: int
    said: str


def judges_of(protocol: str, tests: Sequence[Path]) -> tuple[str, ...]:
    """The judges that the protocol has: where nothing is simulated, nothing is noticed by simulation."""
    searches = searches_of(protocol)
    there = {"simulation": searches.scenarios, "hypothesis": searches.driven, TESTS: tests}
    return tuple(judge for judge in JUDGES if there[judge])


def notice(protocol: str, mutant: Mutant, judge: str, seconds: float, tests: Sequence[Path] = ()) -> Notice:
    """Let one judge look at one mutant; `tests`: files or folders for pytest.

    Raises `ConfigurationError` for tests that cannot be run any more, with the mutant or without.
    """
    if judge == TESTS:
        return Notice(mutant.name, judge, _tested(mutant, seconds, tests))
    done = _forked(partial(_search, protocol, mutant, judge, seconds), 2 * seconds)
    if done is None or done.code in TOO_LONG:
        return Notice(mutant.name, judge, "")
    return Notice(mutant.name, judge, done.said.strip() or (f"its process ended with {done.code}" if done.code else ""))


def check_tests(seconds: float, tests: Sequence[Path]) -> float:
    """How much processor time the tests take without any mutant.

    Raises `ConfigurationError` unless they hold, within these seconds: what fails anyway, or is never done, says
    nothing of a mutant.
    """
    before = _spent()
    done = _run(None, seconds, tests)
    where = ", ".join(map(str, tests))
    if done is None or done.code in TOO_LONG:
        rule = "take longer without any mutant: name fewer, or give more --seconds"
        raise ConfigurationError("seconds", seconds, f"the tests {where} {rule}")
    if done.code:
        rule = "fail without any mutant; mend that first"
        raise ConfigurationError("tests", where, f"{_failed(done.said) or f'pytest ended with {done.code}'}: {rule}")
    return _spent() - before


def _spent() -> float:
    """Processor time of all children that have ended."""
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _tested(mutant: Mutant, seconds: float, tests: Sequence[Path]) -> str:
    """The first test that fails; tests that are not done in so much more time than without it have noticed it, too.

    A pytest that could not run says nothing of a mutant, unless the mutant is why: without it, it can.
    """
    done = _run(mutant, seconds, tests)
    if done is None:
        return ""
    if done.code in TOO_LONG:
        return NEVER_DONE
    failed = _failed(done.said)
    if done.code and not failed:
        check_tests(seconds, tests)
    return failed or (f"pytest ended with {done.code}" if done.code else "")


def _run(mutant: Mutant | None, seconds: float, tests: Sequence[Path]) -> PytestExit | None:
    """A pytest with this mutant (None: with none); None: it stood still."""
    import pytest  # so that it is there for every fork

    return _forked(partial(_test, pytest.main, mutant, tests), seconds)


def _test(main: Callable[[list[str]], int], mutant: Mutant | None, tests: Sequence[Path]) -> int:
    """What a forked process does; how pytest ends."""
    ignored = "ignore::pytest.PytestAssertRewriteWarning"  # of what this process has imported before
    try:
        with plant(mutant) if mutant else nullcontext():
            return int(main(["-x", "-q", "-p", "no:randomly", "-W", ignored, *map(str, tests)]))
    except Unmade:
        return 0


def _search(protocol: str, mutant: Mutant, judge: str, seconds: float) -> int:
    """What a forked process does; what it notices it prints, and nothing else is."""
    noticed = ""
    try:
        with plant(mutant), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            noticed = search(protocol, judge, cpu_s=seconds).what
    except Unmade:
        pass
    except Exception as error:  # it is noticed, whatever it is
        noticed = type(error).__name__
    print(noticed)
    return 0


def _forked(work: Callable[[], int], seconds: float) -> PytestExit | None:
    """This work in a process forked off this one, which has imported the machines: what it imports, draws and leaves
    behind is nobody else's.  Its processor time is bounded, whatever else the machine does; None: it stood still."""
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            _do(work, ceil(seconds), said.fileno())
        status = _waited(pid, STANDS_STILL * seconds)
        said.seek(0)
        return None if status is None else PytestExit(os.waitstatus_to_exitcode(status), said.read())


def _do(work: Callable[[], int], seconds: int, to: int) -> None:
    """In the forked process; it does not come back."""
    status = 1
    try:
        os.setsid()
        setrlimit(RLIMIT_CPU, (seconds, seconds + 1))
        os.dup2(to, 1)
        os.dup2(to, 2)
        sys.stdout = sys.stderr = os.fdopen(1, "w", closefd=False)
        status = work()
    finally:
        sys.stdout.flush()
        os._exit(status)


def _waited(pid: int, seconds: float) -> int | None:
    """How the process ended; one that stands still is killed, with all that it has begun (None)."""
    began = monotonic()
    try:
        while monotonic() - began < seconds:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                pid = 0
                return status
            sleep(LOOK_S)
        return None
    finally:
        if pid:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _failed(output: str) -> str:
    """The first test that failed, without its folders; parameters of a test may have a `/` in them."""
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    if found is None:
        return ""
    path, mark, test = found[1].partition("::")
    return f"{path.rpartition('/')[2]}{mark}{test}"
