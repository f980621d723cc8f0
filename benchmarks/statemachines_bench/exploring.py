"""Rows about the explorer: states a second, against the plainest search, which calls the machines every time; and the
search for a fair part, against networkx."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from time import perf_counter, process_time
from typing import Any

import networkx as nx

from statemachines_bench.harness import compare, open_folder
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair
from statemachines_spec.explorer.explore import COMPLETE, STATES_MAX, explore
from statemachines_spec.explorer.promela import judge
from statemachines_spec.explorer.property import Eventually, View
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.service_actor import search
from statemachines_spec.explorer.walker_compiled import CompiledWalker
from statemachines_spec.liveness.judge import graph_of, judge_obligation, worst_parts
from statemachines_spec.shared_subscriptions.systems import obligations_of, system

LARGE = ("borrower-crash", "large")
"""System and size that is explored whole: 63 million states, in about a minute."""
LARGE_STATES, LARGE_BYTES = 20_000_000, 24
"""What LARGE has at least, and what a state of it takes at most: a run that breaks either of them is no result."""
MEDIUM = ("leader-crash", "small")
"""What pure Python explores whole."""
SPIN = ("borrower-crash", "ci")
"""What two threads walk, and what SPIN explores whole, on its entries: 2.6 million states.  SPIN takes a hundred bytes
for each, and gets slower with their number: the large system would need 7 GB and five minutes."""
LITTLE = ("late-copies", "small")
"""What is explored in place of any of them at the small size."""
FAIR = ("unsubscribe", "ci")
"""A system whose graph without faults has more than a million states; that of MEDIUM has about 100 000."""
PREFIX = 20_000
"""States that the plainest search explores: of the large system it would take an hour."""


@cache
def rate(engine: str, name: str, size: str, *more: object) -> float:
    """States a second of processor time, from empty tables to the last state; of one system found once."""
    result = explore(system(name, size), engine=engine, hashing=False)
    assert result.ended == COMPLETE
    if (name, size) == LARGE:
        assert result.states >= LARGE_STATES
        assert result.bytes_per_state <= LARGE_BYTES
    return result.states / result.seconds


def compile_kernel(*given: object) -> tuple[object, ...]:
    """A little system is explored, which compiles the kernel, or loads it."""
    rate("compiled", "revoke-timeout", "small")
    return given


def measure_plainest(name: str, size: str, prefix: int) -> float:
    """States a second of the plainest search, on a prefix."""
    counts = search(system(name, size), prefix)
    return counts.states / counts.seconds


def prepare_spin(size: Size) -> TurnPair:
    large, medium = size.pick((LARGE, SPIN), (LITTLE, LITTLE))
    entries = Entries(system(*medium))
    states = explore(entries.system, entries=entries, engine="compiled", hashing=False).states

    def spin() -> float:
        with open_folder() as folder:
            counts = judge(entries, folder, "-O2")
        assert counts.states == states
        return counts.states / counts.seconds

    return TurnPair(lambda: rate("compiled", *large), spin)


def walk_all(entries: Entries, threads: int) -> int:
    """Walk to the last level; how many states."""
    walker = CompiledWalker(entries, states_max=STATES_MAX, hashing=False, threads=threads)
    while walker.levels[-1] != walker.levels[-2]:
        walker.advance()
    return walker.count


def prepare_two(size: Size) -> TurnPair:
    """Entries are made before: the walk is shared out.  By the clock on the wall, since who waits is not faster."""
    entries = Entries(system(*size.pick(SPIN, LITTLE)))
    states = walk_all(entries, 1)

    def shared_out() -> float:
        began = perf_counter()
        assert walk_all(entries, 2) == states
        return states / (perf_counter() - began)

    def side_by_side() -> float:
        began = perf_counter()
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(walk_all, (entries, entries), (1, 1))) == [states, states]
        return 2 * states / (perf_counter() - began)

    return TurnPair(shared_out, side_by_side)


# -- liveness -------------------------------------------------------------------------------------------------------


def prepare_search(size: Size) -> TurnPair:
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
    digraph: Any = nx.DiGraph()
    digraph.add_nodes_from(range(len(links)))
    digraph.add_edges_from((node, target) for node, some in enumerate(links) for _, target in some if target >= 0)
    return digraph


def _tally(digraph: Any, links: list[list[tuple[int, int]]]) -> list[int]:
    """Parts, those that a fair run can stay in, and those of which nothing can be said."""
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
    made = system(*size.pick(FAIR, LITTLE))
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
        name="explore",
        about=f"exploring {LARGE[0]} ({LARGE[1]}: at least {LARGE_STATES:,} states, at most {LARGE_BYTES} bytes each) "
        "by compiled tables, calls of the machines included",
        unit="states / s",
        baseline_name=f"plain Python search, first {PREFIX:,} states",
        prepare=compare(partial(rate, "compiled"), measure_plainest, (*LARGE, PREFIX), (*LITTLE, 200), compile_kernel),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=10,
        aim="1 000 000 states / s",
    ),
    BenchRow(
        name="explore-python",
        about=f"exploring {MEDIUM[0]} ({MEDIUM[1]}) by tables in pure Python",
        unit="states / s",
        baseline_name=f"plain Python search, first {PREFIX:,} states",
        prepare=compare(partial(rate, "plain"), measure_plainest, (*MEDIUM, PREFIX), (*LITTLE, 200)),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=3,
        aim="70 000 states / s",
    ),
    BenchRow(
        name="explore-spin",
        about=f"exploring {LARGE[0]} ({LARGE[1]}), against SPIN's search alone (generated C, breadth first)",
        unit="states / s",
        baseline_name=f"SPIN on the entries of {SPIN[0]} ({SPIN[1]})",
        prepare=prepare_spin,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=3,
        aim="1 000 000 states / s",
    ),
    BenchRow(
        name="explore-two",
        about=f"walking {SPIN[0]} ({SPIN[1]}) in two threads, each with the states that fall to it by their digests",
        unit="states / s",
        baseline_name="two walkers side by side, each with all states",
        prepare=prepare_two,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=0.8,
    ),
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
        about=f"every obligation of {FAIR[0]} ({FAIR[1]}), more than a million states, once it is explored",
        unit="s",
        baseline_name="exploring it",
        prepare=prepare_large,
        ratio=RatioKind.OURS_OVER_BASELINE,
        aim="10 s for 1 000 000 states",
    ),
)
