"""EntryArrays: the entries as arrays for the compiled kernel, kept up to date as entries are filled in."""

from __future__ import annotations

from typing import Any

import numpy as np

from statemachines.kernel import ConfigurationError
from statemachines_spec.explorer import moves, walker_numba
from statemachines_spec.explorer.layout import StateLayout
from statemachines_spec.explorer.orbits import Orbits
from statemachines_spec.explorer.property import Always, combinations
from statemachines_spec.explorer.purity import Entries

EVENTS_MAX, ENTRIES_MAX, CELLS_MAX = 1 << 16, 1 << 26, 1 << 28
"""Events, entries, and (message or call, local state) pairs with or without an entry; the last bounds memory: 1 GiB."""


class GrowingArray:
    """An array that grows at one axis."""

    def __init__(self, kind: Any, shape: tuple[int, ...], axis: int = 0) -> None:
        self.array = np.zeros(shape, kind)
        self.axis = axis

    def room(self, size: int) -> Any:
        """The array, with room for `size` at its axis."""
        have = self.array.shape[self.axis]
        if size > have:
            shape = list(self.array.shape)
            shape[self.axis] = max(size, 2 * have)
            grown = np.zeros(shape, self.array.dtype)
            grown[tuple(slice(0, length) for length in self.array.shape)] = self.array
            self.array = grown
        return self.array


