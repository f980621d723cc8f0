"""The row about whole runs: what the world costs around the steps of its machines.

A stormy run is made once with every call of its nodes noted down; the baseline makes the same calls on fresh nodes that
nobody watches: no network, no stores, no applications, no monitors, no trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from unittest.mock import patch

import msgspec

from statemachines.kernel import Fsm, Node, ProtocolError
from statemachines_bench.measure import ns_per_event
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

SEEDS: Final = range(4)

CALLS: Final = ("feed", "take", "fire")
"""Methods of a node that a host calls; those that they call themselves are not noted."""


class Birth(msgspec.Struct, frozen=True):
    """A node as it was made."""

    fsm: Fsm[Any]
    record: Any
    name: str
    now_ns: int


class Fed(msgspec.Struct, frozen=True):
    """A call: of which node (in the order of their births), which method, with what."""

    node: int
    method: str
    arguments: tuple[Any, ...]


class StormRun:
    """What all nodes of a run were asked for, in order; and the nodes, as they were in the end."""

    def __init__(self) -> None:
        self.events: list[Birth | Fed] = []
        self.nodes: list[Node[Any]] = []

    def replay(self) -> list[Node[Any]]:
        """The same on fresh nodes, which are watched by nobody."""
        nodes: list[Node[Any]] = []
        for event in self.events:
            if type(event) is Birth:
                nodes.append(Node(event.fsm, event.record, name=event.name, now_ns=event.now_ns))
            else:
                with suppress(ProtocolError):
                    getattr(nodes[event.node], event.method)(*event.arguments)  # type: ignore[union-attr]
        return nodes


@contextmanager
def note_lives() -> Iterator[StormRun]:
    """Within, whatever becomes of any node is noted down."""
    life = StormRun()
    numbers: dict[int, int] = {}
    inside = False
    make, methods = Node.__init__, {name: getattr(Node, name) for name in CALLS}

    def born(node: Node[Any], fsm: Fsm[Any], record: Any, *, name: str, now_ns: int, **more: Any) -> None:
        make(node, fsm, record, name=name, now_ns=now_ns, **more)
        numbers[id(node)] = len(life.nodes)
        life.nodes.append(node)
        life.events.append(Birth(fsm, record, name, now_ns))

    def noting(name: str) -> Any:
        call = methods[name]

        def noted_call(node: Node[Any], *arguments: Any) -> Any:
            nonlocal inside
            if inside:
                return call(node, *arguments)
            life.events.append(Fed(numbers[id(node)], name, arguments))
            inside = True
            try:
                return call(node, *arguments)
            finally:
                inside = False

        return noted_call

    with patch.multiple(Node, __init__=born, **{name: noting(name) for name in CALLS}):
        yield life


def stormy_run(seed: int) -> Any:
    """A whole run, every monitor and the trace on."""
    from statemachines_sim.scenario import find_scenario
    from statemachines_sim.world import World

    world = World(find_scenario("storm"), seed)
    world.run()
    return world


def prepare(size: Size) -> TurnPair:
    seeds = size.pick(SEEDS, range(1))
    lives, rows = [], 0
    for seed in seeds:
        with note_lives() as life:
            rows += len(stormy_run(seed).rows)
        assert [node.record for node in life.replay()] == [node.record for node in life.nodes]
        lives.append(life)

    def per_second(spent_ns: float) -> float:
        return rows * 1e9 / spent_ns

    def ours() -> float:
        return per_second(ns_per_event(lambda: [stormy_run(seed) for seed in seeds], 1))

    def baseline() -> float:
        return per_second(ns_per_event(lambda: [life.replay() for life in lives], 1))

    return TurnPair(ours, baseline)


ROWS: Final = (
    BenchRow(
        name="sim-storm",
        about="whole stormy runs, every monitor and the trace on, against their machines' steps alone",
        unit="trace rows / s",
        baseline_name="the same calls of bare Nodes, in a loop",
        prepare=prepare,
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
)
