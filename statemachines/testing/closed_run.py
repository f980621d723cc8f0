"""ClosedRun: one run of a closed system, move by move, judged like an exploration; and how a script is shortened.

The moves are those of the explorer (`statemachines_spec.explorer.moves`): whatever can happen in a state, with its
bounds, budgets and deadline orders.  So whatever a run comes to, an exploration of the same system has seen.

PropertyBroken: what tests of whole systems raise, whichever way they drive them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from statemachines.kernel import TimerFired
from statemachines_sim.shrink import leave_out
from statemachines_spec.explorer import counterexample
from statemachines_spec.explorer.actor import Crash, Hear, PassAll, PassLease, Pause, Restart, Wake
from statemachines_spec.explorer.entry_tables import FREE, WAITS, digest
from statemachines_spec.explorer.explore import ExploredPath, ScriptLine, follow
from statemachines_spec.explorer.fsm_actor import Pass
from statemachines_spec.explorer.moves import Kind, Moves, State, mix_edge
from statemachines_spec.explorer.property import NO_ERROR, Always
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.system import System


class PropertyBroken(AssertionError):
    """A property does not hold; each has a type of its own, so that none is shrunk to another.  `what` names it."""

    what: ClassVar[str] = ""


@cache
def broken_type(name: str) -> type[PropertyBroken]:
    """The error for one property."""
    return type("PropertyBroken", (PropertyBroken,), {"what": name, "__module__": PropertyBroken.__module__})


STATES_KEPT: Final = 20_000
"""What can happen is remembered for so many states."""

REPLAYS_MAX: Final = 3_000
"""Shortening a script ends after so many repetitions."""

KINDS: Final = 16
"""A swarm tells so many sorts of events apart."""

DELIVER, DUPLICATE, DROP = "deliver", "duplicate", "drop"
FIRE, CALL, CRASH, RESTART, PAUSE, WAKE = "fire", "call", "crash", "restart", "pause", "wake"
OF_NETWORK: Final = {Kind.DELIVER: DELIVER, Kind.COPY: DUPLICATE, Kind.DROP: DROP}
OF_PROCESS: Final = {
    Crash: CRASH, Restart: RESTART, Pause: PAUSE, Wake: WAKE, Hear: WAKE, Pass: WAKE, PassLease: WAKE, PassAll: WAKE
}  # fmt: skip


class MessageFate(NamedTuple):
    """What becomes of a message in calm: it is handed over after so many moves, or at once and a copy of it after so
    many, or it is lost."""

    what: str
    moves: int = 0


PROMPT: Final = MessageFate(DELIVER)


class Choice(NamedTuple):
    """Something that can happen: its sort, its event, and a way for each choice of messages that find room.

    `free`: it costs no budget; `kind`: a number below `KINDS` for events of its type.
    """

    sort: str
    kind: int
    event: int
    free: bool
    ways: tuple[RunTransition, ...]


class RunTransition(NamedTuple):
    """One transition: what `path.follow` takes, where it leads (None: it raised), the step property that breaks."""

    line: ScriptLine
    target: State | None
    broken: int


Choices = tuple[Choice, ...]
Pair = tuple[int, int]
"""An entry: the number of its component, and 64 bits of its event and local state, the same in every process."""


class SharedSystem:
    """A system as its runs share it: the entries that they need, made when the first run needs them.

    Under a planted bug, or after one, make a new one: entries are never made twice.
    """

    def __init__(self, system: System) -> None:
        self.system = system
        self.entries = Entries(system)
        self.moves = Moves(self.entries)
        self.first = self.moves.first()
        self._choices: dict[State, Choices] = {}
        self._verdicts: dict[tuple[int, tuple[int, ...]], bool] = {}

    def choices(self, state: State) -> Choices:
        """What can happen in a state, in an order that does not depend on what was seen before."""
        known = self._choices.get(state)
        if known is None:
            if len(self._choices) >= STATES_KEPT:
                self._choices.clear()
            known = self._choices[state] = self._find_choices(state)
        return known

    def names(self, state: State, way: RunTransition) -> tuple[str, ...]:
        """What breaks by this way out of `state`: the step first, then the state it leads to."""
        if way.broken == 1:
            return (NO_ERROR,)
        broken = (self.entries.step_names[way.broken - 1],) if way.broken else ()
        return broken if way.target is None else (*broken, *self.broken_in(way.target))

    def broken_in(self, state: State) -> tuple[str, ...]:
        """The properties over states that do not hold there."""
        return tuple(one.name for one, holds in self._judged(state) if isinstance(one, Always) and not holds)

    def list_sometimes(self, state: State) -> tuple[str, ...]:
        """What must happen sometimes, and happens there."""
        return tuple(one.name for one, hit in self._judged(state) if not isinstance(one, Always) and hit)

    def pairs(self, state: State, choice: Choice) -> list[Pair]:
        """The entries that a choice takes: that of its event, and those of all the calls that follow."""
        if choice.sort == DROP:
            return []
        entries, local = self.entries, list(state[: self.moves.width])
        pairs, queue = [], [choice.event]
        for event in queue:
            component = entries.dest[event]
            pairs.append((component, pair_digest(entries, event, local[component])))
            entry = entries.entry(event, local[component])
            if entry.local <= WAITS:
                break
            local[component] = entry.local
            queue += entry.calls
        return pairs

    def _find_choices(self, state: State) -> Choices:
        entries = self.entries
        free = {
            one.event
            for component, local in zip(entries.components, state, strict=False)
            for one in component.inputs[local]
            if one.budget == FREE
        }
        ways: dict[tuple[Kind, int], list[RunTransition]] = {}
        for action, target, broken in self.moves.of(state):
            if target is not None or broken:
                line = (action.kind.name.lower(), f"{entries.digests[action.event]:016x}", action.kept)
                ways.setdefault((action.kind, action.event), []).append(RunTransition(line, target, broken))
        found = [
            Choice(
                self._sort(kind, event),
                self._kind(event),
                event,
                kind is not Kind.INPUT or event in free,
                tuple(sorted(leading)),
            )
            for (kind, event), leading in ways.items()
        ]
        return tuple(sorted(found, key=lambda choice: choice.ways[0].line))

    def _sort(self, kind: Kind, event: int) -> str:
        if kind is not Kind.INPUT:
            return OF_NETWORK[kind]
        what = self.entries.envelopes[event].event
        return FIRE if isinstance(what, TimerFired) else OF_PROCESS.get(type(what), CALL)

    def _kind(self, event: int) -> int:
        return digest(type(self.entries.envelopes[event].event).__qualname__.encode()) % KINDS

    def _judged(self, state: State) -> Iterable[tuple[Any, bool]]:
        entries = self.entries
        for number, one in enumerate(self.system.over_states):
            values = tuple(
                entries.components[place].seen[state[place]][number]
                for place in (entries.place[view.actor] for view in one.views)
            )
            verdict = self._verdicts.get((number, values))
            if verdict is None:
                judged = one.holds(*values) if isinstance(one, Always) else one.happens(*values)
                verdict = self._verdicts[number, values] = bool(judged)
            yield one, verdict


def pair_digest(entries: Entries, event: int, local: int) -> int:
    """64 bits of an (event, local state) that do not depend on the order of discovery."""
    return mix_edge(entries.digests[event], entries.components[entries.dest[event]].digests[local])


class ClosedRun:
    """One run.  `script` is what happened so far, `broken` the properties that broke last, and then the run is over.

    `held`: messages that the network holds back, and the move after which each goes on.
    """

    def __init__(
        self,
        closed: SharedSystem,
        fates: Mapping[int, MessageFate] | None = None,
        *,
        rare: int = 0,
        never: int = 0,
        order: int = 0,
        fate_of: Callable[[int], MessageFate | None] = lambda message: None,
    ) -> None:
        """`fates`: what becomes in calm of the messages sent, by number from 0 (others: at once), unless
        `fate_of(number of the envelope)` says what becomes of a message.  `rare`: sorts of
        events, as bits, that calm puts off until nothing else can happen; `never`: those it does not know; `order`: any
        number, for the order of what is equally due."""
        self.closed = closed
        self.state = closed.first
        self.script: list[ScriptLine] = []
        self.broken = closed.broken_in(self.state)
        self.shown: set[str] = set(closed.list_sometimes(self.state))
        self.pairs: set[Pair] = set()
        self.held: dict[int, int] = {}
        self._fates = fates or {}
        self._fate_of = fate_of
        self._rare = rare
        self._never = never
        self._order = order
        self._sent = 0
        self._since: dict[int, int] = {}
        self._foreseen: dict[int, MessageFate] = {}
        self._often: Counter[int] = Counter()

    def choices(self, *sorts: str) -> list[Choice]:
        """What of these sorts can happen; messages that are held back are not handed over."""
        held = self.held
        return [
            choice
            for choice in self.closed.choices(self.state)
            if choice.sort in sorts and not (choice.sort is DELIVER and choice.event in held)
        ]

    def take(self, choice: Choice, number: int = 0) -> None:
        """It happens, in the way of that number."""
        way = choice.ways[number % len(choice.ways)]
        self.broken = self.closed.names(self.state, way)
        self.pairs.update(self.closed.pairs(self.state, choice))
        self.script.append(way.line)
        self._often[choice.event] += 1
        if way.target is not None:
            self.state = way.target
            self.shown.update(self.closed.list_sometimes(self.state))
        self._look_at_network()

    def hold_back(self, event: int, moves: int) -> None:
        """The network hands the message over when so many moves were made, and not before."""
        self.held[event] = len(self.script) + moves

    def let_go(self) -> None:
        """Nothing is held back any longer."""
        self.held.clear()

    def calm(self) -> bool:
        """One untroubled move: the message that waits longest; without one the event that happened least; then what is
        held back comes, the soonest first; rare events last.  False: there is nothing."""
        if found := self.choices(DELIVER):
            self._hand_over(min(found, key=lambda one: self._since[one.event]))
            return True
        never = self._never
        found = [one for one in self.choices(FIRE, CALL) if one.free and not never >> one.kind & 1]
        usual = [one for one in found if not self._rare >> one.kind & 1]
        if not usual and self.held:
            del self.held[min(self.held, key=lambda message: (self.held[message], self._since[message]))]
            return self.calm()
        if found:
            self._take_some_way(min(usual or found, key=self._turn))
        return bool(found)

    def _turn(self, choice: Choice) -> tuple[int, int]:
        return self._often[choice.event], mix_edge(self._order, self.closed.entries.digests[choice.event])

    def _hand_over(self, message: Choice) -> None:
        """As it is foreseen for the message, where the network does such things."""
        fate = self._foreseen.pop(message.event, PROMPT)
        same = {one.sort: one for one in self.choices(DUPLICATE, DROP) if one.event == message.event}
        if fate.what in same:
            self._take_some_way(same[fate.what])
            if fate.moves:
                self.hold_back(message.event, fate.moves)
        else:
            self._take_some_way(message)

    def _take_some_way(self, choice: Choice) -> None:
        """Who finds room in the network changes from move to move, or the same message might never do."""
        self.take(choice, mix_edge(len(self.script), self.closed.entries.digests[choice.event]))

    def _look_at_network(self) -> None:
        now = len(self.script)
        there = {message for message in self.state[self.closed.moves.net :] if message}
        self.held = {message: until for message, until in self.held.items() if message in there and until > now}
        since = {message: self._since[message] for message in there if message in self._since}
        digests = self.closed.entries.digests
        for message in sorted(there - since.keys(), key=digests.__getitem__):
            since[message] = now
            fate = self._fate_of(message) or self._fates.get(self._sent, PROMPT)
            if fate.what == DELIVER and fate.moves:
                self.hold_back(message, fate.moves)
            elif fate.what != DELIVER:
                self._foreseen[message] = fate
            self._sent += 1
        self._since = since
        self._foreseen = {message: fate for message, fate in self._foreseen.items() if message in there}


def replay_script(closed: SharedSystem, script: Iterable[ScriptLine], name: str) -> tuple[ScriptLine, ...] | None:
    """The lines of `script` up to where the property breaks, without those that cannot happen; None: it holds."""
    run = ClosedRun(closed)
    for line in script:
        if name in run.broken:
            break
        for choice in closed.choices(run.state):
            number = next((number for number, way in enumerate(choice.ways) if way.line == line), None)
            if number is not None:
                run.take(choice, number)
                break
    return tuple(run.script) if name in run.broken else None


def shorten(closed: SharedSystem, script: tuple[ScriptLine, ...], name: str) -> tuple[ScriptLine, ...]:
    """As short a script as leaving lines out can make it, with which the same property breaks."""
    left = REPLAYS_MAX

    def fails(lines: tuple[ScriptLine, ...]) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and replay_script(closed, lines, name) is not None

    while True:
        shorter = replay_script(closed, leave_out(script, fails), name) or script
        if len(shorter) >= len(script) or left < 0:
            return shorter
        script = shorter


def tell_story(system: System, script: tuple[ScriptLine, ...]) -> str:
    """What happens by the script, as the explorer tells a counterexample; and the script, to paste into a test."""
    path = follow(system, script)
    return f"{counterexample.describe_path(path)}\n\nTo paste into a file of tests:\n\n{_to_paste(system, path)}"


def _to_paste(system: System, path: ExploredPath) -> str:
    if system.origin is not None:
        return counterexample.pytest_function(system, path)
    lines = "\n".join(f"    {line!r}," for line in path.script)
    return f"SCRIPT = (\n{lines}\n)\n\nassert follow(system, SCRIPT).broken == {path.broken!r}\n"


def resize_network(system: System, **network: Any) -> System:
    """The same system over a network that differs in these fields; no other process can make it."""
    changed = msgspec.structs.replace(system.network, **network).check()
    return msgspec.structs.replace(system, network=changed, origin=None)
