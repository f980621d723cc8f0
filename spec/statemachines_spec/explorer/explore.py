"""Explore: search a system exhaustively within its bounds, and say what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from typing import Protocol

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.moves import Moves, State
from statemachines_spec.explorer.path import ExploredPath, along
from statemachines_spec.explorer.property import NO_ERROR, Always, Sometimes
from statemachines_spec.explorer.purity import recheck
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.walker_plain import PlainWalker

ENGINES = ("auto", "compiled", "plain")
PLAIN_FIRST = 20_000
"""With `auto`, so many states are explored in plain Python first: what is compiled is kept, but takes a second to load,
and half a minute to make where it never was."""
STATES_MAX = 400_000_000

COMPLETE, VIOLATED, INTERRUPTED, FULL = "complete", "violated", "interrupted", "full"
"""How an exploration ended: everything within the bounds, the level of the first violation, Ctrl-C, out of room."""


class Walker(Protocol):
    """What both walkers are."""

    name: str
    levels: list[int]

    @property
    def count(self) -> int: ...
    @property
    def transitions(self) -> int: ...
    @property
    def lookups(self) -> int: ...
    @property
    def cuts(self) -> int: ...
    @property
    def terminal(self) -> int: ...
    @property
    def edges(self) -> int: ...
    @property
    def hits(self) -> list[int]: ...
    @property
    def bytes_held(self) -> int: ...
    def broken_state(self, number: int) -> State | None: ...
    def broken_step(self, number: int) -> State | None: ...
    def advance(self) -> bool: ...
    def source_of(self, target: State, level: int) -> State: ...
    def stand_for(self) -> int: ...


class Result(msgspec.Struct, frozen=True):
    """What an exploration came to.

    `levels`: states by distance from the initial one; `edges`: the sum of a hash of every transition, whatever their
    order and the numbers used; `cuts`: transitions not taken because they lead beyond the bounds; `terminal`: states
    that nothing leaves; `always`: property -> held; `sometimes`: property -> in how many states; `seconds` of processor
    time, of all threads; `rechecked`: entries made once more under another hash seed; `stand_for`: with symmetry, how
    many states those that were explored stand for (0: without; each stands for itself, and none was left out); `cells`:
    the rows that machines took (machine, number of the row, state before); `cut_by`: component -> entries that led
    beyond its own bounds (all other cuts: the network had no place); `lookups`: entries that were used (0: the plain
    walker does not count them).
    """

    system: str
    ended: str
    bounds: dict[str, str]
    states: int
    transitions: int
    cuts: int
    terminal: int
    levels: tuple[int, ...]
    edges: str
    entries: dict[str, int]
    locals: dict[str, int]
    messages: int
    always: dict[str, bool]
    sometimes: dict[str, int]
    engine: str
    seconds: float
    bytes_per_state: float
    rechecked: int = 0
    path: ExploredPath | None = None
    stand_for: int = 0
    cells: tuple[tuple[str, int, str], ...] = ()
    cut_by: dict[str, int] = {}
    lookups: int = 0

    @property
    def is_held(self) -> bool:
        """Nothing is known to break; read `ended` as well."""
        return all(self.always.values())

    @property
    def is_shown(self) -> bool:
        """Whatever must happen sometimes did."""
        return all(self.sometimes.values())


Progress = Callable[[Walker, float], None]
"""(walker, seconds so far): called a few times a second at most."""


def explore(
    system: System,
    *,
    engine: str = "auto",
    states_max: int = STATES_MAX,
    hashing: bool = True,
    progress: Progress | None = None,
    entries: Entries | None = None,
    threads: int = 1,
    partly: bool = False,
) -> Result:
    """Search until everything within the bounds is known or a property breaks (the level is finished first, so that the
    same counterexample, a shortest one, is found every time).  `threads`: in which the compiled walker goes; what comes
    of it is the same for any number.  `partly`: Ctrl-C ends it with what is known, and whoever called looks at `ended`.

    Raises `ConfigurationError` for a bad system or engine, `Nondeterministic` where a step is not a function.
    """
    if engine not in ENGINES:
        raise ConfigurationError("engine", engine, f"unknown; there are: {', '.join(ENGINES)}")
    if engine == "auto":
        engine = "both" if find_spec("numba") is not None else "plain"
    search = _Search(Entries(system) if entries is None else entries, hashing, progress, partly)
    if engine == "compiled":
        search.walk(_compiled(search.entries, states_max, hashing, threads))
        return search.result()
    first = min(PLAIN_FIRST, states_max) if engine == "both" else states_max
    plain = PlainWalker(search.entries, states_max=first, hashing=hashing)
    search.walk(plain)
    if search.ended == COMPLETE:
        search.entries.walked = plain
    if engine == "both" and search.ended == FULL and states_max > PLAIN_FIRST:
        search.walk(_compiled(search.entries, states_max, hashing, threads))
    return search.result()


def _compiled(entries: Entries, states_max: int, hashing: bool, threads: int) -> Walker:
    if find_spec("numba") is None:
        raise ModuleNotFoundError("the compiled walker needs numba", name="numba")
    from statemachines_spec.explorer.walker_compiled import CompiledWalker

    return CompiledWalker(entries, states_max=states_max, hashing=hashing, threads=threads)


class _Search:
    """One exploration while it goes on."""

    def __init__(self, entries: Entries, hashing: bool, progress: Progress | None, partly: bool) -> None:
        self.entries = entries
        self.partly = partly
        self.hashing = hashing
        self.progress = progress
        self.ended = COMPLETE
        self.walker: Walker
        self.broken: tuple[str, int, State] | None = None
        self.began, self.started = time.process_time(), time.monotonic()

    def walk(self, walker: Walker) -> None:
        """Level by level until something ends it."""
        self.walker = walker
        self.ended = COMPLETE
        spoken = 0.0
        try:
            while not self._broken() and walker.levels[-1] != walker.levels[-2]:
                while not walker.advance():
                    if self.progress is not None and time.monotonic() - spoken > 0.25:
                        spoken = time.monotonic()
                        self.progress(walker, spoken - self.started)
        except KeyboardInterrupt:
            if not self.partly:
                raise
            self.ended = INTERRUPTED
        except MemoryError:
            self.ended = FULL

    def _broken(self) -> bool:
        """A property that breaks, the first of the list; in states before in steps, where all begins before both."""
        system = self.entries.system
        if number := self.entries.unsound_start:
            self.broken = (self.entries.step_names[number - 1], 0, Moves(self.entries).first())
            self.ended = VIOLATED
            return True
        for number, one in enumerate(system.over_states):
            state = self.walker.broken_state(number) if isinstance(one, Always) else None
            if state is not None:
                self.broken = (one.name, 0, state)
                break
        else:
            for number, name in enumerate(self.entries.step_names, 1):
                state = self.walker.broken_step(number)
                if state is not None:
                    self.broken = (name, number, state)
                    break
        if self.broken is not None:
            self.ended = VIOLATED
        return self.broken is not None

    def _path(self) -> ExploredPath | None:
        """A shortest way to what broke, rebuilt level by level."""
        if self.broken is None:
            return None
        _, step, state = self.broken
        level = len(self.walker.levels) - 2 - (1 if step else 0)
        states = [state]
        while level > 0:
            level -= 1
            states.append(self.walker.source_of(states[-1], level))
        return along(self.entries, states[::-1], step)

    def result(self) -> Result:
        """What is known now."""
        walker, entries, system = self.walker, self.entries, self.entries.system
        path = self._path()
        broken = None if self.broken is None else self.broken[0]
        declared = (one.name for one in system.properties if not isinstance(one, Sometimes))
        names = dict.fromkeys((NO_ERROR, *declared, *entries.step_names))
        hits = {
            one.name: hit
            for one, hit in zip(system.over_states, walker.hits, strict=True)
            if isinstance(one, Sometimes)
        }
        bounds = walker.levels
        return Result(
            system.name,
            self.ended,
            system.describe_bounds(),
            walker.count,
            walker.transitions,
            walker.cuts,
            walker.terminal,
            tuple(after - before for before, after in pairwise(bounds) if after > before),
            f"{walker.edges:016x}" if self.hashing else "",
            {one.actor.name: one.entries for one in entries.components},
            {one.actor.name: len(one.locals) - 1 for one in entries.components},
            len(entries.envelopes) - 1,
            {name: name != broken for name in names},
            hits,
            walker.name,
            time.process_time() - self.began,
            walker.bytes_held / max(1, walker.count),
            recheck(entries),
            path,
            walker.stand_for(),
            tuple(sorted(entries.cells)),
            {one.actor.name: one.cuts for one in entries.components if one.cuts},
            walker.lookups,
        )
