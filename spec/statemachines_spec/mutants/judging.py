"""Judging: what exploration says of a mutant, fastest systems first, until something breaks.

A system in which no site of the mutant is executed says nothing.  One whose entries come out as before is the same
system, and is not walked.  Otherwise it is explored, and the obligations are judged where it has any; both may take a
few times what they take without the mistake, and no more.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import process_time
from types import FrameType
from typing import Any

import msgspec

from statemachines_spec.explorer.entries import Entries
from statemachines_spec.liveness.fair_graph import TooLarge
from statemachines_spec.liveness.judge import graph_of, worst_parts
from statemachines_spec.mutants.kept_entries import KeptEntries, print_of
from statemachines_spec.mutants.mutant import Mutant, Unmade, plant
from statemachines_spec.mutants.original import Original, walk

TIMES = 5
"""How much larger, and slower, than the original a mutant may be."""
SECONDS_MIN = 2.0
"""However fast the original is."""

PROPERTY, OBLIGATION, NEVER, ERROR = KILLED = ("property", "obligation", "never", "error")
"""Killed: a property breaks; an obligation stays open; what must happen sometimes does not; something raises."""
LIVED, EQUAL, UNSEEN, UNJUDGED, UNMADE = "lived", "equal", "never executed", "not judged", "not made"
"""Alive: executed, with other entries, and everything holds; executed with equal entries in every system; never
executed; too large or too slow in some system, or its process ended, and nothing broke in the others.  Last: it
cannot be made."""
STATES, SECONDS, MEMORY = "too many states", "too long", "too much memory"
"""Why a mutant is not judged in a system."""
VERDICTS = (*KILLED, LIVED, EQUAL, UNSEEN, UNJUDGED, UNMADE)


class MutantVerdict(msgspec.Struct, frozen=True):
    """What became of the mutant `name`: one of `VERDICTS`; `by`: what broke ("": nothing; of one that is not judged:
    why not), `where`: in which system (of one that lives: those in which its entries differ), at a depth of `steps`;
    in `cpu_s` seconds; `refused`: what the checks of a declaration say of it."""

    name: str
    group: str
    kind: str
    verdict: str
    by: str = ""
    where: str = ""
    steps: int = 0
    cpu_s: float = 0.0
    refused: str = ""

    @property
    def is_killed(self) -> bool:
        """Something broke."""
        return self.verdict in KILLED


class LimitExceeded(Exception):
    """It takes more of this (`STATES`, `MEMORY`) than it may."""


class OutOfTime(BaseException):
    """It takes longer than it may; no `Exception`, which a step may raise and a table keeps."""


@contextmanager
def limit_processor_time(seconds: float) -> Iterator[None]:
    """Raises `OutOfTime` after so many seconds of processor time."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


Found = tuple[str, str, str, int]
"""(verdict or "", by, where, steps)"""
NOTHING: Found = ("", "", "", 0)


