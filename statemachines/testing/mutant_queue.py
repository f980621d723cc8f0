"""Mutant queue: which mutants the other judges are shown, so many at a time, each in a process of its own.

One that exploration left alive is shown to one judge after the other until somebody notices; a fixed sample of all to
every one of them, which says how strong each is.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from statemachines.kernel import ConfigurationError, GaplessError
from statemachines.testing import mutant_judges
from statemachines_spec.mutants.apart import CampaignError, ProcessExit, fork_jobs, leave
from statemachines_spec.mutants.mutant import Mutant
from statemachines_spec.mutants.notice import Notice, Notices

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
        judges = mutant_judges.judges_of(protocol, self.tests)
        seconds = dict.fromkeys(judges, self.seconds)
        if mutant_judges.TESTS in judges:
            without = mutant_judges.check_tests(self.seconds, self.tests)
            seconds[mutant_judges.TESTS] = max(self.seconds, mutant_judges.TIMES * without)
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
            said = mutant_judges.notice(protocol, mutant, judge, some, self.tests)
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
