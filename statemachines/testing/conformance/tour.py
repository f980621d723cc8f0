"""Tour: one deterministic list of inputs that takes every row that can be taken, and looks where each of them has led.

From where it is the tour goes the shortest way to the next row that was not taken, or not by this input, or not at this
distance from its deadlines.  After a row it plays sequences that
tell the state it led to from those in which an implementation would be that had forgotten a part of what the row
changes: a wrong next state shows only later.  Where one sequence has left the state, the next begins from the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec
import networkx as nx

from statemachines.kernel import Map, in_order
from statemachines.testing.conformance.conformance_run import Cell, FedInput, Move, Wait
from statemachines.testing.conformance.role import ConformanceRole
from statemachines.testing.conformance.role_graph import BEGIN, OVER, TICK, Edge, Node, RoleGraph
from statemachines_spec.explorer.party import TimedParty

SEQUENCES_MAX: Final = 12
"""So many sequences are played after one row."""


DISTANCES_MAX: Final = 3_000
"""Rows are also taken at all combinations of what is left of the timers, where there are no more of such; else at each
distance from each single deadline."""

FLAGGED_MAX: Final = 600
"""Rows are also taken under all flags of their records in systems that have no more of such."""


EDGES_MAX: Final = 400
"""In systems that have no more of them, every input that changes something is taken in every state."""


class InputTarget(NamedTuple):
    """A row in a state, the input that takes it, and how long its timers still run: one row may be taken for several
    reasons, and what a deadline is counted from shows at some distance from it only."""

    cell: Cell
    kind: type[Any] | None
    move: Move
    left: tuple[int | None, ...]


class Distance(NamedTuple):
    """A row in a state, and how long one timer still runs."""

    cell: Cell
    timer: tuple[str, str]
    left: int | None


class ChangingRow(NamedTuple):
    """A row in a state, and a field of the record, or of what that holds, which it changes."""

    cell: Cell
    field: str


class FlaggedRow(NamedTuple):
    """A row in a state, the kind of input that takes it, and all that the record says by yes or no, or by a status."""

    cell: Cell
    kind: type[Any] | None
    flags: tuple[Any, ...]


class EdgeTarget(NamedTuple):
    """An input in one very state."""

    source: Node
    move: Move


Target = InputTarget | Distance | ChangingRow | FlaggedRow | EdgeTarget


class Tour:
    """The tour of a graph; iterating gives its moves..  `unseparated`: rows after which no sequence was found for some
    wrong state, and for how many."""

    def __init__(self, graph: RoleGraph) -> None:
        self.graph = graph
        self.unseparated: dict[Cell, int] = {}
        self._at: Node = BEGIN
        self._flags = {node: tuple(_flags_of(party.record)) for node, party in graph.parties.items()}
        self._flagged = self._few_flags()
        self._small = self._few_edges()
        self._combined = self._few_distances()
        self._wanted = {
            node: [(edge, frozenset(self._targets(edge))) for edge in edges if edge.cells]
            for node, edges in graph.edges.items()
            if node != OVER
        }
        self._left = set().union(*(targets for edges in self._wanted.values() for _, targets in edges))
        self._made: list[Move] = []
        self._rest = self._joined(self._all())

    def __iter__(self) -> Iterator[Move]:
        """The moves, made as they are wanted: an implementation that fails at once waits for no others."""
        place = 0
        while True:
            if place == len(self._made):
                move = next(self._rest, None)
                if move is None:
                    return
                self._made.append(move)
            yield self._made[place]
            place += 1

    @property
    def moves(self) -> tuple[Move, ...]:
        """All of them."""
        return tuple(self)

    def _all(self) -> Iterator[Move]:
        while self._left:
            edge, targets = self._next_edge()
            path = nx.shortest_path(self.graph.network, self._at, edge.source)
            yield from self.graph.moves_along(path)
            yield edge.move
            self._at = edge.dest
            is_looked_at = all(isinstance(one, FlaggedRow) for one in targets & self._left)
            self._left -= targets
            if not is_looked_at:
                yield from self._look(edge)

    def _targets(self, edge: Edge) -> Iterator[Target]:
        """What an edge takes: each of its rows, with this very input, at this distance from every deadline; and in a
        small system with each of the answers to what the record knows to be so or not."""
        kind = _kind_of(edge.move)
        party = self.graph.parties[edge.source]
        left = party.left if self._combined else ()
        yield from (InputTarget(cell, kind, edge.move, left) for cell in edge.cells)
        if not self._combined:
            distances = list(zip(party.timers, party.left, strict=True))
            yield from (Distance(cell, *one) for cell in edge.cells for one in distances)
        if edge.dest != OVER and edge.dest != edge.source:
            fields = _changed_fields(party.record, self.graph.parties[edge.dest].record, "")
            yield from (ChangingRow(cell, field) for field in dict.fromkeys(fields) for cell in edge.cells)
        if edge.source[0] in self._flagged:
            yield from (FlaggedRow(cell, kind, self._flags[edge.source]) for cell in edge.cells)
        if edge.source[0] in self._small and edge.dest != edge.source:
            yield EdgeTarget(edge.source, edge.move)

    def _few_flags(self) -> set[int]:
        """The starts in which a row has few of them."""
        found: dict[int, set[FlaggedRow]] = {}
        for node, edges in self.graph.edges.items():
            if isinstance(node, tuple):
                flagged = found.setdefault(node[0], set())
                flagged.update(
                    FlaggedRow(cell, _kind_of(edge.move), self._flags[node]) for edge in edges for cell in edge.cells
                )
        return {start for start, flagged in found.items() if len(flagged) <= FLAGGED_MAX}

    def _few_edges(self) -> set[int]:
        """The starts that have few of them."""
        found: dict[int, int] = {}
        for node, edges in self.graph.edges.items():
            if isinstance(node, tuple):
                found[node[0]] = found.get(node[0], 0) + len(edges)
        return {start for start, count in found.items() if count <= EDGES_MAX}

    def _few_distances(self) -> bool:
        """Whether rows are taken at few combinations of distances from their deadlines."""
        found: set[tuple[Cell, Move, tuple[int | None, ...]]] = set()
        for node, party in self.graph.parties.items():
            found.update((cell, edge.move, party.left) for edge in self.graph.edges[node] for cell in edge.cells)
            if len(found) > DISTANCES_MAX:
                return False
        return True

    def _next_edge(self) -> tuple[Edge, frozenset[Target]]:
        """The nearest edge that takes what was not taken."""
        for layer in nx.bfs_layers(self.graph.network, [self._at]):
            for node in layer:
                wanted = self._wanted.get(node, [])
                while wanted:
                    if not self._left.isdisjoint(wanted[-1][1]):
                        return wanted[-1]
                    wanted.pop()
        raise AssertionError("every row of the graph can be reached from its starts")

    def _look(self, edge: Edge) -> Iterator[Move]:
        """Sequences that tell where the edge has led from where it should not."""
        if edge.dest == OVER:
            return
        graph = self.graph
        others = [*graph.list_mistaken(edge.source, edge.dest), *self._other_states(edge)]
        played = 0
        while others and played < SEQUENCES_MAX:
            other = others.pop(0)
            found = graph.separating(edge.dest, other)
            if found is None:
                self.unseparated[edge.cells[0]] = self.unseparated.get(edge.cells[0], 0) + 1
                continue
            sequence, end = found
            if played:
                yield from self._again(edge)
            yield from sequence
            played += 1
            self._at = end
            others = [one for one in others if not graph.tells_apart(edge.dest, one, sequence)]

    def _other_states(self, edge: Edge) -> Iterator[TimedParty]:
        """Where an input changes nothing in a small system, an implementation that it does change may be anywhere."""
        if edge.dest == edge.source and edge.source[0] in self._small:
            yield from (
                party for node, party in self.graph.parties.items() if node[0] == edge.source[0] and node != edge.source
            )

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


_TOURS: Final[dict[int, Tour]] = {}


def tour_of(role: ConformanceRole) -> Tour:
    """The tour of a role; it is made once in a process."""
    known = _TOURS.get(id(role))
    if known is None or known.graph.role is not role:
        known = _TOURS[id(role)] = Tour(RoleGraph(role))
    return known


def _kind_of(move: Move) -> type[Any] | None:
    return type(move.event) if isinstance(move, FedInput) else None


def _flags_of(value: Any) -> Iterator[Any]:
    """What stands in a record as yes or no, or as a status, in order."""
    if isinstance(value, bool | Enum):
        yield value
    elif isinstance(value, Map):
        for _, one in in_order(value):
            yield from _flags_of(one)
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from _flags_of(getattr(value, field))


def _changed_fields(before: Any, after: Any, path: str) -> Iterator[str]:
    """The fields that differ, by their paths without the keys of maps."""
    if isinstance(after, msgspec.Struct) and type(before) is type(after):
        for field in after.__struct_fields__:
            old, new = getattr(before, field), getattr(after, field)
            if old is not new and old != new:
                yield from _changed_fields(old, new, f"{path}.{field}")
    elif isinstance(after, Map) and isinstance(before, Map):
        for key, new in in_order(after):
            if key not in before:
                yield f"{path}+"
            elif before[key] is not new and before[key] != new:
                yield from _changed_fields(before[key], new, path)
        if any(key not in after for key in before):
            yield f"{path}-"
    else:
        yield path