class MutantJudge:
    """Judges mutants in these systems; it has them in the order of what they cost."""

    def __init__(self, originals: list[Original]) -> None:
        self.originals = sorted(originals, key=lambda one: one.seconds)
        self._prints: dict[str, frozenset[Any]] = {}

    def judge(self, mutant: Mutant) -> MutantVerdict:
        """What becomes of it."""
        began = process_time()
        try:
            with plant(mutant):
                found = self._judged(mutant)
        except Unmade as error:
            found = (UNMADE, str(error), "", 0)
        verdict, by, where, steps = found
        cpu_s = round(process_time() - began, 3)
        return MutantVerdict(mutant.name, mutant.group, mutant.kind, verdict, by, where, steps, cpu_s, mutant.refusal())

    def seconds_max(self, mutant: Mutant) -> float:
        """Seconds of processor time that all its systems together allow."""
        executed = [one for one in self.originals if one.executes(mutant.sites)]
        return sum(_allowed(one.seconds) + _allowed(one.live_seconds) for one in executed)

    def _judged(self, mutant: Mutant) -> Found:
        executed = [one for one in self.originals if one.executes(mutant.sites)]
        different: list[tuple[Original, Entries]] = []
        unjudged: list[tuple[str, str]] = []
        for original in executed:
            found = _bounded(original, original.seconds, partial(self._walked, original, mutant, different))
            if found[0] == UNJUDGED:
                unjudged.append((original.name, found[1]))
            elif found[0]:
                return found
        for original, entries in sorted(different, key=lambda pair: pair[0].live_seconds):
            if not original.obligations:
                continue
            found = _bounded(original, original.live_seconds, partial(self._owed, original, entries))
            if found[0] == UNJUDGED:
                unjudged.append((original.name, found[1]))
            elif found[0]:
                return found
        if unjudged:
            names, whys = (", ".join(dict.fromkeys(some)) for some in zip(*unjudged, strict=True))
            return UNJUDGED, whys, names, 0
        if different:
            return LIVED, "", ", ".join(one.name for one, _ in different), 0
        return (EQUAL, "", "", 0) if executed else (UNSEEN, "", "", 0)

    def _walked(self, original: Original, mutant: Mutant, different: list[tuple[Original, Entries]]) -> Found:
        entries = self._entries(original, mutant)
        if entries is None:
            return NOTHING
        found = walk(entries, TIMES * original.walked.states)
        if found.broke and found.kind == "error":
            raised = sorted({error.partition(":")[0] for error in entries.errors.values()})
            if MemoryError.__name__ in raised:
                raise LimitExceeded(MEMORY)
            return ERROR, ", ".join(raised), original.name, found.steps
        if found.broke:
            return PROPERTY, _short(found.broke), original.name, found.steps
        if not found.complete:
            raise LimitExceeded(STATES)
        if not isinstance(entries, KeptEntries) and print_of(entries) == self._print(original):
            return NOTHING
        never = [one for one in found.never if one not in original.walked.never]
        if never:
            return NEVER, never[0], original.name, 0
        different.append((original, entries))
        return NOTHING

    def _entries(self, original: Original, mutant: Mutant) -> Entries | None:
        """The entries of the system with the mistake in it; None: they are those of the original."""
        if any(site in original.made for site in mutant.sites):
            return Entries(original.make())
        affected = {number for site in mutant.sites for number in original.by_site.get(site, ())}
        places = {place for site in mutant.sites for place in original.locals_by_site.get(site, ())}
        entries = KeptEntries(original, affected, places)
        return entries if entries.changed else None

    def _print(self, original: Original) -> frozenset[Any]:
        if original.name not in self._prints:
            self._prints[original.name] = print_of(original.entries)
        return self._prints[original.name]

    def _owed(self, original: Original, entries: Entries) -> Found:
        broken = unmet(original, entries)
        if broken is None:
            raise LimitExceeded(STATES)
        return OBLIGATION if broken else "", _short(broken), original.name, 0


def _bounded(original: Original, seconds: float, judge: Callable[[], Found]) -> Found:
    """What `judge` says, or of what it takes too much; what it raises is an error of the mutant."""
    try:
        with limit_processor_time(_allowed(seconds)):
            return judge()
    except OutOfTime:
        return UNJUDGED, SECONDS, original.name, 0
    except MemoryError:
        return UNJUDGED, MEMORY, original.name, 0
    except LimitExceeded as error:
        return UNJUDGED, str(error), original.name, 0
    except Unmade:
        raise
    except Exception as error:  # whatever a mutant does outside a step is noticed as well
        return ERROR, type(error).__name__, original.name, 0


def _allowed(seconds: float) -> float:
    return max(SECONDS_MIN, TIMES * seconds)


def unmet(original: Original, entries: Entries) -> str | None:
    """The first obligation that is never met in the system ("": all are; None: it is too large)."""
    try:
        graph = graph_of(entries.system, TIMES * original.walked.states, entries=entries)
    except TooLarge:
        return None
    for one in original.obligations:
        _, tally = worst_parts(graph, graph.open_nodes(one))
        if tally[1]:
            return one.name
    return ""


def _short(name: str) -> str:
    """A property without the components it speaks of."""
    return name.partition(" ")[0] if name[:1].isupper() else name
