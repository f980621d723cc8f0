"""Purity: entries made again in another process, under another hash seed.

`Entries` makes each entry twice in one process, which finds a step that counts, draws or reads a clock.  What iterates
a map or a set in its own order may do so alike twice; another process with another PYTHONHASHSEED shows it.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from importlib import import_module
from typing import Any

from statemachines_spec.explorer.entries import FAILED, Entries, Nondeterministic, digest, outcome
from statemachines_spec.explorer.system import System

SAMPLE = 2_000
SEEDS = ("1", "2")


def recheck(entries: Entries, sample: int = SAMPLE) -> int:
    """Make at most `sample` entries, spread evenly over all, again elsewhere; how many there were (0 for a system that
    no other process can make).  Raises `Nondeterministic` where one comes out otherwise."""
    if entries.system.origin is None or not entries.entries:
        return 0
    pairs = [pair for pair, entry in zip(entries.pairs, entries.entries, strict=True) if entry.local != FAILED]
    pairs = pairs[:: -(-len(pairs) // sample) or 1]
    items = []
    for event, local in pairs:
        component = entries.dest[event]
        items.append((component, entries.components[component].locals[local], entries.envelopes[event]))
    for item, ours, theirs in zip(items, _made(entries.system, items), _elsewhere(entries.system, items), strict=True):
        if ours != theirs:
            actor = entries.components[item[0]].actor
            raise Nondeterministic(
                f"{actor.name}: another result for {item[2].event!r} in one local state ({actor.describe(item[1])}) "
                "under another hash seed; a step may not iterate a map or a set unsorted"
            )
    return len(items)


def _made(system: System, items: list[Any]) -> list[int]:
    return [digest(outcome(system.actors[component].react(local, envelope))) for component, local, envelope in items]


def _elsewhere(system: System, items: list[Any]) -> list[int]:
    seed = next(seed for seed in SEEDS if seed != os.environ.get("PYTHONHASHSEED"))
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import main; main()"],
        input=pickle.dumps((system.origin, items)),
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        check=True,
    )
    made: list[int] = pickle.loads(done.stdout)
    return made


def main() -> None:
    """The other process: a system and pairs come in, digests of their outcomes go out."""
    (path, arguments), items = pickle.load(sys.stdin.buffer)
    module, _, name = path.partition(":")
    system = getattr(import_module(module), name)(**arguments)
    sys.stdout.buffer.write(pickle.dumps(_made(system, items)))
