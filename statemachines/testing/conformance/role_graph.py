"""RoleGraph: the states of a bounded system of a role, and what each input does in each of them.

A node is a record of the shipped machine with the time that is left of each of its timers, one tick apart; an edge is
one input, with what it causes..  A path in it is a run: the table's states alone would have paths that no run takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from enum import Enum
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import msgspec
import networkx as nx
from msgspec.structs import replace

from statemachines.kernel import Effects, Map, ProtocolError, in_order
from statemachines.kernel.pmap import enc_hook
from statemachines.testing.conformance.conformance_run import Begin, Cell, FedInput, Move, Wait
from statemachines.testing.conformance.relation import STOPPED, Output, OutputsOf
from statemachines.testing.conformance.role import ConformanceRole, PlayedWorld
from statemachines_spec.explorer.actor import Watch
from statemachines_spec.explorer.party import TimedParty, age_party, begin, list_due, step_party

NODES_MAX: Final = 4_000
"""A system with more states is explored so far, and its coverage says so."""

PAIRS_MAX: Final = 40
"""So many pairs of states are looked at to tell two states apart."""

FIRINGS_MAX: Final = 100

FAR_TICKS: Final = 64
"""A timer that is set for later than this is not counted: no path of the graph waits for it."""

OVER: Final = "over"
BEGIN: Final = "begin"
Node = tuple[int, int] | str
"""(number of the start, number of the state); OVER: the instance has ended; BEGIN: another begins."""

TICK: Final = Wait(0)
"""One tick; its length is the role's."""


class GraphOutcome(msgspec.Struct, frozen=True):
    """What comes of an input in a state: the state after it (None: the instance has ended), what is seen, the rows."""

    party: TimedParty | None
    outputs: tuple[Output, ...]
    cells: tuple[Cell, ...]
    effects: Effects = ()


class Edge(msgspec.Struct, frozen=True):
    """One input: its `move`, the node it leads to, what is seen, the rows."""

    source: Node
    move: Move
    dest: Node
    outputs: tuple[Output, ...]
    cells: tuple[Cell, ...]


