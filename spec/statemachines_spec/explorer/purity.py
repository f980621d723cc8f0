"""Purity: entries made again in another process, under another hash seed.

`Entries` makes each entry twice in one process, which finds a step that counts, draws or reads a clock.  What iterates
a map or a set in its own order may do so alike twice; another process with another PYTHONHASHSEED shows it.

Entries: what every component of a system does in every local state on every event, as integers.

An entry is made when a walker first needs it, and never again: `EntryTables` says how, and `Orbits` makes those of the
renamed pairs with it where components may change places.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from typing import IO, Any, NamedTuple

from statemachines_spec.explorer.actor import Envelope
from statemachines_spec.explorer.entry_tables import (
    FAILED,
    Entry,
    EntryTables,
    Nondeterministic,
    digest,
    encode_envelope,
    encode_outcome,
    encode_value,
)
from statemachines_spec.explorer.orbits import Orbits
from statemachines_spec.explorer.system import System


class Entries(EntryTables):
    """The tables of one system with its symmetries; `start`: the local state that each component begins in."""

    def __init__(self, system: System, *, twice: bool = True) -> None:
        super().__init__(system, twice=twice)
        self.orbits = Orbits(self) if system.symmetries else None
        self.start = tuple(
            self.local(number, one.actor.canonical(one.actor.initial())) for number, one in enumerate(self.components)
        )
        if self.orbits is not None:
            self.orbits.check_start(self.start)

    @property
    def unsound_start(self) -> int:
        """The step property that a record breaks at the beginning (0: none)."""
        return min(
            filter(None, (one.unsound[at] for one, at in zip(self.components, self.start, strict=True))), default=0
        )

    def local(self, component: int, local: Any) -> int:
        """The number of a local state."""
        if self.orbits is None:
            return self.add_local(component, local)
        number = self.components[component].numbers.get(encode_value(local))
        return self.orbits.local(component, local) if number is None else number

    def envelope(self, envelope: Envelope) -> int:
        """The number of an envelope."""
        if self.orbits is None:
            return self.add_envelope(envelope)
        number = self._numbers.get(encode_envelope(envelope))
        return self.orbits.envelope(envelope) if number is None else self._same(number, envelope)

    def entry(self, event: int, local: int) -> Entry:
        """The outcome of an event in a local state of the component it is for."""
        number = self.entry_of.get((event, local))
        return self.entries[self.fill(event, local) if number is None else number]

    def fill(self, event: int, local: int) -> int:
        """Make the entry of a pair that has none; its number."""
        return self.make(event, local) if self.orbits is None else self.orbits.fill(event, local)


SAMPLE = 2_000
SEEDS = ("1", "2")


def recheck(entries: Entries, sample: int = SAMPLE) -> int:
    """Make at most `sample` entries, spread evenly over all, again elsewhere; how many there were (0 for a system that
    no other process can make, or whose entries were made once).  Raises `Nondeterministic` where one comes out
    otherwise."""
    if not entries.rechecked or not entries.entries:
        return 0
    numbers = [number for number, entry in enumerate(entries.entries) if entry.local != FAILED]
    numbers = numbers[:: -(-len(numbers) // sample) or 1]
    items = []
    for event, local in (entries.pairs[number] for number in numbers):
        component = entries.dest[event]
        items.append((component, entries.components[component].locals[local], entries.envelopes[event]))
    for number, item, theirs in zip(numbers, items, _elsewhere(entries.system, items), strict=True):
        if entries.outcomes[number] != theirs:
            actor = entries.components[item[0]].actor
            raise Nondeterministic(
                f"{actor.name}: another result for {item[2].event!r} in one local state ({actor.describe(item[1])}) "
                "under another hash seed; a step may not iterate a map or a set unsorted"
            )
    return len(items)


def _digest_reactions(system: System, items: list[Any]) -> list[int]:
    return [
        digest(encode_outcome(system.actors[component].react(local, envelope))) for component, local, envelope in items
    ]


def _elsewhere(system: System, items: list[Any]) -> list[int]:
    other = _other()
    try:
        return other.make_digests(system.origin, items)
    except BaseException:  # what it still has to say would be taken for the next answer
        _end_other()
        raise


class HashSetting(NamedTuple):
    """What the other process is begun with; where one of it has changed, another is begun."""

    process: int
    folder: str
    seed: str
    path: tuple[str, ...]


class Other:
    """The other process.  It goes on until this one ends: to begin it takes longer than to make most samples."""

    def __init__(self, setting: HashSetting) -> None:
        self.setting = setting
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            env={**os.environ, "PYTHONHASHSEED": setting.seed, "PYTHONPATH": os.pathsep.join(setting.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def make_digests(self, origin: Any, items: list[Any]) -> list[int]:
        """The digests of what the pairs come to there; raises `CalledProcessError` where it dies of them."""
        asked, answers = self._pipes()
        try:
            pickle.dump((origin, items), asked)
            asked.flush()
            found: list[int] = pickle.load(answers)
        except (EOFError, BrokenPipeError):
            raise subprocess.CalledProcessError(self._process.wait(), self._process.args) from None
        return found

    def end(self) -> None:
        """Whatever it is at: nobody waits for that."""
        self._process.kill()
        self._process.wait()
        for pipe in self._pipes():
            with suppress(BrokenPipeError):
                pipe.close()

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        asked, answers = self._process.stdin, self._process.stdout
        if asked is None or answers is None:
            raise AssertionError("it is begun with pipes")
        return asked, answers


_others: list[Other] = []
"""The one that goes on, or none; one of a process that this one was forked from is not ours."""


def _other() -> Other:
    seed = next(seed for seed in SEEDS if seed != os.environ.get("PYTHONHASHSEED"))
    setting = HashSetting(os.getpid(), os.getcwd(), seed, tuple(sys.path))
    if _others and _others[0].setting == setting:
        return _others[0]
    _end_other()
    _others.append(Other(setting))
    return _others[0]


def _end_other() -> None:
    while _others:
        other = _others.pop()
        if other.setting.process == os.getpid():
            other.end()


atexit.register(_end_other)


def main() -> None:
    """The other process: systems and pairs come in, digests of their outcomes go out, until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks is interrupted, and then has no more
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    with suppress(EOFError):
        while True:
            (path, arguments), items = pickle.load(sys.stdin.buffer)
            module, _, name = path.partition(":")
            system = getattr(import_module(module), name)(**arguments)
            pickle.dump(_digest_reactions(system, items), answers)
            answers.flush()
