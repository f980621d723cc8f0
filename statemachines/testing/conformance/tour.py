"""Tour: one deterministic list of inputs that takes every row that can be taken, and looks where each of them has led.

From where it is the tour goes the shortest way to the next row that was not taken.  After a row it plays sequences that
tell the state it led to from those in which an implementation would be that had forgotten a part of what the row
changes: a wrong next state shows only later.  Where one sequence has left the state, the next begins from the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import networkx as nx

from statemachines.testing.conformance.conformance_run import Begin, Cell, Move, Wait
from statemachines.testing.conformance.role_graph import BEGIN, OVER, TICK, Edge, Node, RoleGraph

SEQUENCES_MAX: Final = 12
"""So many sequences are played after one row."""


class Tour:
    """The tour of a graph.  `moves`: what to do; `unreached`: rows that no path leads to; `unseparated`: rows after
    which no sequence was found for some state, and for how many."""

    def __init__(self, graph: RoleGraph) -> None:
        self.graph = graph
        self.unseparated: dict[Cell, int] = {}
        self._left: set[Cell] = set(graph.cells - graph.late_cells)
        self._at: Node = BEGIN
        self._wanted = {
            node: [edge for edge in edges if edge.cells] for node, edges in graph.edges.items() if node != OVER
        }
        self.moves = tuple(self._joined(self._all()))

    def _all(self) -> Iterator[Move]:
        while self._left:
            edge = self._next_edge()
            path = nx.shortest_path(self.graph.network, self._at, edge.source)
            yield from self.graph.moves_along(path)
            yield edge.move
            self._at = edge.dest
            new = self._left.intersection(edge.cells)
            self._left -= new
            yield from self._look(edge, new)

    def _next_edge(self) -> Edge:
        """The nearest edge that takes a row that was not taken."""
        for layer in nx.bfs_layers(self.graph.network, [self._at]):
            for node in layer:
                for edge in self._wanted.get(node, ()):
                    if not self._left.isdisjoint(edge.cells):
                        return edge
        raise AssertionError("every row of the graph can be reached from its starts")

    def _look(self, edge: Edge, cells: set[Cell]) -> Iterator[Move]:
        """Sequences that tell where the edge has led from where it should not."""
        if edge.dest == OVER:
            return
        graph = self.graph
        others = list(graph.mistaken(edge.source, edge.dest))
        played = 0
        while others and played < SEQUENCES_MAX:
            other = others.pop(0)
            found = graph.separating(edge.dest, other)
            if found is None:
                for cell in cells:
                    self.unseparated[cell] = self.unseparated.get(cell, 0) + 1
                continue
            sequence, end = found
            if played:
                yield from self._again(edge)
            yield from sequence
            played += 1
            self._at = end
            others = [one for one in others if not graph.tells_apart(edge.dest, one, sequence)]

    def _again(self, edge: Edge) -> Iterator[Move]:
        path = nx.shortest_path(self.graph.network, BEGIN, edge.source)
        yield from self.graph.moves_along(path)
        yield edge.move

    def _joined(self, moves: Iterator[Move]) -> Iterator[Move]:
        """Ticks that follow each other as one wait."""
        ticks = 0
        for move in moves:
            if move is TICK:
                ticks += 1
                continue
            if ticks:
                yield Wait(ticks * self.graph.timing.tick_ns)
                ticks = 0
            yield move
        if ticks:
            yield Wait(ticks * self.graph.timing.tick_ns)


def runs_of(moves: tuple[Move, ...]) -> Iterator[tuple[Move, ...]]:
    """The moves of each instance."""
    run: list[Move] = []
    for move in moves:
        if isinstance(move, Begin) and run:
            yield tuple(run)
            run = []
        run.append(move)
    if run:
        yield tuple(run)