class RoleGraph:
    """All starts of a role..  `cells`: the rows that can be taken within the bounds, `late_cells` those of them that
    only a timer takes that was taken back and fires all the same; `pairs`: the rows of the machine itself that can
    follow each other; `is_whole`: no start has more than `NODES_MAX` states."""

    def __init__(self, role: ConformanceRole) -> None:
        self.role = role
        self.timing = replace(role.timing, authority=role.fsm.authority)
        self.is_whole = True
        self.parties: dict[Node, TimedParty] = {}
        self.edges: dict[Node, list[Edge]] = {OVER: []}
        self._encoder = msgspec.msgpack.Encoder(enc_hook=enc_hook)
        self._outcomes: dict[tuple[bytes, type[Any], Hashable], GraphOutcome | None] = {}
        self._separated: dict[tuple[Node, bytes], tuple[list[Move], Node] | None] = {}
        self._outputs = OutputsOf(role.relation)
        for number, _ in enumerate(role.starts):
            self._explore(number)
        told = frozenset(cell for edges in self.edges.values() for edge in edges for cell in edge.cells)
        self.late_cells = frozenset(self._late_cells()) - told
        self.cells = told | self.late_cells

    @cached_property
    def pairs(self) -> frozenset[tuple[int, int]]:
        """Rows of the machine itself that can follow each other."""
        found: set[tuple[int, int]] = set()
        last: dict[Node, set[int]] = {}
        for edges in self.edges.values():
            for edge in edges:
                rows = self.rows_of(edge.cells)
                found.update(pairwise(rows))
                if rows:
                    last.setdefault(edge.dest, set()).add(rows[-1])
        changed = True
        while changed:  # an input without a row of the machine (time that passes) hands the last row on
            changed = False
            for node, edges in self.edges.items():
                for edge in edges:
                    if not self.rows_of(edge.cells) and edge.dest != OVER:
                        more = last.get(node, set()) - last.setdefault(edge.dest, set())
                        last[edge.dest] |= more
                        changed = changed or bool(more)
        for node, edges in self.edges.items():
            for edge in edges:
                rows = self.rows_of(edge.cells)
                found.update((before, rows[0]) for before in last.get(node, ()) if rows)
        return frozenset(found)

    def rows_of(self, cells: Iterable[Cell]) -> list[int]:
        """The rows of the machine itself among these, without its child machines."""
        return [row for machine, row, _ in cells if machine == self.role.fsm.full_name]

    @cached_property
    def network(self) -> nx.DiGraph[Node]:
        """The nodes, for shortest paths; from each of them another instance may begin."""
        graph: nx.DiGraph[Node] = nx.DiGraph()
        for node, edges in self.edges.items():
            graph.add_edge(node, BEGIN)
            graph.add_edges_from((node, edge.dest) for edge in edges if edge.dest != node)
        graph.add_edges_from((BEGIN, (number, 0)) for number, _ in enumerate(self.role.starts))
        return graph

    def moves_along(self, path: list[Node]) -> Iterator[Move]:
        """The inputs that lead along a path of the network."""
        for source, dest in pairwise(path):
            if dest == BEGIN:
                continue
            if source == BEGIN:
                yield Begin(int(dest[0]))
            else:
                yield next(edge.move for edge in self.edges[source] if edge.dest == dest)

    # -- exploring ----------------------------------------------------------------------------------------------

    def _explore(self, number: int) -> None:
        role, start = self.role, self.role.starts[number]
        first = begin(role.fsm, start.record, timing=self.timing)
        assert isinstance(first, TimedParty)
        first = _without_far(first)
        world = start.world.begin()
        known: dict[bytes, Node] = {self._key(first) + self._encoder.encode(world): (number, 0)}
        self.parties[number, 0] = first
        worlds: dict[Node, PlayedWorld] = {(number, 0): world}
        queue: deque[Node] = deque([(number, 0)])
        while queue:
            node = queue.popleft()
            party = self.parties[node]
            edges = self.edges[node] = []
            before = self._key(party)
            moves: list[Move] = [*map(FedInput, start.next_inputs(party.record, worlds[node])), TICK]
            for move in moves:
                outcome = self._outcome(party, before, move)
                if outcome is None:
                    continue
                dest: Node = OVER
                if outcome.party is not None:
                    if not start.bound(outcome.party.record):
                        continue
                    event = move.event if isinstance(move, FedInput) else None
                    world = start.world.after(worlds[node], event, outcome.effects)
                    key = self._key(outcome.party) + self._encoder.encode(world)
                    if key not in known:
                        if len(known) == NODES_MAX:
                            self.is_whole = False
                            continue
                        known[key] = (number, len(known))
                        self.parties[known[key]] = outcome.party
                        worlds[known[key]] = world
                        queue.append(known[key])
                    dest = known[key]
                if dest != node or outcome.cells:
                    edges.append(Edge(node, move, dest, outcome.outputs, outcome.cells))

    def _key(self, party: TimedParty) -> bytes:
        return self._encoder.encode(party)

    def outcome(self, party: TimedParty, move: Move) -> GraphOutcome | None:
        """What comes of an input; None: the table refuses it."""
        return self._outcome(party, self._key(party), move)

    def _outcome(self, party: TimedParty, key: bytes, move: Move) -> GraphOutcome | None:
        event: Hashable = move.event if isinstance(move, FedInput) else None
        entry = (key, type(event), event)
        if entry not in self._outcomes:
            self._outcomes[entry] = self._tick(party) if event is None else self._feed(party, event)
        return self._outcomes[entry]

    def _feed(self, party: TimedParty, event: Any) -> GraphOutcome | None:
        try:
            return self._settle(self._take(party, event))
        except ProtocolError:
            return None

    def _tick(self, party: TimedParty) -> GraphOutcome | None:
        after = age_party(self.timing, party, 1)
        assert after is None or isinstance(after, TimedParty)
        return None if after is None else self._settle(GraphOutcome(after, (), ()))

    def _settle(self, outcome: GraphOutcome) -> GraphOutcome | None:
        """With what is due fired."""
        registry = self.role.fsm.timer_registry()
        for _ in range(FIRINGS_MAX):
            due = [] if outcome.party is None else list_due(outcome.party, self.timing.authority)
            if outcome.party is None or not due:
                return outcome
            timer, key = due[0]
            after = self._take(outcome.party, registry[timer](key))
            both = outcome.effects + after.effects
            outcome = GraphOutcome(after.party, outcome.outputs + after.outputs, outcome.cells + after.cells, both)
        return None

    def _take(self, party: TimedParty, event: Any) -> GraphOutcome:
        watch: Watch = []
        after, effects = step_party(self.role.fsm, party, event, "", watch, timing=self.timing)
        assert isinstance(after, TimedParty)
        stops = after.record.status in self.role.fsm.final
        outputs = self._outputs.of(effects)
        if stops and STOPPED not in outputs:
            outputs = (*outputs, STOPPED)
        cells = tuple((seen.full_machine, seen.row, seen.source) for seen in watch if seen.row >= 0)
        return GraphOutcome(None if stops else _without_far(after), outputs, cells, effects)

    def _late_cells(self) -> Iterator[Cell]:
        """Rows that ignore a timer which an event has taken back."""
        fsm = self.role.fsm
        for timer in fsm.timers:
            slot = (timer.name, "")
            after = {
                edge.dest
                for node, party in self.parties.items()
                if slot in party.timers
                for edge in self.edges[node]
                if edge.move is not TICK and edge.dest != OVER and slot not in self.parties[edge.dest].timers
            }
            queue = deque(after)
            while queue:
                for edge in self.edges[queue.popleft()]:
                    if edge.dest not in after and edge.dest != OVER and slot not in self.parties[edge.dest].timers:
                        after.add(edge.dest)
                        queue.append(edge.dest)
            states = {self.parties[node].record.status for node in after}
            for state in sorted(states, key=lambda one: str(one.value)):
                for line in fsm.cell(state, timer.event)[:1]:
                    if line.kind == "ignore":
                        yield fsm.full_name, line.number, str(state.value)

    # -- telling states apart -----------------------------------------------------------------------------------

    def separating(self, node: Node, other: TimedParty) -> tuple[list[Move], Node] | None:
        """A short sequence of inputs to which `node` and the state `other` answer differently, and where it leads from
        `node`; None: none was found."""
        entry = (node, self._key(other))
        if entry not in self._separated:
            self._separated[entry] = self._separate(node, other)
        return self._separated[entry]

    def _separate(self, node: Node, other: TimedParty) -> tuple[list[Move], Node] | None:
        queue: deque[tuple[Node, TimedParty, list[Move]]] = deque([(node, other, [])])
        seen = {(node, self._key(other))}
        while queue:
            one, two, path = queue.popleft()
            clock = self._apart_by_time(one, two)
            if clock is not None:
                return path + clock[0], clock[1]
            for edge in self.edges[one]:
                if edge.move is TICK:
                    continue
                outcome = self._answer_of(two, edge.move)
                if outcome is None or outcome.outputs != edge.outputs or (outcome.party is None) != (edge.dest == OVER):
                    return [*path, edge.move], edge.dest
                if outcome.party is None or edge.dest == OVER:
                    continue
                key = (edge.dest, self._key(outcome.party))
                if key not in seen and len(seen) < PAIRS_MAX and outcome.party != self.parties[edge.dest]:
                    seen.add(key)
                    queue.append((edge.dest, outcome.party, [*path, edge.move]))
        return None

    def tells_apart(self, node: Node, other: TimedParty, sequence: list[Move]) -> bool:
        """Whether `node` and the state `other` answer differently to these inputs."""
        two: TimedParty | None = other
        for move in sequence:
            edge = next((edge for edge in self.edges[node] if edge.move == move), None)
            outcome = None if two is None else self._answer_of(two, move)
            if edge is None:
                return False
            if outcome is None or outcome.outputs != edge.outputs or (outcome.party is None) != (edge.dest == OVER):
                return True
            node, two = edge.dest, outcome.party
        return False

    def _answer_of(self, party: TimedParty, move: Move) -> GraphOutcome | None:
        """What comes of an input in a state that no run may reach: a step that raises is an answer of its own."""
        try:
            return self.outcome(party, move)
        except Exception:  # the record is one that no table has: whatever it does, it is different
            return None

    def _apart_by_time(self, one: Node, two: TimedParty) -> tuple[list[Move], Node] | None:
        """Whether letting time pass alone tells them apart."""
        path: list[Move] = []
        for _ in range(FIRINGS_MAX):
            edge = next((edge for edge in self.edges[one] if edge.move is TICK), None)
            if edge is None:
                return None
            path.append(TICK)
            outcome = self._answer_of(two, TICK)
            if outcome is None or outcome.outputs != edge.outputs:
                return path, edge.dest
            if outcome.party is None or edge.dest == OVER or outcome.party == self.parties[edge.dest]:
                return None
            one, two = edge.dest, outcome.party
        return None

    def list_mistaken(self, source: Node, dest: Node) -> Iterator[TimedParty]:
        """States that an implementation may be in after an edge if it forgets a part of what changes: one field is as
        it was, or one timer; or it is in another state of the table."""
        after = self.parties[dest]
        before = self.parties.get(source)
        if before is not None:
            for record in _partly(before.record, after.record):
                moved = self.timing.move_stamps(record, 0)  # what grows no older, or is not read, is no mistake
                if moved != after.record:
                    yield _with_record(after, moved)
            yield from _other_timers(before, after)
        yield from _later_timers(after)
        for status in self.role.fsm.states:
            if status is not after.record.status and status not in self.role.fsm.final:
                yield _with_record(after, replace(after.record, status=status))


