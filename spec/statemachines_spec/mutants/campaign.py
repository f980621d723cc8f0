"""Campaign: all mutants of a protocol, or a sample, judged one after the other; what is judged is written down at once.

The results stand in a file of JSON lines, by name of the mutant.  A campaign that was stopped goes on where it was, as
long as machines, systems and tools are what they were; otherwise it begins anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from random import Random
from time import process_time

import msgspec
from msgspec.structs import replace

from statemachines import catalogue, registry
from statemachines.kernel import ConfigurationError
from statemachines.whole_file import make_folder, write_whole
from statemachines_spec.directed_system import DirectedSystem
from statemachines_spec.mutants.apart import JudgingSystems, judge_apart
from statemachines_spec.mutants.code_mutants import code_mutants
from statemachines_spec.mutants.judging import MutantJudge, MutantVerdict, unmet
from statemachines_spec.mutants.mutant import GROUPS, Mutant
from statemachines_spec.mutants.original import Original, Tracks
from statemachines_spec.mutants.reach import ReachedCode
from statemachines_spec.mutants.row_mutants import row_mutants
from statemachines_spec.protocol import CheckProtocol, of_protocol

STATES_MAX = 100_000
"""Larger systems are left out, unless they are asked for."""
LIVE_MAX = 5_000
"""In systems with more states no obligations are judged: their graphs are made in Python, and all of them for each
mutant that nothing else notices."""

Say = Callable[[str], None]


class CampaignShape(msgspec.Struct, frozen=True):
    """What is judged in: the protocol's `name` (or `module:ATTRIBUTE`), the systems and directed systems that are
    meant (none: all with at most `states_max` states)."""

    name: str
    systems: tuple[str, ...] = ()
    states_max: int = STATES_MAX


class CampaignScope:
    """The mutants of a protocol, and what they are judged in."""

    def __init__(self, shape: CampaignShape) -> None:
        self.shape = shape
        self.protocol = registry.protocol(shape.name)
        self.part: CheckProtocol = of_protocol(shape.name)
        self.reach = ReachedCode(
            (*catalogue.machines(self.protocol.name), *catalogue.process_machines(self.protocol.name))
        )
        self.left_out: tuple[str, ...] = ()

    @cached_property
    def mutants(self) -> tuple[Mutant, ...]:
        """All of them, always in the same order."""
        calls = partial(self.reach.calls, name="SetTimer")
        rows = [one for fsm in self.reach.machines for one in row_mutants(fsm, calls)]
        found = (*rows, *code_mutants(self.reach))
        names = [one.name for one in found]
        twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
        if twice:
            raise ConfigurationError("mutants", ", ".join(sorted(twice)[:3]), "two of them have one name")
        return found

    def counts(self, mutants: Iterable[Mutant]) -> dict[str, dict[str, int]]:
        """Group -> kind -> how many."""
        found: dict[str, dict[str, int]] = {group: {} for group in GROUPS}
        for one in mutants:
            found[one.group][one.kind] = found[one.group].get(one.kind, 0) + 1
        return {group: kinds for group, kinds in found.items() if kinds}

    def list_directed(self) -> tuple[DirectedSystem, ...]:
        """The systems at their first size and, where the protocol has any, its directed systems."""
        systems = tuple(
            DirectedSystem(
                f"{name} ({self.part.sizes[0]})" if self.part.directed else name,
                about,
                partial(self.part.system, name),
                self.part.obligations_of,
            )
            for name, about in self.part.systems.items()
        )
        found = (*self.part.directed, *systems)
        if not self.shape.systems:
            return found
        for name in self.shape.systems:
            if not any(_means(name, one.name) for one in found):
                raise registry.make_unknown_error("system", name, [one.name for one in found])
        return tuple(one for one in found if any(_means(name, one.name) for name in self.shape.systems))

    def judge(self, say: Say) -> MutantJudge:
        """Explore everything without a mistake; what is too large is no judge.  What must happen sometimes and does not
        even then says nothing of a mutant."""
        files = {function.__code__.co_filename for function in self.reach.functions}
        tracks = Tracks(files, self.reach.machines)
        originals, left_out = [], []
        for directed in self.list_directed():
            say(f"{directed.name}: without a mistake")
            original = Original(directed, tracks, self.shape.states_max)
            walked = original.walked
            if walked.broke:
                rule = "breaks without any mistake; mend that first"
                raise ConfigurationError(f"system {directed.name!r}", walked.broke, rule)
            if not walked.complete:
                left_out.append(directed.name)
                continue
            if walked.states > LIVE_MAX:
                original.obligations = ()
            if original.obligations:
                began = process_time()
                owed = unmet(original, original.entries)
                original.live_seconds = process_time() - began
                if owed:
                    raise ConfigurationError(f"system {directed.name!r}", owed, "is never met without any mistake")
                if owed is None:
                    original.obligations = ()
            originals.append(original)
        self.left_out = tuple(left_out)
        return MutantJudge(originals)

    def print(self) -> str:
        """What the verdicts rest on, in short: it changes with the text of the machines, the systems and the tools."""
        found = blake2b(repr(self.shape).encode(), digest_size=16)
        for name, module in sorted(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file and (self.reach.is_own(name) or name.startswith(("statemachines.kernel", "statemachines_spec"))):
                found.update(name.encode() + Path(file).read_bytes())
        return found.hexdigest()


def _means(name: str, directed: str) -> bool:
    return name == directed or directed.startswith(f"{name} (")


def pick_mutants(
    mutants: Sequence[Mutant], only: Sequence[str], groups: Sequence[str], sample: int, seed: int
) -> list[Mutant]:
    """Those called so (a name, or a pattern with *), of these groups, and of them a sample that `seed` draws (0: all).

    Raises `ConfigurationError` for a name that none has.
    """
    for name in only:
        if not any(fnmatchcase(one.name, name) for one in mutants):
            raise registry.make_unknown_error("mutant", name, [one.name for one in mutants[:5]], "and more: see --list")
    found = [one for one in mutants if not only or any(fnmatchcase(one.name, name) for name in only)]
    found = [one for one in found if not groups or one.group in groups]
    if sample and sample < len(found):
        drawn = set(Random(seed).sample(range(len(found)), sample))
        found = [one for number, one in enumerate(found) if number in drawn]
    return found


# -- the file -------------------------------------------------------------------------------------------------------


class CampaignHead(msgspec.Struct, frozen=True):
    """The first line: what the verdicts rest on; the `systems` that judged, once they are known."""

    protocol: str
    print: str
    systems: tuple[str, ...] = ()

    def is_of(self, other: CampaignHead) -> bool:
        """Whether verdicts of one count for the other."""
        return (self.protocol, self.print) == (other.protocol, other.print)


class CampaignResults:
    """The verdicts so far, by name, in a file.  Those of other machines, systems or tools do not count, unless `again`
    is given: then all count but those of these names that are alive."""

    def __init__(self, path: Path, head: CampaignHead, again: Collection[str] | None = None) -> None:
        self.path = path
        self.head = head
        self.verdicts: dict[str, MutantVerdict] = {}
        self.read(head, again)
        make_folder(path.parent, "--out")
        self._write()

    def read(self, head: CampaignHead, again: Collection[str] | None) -> None:
        """A line that was torn ends it."""
        if not self.path.is_file():
            return
        first, *lines = self.path.read_bytes().splitlines() or [b""]
        try:
            found = msgspec.json.decode(first, type=CampaignHead)
            same = found.is_of(head)
            if same or again is not None:
                self.head = replace(head, systems=found.systems)
            for line in lines if same or again is not None else ():
                one = msgspec.json.decode(line, type=MutantVerdict)
                if one.is_killed or one.name not in (again or ()):
                    self.verdicts[one.name] = one
        except (msgspec.DecodeError, UnicodeDecodeError):
            return

    def add_systems(self, systems: tuple[str, ...]) -> None:
        """The systems of the next verdicts, beside those that judged what is kept."""
        self.head = replace(self.head, systems=tuple(dict.fromkeys((*self.head.systems, *systems))))
        self._write()

    def _write(self) -> None:
        lines = [self.head, *self.verdicts.values()]
        write_whole(self.path, b"".join(msgspec.json.encode(one) + b"\n" for one in lines))

    def add(self, verdict: MutantVerdict) -> None:
        """It is in the file before anything else is judged."""
        self.verdicts[verdict.name] = verdict
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(verdict) + b"\n")


# -- judging --------------------------------------------------------------------------------------------------------


def judge_mutants(
    field: CampaignScope, mutants: Sequence[Mutant], results: CampaignResults, jobs: int, say: Say
) -> Iterator[MutantVerdict]:
    """Judge those that have no verdict yet, so many at a time, each apart; each as soon as it is known."""
    left = tuple(one.name for one in mutants if one.name not in results.verdicts)
    if not left:
        return
    with judge_apart(partial(_prepare, field.shape, left), jobs, say) as words:
        for word in words:
            if isinstance(word, JudgingSystems):
                results.add_systems(word.systems)
            else:
                results.add(word)
                yield word


def _prepare(
    shape: CampaignShape, names: tuple[str, ...], say: Say
) -> tuple[MutantJudge, list[Mutant], JudgingSystems]:
    """The judge of a field, and the mutants called so; where there is no other process's field at hand."""
    field = CampaignScope(shape)
    judge = field.judge(say)
    mutants = {one.name: one for one in field.mutants}
    systems = tuple(directed.name for directed in field.list_directed() if directed.name not in field.left_out)
    return judge, [mutants[name] for name in names], JudgingSystems(systems, field.left_out)
