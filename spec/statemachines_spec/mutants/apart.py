"""Apart: each mutant is judged in a process of its own, with bounded memory and processor time.

One process explores the systems without a mistake, then forks another for each mutant: what was explored is shared, and
made once however many mutants are judged at a time.  A mutant that eats memory, hangs where no signal is heard, or ends
its process, costs its own verdict and nothing else.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from statemachines.kernel import ConfigurationError, GaplessError
from statemachines.workers import SPAWNED
from statemachines_spec.mutants.judging import UNJUDGED, MutantJudge, MutantVerdict
from statemachines_spec.mutants.mutant import Mutant

MEMORY_MAX = 2 << 30
"""Bytes that a mutant may take beside what was there before it."""
SECONDS_MORE = 10
"""Of processor time beside what the systems allow: then its process is ended, whatever it is at."""

FORK = multiprocessing.get_context("fork")

Say = Callable[[str], None]


class JudgingSystems(msgspec.Struct, frozen=True):
    """The systems that judge, and those that are too large."""

    systems: tuple[str, ...]
    left_out: tuple[str, ...]


class CampaignError(msgspec.Struct, frozen=True):
    """Nothing can be judged: an error of the systems themselves, as (key, value, rule)."""

    key: str
    value: str
    rule: str


Word = MutantVerdict | JudgingSystems | CampaignError | str
"""What the process says: a text is progress."""

Prepare = Callable[[Say], tuple[MutantJudge, Sequence[Mutant], JudgingSystems]]
"""Explores the originals; called in the process that forks."""


@contextmanager
def judge_apart(prepare: Prepare, jobs: int, say: Say) -> Iterator[Iterator[MutantVerdict | JudgingSystems]]:
    """Verdicts, in the order in which they are known, behind what was explored.

    Raises `ConfigurationError` where the systems themselves break, `GaplessError` where the process that forks is lost.
    """
    ours, theirs = SPAWNED.Pipe(duplex=False)
    process = SPAWNED.Process(target=_judge_all, args=(prepare, jobs, theirs))
    process.start()
    theirs.close()
    try:
        yield _read_words(ours, process, say)
    finally:
        ours.close()
        _end_with_all(process)


def _end_with_all(process: BaseProcess) -> None:
    """It and those that it forked, at once, whatever they are at: what they found is here already."""
    if process.pid and process.is_alive():
        with suppress(ProcessLookupError, PermissionError):  # it has no group of its own yet, and forked nobody
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
    process.join()


def _read_words(ours: Connection, process: BaseProcess, say: Say) -> Iterator[MutantVerdict | JudgingSystems]:
    while True:
        try:
            word: Word = ours.recv()
        except EOFError:
            process.join()
            if process.exitcode:
                raise GaplessError(
                    f"the process that explores ended ({_describe_end(process.exitcode)}); what was judged is kept"
                ) from None
            return
        if isinstance(word, CampaignError):
            raise ConfigurationError(word.key, word.value, word.rule)
        if isinstance(word, str):
            say(word)
        else:
            yield word


# -- the process that forks -----------------------------------------------------------------------------------------


def _judge_all(prepare: Prepare, jobs: int, out: Connection) -> None:
    """Ctrl-C is for the command, which ends this process; those that it forked end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, leave)
    os.setpgid(0, 0)
    try:
        judge, mutants, explored = prepare(out.send)
        out.send(explored)
        gc.freeze()  # what was explored is to stay shared
        for verdict in _each_apart(judge, mutants, jobs):
            out.send(verdict)
    except ConfigurationError as error:
        out.send(CampaignError(error.key, str(error.value), error.rule))
    except BrokenPipeError:  # nobody listens any more
        return


def leave(signum: int, frame: FrameType | None) -> None:
    """What a forked process does when it is told to end: what it holds is let go."""
    sys.exit(0)


def _each_apart(judge: MutantJudge, mutants: Sequence[Mutant], jobs: int) -> Iterator[MutantVerdict]:
    judged = set()
    for mutant, word in fork_jobs(partial(_judge_one, judge), mutants, jobs):
        if not isinstance(word, ProcessExit):
            judged.add(mutant.name)
            yield word
        elif mutant.name not in judged:
            why = f"its process ended: {_describe_end(word.code)}"
            yield MutantVerdict(mutant.name, mutant.group, mutant.kind, UNJUDGED, why, refused=mutant.refusal())


class ProcessExit(msgspec.Struct, frozen=True):
    """A forked process has ended, so."""

    code: int | None


def fork_jobs(
    work: Callable[[Mutant, Connection], None], mutants: Sequence[Mutant], jobs: int
) -> Iterator[tuple[Mutant, Any]]:
    """What is said of each mutant, by `work` in a process of its own, and behind that how the process `Left`; so many
    at a time."""
    waiting = list(reversed(mutants))
    running: dict[Connection, tuple[BaseProcess, Mutant]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                mutant = waiting.pop()
                ours, theirs = FORK.Pipe(duplex=False)
                process: BaseProcess = FORK.Process(target=work, args=(mutant, theirs))
                process.start()
                theirs.close()
                running[ours] = (process, mutant)
            for one in wait(list(running)):
                assert isinstance(one, Connection)
                try:
                    yield running[one][1], one.recv()
                except EOFError:
                    process, mutant = running.pop(one)
                    one.close()
                    process.join()
                    yield mutant, ProcessExit(process.exitcode)
    finally:
        for process, _ in running.values():
            process.terminate()
        for process, _ in running.values():
            process.join()


def _describe_end(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


# -- the process of one mutant --------------------------------------------------------------------------------------


def _judge_one(judge: MutantJudge, mutant: Mutant, out: Connection) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    limit_memory(MEMORY_MAX)
    limit_processor_time(judge.seconds_max(mutant) + SECONDS_MORE)
    out.send(judge.judge(mutant))


def limit_memory(more: int) -> None:
    """This process may take so many bytes more than it has; where the system does not say how many it has, it is not
    bounded."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + more, hard))


def limit_processor_time(seconds: float) -> None:
    """This process ends by SIGXCPU after so many seconds more of processor time."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(usage.ru_utime + usage.ru_stime + seconds) + 1, hard))
