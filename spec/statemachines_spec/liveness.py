"""Liveness: obligations that are open are met sooner or later, once faults stop, under weak fairness.

A run that never meets one comes, with whatever faults the system allows, to a state from which it stays open without
any: nothing is lost or copied any more, no budget is spent, and the network has room for what is sent.  Such a run ends
in a strongly connected part of the graph.  Weakly fair: a timer that stays set fires, a message that stays in flight is
handed over, an input that stays possible happens.  A part is fair if each of these is taken in it, or impossible in
some state of it; then a run may visit all of it for ever.  A state with nothing left to do is such a part by itself.

Nothing is claimed about a fair part in which a step is cut at the bounds, or a timer with a budget is set that does not
say when it is due (`system.Due`): it is counted, and no violation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines_spec.entries import Entries
from statemachines_spec.moves import Action, Move, State
from statemachines_spec.path import Path, along
from statemachines_spec.plain import PlainWalker
from statemachines_spec.property import Eventually
from statemachines_spec.system import System
from statemachines_spec.tail import Tail

STATES_MAX = 200_000
TAIL_MAX = 1_000_000
"""Graphs are kept in plain Python; a system with a larger one is refused."""

Class = int
"""What fairness speaks of: an event (a timer of a component, an input, a message)."""


class Live(msgspec.Struct, frozen=True):
    """Whether one obligation is always met.  `bounded`: parts of the graph about which nothing is claimed, since steps
    are cut at the bounds there; `way`: a shortest run, faults included, after which it is never met; `then`: from there
    without faults; `round`: what happens again and again at last (nothing, where all stands still)."""

    name: str
    text: str
    open_states: int
    bounded: int
    way: Path | None = None
    then: Path | None = None
    round: Path | None = None

    @property
    def held(self) -> bool:
        """No fair run leaves it open for ever."""
        return self.way is None


class Graph:
    """Every reachable state, and what can still happen when faults have stopped."""

    def __init__(self, system: System, states_max: int = STATES_MAX) -> None:
        self.entries = Entries(system)
        self.walker = PlainWalker(self.entries, states_max=states_max, hashing=False)
        try:
            while self.walker.levels[-1] != self.walker.levels[-2]:
                self.walker.advance()
        except MemoryError:
            rule = "liveness is for systems with fewer; a smaller size?"
            raise ConfigurationError("states", states_max, rule) from None
        self.moves = Tail(self.entries)
        self._tail: dict[State, tuple[tuple[Move, ...], bool]] = {}

    def calm(self, index: int) -> State:
        """A reachable state, with room in its network."""
        return self.moves.calm(self.walker.state(index))

    def tail(self, state: State) -> tuple[tuple[Move, ...], bool]:
        """The moves without faults, and whether one of them is cut at the bounds."""
        known = self._tail.get(state)
        if known is None:
            moves = list(self.moves.of(state))
            going = tuple(move for move in moves if move.target is not None)
            known = self._tail[state] = (going, len(going) < len(moves) or self.moves.is_unknown(state))
            if len(self._tail) > TAIL_MAX:
                raise ConfigurationError(
                    "states", TAIL_MAX, "more than this after faults have stopped; a smaller size?"
                )
        return known


def live(system: System, obligations: Iterable[Eventually], states_max: int = STATES_MAX) -> list[Live]:
    """Judge every obligation.  Raises `ConfigurationError` for a system that is too large."""
    graph = Graph(system, states_max)
    return [_judged(graph, one) for one in obligations]


def _judged(graph: Graph, one: Eventually) -> Live:
    is_open = _Open(graph, one)
    roots = [index for index in range(graph.walker.count) if is_open(graph.walker.state(index))]
    bounded, worst = 0, []
    for part in _parts(graph, [graph.calm(index) for index in roots], is_open):
        if not _is_fair(graph, part):
            continue
        if any(graph.tail(state)[1] for state in part):
            bounded += 1
        else:
            worst.append(part)
    if not worst:
        return Live(one.name, one.text, len(roots), bounded)
    root, leg = _nearest(graph, roots, is_open, set().union(*worst))
    part = next(part for part in worst if leg[-1] in part)
    return Live(
        one.name,
        one.text,
        len(roots),
        bounded,
        along(graph.entries, _way(graph, root)),
        along(graph.entries, leg, moves=graph.moves),
        along(graph.entries, _round(graph, leg[-1], part), moves=graph.moves),
    )


class _Open:
    """Whether an obligation is open in a state; each view is evaluated once for each local state."""

    def __init__(self, graph: Graph, one: Eventually) -> None:
        self._one = one
        self._places = [graph.entries.place[view.actor] for view in one.views]
        self._components = [graph.entries.components[place] for place in self._places]
        self._values: list[dict[int, int]] = [{} for _ in one.views]

    def __call__(self, state: State) -> bool:
        values = []
        for view, place, component, known in zip(
            self._one.views, self._places, self._components, self._values, strict=True
        ):
            local = state[place]
            if local not in known:
                known[local] = view.of(component.locals[local])
            values.append(known[local])
        return self._one.open(*values)


def _nearest(graph: Graph, roots: list[int], is_open: _Open, goal: set[State]) -> tuple[int, list[State]]:
    """The reachable state from which the goal is nearest, and the way there without faults."""
    came: dict[State, State | None] = {graph.calm(index): None for index in roots}
    begun = {graph.calm(index): index for index in reversed(roots)}
    for state in came:
        if state in goal:
            return begun[state], [state]
    queue = deque(came)
    while queue:
        state = queue.popleft()
        for move in graph.tail(state)[0]:
            target = move.target
            if target is None or target in came or not is_open(target):
                continue
            came[target] = state
            queue.append(target)
            if target in goal:
                leg: list[State] = [target]
                while (before := came[leg[-1]]) is not None:
                    leg.append(before)
                return begun[leg[-1]], leg[::-1]
    raise AssertionError("every part was found from a root")


def _way(graph: Graph, index: int) -> list[State]:
    levels = graph.walker.levels
    level = next(level for level in range(len(levels) - 1) if index < levels[level + 1])
    states = [graph.walker.state(index)]
    while level > 0:
        level -= 1
        states.append(graph.walker.source_of(states[-1], level))
    return states[::-1]


def _is_fair(graph: Graph, part: set[State]) -> bool:
    """Whether a weakly fair run can stay: each event is taken inside, or impossible in some state."""
    possible: set[Class] | None = None
    taken: set[Class] = set()
    inside = False
    for state in part:
        moves = graph.tail(state)[0]
        here = {move.action.event for move in moves}
        possible = here if possible is None else possible & here
        for move in moves:
            if move.target in part:
                taken.add(move.action.event)
                inside = True
    return not (possible or set()) - taken and (inside or not possible)


def _round(graph: Graph, first: State, part: set[State]) -> list[State]:
    """A walk from `first` through the part and back, on which no event is possible all the time and never taken."""
    walk = [first]
    possible = {move.action.event for move in graph.tail(first)[0]}
    taken: set[Class] = set()
    while (missing := possible - taken) or (walk[-1] != first and len(walk) > 1):
        wanted = min(missing) if missing else None
        leg = _leg(graph, part, walk[-1], wanted, first)
        for action, state in leg:
            taken.add(action.event)
            walk.append(state)
            possible &= {move.action.event for move in graph.tail(state)[0]}
    return walk


def _leg(
    graph: Graph, part: set[State], begin: State, wanted: Class | None, home: State
) -> list[tuple[Action, State]]:  # fmt: skip
    """The shortest way inside `part` that takes `wanted` or comes where it is impossible; without it, to `home`."""
    queue: deque[tuple[State, tuple[tuple[Action, State], ...]]] = deque([(begin, ())])
    seen = {begin}
    while queue:
        state, leg = queue.popleft()
        for action, target, _ in graph.tail(state)[0]:
            if target is None or target not in part:
                continue
            further = (*leg, (action, target))
            possible = {move.action.event for move in graph.tail(target)[0]}
            if target == home if wanted is None else action.event == wanted or wanted not in possible:
                return list(further)
            if target not in seen:
                seen.add(target)
                queue.append((target, further))
    raise AssertionError("a strongly connected part has a way everywhere")


def _parts(graph: Graph, roots: Iterable[State], is_open: _Open) -> Iterator[set[State]]:
    """The strongly connected parts of what comes of the roots and is open (Tarjan, without recursion)."""
    number: dict[State, int] = {}
    low: dict[State, int] = {}
    stack: list[State] = []
    on_stack: set[State] = set()
    for root in roots:
        if root in number:
            continue
        work: list[tuple[State, Iterator[State]]] = []
        _open(root, number, low, stack, on_stack)
        work.append((root, _inside(graph, root, is_open)))
        while work:
            state, targets = work[-1]
            deeper = next((target for target in targets if _seen(state, target, number, low, on_stack)), None)
            if deeper is not None:
                _open(deeper, number, low, stack, on_stack)
                work.append((deeper, _inside(graph, deeper, is_open)))
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[state])
            if low[state] == number[state]:
                part = set()
                while state not in part:
                    part.add(last := stack.pop())
                    on_stack.discard(last)
                yield part


def _open(
    state: State, number: dict[State, int], low: dict[State, int], stack: list[State], on_stack: set[State]
) -> None:  # fmt: skip
    number[state] = low[state] = len(number)
    stack.append(state)
    on_stack.add(state)


def _inside(graph: Graph, state: State, is_open: _Open) -> Iterator[State]:
    return (move.target for move in graph.tail(state)[0] if move.target is not None and is_open(move.target))


def _seen(
    state: State, target: State, number: dict[State, int], low: dict[State, int], on_stack: set[State]
) -> bool:  # fmt: skip
    """Whether `target` is new; one on the stack lowers `state`."""
    if target in on_stack:
        low[state] = min(low[state], number[target])
    return target not in number
