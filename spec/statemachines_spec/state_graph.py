"""StateGraph: a small closed system as a networkx graph, a node a global state, for GraphML and what reads it."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any, Final

import networkx as nx

from statemachines.kernel import ConfigurationError
from statemachines.whole_file import whole_file
from statemachines_spec.explorer.counterexample import describe_event
from statemachines_spec.explorer.moves import Moves, State
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.system import System

STATES_MAX: Final = 20_000
"""States of a graph, at most: programs that draw one take no more."""


def state_graph(system: System) -> nx.MultiDiGraph[int]:
    """Every state and every transition within the bounds; nodes are numbered from 0, the initial state.

    A node has `depth`, and what each component is like by its name; an edge has `kind`, `event` and `to`.  Raises
    `ConfigurationError` for more than `STATES_MAX` states.
    """
    entries = Entries(system)
    moves = Moves(entries)
    first = moves.least(moves.first())
    graph: nx.MultiDiGraph[int] = nx.MultiDiGraph(name=system.name)
    numbers = {first: 0}
    graph.add_node(0, depth=0, **_words(entries, first))
    todo = deque([first])
    while todo:
        state = todo.popleft()
        source = numbers[state]
        for move in moves.of(state):
            if move.target is None:
                continue
            target = moves.least(move.target)
            if target not in numbers:
                if len(numbers) == STATES_MAX:
                    rule = f"has more than {STATES_MAX} states; a smaller size of it?"
                    raise ConfigurationError("graph", system.name, rule)
                numbers[target] = len(numbers)
                graph.add_node(numbers[target], depth=graph.nodes[source]["depth"] + 1, **_words(entries, target))
                todo.append(target)
            envelope = entries.envelopes[move.action.event]
            kind = move.action.kind.name.lower()
            graph.add_edge(source, numbers[target], kind=kind, event=describe_event(envelope), to=envelope.to)
    return graph


def write_graph(path: Path, graph: nx.MultiDiGraph[Any]) -> None:
    """Write a graph as GraphML."""
    with whole_file(path) as partial:
        nx.write_graphml(graph, partial, encoding="utf-8")


def _words(entries: Entries, state: State) -> dict[str, str]:
    components = zip(entries.components, state, strict=False)
    return {one.actor.name: one.actor.describe(one.locals[local]) for one, local in components}
