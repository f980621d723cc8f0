"""CompiledFairGraph: the graph of what can happen without faults, made by the compiled loops of `fair_graph_numba`.

Memory for each node: its row (4 bytes a component and 4 for the network), 16 to 32 in the table, 8 for its first link,
and 8 for each link; 33 while obligations are judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from statemachines.kernel import ConfigurationError
from statemachines_spec.explorer import moves
from statemachines_spec.explorer.moves import State
from statemachines_spec.explorer.property import Eventually
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.walker_compiled import CompiledWalker
from statemachines_spec.liveness import fair_graph_numba as loops
from statemachines_spec.liveness.fair_graph import CompleteWalker, FairGraph, Opening, R, TooLarge
from statemachines_spec.liveness.fair_graph_numba import (
    AT,
    CHUNK,
    CROWDED,
    DONE,
    FILL,
    GROW,
    LINKS,
    MISSING,
    MOVES_MAX,
    NETS,
    NODES,
    UNTIL,
)
from statemachines_spec.liveness.faultless_moves import UNKNOWN, Tail

CHUNK_NODES = 200_000
PLANTED_AT_ONCE = 1 << 19
LINKS_PER_NODE = 16
"""Links that a graph of the most states may have, on an average."""


class CompiledFairGraph(FairGraph):
    """The same graph in numpy arrays, up to the numbers of its nodes."""

    name = "compiled"

    def __init__(self, walker: CompleteWalker, entries: Entries, states_max: int, room: int | None) -> None:
        super().__init__(walker, entries, states_max, room)
        width, places = len(entries.components), self.tail.network.in_flight
        self.loom = Loom(entries, self.tail)
        self.control = np.zeros(loops.CONTROLS, np.int64)
        begin = walker.count + 4 * MOVES_MAX
        self.rows = np.empty((begin, width + 1), np.int32)
        self.fillings = np.empty((4 * MOVES_MAX, places), np.int32)
        self.row_table = np.zeros(1 << (2 * begin).bit_length(), np.uint64)
        self.net_table = np.zeros(1 << (8 * MOVES_MAX).bit_length(), np.uint64)
        self.first = np.zeros(begin + 1, np.int64)
        self.target = np.empty(4 * begin, np.int32)
        self.event = np.empty(4 * begin, np.int32)
        self.missing = np.zeros((2 * MOVES_MAX, 2), np.int64)
        self.room = np.zeros((4, max(width + 1, places, loops.SENDS_MAX, loops.CALLS_MAX)), np.int64)
        self.node_of = np.empty(walker.count, np.int32)

    @property
    def count(self) -> int:
        return int(self.control[NODES])

    @property
    def size(self) -> int:
        return int(self.control[LINKS])

    def state(self, node: int) -> State:
        row = [int(value) for value in self.rows[node]]
        filling = [int(value) for value in self.fillings[row[-1]]]
        return (*row[:-1], *(0,) * self.tail.budgets, *filling)

    def grow(self) -> Iterator[None]:
        yield from self._plant()
        while True:
            self.control[UNTIL] = self.control[AT] + CHUNK_NODES
            why = loops.weave(self.loom.tables(), self._arrays())
            if why == DONE:
                break
            if why == CROWDED:
                rule = "one state has more transitions than this; fewer messages in flight?"
                raise ConfigurationError("transitions", MOVES_MAX, rule)
            if why == FILL or self.control[MISSING]:
                for event, local in self.missing[: self.control[MISSING]]:
                    self.entries.entry(int(event), int(local))
                self.control[MISSING] = 0
            if why == CHUNK:
                yield
            elif why == GROW:
                self._widen()
        self.first = self.first[: self.count + 1]
        self.target = self.target[: self.size]
        self.event = self.event[: self.size]
        self.row_table = np.zeros(0, np.uint64)

    def open_nodes(self, one: Eventually) -> Any:
        opens = Opening(self.entries, one)
        number = np.zeros(self.count, np.int64)
        known: list[list[int]] = []
        for view, place in enumerate(opens.places):
            column = self.rows[: self.count, place]
            values = np.zeros(len(self.entries.components[place].locals), np.int64)
            for local in np.unique(column):
                values[local] = opens.value(view, int(local))
            known.append([int(value) for value in np.unique(values)])
            number = number * len(known[-1]) + np.searchsorted(known[-1], values)[column]
        found, back = np.unique(number, return_inverse=True)
        verdicts = np.array([opens.of(_apart(int(value), known)) for value in found], np.uint8)
        return verdicts[back]

    def open_states(self, is_open: Sequence[int]) -> int:
        return int(np.asarray(is_open)[self.node_of].sum(dtype=np.int64))

    def run(self, function: Callable[..., R], *arguments: Any) -> R:
        return function(*arguments)

    def zeros(self, size: int, value: int = 0) -> Any:
        return np.full(size, value, np.int32)

    def where(self, values: Any, wanted: int) -> list[int]:
        return [int(place) for place in np.nonzero(np.asarray(values) == wanted)[0]]

    # -- the first nodes ----------------------------------------------------------------------------------------

    def _plant(self) -> Iterator[None]:
        """The nodes of reachable states, by level."""
        count = self.walker.count
        for begin in range(0, count, PLANTED_AT_ONCE):
            states = self._unpacked(begin, min(count, begin + PLANTED_AT_ONCE))
            nodes = self.node_of[begin : begin + len(states)]
            done = 0
            while (done := loops.plant(self.loom.tables(), self._arrays(), states, nodes, done)) < len(states):
                self._widen()
            yield
        reached, index = np.unique(self.node_of, return_index=True)
        assert len(reached) == self.count
        self.depth = (np.searchsorted(np.array(self.walker.levels), index, side="right") - 1).astype(np.int32)

    def _unpacked(self, begin: int, end: int) -> Any:
        """Reachable states as rows: local states, then messages."""
        assert isinstance(self.walker, CompiledWalker)
        (shard,) = self.walker.shards
        layout, words = shard.layout, shard.states[begin:end]
        columns = [*range(self.tail.width), *range(self.tail.net, len(layout.bits))]
        states = np.empty((end - begin, len(columns)), np.int32)
        for place, column in enumerate(columns):
            mask = np.uint64((1 << layout.bits[column]) - 1)
            states[:, place] = words[:, layout.word[column]] >> np.uint64(layout.shift[column]) & mask
        return states

    # -- memory -------------------------------------------------------------------------------------------------

    def _arrays(self) -> loops.Arrays:
        return loops.Arrays(
            self.rows, self.fillings, self.row_table, self.net_table, self.first, self.target, self.event,
            self.missing, self.room, self.control,
        )  # fmt: skip

    def _widen(self) -> None:
        """More room where there is little; raises `TooLarge`."""
        control = self.control
        if control[NODES] > self.states_max or control[LINKS] > LINKS_PER_NODE * self.states_max:
            raise TooLarge(self.states_max)
        nodes, nets = int(control[NODES]), int(control[NETS])
        if nodes + 2 * MOVES_MAX > len(self.rows):
            room = min(2 * nodes, self.states_max) + 4 * MOVES_MAX
            self.rows = _longer(self.rows, room)
            self.first = _longer(self.first, room + 1)
        if 2 * (nodes + 2 * MOVES_MAX) > self.row_table.size:
            self.row_table = np.zeros(0, np.uint64)
            self.row_table = np.zeros(1 << (4 * nodes + 4 * MOVES_MAX).bit_length(), np.uint64)
            loops.rebuild(self.row_table, self.rows, nodes, self.rows.shape[1])
        if nets + 2 * MOVES_MAX > len(self.fillings):
            self.fillings = _longer(self.fillings, 2 * nets + 4 * MOVES_MAX)
            self.net_table = np.zeros(1 << (2 * len(self.fillings)).bit_length(), np.uint64)
            loops.rebuild(self.net_table, self.fillings, nets, self.fillings.shape[1])
        if int(control[LINKS]) + 2 * MOVES_MAX > self.target.size:
            room = 3 * int(control[LINKS]) // 2 + 4 * MOVES_MAX
            self.target = _longer(self.target, room)
            self.event = _longer(self.event, room)


class Loom:
    """The entries, and what is possible in each local state, as arrays for the loops; they follow what is filled in."""

    def __init__(self, entries: Entries, tail: Tail) -> None:
        self.entries = entries
        self.tail = tail
        self._made = -1
        self._tables: loops.FairTables

    def tables(self) -> loops.FairTables:
        """The arrays as they are now."""
        made = len(self.entries.entries)
        if made != self._made:
            self._tables = self._make()
            self._made = len(self.entries.entries)
        return self._tables

    def _make(self) -> loops.FairTables:
        network = self.tail.network
        inputs, subjects, local, kept = self._locals()
        entry, pool = self._entries()
        shape = [self.tail.width, network.in_flight, network.ordered, network.duplicating, self.tail.room]
        envelopes = range(len(self.entries.envelopes))
        carried = [self.tail.find_carried(number) for number in envelopes]
        message = list(zip(self.entries.dest, self.entries.channel, self.entries.lossy, strict=True))
        return loops.FairTables(
            np.array(shape, np.int64), self._pairs(), np.array(entry or [(0,) * 5], np.int32),
            np.array(pool or [0], np.int32), local, kept, np.array(inputs or [(0, 0)], np.int32),
            np.array(subjects or [0], np.uint64), np.array(self.entries.block, np.uint8),
            np.array(message, np.int32), np.array(carried, np.uint64),
        )  # fmt: skip

    def _locals(self) -> tuple[list[tuple[int, int]], list[int], Any, Any]:
        components = self.entries.components
        most = max(len(one.locals) for one in components)
        local = np.zeros((len(components), most, 3), np.int32)
        kept = np.zeros((len(components), most), np.uint64)
        inputs: list[tuple[int, int]] = []
        subjects: list[int] = []
        for number, one in enumerate(components):
            for place in range(1, len(one.locals)):
                calm = self.tail.local(number, place)
                local[number, place] = (len(inputs), len(inputs) + len(calm.possible), one.pending[place])
                kept[number, place] = calm.kept
                inputs += [(event, wait) for event, wait, _ in calm.possible]
                subjects += [subject for _, _, subject in calm.possible]
        return inputs, subjects, local, kept

    def _entries(self) -> tuple[list[tuple[int, ...]], list[int]]:
        pool: list[int] = []
        rows: list[tuple[int, ...]] = []
        for entry in self.entries.entries:
            begin = len(pool)
            pool += entry.sends
            middle = len(pool)
            pool += entry.calls
            rows.append((entry.local, begin, middle, middle, len(pool)))
        return rows, pool

    def _pairs(self) -> Any:
        pairs = self.entries.pairs
        table = np.zeros(1 << (4 * (len(pairs) + 2 * MOVES_MAX)).bit_length(), np.uint64)
        keys = np.array([event << 22 | local for event, local in pairs], np.uint64)
        loops.add_pairs(table, keys, 0)
        return table


assert (UNKNOWN, moves.CALLS_MAX) == ((1 << 64) - 1, loops.CALLS_MAX)  # as it has them


def _longer(array: Any, room: int) -> Any:
    grown = np.zeros((room, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


def _apart(number: int, known: list[list[int]]) -> list[int]:
    """The values of the views in a combination."""
    values = []
    for some in reversed(known):
        number, place = divmod(number, len(some))
        values.append(some[place])
    return values[::-1]
