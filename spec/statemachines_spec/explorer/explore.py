"""Explore: search a system exhaustively within its bounds, and say what came of it.

Path: a run of a system, transition by transition, with all that its components did on the way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, Protocol

import msgspec

from statemachines.kernel import ConfigurationError, GaplessError, identity
from statemachines_spec.explorer.actor import Actor, Envelope, SeenStep
from statemachines_spec.explorer.entry_tables import WAITS
from statemachines_spec.explorer.moves import Kind, Move, Moves, ReplayedAction, State
from statemachines_spec.explorer.property import NO_ERROR, Always, Sometimes, combinations
from statemachines_spec.explorer.purity import Entries, recheck
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.walker_plain import PlainWalker

ScriptLine = tuple[str, str, int]
"""An action that any process can follow: kind, digest of the envelope in hexadecimal, what found room (bits)."""


class Turn(msgspec.Struct, frozen=True):
    """One component takes one event within a transition."""

    actor: str
    envelope: Envelope
    before: str
    after: str
    steps: tuple[SeenStep, ...]
    sends: tuple[Envelope, ...]
    local_before: Any = None
    local_after: Any = None


class Leg(msgspec.Struct, frozen=True):
    """One transition: what each component did (nothing when a message is lost), and messages that found no room."""

    kind: Kind
    envelope: Envelope
    turns: tuple[Turn, ...]
    left_out: tuple[Envelope, ...]
    line: ScriptLine


class ExploredPath(msgspec.Struct, frozen=True):
    """A run from the initial state; `broken`: the property that does not hold at its end ("" = none is known to), with
    `why`; `last`: the local states there, by component; `quiet`: no message is in flight there."""

    legs: tuple[Leg, ...]
    broken: str
    why: str
    last: dict[str, Any]
    quiet: bool = False

    @property
    def script(self) -> tuple[ScriptLine, ...]:
        """What `follow` takes."""
        return tuple(leg.line for leg in self.legs)


def along(
    entries: Entries, states: Sequence[State], ending: int = 0, moves: Moves | None = None,
    events: Sequence[int] | None = None,
) -> ExploredPath:  # fmt: skip
    """The path through these states (with symmetry: a true run through states that they stand for); `ending`: the
    property that a step out of the last one breaks; `moves`: others than the system's; `events`: what happens between
    the states, where several things could."""
    moves = Moves(entries) if moves is None else moves
    state, actions = states[0], []
    for number, after in enumerate(states[1:]):
        found = (
            move
            for move in moves.of(state)
            if _leads_to(moves, move, after) and (events is None or move.action.event == events[number])
        )
        move = _least(moves, found)
        assert move.target is not None
        actions.append(move.action)
        state = move.target
    if ending:
        actions.append(_least(moves, (move for move in moves.of(state) if move.broken == ending)).action)
    return _carried_out(moves, states[0], actions)


def follow(system: System, script: Iterable[ScriptLine]) -> ExploredPath:
    """Carry a script out from the beginning; raises `GaplessError` where it cannot be."""
    entries = Entries(system)
    moves = Moves(entries)
    state, actions = moves.first(), []
    for number, line in enumerate(script, 1):
        found = [move for move in moves.of(state) if _line(entries, move.action) == tuple(line)]
        if not found:
            raise GaplessError(f"line {number} of the script, {line}: nothing of the kind can happen there")
        actions.append(found[0].action)
        if found[0].target is None:
            break
        state = found[0].target
    return _carried_out(moves, moves.first(), actions)


def broken_in(entries: Entries, state: State) -> int | None:
    """The first property that a state breaks."""
    flying = len(entries.components) + len(entries.system.spendable)
    for number, one in enumerate(entries.system.over_states):
        if not isinstance(one, Always) or (one.quiet and state[flying]):
            continue
        place, stride = 0, 1
        for view in one.views:
            component = entries.place[view.actor]
            place += entries.components[component].seen[state[component]][number] * stride
            stride *= view.size
        if combinations(one)[place]:
            return number
    return None


def _leads_to(moves: Moves, move: Move, after: State) -> bool:
    return move.target is not None and moves.least(move.target) == after


def _least(moves: Moves, found: Iterable[Move]) -> Move:
    """Of several actions, always the same one."""
    digests = moves.entries.digests
    return min(found, key=lambda move: (move.action.kind, digests[move.action.event], move.action.kept))


def _line(entries: Entries, action: ReplayedAction) -> ScriptLine:
    return (action.kind.name.lower(), f"{entries.digests[action.event]:016x}", action.kept)


def _carried_out(moves: Moves, first: State, actions: list[ReplayedAction]) -> ExploredPath:
    entries, system = moves.entries, moves.entries.system
    state, legs, broken, why = first, [], "", ""
    for action in actions:
        move = next(move for move in moves.of(state) if move.action == action)
        legs.append(_leg(moves, state, action))
        if move.broken == 1:
            broken, why = NO_ERROR, legs[-1].turns[-1].after
        elif move.broken:
            one = entries.step_properties[move.broken - 2]
            broken, why = one.name, one.text
        if move.target is None:
            break
        state = move.target
    declared = broken == NO_ERROR or broken in (one.name for one in system.over_steps)
    if not declared and (number := broken_in(entries, state)) is not None:
        broken, why = system.over_states[number].name, system.over_states[number].text
    if not broken and not legs and (ending := entries.unsound_start):
        broken, why = entries.step_properties[ending - 2].name, entries.step_properties[ending - 2].text
    last = {one.actor.name: one.locals[local] for one, local in zip(entries.components, state, strict=False)}
    return ExploredPath(tuple(legs), broken, why, last, not state[moves.net])


def _leg(moves: Moves, state: State, action: ReplayedAction) -> Leg:
    entries = moves.entries
    envelope = entries.envelopes[action.event]
    line = _line(entries, action)
    if action.kind is Kind.DROP:
        return Leg(action.kind, envelope, (), (), line)
    turns: list[Turn] = []
    local = list(state[: moves.width])
    queue = [action.event]
    for event in queue:
        component = entries.dest[event]
        one = entries.components[component]
        before = one.locals[local[component]]
        entry = entries.entry(event, local[component])
        if entry.local <= WAITS:
            error = entries.errors.get(entries.entry_of[event, local[component]], "")
            seen = tuple(_until_it_raises(one.actor, before, entries.envelopes[event]))
            turns.append(Turn(one.actor.name, entries.envelopes[event], one.actor.describe(before), error, seen, ()))
            break
        watch: list[SeenStep] = []
        one.actor.react(before, entries.envelopes[event], watch)
        local[component] = entry.local
        sends = tuple(entries.envelopes[number] for number in entry.sends)
        after = one.actor.describe(one.locals[entry.local])
        turns.append(
            Turn(
                one.actor.name, entries.envelopes[event], one.actor.describe(before), after, tuple(watch), sends,
                before, one.locals[entry.local],
            )
        )  # fmt: skip
        queue += entry.calls
    return Leg(action.kind, envelope, tuple(turns), _left_out(moves, state, action), line)


def _until_it_raises(actor: Actor, local: Any, envelope: Envelope) -> list[SeenStep]:
    watch: list[SeenStep] = []
    with suppress(Exception):
        actor.react(local, envelope, watch)
    return watch


def _left_out(moves: Moves, state: State, action: ReplayedAction) -> tuple[Envelope, ...]:
    """The messages that were sent and found no room."""
    entries = moves.entries
    sends = moves.cascade(action.event, state[: moves.width]).sends
    messages = [message for message in state[moves.net :] if message]
    if action.kind is Kind.DELIVER:
        messages.remove(action.event)
    sends = moves.fresh(messages, sends)
    return tuple(entries.envelopes[one] for bit, one in enumerate(sends) if not action.kept >> bit & 1)


def node_of(envelope: Envelope) -> str:
    """The component that an envelope comes from."""
    return identity.node_of(envelope.sender)


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
