"""FairGraph: what can happen without faults, from every reachable state on, as arrays of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from statemachines.kernel import ConfigurationError
from statemachines_spec.explorer.moves import State
from statemachines_spec.explorer.property import Eventually
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.walker_plain import PlainWalker
from statemachines_spec.liveness.components import plainly
from statemachines_spec.liveness.faultless_moves import Tail

R = TypeVar("R")

NODES_PER_TURN = 5_000

Progress = Callable[[str], None]
"""(what is going on, in a few words): called now and then."""


class CompleteWalker(Protocol):
    """A walker that has been everywhere."""

    levels: list[int]

    @property
    def count(self) -> int: ...
    def state(self, index: int) -> State: ...
    def source_of(self, target: State, level: int) -> State: ...


class TooLarge(ConfigurationError):
    """A graph with more states than may be kept."""

    def __init__(self, states_max: int) -> None:
        super().__init__("states", states_max, "liveness keeps no more than this; a smaller size?")


class FairGraph:
    """A node is a state without what is left of the budgets; those of reachable states come first, nearest first.

    The links of node n are `first[n]` to `first[n + 1]`, each with its `event` and `target` (-1: nobody knows where it
    leads); `node_of[n]`: the node of reachable state n; `depth[n]`: steps to node n, faults included, for the first
    nodes.  This one is made of lists, in plain Python.
    """

    name = "plain"

    def __init__(self, walker: CompleteWalker, entries: Entries, states_max: int, room: int | None) -> None:
        self.entries = entries
        self.walker = walker
        self.states_max = states_max
        self.tail = Tail(entries, room)
        self.first: Any = [0]
        self.target: Any = []
        self.event: Any = []
        self.node_of: Any = []
        self.depth: Any = []
        self._states: list[State] = []
        self._nodes: dict[State, int] = {}

    @property
    def count(self) -> int:
        """Nodes so far."""
        return len(self._states)

    @property
    def size(self) -> int:
        """Links so far."""
        return len(self.target)

    def state(self, node: int) -> State:
        """The state of a node."""
        return self._states[node]

    def grow(self) -> Iterator[None]:
        """Make all of it, a turn at a time.  Raises `TooLarge`."""
        assert isinstance(self.walker, PlainWalker)
        for level in range(len(self.walker.levels) - 1):
            for index in range(self.walker.levels[level], self.walker.levels[level + 1]):
                node = self._node(self.tail.calm(self.walker.state(index)))
                self.node_of.append(node)
                if node == len(self.depth):
                    self.depth.append(level)
        while len(self.first) <= len(self._states):
            for move in self.tail.of(self._states[len(self.first) - 1]):
                self.event.append(move.action.event)
                self.target.append(-1 if move.target is None else self._node(move.target))
            self.first.append(len(self.target))
            if len(self.first) % NODES_PER_TURN == 0:
                yield

    def open_nodes(self, one: Eventually) -> Sequence[int]:
        """By node, whether an obligation is open there."""
        opens = Opening(self.entries, one)
        return [opens(tuple(state[place] for place in opens.places)) for state in self._states]

    def open_states(self, is_open: Sequence[int]) -> int:
        """Of the reachable states, how many are open."""
        return sum(is_open[node] for node in self.node_of)

    def run(self, function: Callable[..., R], *arguments: Any) -> R:
        """Call a function of `components` on the arrays as they are here."""
        return plainly(function)(*arguments)

    def zeros(self, size: int, value: int = 0) -> Any:
        """Space for the search."""
        return [value] * size

    def where(self, values: Any, wanted: int) -> list[int]:
        """The places that have this value."""
        return [place for place, value in enumerate(values) if value == wanted]

    def _node(self, state: State) -> int:
        node = self._nodes.setdefault(state, len(self._nodes))
        if node == len(self._states):
            if node >= self.states_max:
                raise TooLarge(self.states_max)
            self._states.append(state)
        return node


class Opening:
    """Whether an obligation is open, by the local states of the components that it reads; each view is evaluated once
    for each local state."""

    def __init__(self, entries: Entries, one: Eventually) -> None:
        self._one = one
        self.places = [entries.place[view.actor] for view in one.views]
        self._components = [entries.components[place] for place in self.places]
        self._values: list[dict[int, int]] = [{} for _ in one.views]

    def value(self, view: int, local: int) -> int:
        """What a view reads in a local state."""
        known = self._values[view]
        if local not in known:
            known[local] = self._one.views[view].of(self._components[view].locals[local])
        return known[local]

    def __call__(self, locals_read: Sequence[int]) -> int:
        return self.of(self.value(view, local) for view, local in enumerate(locals_read))

    def of(self, values: Any) -> int:
        """1 if it is open where the views have these values."""
        return int(bool(self._one.open(*values)))
