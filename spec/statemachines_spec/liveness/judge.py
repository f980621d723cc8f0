"""Liveness: obligations that are open are met sooner or later, once faults stop, under weak fairness.

A run that never meets one comes, with whatever faults the system allows, to a state from which no more happen
(`faultless_moves`), and ends in a strongly connected part of what can happen then.  Weakly fair: a timer that stays
set fires, a message that stays in flight is handed over, an input that stays possible happens.  A part is fair if each
event that is possible in all of it is taken in it; then a run may visit all of it for ever.  A state with nothing left
to do is such a part by itself.  If an obligation that is open in a reachable state stays open up to a fair part, and
all over it, it is violated.

Nothing is claimed about a part that a run can only leave to where nobody knows: a step beyond the bounds, a timer with
a budget that does not say when it is due (`system.Due`).  It is counted, and no violation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError
from statemachines_spec.explorer.explore import ENGINES, ExploredPath, Walker, along
from statemachines_spec.explorer.moves import State
from statemachines_spec.explorer.property import Eventually, check_views
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.walker_plain import PlainWalker
from statemachines_spec.liveness import components
from statemachines_spec.liveness.fair_graph import CompleteWalker, FairGraph, Progress, TooLarge

STATES_MAX = 20_000_000
"""States that a graph may have: 200 to 330 bytes each, with the exploration before it."""
PLAIN_MAX = 1_000_000
"""The same in plain Python, where a state takes ten times as much."""
PLAIN_FIRST = 5_000
"""With `auto`, a system with no more states than this is judged in plain Python: compiling takes longer."""

WALKED_MAX = 30_000
"""The same of a system that has been explored in plain Python already: its states need not be found once more."""


class LivenessVerdict(msgspec.Struct, frozen=True):
    """Whether one obligation is always met.

    `open_states`: of the reachable states, how many it is open in; `bounded`: parts of the graph about which nothing is
    claimed; `way`: a run, faults included, after which it is never met (`way` and `then` together are a shortest one);
    `then`: from there without faults; `round`: what happens again and again at last (nothing, where all stands still).
    """

    name: str
    text: str
    open_states: int
    bounded: int
    way: ExploredPath | None = None
    then: ExploredPath | None = None
    round: ExploredPath | None = None

    @property
    def is_held(self) -> bool:
        """No fair run leaves it open for ever."""
        return self.way is None

    @property
    def run(self) -> ExploredPath | None:
        """One run after which it is never met (None: there is none), as a path that breaks it."""
        if self.way is None or self.then is None:
            return None
        legs = (*self.way.legs, *self.then.legs)
        return replace(self.then, legs=legs, broken=self.name, why=self.text)


def live(
    system: System,
    obligations: Iterable[Eventually],
    states_max: int = STATES_MAX,
    *,
    engine: str = "auto",
    room: int | None = None,
    progress: Progress | None = None,
    entries: Entries | None = None,
) -> list[LivenessVerdict]:
    """Judge every obligation.  `room`: messages in flight without faults, answers not counted (as many as the
    system has, and two at least).  `entries` of the system without symmetry, where it has been explored already.

    Raises `TooLarge`, a `ConfigurationError`, for a system with more than `states_max` states.
    """
    obligations = tuple(obligations)
    for one in obligations:
        check_views(one.name, one.views)
    graph = graph_of(system, states_max, engine=engine, room=room, progress=progress, entries=entries)
    return [judge_obligation(graph, one, progress) for one in obligations]


def graph_of(
    system: System,
    states_max: int = STATES_MAX,
    *,
    engine: str = "auto",
    room: int | None = None,
    progress: Progress | None = None,
    explored: Callable[[], object] | None = None,
    entries: Entries | None = None,
) -> FairGraph:
    """Every reachable state, and what can still happen when faults have stopped; `explored()` is called in between.
    `entries` of the system without symmetry, where there are any already."""
    if engine not in ENGINES:
        raise ConfigurationError("engine", engine, f"unknown; there are: {', '.join(ENGINES)}")
    say = progress or _silent
    if entries is None:
        entries = Entries(system.in_full())  # fairness tells one component from another
    walker = _explored(entries, states_max, engine, say)
    if explored is not None:
        explored()
    graph: FairGraph
    if isinstance(walker, PlainWalker):
        graph = FairGraph(walker, entries, min(states_max, PLAIN_MAX), room)
    else:
        from statemachines_spec.liveness.fair_graph_compiled import CompiledFairGraph

        graph = CompiledFairGraph(walker, entries, states_max, room)
    for _ in graph.grow():
        say(f"without faults: {graph.count:,} states, {graph.size:,} transitions")
    return graph


def judge_obligation(graph: FairGraph, one: Eventually, progress: Progress | None = None) -> LivenessVerdict:
    """Judge one obligation."""
    (progress or _silent)(f"{one.name}: is it met sooner or later?")
    is_open = graph.open_nodes(one)
    worst, tally = worst_parts(graph, is_open)
    live_so_far = LivenessVerdict(one.name, one.text, graph.open_states(is_open), int(tally[2]))
    if not tally[1]:
        return live_so_far
    index, leg = _nearest(graph, worst)
    nodes, events = _Round(graph, worst, leg[-1]).walk()
    way = along(graph.entries, _way(graph, index))
    then = along(graph.entries, [graph.state(node) for node in leg], moves=graph.tail)
    again = along(graph.entries, [graph.state(node) for node in nodes], moves=graph.tail, events=events)
    return msgspec.structs.replace(live_so_far, way=way, then=then, round=again)


def worst_parts(graph: FairGraph, is_open: Sequence[int]) -> tuple[Any, Any]:
    """By node, the number of its part if a fair run can stay in it (else 0); how many parts there are, how many of
    those are fair, and of how many nothing can be said.  Parts of what reachable states lead to over open ones."""
    nodes, events = graph.count, len(graph.entries.envelopes)
    by_node = [graph.zeros(nodes) for _ in range(6)]
    by_event = [graph.zeros(events, -1), *(graph.zeros(events) for _ in range(4))]
    worst, tally = graph.zeros(nodes), graph.zeros(3)
    space = components.ComponentSpace(*by_node, *by_event)
    ordered = graph.run(components.split, graph.first, graph.target, is_open, len(graph.depth), space)
    graph.run(components.judge, graph.first, graph.target, graph.event, ordered, worst, tally, space)
    return worst, tally


def _explored(entries: Entries, states_max: int, engine: str, say: Progress) -> CompleteWalker:
    """A walker that has been everywhere."""
    both = engine == "auto" and find_spec("numba") is not None
    if engine != "compiled":
        found = _find_walker(entries, min(states_max, WALKED_MAX if both else PLAIN_MAX))
        if found is not None:
            return found
        most = min(states_max, PLAIN_FIRST if both else PLAIN_MAX)
        plain = PlainWalker(entries, states_max=most, hashing=False)
        if _walked(plain, say):
            return plain
        if not both or states_max <= PLAIN_FIRST:
            raise TooLarge(most)
    from statemachines_spec.explorer.walker_compiled import CompiledWalker

    walker = CompiledWalker(entries, states_max=states_max, hashing=False)
    if not _walked(walker, say):
        raise TooLarge(states_max)
    return walker


def _find_walker(entries: Entries, states_max: int) -> PlainWalker | None:
    """Who has been everywhere already; by these tables, and not by those that they were copied from."""
    walked = entries.walked
    if isinstance(walked, PlainWalker) and walked.entries is entries and walked.count <= states_max:
        return walked
    return None


def _walked(walker: Walker, say: Progress) -> bool:
    """Whether there was room for everything."""
    try:
        while walker.levels[-1] != walker.levels[-2]:
            walker.advance()
            say(f"{walker.count:,} states")
    except MemoryError:
        return False
    return True


def _silent(text: str) -> None:
    """Nobody wants to know."""


# -- counterexamples ------------------------------------------------------------------------------------------------


def _nearest(graph: FairGraph, worst: Any) -> tuple[int, list[int]]:
    """A shortest way to a part in which a fair run can stay: the reachable state where faults stop, and the nodes from
    there on.  Of several, always the same, whatever the numbers are: the one with the least digest at every step."""
    distance, found = graph.zeros(graph.count, -1), graph.zeros(graph.count)
    steps = graph.run(components.nearest, graph.first, graph.target, graph.depth, worst, distance, found)
    ends = [node for node in graph.where(distance, steps) if worst[node]]
    leg = [_least(graph, ends)]
    while not (leg[-1] < len(graph.depth) and graph.depth[leg[-1]] == steps):
        steps -= 1
        count = graph.run(components.sources, graph.first, graph.target, distance, steps, leg[-1], found)
        leg.append(_least(graph, [int(node) for node in found[:count]]))
    level = graph.walker.levels[steps], graph.walker.levels[steps + 1]
    begun = [index for index in graph.where(graph.node_of, leg[-1]) if level[0] <= index < level[1]]
    index = min(begun, key=lambda one: graph.tail.digest(graph.walker.state(one)))
    return index, leg[::-1]


def _least(graph: FairGraph, nodes: list[int]) -> int:
    return min(nodes, key=lambda node: graph.tail.digest(graph.state(node)))


def _way(graph: FairGraph, index: int) -> list[State]:
    """A shortest way to a reachable state."""
    levels = graph.walker.levels
    level = next(level for level in range(len(levels) - 1) if index < levels[level + 1])
    states = [graph.walker.state(index)]
    while level > 0:
        level -= 1
        states.append(graph.walker.source_of(states[-1], level))
    return states[::-1]


class _Round:
    """A walk from a node through its part and back, on which no event is possible all the time and never taken."""

    def __init__(self, graph: FairGraph, worst: Any, home: int) -> None:
        self.graph = graph
        self.worst = worst
        self.home = home

    def walk(self) -> tuple[list[int], list[int]]:
        """The nodes, and the events between them."""
        walk, events = [self.home], list[int]()
        possible = self._possible(self.home)
        while (missing := possible.difference(events)) or walk[-1] != self.home:
            wanted = min(missing, key=self._digest) if missing else None
            for event, node in self._leg(walk[-1], wanted):
                events.append(event)
                walk.append(node)
                possible &= self._possible(node)
        return walk, events

    def _digest(self, event: int) -> int:
        return self.graph.entries.digests[event]

    def _links(self, node: int) -> Iterator[tuple[int, int]]:
        """Event and target of each link, the least digest of an event first."""
        at = range(self.graph.first[node], self.graph.first[node + 1])
        links = [(int(self.graph.event[number]), int(self.graph.target[number])) for number in at]
        return iter(sorted(links, key=lambda one: self._digest(one[0])))

    def _possible(self, node: int) -> set[int]:
        return {event for event, _ in self._links(node)}

    def _leg(self, begin: int, wanted: int | None) -> list[tuple[int, int]]:
        """The shortest way inside the part that takes `wanted` or comes where it is impossible; without it, home."""
        queue: deque[tuple[int, tuple[tuple[int, int], ...]]] = deque([(begin, ())])
        seen = {begin}
        while queue:
            node, leg = queue.popleft()
            for event, target in self._links(node):
                if target < 0 or self.worst[target] != self.worst[self.home]:
                    continue
                further = (*leg, (event, target))
                if target == self.home if wanted is None else event == wanted or wanted not in self._possible(target):
                    return list(further)
                if target not in seen:
                    seen.add(target)
                    queue.append((target, further))
        raise AssertionError("a strongly connected part has a way everywhere")
