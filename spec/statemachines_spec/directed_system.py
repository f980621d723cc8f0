"""Directed system: a small closed system in which mistakes are looked for.

The shipped machines hold in it; a table or an action that is wrong breaks something in at least one of a protocol's
directed systems.  Each has the few faults that some kind of mistake needs, and no more.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from statemachines_spec.explorer.explore import ExploredPath, explore
from statemachines_spec.explorer.property import Eventually
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.system import System


class DirectedSystem(msgspec.Struct, frozen=True):
    """`make` the system, anew each time; where `obligations` of it are given they are judged too."""

    name: str
    about: str
    make: Callable[[], System]
    obligations: Callable[[System], tuple[Eventually, ...]] | None = None

    @property
    def live(self) -> bool:
        """Obligations are judged too."""
        return self.obligations is not None


class DirectedResult(msgspec.Struct, frozen=True):
    """What a directed system came to: the property that broke ("" = none), the steps of a shortest run to it (of an
    obligation: until it is never met), and the states explored."""

    what: str
    steps: int
    states: int
    path: ExploredPath | None = None


def explore_directed(directed: DirectedSystem, *, twice: bool = True) -> DirectedResult:
    """Explore the system in plain Python; its obligations only where everything else holds.  `twice`: as of
    `Entries`."""
    one = directed.make()
    entries = Entries(one, twice=twice)
    result = explore(one, engine="plain", hashing=False, entries=entries)
    if result.path is not None:
        return DirectedResult(_short(result.path.broken), len(result.path.legs), result.states, result.path)
    obligations = () if directed.obligations is None else directed.obligations(one)
    if obligations:
        from statemachines_spec.liveness.judge import live

        for judged in live(one, obligations, entries=None if one.symmetries else entries):
            if judged.way is not None and judged.then is not None:
                steps = len(judged.way.legs) + len(judged.then.legs)
                return DirectedResult(_short(judged.name), steps, result.states, judged.way)
    return DirectedResult("", 0, result.states)


def _short(name: str) -> str:
    """A property without the components it speaks of: `S10 node-1 node-2` is S10."""
    return name.partition(" ")[0]
