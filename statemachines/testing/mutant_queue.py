"""Mutant queue: which mutants the other judges are shown, so many at a time, each in a process of its own.

One that exploration left alive is shown to one judge after the other until somebody notices; a fixed sample of all to
every one of them, which says how strong each is.

Mutant judges: whether the other judges notice a mutant: the tests of a protocol, simulation, and Hypothesis.

Each has some seconds of processor time, and none knows what it looks for.  A search that raises has noticed as well.
Each looks in a process of its own; for tests the mutant is planted before pytest collects anything.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from functools import partial
from hashlib import blake2b
from io import StringIO
from math import ceil
from multiprocessing.connection import Connection
from pathlib import Path
from resource import RLIMIT_CPU, RUSAGE_CHILDREN, getrusage, setrlimit
from tempfile import TemporaryFile
from time import monotonic, sleep
from typing import Final, NamedTuple

from statemachines.kernel import ConfigurationError, GaplessError
from statemachines.testing.bug_search import search, searches_of
from statemachines_spec.mutants.apart import CampaignError, ProcessExit, fork_jobs, leave
from statemachines_spec.mutants.mutant import Mutant, Unmade, plant
from statemachines_spec.mutants.notice import Notice, Notices

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


Ask = Callable[[Mutant], Iterator[Notice]]


class JudgeRequest(NamedTuple):
    """What the judges are asked: `tests`, files or folders for pytest; for how many `seconds` of processor time each
    may look at a mutant; the names of those `drawn` to be shown to every judge; how many processes look at a time."""

    tests: tuple[Path, ...]
    seconds: float
    drawn: frozenset[str] = frozenset()
    jobs: int = 1

    def print(self) -> str:
        """In short: the text of the tests, and the time."""
        found = blake2b(repr(self.seconds).encode(), digest_size=16)
        for path in sorted({file for one in self.tests for file in ([one] if one.is_file() else one.rglob("*"))}):
            if path.is_file() and path.suffix != ".pyc":
                found.update(str(path).encode() + path.read_bytes())
        return found.hexdigest()

    def each(
        self, protocol: str, mutants: Sequence[Mutant], alive: Collection[str], notices: Notices
    ) -> Iterator[tuple[int, int]]:
        """Ask: of one that is `alive` until somebody notices; how many are done, of how many.  Who was asked before is
        not asked again.

        Raises `ConfigurationError` for tests that fail without any mutant, or take too long; `GaplessError` where a
        process is lost.
        """
        some = [one for one in mutants if one.name in self.drawn or (one.name in alive and not notices.of(one.name))]
        if not some:
            return
        judges = judges_of(protocol, self.tests)
        seconds = dict.fromkeys(judges, self.seconds)
        if TESTS in judges:
            without = check_tests(self.seconds, self.tests)
            seconds[TESTS] = max(self.seconds, TIMES * without)
        ask = partial(self._ask, protocol, seconds, notices)
        done = 0
        yield done, len(some)
        for said in _asked_apart(ask, some, self.jobs):
            if isinstance(said, Notice):
                notices.add(said)
            else:
                done += 1
                yield done, len(some)

    def _ask(self, protocol: str, seconds: dict[str, float], notices: Notices, mutant: Mutant) -> Iterator[Notice]:
        """What each judge that was not asked yet says of this mutant, in turn."""
        noticed = notices.of(mutant.name) is not None
        for judge, some in seconds.items():
            if (noticed and mutant.name not in self.drawn) or (mutant.name, judge) in notices.found:
                continue
            said = notice(protocol, mutant, judge, some, self.tests)
            noticed = noticed or bool(said.what)
            yield said


def _asked_apart(ask: Ask, mutants: Sequence[Mutant], jobs: int) -> Iterator[Notice | Mutant]:
    """What was noticed, as soon as it is known; each mutant behind all that was noticed of it."""
    for mutant, word in fork_jobs(partial(_say, ask), mutants, jobs):
        if isinstance(word, CampaignError):
            raise ConfigurationError(word.key, word.value, word.rule)
        if not isinstance(word, ProcessExit):
            yield word
            continue
        if word.code:
            raise GaplessError(f"the process that asks about {mutant.name} ended: {word.code}")
        yield mutant


def _say(ask: Ask, mutant: Mutant, out: Connection) -> None:
    """In a process of its own; Ctrl-C comes to it as well."""
    signal.signal(signal.SIGTERM, leave)
    try:
        for said in ask(mutant):
            out.send(said)
    except ConfigurationError as error:
        out.send(CampaignError(error.key, str(error.value), error.rule))
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(1)