def _without_far(party: TimedParty) -> TimedParty:
    """The state without what is left of timers that are far away."""
    if all(left is None or left <= FAR_TICKS for left in party.left):
        return party
    left = tuple(None if one is not None and one > FAR_TICKS else one for one in party.left)
    return TimedParty(party.record, party.timers, left)


def _with_record(party: TimedParty, record: Any) -> TimedParty:
    return TimedParty(record, party.timers, party.left)


def _partly(before: Any, after: Any) -> Iterator[Any]:
    """`after` with one of the places where it differs from `before` as it was."""
    if isinstance(after, msgspec.Struct) and type(before) is type(after):
        for field in after.__struct_fields__:
            old, new = getattr(before, field), getattr(after, field)
            if old is not new and old != new:
                yield from (replace(after, **{field: one}) for one in _partly(old, new))
                if isinstance(new, msgspec.Struct | Map) and not isinstance(new, Enum):
                    yield replace(after, **{field: old})
    elif isinstance(after, Map) and isinstance(before, Map):
        for key, new in in_order(after):
            if key not in before:
                yield after.delete(key)
            elif before[key] != new:
                yield from (after.set(key, one) for one in _partly(before[key], new))
        yield from (after.set(key, old) for key, old in in_order(before) if key not in after)
    else:
        yield before


def _other_timers(before: TimedParty, after: TimedParty) -> Iterator[TimedParty]:
    """`after` with one timer that was set, set anew or taken back as it was."""
    old = dict(zip(before.timers, before.left, strict=True))
    new = dict(zip(after.timers, after.left, strict=True))
    for timer in sorted({*old, *new}):
        if old.get(timer, "") != new.get(timer, ""):
            left = {**new, timer: old[timer]} if timer in old else {one: at for one, at in new.items() if one != timer}
            yield _with_timers(after, left)


def _later_timers(after: TimedParty) -> Iterator[TimedParty]:
    """`after` with one timer set for a tick later: an event that should change nothing has set it anew."""
    for timer, left in zip(after.timers, after.left, strict=True):
        if left is not None:
            yield _with_timers(after, {**dict(zip(after.timers, after.left, strict=True)), timer: left + 1})


def _with_timers(party: TimedParty, left: dict[tuple[str, str], int | None]) -> TimedParty:
    timers = tuple(sorted(left))
    return TimedParty(party.record, timers, tuple(left[one] for one in timers))
