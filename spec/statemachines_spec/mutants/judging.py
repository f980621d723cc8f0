"""Judging: what exploration says of a mutant, fastest systems first, until something breaks.

A system in which no site of the mutant is executed says nothing.  One whose entries come out as before is the same
system, and is not walked.  Otherwise it is explored, and the obligations are judged where it has any; both may take a
few times what they take without the mistake, and no more.

Kept entries: the entries of an original system under a mutant: what the mutant cannot touch is not made again.
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

from statemachines_spec.explorer.entry_tables import Component, Nondeterministic, encode_value
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.liveness.fair_graph import TooLarge
from statemachines_spec.liveness.judge import graph_of, worst_parts
from statemachines_spec.mutants.mutant import Mutant, Unmade, plant
from statemachines_spec.mutants.original import Original, TracedEntries, walk

_LISTS = ("locals", "digests", "inputs", "pending", "seen", "unsound")


class KeptEntries(Entries):
    """`affected`: numbers of entries that are to be made again; `locals_affected`: (component, number) of local states
    whose inputs and views are.  Numbers mean the same as in the original, so entries of both can be compared."""

    def __init__(self, original: Original, affected: set[int], locals_affected: set[tuple[int, int]]) -> None:
        before = original.entries
        vars(self).update(vars(before))
        self.components = tuple(_copy(one) for one in before.components)
        for name in ("envelopes", "lossy", "channel", "dest", "entries", "pairs"):
            setattr(self, name, list(getattr(before, name)))
        self.digests = list(before.digests)
        self.block = [list(row) for row in before.block]
        for name in ("_numbers", "_channels", "_pending", "_waiting"):
            setattr(self, name, dict(getattr(before, name)))
        self.errors = dict(before.errors)
        self.cells = set()
        self.changed = self._remade(before, affected, sorted(locals_affected))

    def _remade(self, before: TracedEntries, affected: set[int], locals_affected: list[tuple[int, int]]) -> bool:
        """Whether any of those that are made again comes out otherwise."""
        changed = False
        for component, number in locals_affected:
            changed |= self._reckon(self.components[component], number)
        affected = affected | self._led_astray(before)
        gone = {before.pairs[number] for number in affected}
        self.entry_of = {pair: number for pair, number in before.entry_of.items() if pair not in gone}
        for number in sorted(affected):
            changed |= self.entries[self.make(*before.pairs[number])] != before.entries[number]
        return changed

    def _reckon(self, one: Component, number: int) -> bool:
        """What is known of a local state beside its entries, once more."""
        local = one.locals[number]
        if encode_value(one.actor.canonical(local)) != encode_value(local):
            raise Nondeterministic(f"{one.actor.name}: canonical names are others ({one.actor.describe(local)})")
        known = one.inputs[number], one.pending[number], one.seen[number], one.unsound[number]
        one.inputs[number] = tuple(self._spontaneous(one.actor, local))
        one.pending[number] = self._pending_of(one.actor.name, local)
        one.seen[number] = tuple(0 if view is None else int(view.of(local)) for view in one.views)
        one.unsound[number] = one.broken_in(local)
        return known != (one.inputs[number], one.pending[number], one.seen[number], one.unsound[number])

    def _led_astray(self, before: TracedEntries) -> set[int]:
        """The entries that lead to a local state whose records keep their invariants otherwise than before."""
        pairs = zip(before.components, self.components, strict=True)
        differing = [
            {at for at, (was, now) in enumerate(zip(old.unsound, new.unsound, strict=True)) if was != now}
            for old, new in pairs
        ]
        if not any(differing):
            return set()
        entries = zip(before.pairs, before.entries, strict=True)
        return {at for at, ((event, _), entry) in enumerate(entries) if entry.local in differing[before.dest[event]]}


def _copy(one: Component) -> Component:
    made: Component = object.__new__(Component)
    vars(made).update(vars(one))
    for name in _LISTS:
        setattr(made, name, list(getattr(one, name)))
    made.numbers = dict(one.numbers)
    return made


def print_of(entries: Entries) -> frozenset[Any]:
    """All that entries say, whatever their numbers are: for entries that were made for themselves."""
    digests = [one.digests for one in entries.components]
    said: set[Any] = set()
    for (event, local), entry in zip(entries.pairs, entries.entries, strict=True):
        component = entries.dest[event]
        after = digests[component][entry.local] if entry.local > 0 else entry.local
        sends, calls = (tuple(entries.digests[one] for one in some) for some in (entry.sends, entry.calls))
        said.add((entries.digests[event], digests[component][local], after, sends, calls, entry.broken))
    for number, one in enumerate(entries.components):
        for at, inputs in enumerate(one.inputs):
            said.add((number, one.digests[at], tuple(entries.digests[each.event] for each in inputs), one.seen[at]))
    return frozenset(said)


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