class EntryArrays:
    """Arrays that follow one `Entries`."""

    def __init__(self, entries: Entries, hashing: bool) -> None:
        ours = (walker_numba.BUDGET, walker_numba.SOURCE, walker_numba.TARGET, walker_numba.MIX, walker_numba.CALLS_MAX)
        assert [int(value) for value in ours] == [
            moves.BUDGET_DIGEST, moves.SOURCE_DIGEST, moves.TARGET_DIGEST, moves.MIX_DIGEST, moves.CALLS_MAX,
        ]  # fmt: skip
        self.entries = entries
        self.hashing = hashing
        system = entries.system
        width, properties = len(entries.components), len(system.over_states)
        self.pairs = GrowingArray(np.int32, (64, 2))
        self.entry = GrowingArray(np.int32, (64, 4))
        self.pool = GrowingArray(np.int32, (64,))
        self.cell = np.zeros(1, np.int32)
        self.local = GrowingArray(np.int32, (width, 64, 3 + properties), axis=1)
        self.input = GrowingArray(np.int32, (64, 4))
        self.digest = GrowingArray(np.uint64, (width + 1, 64), axis=1)
        self.message = GrowingArray(np.int32, (64, 4))
        self.block = np.zeros((1, 1), np.uint8)
        self.table = self._evaluate()
        self._locals = [0] * width
        self._places: dict[tuple[int, int], int] = {}
        self._pooled: dict[tuple[int, ...], int] = {}
        self._taken: set[int] = set()
        self._messages = self._inputs = self._pool = 0
        self._entries = 1
        self._strides = [self._stride(one) for one in system.over_states]
        self.reads = self._reads()
        self.orbits = entries.orbits
        renamings = 1 if self.orbits is None else len(self.orbits.renamings)
        self.image = GrowingArray(np.int32, (width + 2, 64, renamings), axis=1)
        self.image_digest = GrowingArray(np.uint64, (width + 1, 64, renamings), axis=1)
        self._images = [0] * (width + 1)
        self._made: tuple[StateLayout, int] | None = None
        self._tables: walker_numba.WalkerTables | None = None

    def tables(self, layout: StateLayout) -> walker_numba.WalkerTables:
        """The arrays as they are now, for states of this layout."""
        state = (layout, len(self.entries.entries))
        if self._tables is None or self._made != state:
            self._follow()
            self._made = state
            self._tables = walker_numba.WalkerTables(
                self._shape(layout), self._layout(layout), self.entry.array, self.pool.array, self.cell,
                self.local.array, self.input.array, self.block, self.digest.array, self.message.array, self.reads,
                self.table, self.image.array, self.image_digest.array,
            )  # fmt: skip
        return self._tables

    def _shape(self, layout: StateLayout) -> Any:
        system = self.entries.system
        network = system.network
        return np.array(
            [
                len(self.entries.components), len(system.spendable), network.in_flight, network.lossy,
                network.duplicating, network.ordered, self.hashing, layout.words, self.image.array.shape[2],
            ],
            np.int64,
        )  # fmt: skip

    @staticmethod
    def _layout(layout: StateLayout) -> Any:
        rows = [
            (word, shift, (1 << bits) - 1, *((1 << shift, 0) if word == 0 else (0, 1 << shift)))
            for word, shift, bits in zip(layout.word, layout.shift, layout.bits, strict=True)
        ]
        return np.array(rows, np.uint64)

    # -- following ----------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        for number in range(len(self.entries.components)):
            self._follow_locals(number)
        self._follow_messages()
        self._follow_entries()
        self._follow_cells()
        if self.block.shape != (len(self.entries.block), len(self.entries.block[0])):
            self.block = np.array(self.entries.block, np.uint8)
        if self.orbits is not None:
            self._follow_orbits(self.orbits)

    def _follow_orbits(self, orbits: Orbits) -> None:
        """Renamed local states, then renamed messages, then where each component goes."""
        width = len(self.entries.components)
        rows = [*zip(orbits.locals, orbits.digests, strict=True), (orbits.envelopes, orbits.envelope_digests)]
        for number, (images, digests) in enumerate(rows):
            first, count = self._images[number], len(images)
            if first < count:
                self.image.room(count)[number, first:count] = images[first:]
                self.image_digest.room(count)[number, first:count] = digests[first:]
                self._images[number] = count
        for component in range(width):
            self.image.room(width)[width + 1, component] = [places[component] for places in orbits.places]

    def _follow_locals(self, number: int) -> None:
        one = self.entries.components[number]
        count = len(one.locals)
        rows, digests = self.local.room(count), self.digest.room(count)
        for local in range(self._locals[number], count):
            first = self._inputs
            for event in one.inputs[local]:
                self.input.room(self._inputs + 1)[self._inputs] = (event.event, event.budget, event.wait, 0)
                self._places[event.event, local] = self._inputs
                self._inputs += 1
            parts = [value * self._strides[at][number] for at, value in enumerate(one.seen[local])]
            rows[number, local] = (first, self._inputs, one.pending[local], *parts)
            digests[number, local] = one.digests[local]
        self._locals[number] = count

    def _follow_messages(self) -> None:
        entries = self.entries
        count = len(entries.envelopes)
        rows, digests = self.message.room(count), self.digest.room(count)
        for number in range(self._messages, count):
            rows[number] = (entries.dest[number], entries.lossy[number], entries.channel[number], 0)
            digests[-1, number] = entries.digests[number]
        self._messages = count

    def _follow_entries(self) -> None:
        """Entry `number` of `Entries` is row `number` + 1."""
        entries = self.entries
        first, count = self._entries, len(entries.entries) + 1
        if len(entries.envelopes) > EVENTS_MAX or count > ENTRIES_MAX:
            raise ConfigurationError(
                "entries", count, f"more than {ENTRIES_MAX}, or {EVENTS_MAX} events; bound what grows"
            )
        rows, pairs = self.entry.room(count), self.pairs.room(count)
        for number in range(first, count):
            entry = entries.entries[number - 1]
            many = len(entry.sends) | len(entry.calls) << 16
            rows[number] = (entry.local, self._pool_of(entry.sends + entry.calls), many, entry.broken)
            pairs[number] = entries.pairs[number - 1]
            place = self._places.pop(entries.pairs[number - 1], None)
            if place is not None:
                self.input.array[place, 3] = number
        self._entries = count

    def _pool_of(self, numbers: tuple[int, ...]) -> int:
        """Where these messages and calls stand in the pool."""
        first = self._pooled.get(numbers)
        if first is None:
            first = self._pooled[numbers] = self._pool
            self._pool += len(numbers)
            self.pool.room(self._pool)[first : self._pool] = numbers
            self._taken.update(numbers)
        return first

    def _follow_cells(self) -> None:
        """For whatever is sent or called a row with a cell for each local state of the component it is for."""
        rows, size = self.message.array, 0
        taken = sorted(self._taken)
        for event in taken:
            rows[event, 3] = size
            size += len(self.entries.components[rows[event, 0]].locals)
            if size > CELLS_MAX:
                rule = f"more than {CELLS_MAX} pairs of a message and a local state; bound what grows"
                raise ConfigurationError("entries", len(self.entries.entries), rule)
        if size > self.cell.size:
            self.cell = np.zeros(2 * size, np.int32)
        self.cell[:] = 0
        has_row = np.zeros(self._messages, np.bool_)
        has_row[taken] = True
        events, locals_ = self.pairs.array[1 : self._entries].T
        some = has_row[events]
        self.cell[rows[events[some], 3] + locals_[some]] = np.flatnonzero(some) + 1

    # -- properties ---------------------------------------------------------------------------------------------

    def _stride(self, one: Any) -> list[int]:
        strides, size = [0] * len(self.entries.components), 1
        for view in one.views:
            strides[self.entries.place[view.actor]] = size
            size *= view.size
        return strides

    def _reads(self) -> Any:
        """By property: how many components it reads, and which."""
        places = [[self.entries.place[view.actor] for view in one.views] for one in self.entries.system.over_states]
        reads = np.zeros((len(places), 1 + len(self.entries.components)), np.int64)
        for number, some in enumerate(places):
            reads[number, : 1 + len(some)] = (len(some), *some)
        return reads

    def _evaluate(self) -> Any:
        """By property: whether "always" (1), whether only where it is quiet (2); then, for every combination of its
        views, whether that is a hit."""
        rows = [combinations(one) for one in self.entries.system.over_states]
        table = np.zeros((max(1, len(rows)), 1 + max((len(row) for row in rows), default=1)), np.uint8)
        for number, (one, row) in enumerate(zip(self.entries.system.over_states, rows, strict=True)):
            table[number, 0] = isinstance(one, Always) | one.quiet << 1
            table[number, 1 : 1 + len(row)] = row
        return table
