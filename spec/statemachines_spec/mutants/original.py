"""Original: a closed system without any mistake: what it comes to, and what of the machines each entry executes.

An entry is the outcome of one event in one local state.  While it is made, the lines of the protocol's own files that
run are noted, and the rows that are asked and taken.  A mutant can change those entries alone in which its site was
executed: all others are kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from time import process_time
from types import FrameType
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Fsm
from statemachines_spec.directed_system import DirectedSystem
from statemachines_spec.explorer.explore import PLAIN_FIRST, Walker
from statemachines_spec.explorer.process_actor import ProcessComponent
from statemachines_spec.explorer.property import NO_ERROR, Always, Eventually, Sometimes
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.walker_plain import PlainWalker
from statemachines_spec.mutants.mutant import Site

Footprint = frozenset[Site]


class Tracks:
    """What is executed now, of the protocol's `files` and machines."""

    def __init__(self, files: Iterable[str], machines: Iterable[Fsm[Any]]) -> None:
        self._lines = dict.fromkeys(files, True)
        self._machines = tuple(machines)
        self._open: list[set[Site]] = [set()]
        self._kept: dict[Footprint, Footprint] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """For the time of the block what is executed is noted."""
        before = sys.gettrace()
        with ExitStack() as stack:
            for fsm in self._machines:
                self._instrument(stack, fsm)
            sys.settrace(self._call)
            try:
                yield
            finally:
                sys.settrace(before)

    def begin(self) -> None:
        """From here on what is executed belongs to something of its own."""
        self._open.append(set())

    def end(self) -> Footprint:
        """What was, since `begin`."""
        found = frozenset(self._open.pop())
        return self._kept.setdefault(found, found)

    @property
    def rest(self) -> Footprint:
        """What was executed besides."""
        return frozenset(self._open[0])

    def note(self, site: Site) -> None:
        """This was executed."""
        self._open[-1].add(site)

    def _call(self, frame: FrameType, event: str, given: Any) -> Callable[..., Any] | None:
        return self._line if frame.f_code.co_filename in self._lines else None

    def _line(self, frame: FrameType, event: str, given: Any) -> Callable[..., Any]:
        if event == "line":
            self._open[-1].add(("line", frame.f_code.co_filename, frame.f_lineno))
        return self._line

    def _instrument(self, stack: ExitStack, fsm: Fsm[Any]) -> None:
        """Guards and actions of a compiled table say that they are called; `_arm` says which timers."""
        before = dict(vars(fsm))

        def restore() -> None:
            vars(fsm).clear()
            vars(fsm).update(before)

        stack.callback(restore)
        fsm._cells = {
            event: {state: tuple(self._noting(fsm, one) for one in cell) for state, cell in row.items()}
            for event, row in fsm._cells.items()
        }
        numbers = {timer.name: number for number, timer in enumerate(fsm.timers)}
        arm = fsm._arm

        def arming(timers: tuple[Any, ...], record: Any, now_ns: int) -> Any:
            for timer in timers:
                self.note(("armed", fsm.full_name, numbers[timer.name]))
            return arm(timers, record, now_ns)

        fsm._arm = arming  # type: ignore[method-assign]

    def _noting(self, fsm: Fsm[Any], entry: tuple[Any, ...]) -> tuple[Any, ...]:
        guard, action, number, move, delegates = entry
        asked: Site = ("asked", fsm.full_name, number)
        taken: Site = ("row", fsm.full_name, number)

        def asks(record: Any, event: Any) -> bool:
            self.note(asked)
            holds = guard is None or bool(guard(record, event))
            if holds:
                self.note(taken)
            return holds

        return asks, action, number, move, delegates


class TracedEntries(Entries):
    """Entries that know what each of them executes: `of_entry` by number, `of_local` by component and number, `made`:
    what is executed by whatever is reckoned once for the system."""

    def __init__(self, system: System, tracks: Tracks) -> None:
        self.tracks = tracks
        self.of_entry: list[Footprint] = []
        self.of_local: dict[tuple[int, int], Footprint] = {}
        super().__init__(system)

    def add_local(self, component: int, local: Any) -> int:
        self.tracks.begin()
        try:
            number = super().add_local(component, local)
        finally:
            found = self.tracks.end()
        self.of_local.setdefault((component, number), found)
        return number

    def make(self, event: int, local: int) -> int:
        self.tracks.begin()
        try:
            number = super().make(event, local)
        finally:
            found = self.tracks.end()
        self.of_entry.append(found)
        return number

    def _blocks(self, pending: tuple[Any, ...], waiting: tuple[Any, ...]) -> bool:
        """A deadline order is compared once for all."""
        tracks = self.tracks
        tracks.begin()
        found = super()._blocks(pending, waiting)
        for site in tracks.end():
            tracks._open[0].add(site)
        return found


