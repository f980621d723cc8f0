"""Rows about liveness: the search for a fair part, against networkx, and how long obligations take on a large graph."""

from __future__ import annotations

from itertools import pairwise
from time import process_time
from typing import Any

from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

MEDIUM = ("leader-crash", "small")
"""System and size whose graph without faults has about 100 000 states."""
LARGE = ("unsubscribe", "ci")
"""The same, with more than a million."""
LITTLE = ("late-copies", "small")
"""In place of either at the small size."""


def prepare_search(size: Size) -> TurnPair:
    from statemachines_spec.explorer.property import Eventually, View
    from statemachines_spec.liveness.judge import graph_of, worst_parts
    from statemachines_spec.shared_subscriptions.systems import system

    graph = graph_of(system(*size.pick(MEDIUM, LITTLE)), engine="compiled")
    always = Eventually("always", "", (View("leader-1", 1, lambda local: 0),), lambda value: True)
    is_open = graph.open_nodes(always)
    worst_parts(graph, is_open)  # compiles the search, or loads it
    links = _links(graph)
    digraph = _digraph(links)

    def ours() -> float:
        began = process_time()
        _, tally = worst_parts(graph, is_open)
        seconds = process_time() - began
        assert [int(value) for value in tally] == expected
        return seconds

    def baseline() -> float:
        began = process_time()
        assert _tally(digraph, links) == expected
        return process_time() - began

    expected = _tally(digraph, links)
    return TurnPair(ours, baseline)


def _links(graph: Any) -> list[list[tuple[int, int]]]:
    """By node: event and target of each link."""
    pairs = list(zip(graph.event.tolist(), graph.target.tolist(), strict=True))
    bounds = graph.first.tolist()
    return [pairs[begin:end] for begin, end in pairwise(bounds)]


def _digraph(links: list[list[tuple[int, int]]]) -> Any:
    import networkx as nx

    digraph: Any = nx.DiGraph()
    digraph.add_nodes_from(range(len(links)))
    digraph.add_edges_from((node, target) for node, some in enumerate(links) for _, target in some if target >= 0)
    return digraph


def _tally(digraph: Any, links: list[list[tuple[int, int]]]) -> list[int]:
    """Parts, those that a fair run can stay in, and those of which nothing can be said."""
    import networkx as nx

    tally = [0, 0, 0]
    for part in nx.strongly_connected_components(digraph):
        always = set.intersection(*({event for event, _ in links[node]} for node in part))
        inside = {event for node in part for event, target in links[node] if target in part}
        missing = always - inside
        leading = {event for node in part for event, target in links[node] if target >= 0} if missing else missing
        tally[0] += 1
        tally[1] += not missing
        tally[2] += bool(missing) and not missing & leading
    return tally


def prepare_large(size: Size) -> TurnPair:
    from statemachines_spec.liveness.judge import graph_of, judge_obligation
    from statemachines_spec.shared_subscriptions.systems import obligations_of, system

    made = system(*size.pick(LARGE, LITTLE))
    explored: list[float] = []

    def ours() -> float:
        """After exploration: the graph without faults, and every obligation."""
        marks: list[float] = []
        began = process_time()
        graph = graph_of(made, engine="compiled", explored=lambda: marks.append(process_time()))
        assert all(judge_obligation(graph, one).is_held for one in obligations_of(made))
        explored.append(marks[0] - began)
        return process_time() - marks[0]

    prepare_search(size)  # compiles the loops, or loads them
    return TurnPair(ours, lambda: explored[-1])


ROWS = (
    BenchRow(
        name="liveness",
        about=f"parts that a fair run can stay in, of the graph of {MEDIUM[0]} ({MEDIUM[1]}) without faults",
        unit="s",
        baseline_name="the same search with networkx, its graph made before",
        prepare=prepare_search,
        ratio=RatioKind.BASELINE_OVER_OURS,
        at_least=20,
    ),
    BenchRow(
        name="liveness-large",
        about=f"every obligation of {LARGE[0]} ({LARGE[1]}), more than a million states, once it is explored",
        unit="s",
        baseline_name="exploring it",
        prepare=prepare_large,
        ratio=RatioKind.OURS_OVER_BASELINE,
        aim="10 s for 1 000 000 states",
    ),
)
