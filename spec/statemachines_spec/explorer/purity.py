"""Purity: entries made again in another process, under another hash seed.

`Entries` makes each entry twice in one process, which finds a step that counts, draws or reads a clock.  What iterates
a map or a set in its own order may do so alike twice; another process with another PYTHONHASHSEED shows it.
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
from typing import Any

from statemachines_spec.explorer.entries import FAILED, Entries, Nondeterministic, digest, outcome
from statemachines_spec.explorer.system import System

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


def _made(system: System, items: list[Any]) -> list[int]:
    return [digest(outcome(system.actors[component].react(local, envelope))) for component, local, envelope in items]


def _elsewhere(system: System, items: list[Any]) -> list[int]:
    global _other
    if _other is None or _other.surroundings != _surroundings():
        if _other is not None:
            _other.end()
        _other = _Other()
    return _other.made(system, items)


def _surroundings() -> tuple[object, ...]:
    """What another process begins with, and whose it is: who was forked has none yet."""
    return os.getpid(), os.getcwd(), os.environ.get("PYTHONHASHSEED"), tuple(sys.path)


class _Other:
    """A process under another hash seed.  It makes the entries of one system after the other, since it takes longer to
    begin than most take to be made, and ends when this one does."""

    def __init__(self) -> None:
        self.surroundings = _surroundings()
        seed = next(seed for seed in SEEDS if seed != os.environ.get("PYTHONHASHSEED"))
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        atexit.register(self.end)

    def made(self, system: System, items: list[Any]) -> list[int]:
        """The digests of these outcomes as they are made there; raises `CalledProcessError` where they cannot be."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(pickle.dumps((system.origin, items)))
            self._process.stdin.flush()
            made: list[int] = pickle.load(self._process.stdout)
        except BaseException as error:  # its answer, if it comes yet, is to nothing that is asked later
            self._process.kill()
            self.end()
            if isinstance(error, EOFError | BrokenPipeError):
                raise subprocess.CalledProcessError(self._process.returncode, self._process.args) from error
            raise
        return made

    def end(self) -> None:
        """Wait until it has ended; in a process that was forked it is somebody else's."""
        global _other
        _other = None
        atexit.unregister(self.end)
        if self.surroundings[0] == os.getpid():
            self._process.communicate()


_other: _Other | None = None


def main() -> None:
    """The other process: systems and pairs come in, digests of their outcomes go out, until nobody asks any more.  It
    leaves Ctrl-C to who asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            (path, arguments), items = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        module, _, name = path.partition(":")
        system = getattr(import_module(module), name)(**arguments)
        with suppress(BrokenPipeError):
            sys.stdout.buffer.write(pickle.dumps(_made(system, items)))
            sys.stdout.buffer.flush()