class Walk(msgspec.Struct, frozen=True):
    """What a walk came to: the property that `broke` ("": none), of the kind "always", "step" or "error" ("" = none);
    whether it is `complete`; `never`: what must happen sometimes and did not; `states`, `steps` of depth."""

    broke: str
    kind: str
    complete: bool
    never: tuple[str, ...]
    states: int
    steps: int


def walk(entries: Entries, states_max: int) -> Walk:
    """Search until something breaks, everything is known, or there are so many states: in plain Python at first, since
    most mistakes show at once, then compiled."""
    first = min(PLAIN_FIRST, states_max)
    found = _walked(PlainWalker(entries, states_max=first, hashing=False))
    if found.broke or found.complete or states_max <= first:
        return found
    from statemachines_spec.explorer.walker_compiled import CompiledWalker

    return _walked(CompiledWalker(entries, states_max=states_max, hashing=False))


def _walked(walker: Walker) -> Walk:
    entries = walker.entries  # type: ignore[attr-defined]
    complete = True
    broke, kind = _broken(entries, walker)
    try:
        while not broke and walker.levels[-1] != walker.levels[-2]:
            walker.advance()
            broke, kind = _broken(entries, walker)
    except MemoryError:
        complete = False
        broke, kind = _broken(entries, walker)
    never = tuple(
        one.name
        for one, hits in zip(entries.system.over_states, walker.hits, strict=True)
        if isinstance(one, Sometimes) and not hits
    )
    return Walk(broke, kind, complete and not broke, never, walker.count, len(walker.levels) - 2)


def _broken(entries: Entries, walker: Walker) -> tuple[str, str]:
    if number := entries.unsound_start:
        return entries.step_names[number - 1], "step"
    for number, one in enumerate(entries.system.over_states):
        if isinstance(one, Always) and walker.broken_state(number) is not None:
            return one.name, "always"
    for number, step in enumerate(entries.step_properties, 2):
        if walker.broken_step(number) is not None:
            return step.name, "step"
    return (NO_ERROR, "error") if walker.broken_step(1) is not None else ("", "")


class Original:
    """One closed system, explored without any mistake: `walked`, in so many `seconds` of processor time, and the
    obligations that are judged in it, in `live_seconds`.  Symmetry is not used: a mutant may tell one from another."""

    def __init__(self, directed: DirectedSystem, tracks: Tracks, states_max: int) -> None:
        self.directed = directed
        tracks._open[:] = [set()]
        with tracks.recording():
            self.system = self.make()
            self.entries = TracedEntries(self.system, tracks)
            PlainWalker(self.entries, states_max=1)  # reckons the properties
            began = process_time()
            self.walked = walk(self.entries, states_max)
        traced = process_time() - began
        self.made = tracks.rest
        self.seconds = traced
        if self.walked.complete:
            began = process_time()
            walk(self.entries, states_max)
            self.seconds = process_time() - began
        self.obligations: tuple[Eventually, ...] = (
            () if directed.obligations is None else directed.obligations(self.system)
        )
        self.live_seconds = 0.0
        self.by_site: dict[Site, list[int]] = {}
        for number, footprint in enumerate(self.entries.of_entry):
            for site in footprint:
                self.by_site.setdefault(site, []).append(number)
        self.locals_by_site: dict[Site, list[tuple[int, int]]] = {}
        for place, footprint in self.entries.of_local.items():
            for site in footprint:
                self.locals_by_site.setdefault(site, []).append(place)

    @property
    def name(self) -> str:
        """Of the directed system, or the system."""
        return self.directed.name

    def make(self) -> System:
        """The system anew; no other process makes it, nobody changes places, and every step is taken."""
        made = replace(self.directed.make().in_full(), origin=None)
        for actor in made.actors:
            if isinstance(actor, ProcessComponent):
                actor.forget_steps()
        return made

    def executes(self, sites: Iterable[Site]) -> bool:
        """Whether any of these is executed in it."""
        return any(site in self.by_site or site in self.locals_by_site or site in self.made for site in sites)
