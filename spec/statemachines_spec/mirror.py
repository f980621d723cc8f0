"""Mirror: the entries as arrays for the compiled kernel, kept up to date as entries are filled in."""

from __future__ import annotations

from typing import Any

import numpy as np

from statemachines.kernel import ConfigurationError
from statemachines_spec import kernel, moves
from statemachines_spec.entries import Entries
from statemachines_spec.layout import Layout
from statemachines_spec.orbits import Orbits
from statemachines_spec.property import Always, combinations

PAIRS_FIRST = 1 << 15
EVENTS_MAX, ENTRIES_MAX = 1 << 16, (1 << 26) - 2


class Column:
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


class Mirror:
    """Arrays that follow one `Entries`."""

    def __init__(self, entries: Entries, hashing: bool) -> None:
        ours = (kernel.BUDGET, kernel.SOURCE, kernel.TARGET, kernel.MIX, kernel.CALLS_MAX)
        assert [int(value) for value in ours] == [
            moves.BUDGET_DIGEST, moves.SOURCE_DIGEST, moves.TARGET_DIGEST, moves.MIX_DIGEST, moves.CALLS_MAX,
        ]  # fmt: skip
        self.entries = entries
        self.hashing = hashing
        system = entries.system
        width, properties = len(entries.components), len(system.over_states)
        self.pairs = np.zeros(PAIRS_FIRST, np.uint64)
        self.entry = Column(np.int32, (64, 6))
        self.pool = Column(np.int32, (64,))
        self.local = Column(np.int32, (width, 64, 3 + properties), axis=1)
        self.input = Column(np.int32, (64, 4))
        self.digest = Column(np.uint64, (width, 64), axis=1)
        self.message = Column(np.uint64, (64, 4))
        self.block = np.zeros((1, 1), np.uint8)
        self.table = self._evaluate()
        self._locals = [0] * width
        self._places: dict[tuple[int, int], int] = {}
        self._messages = self._entries = self._inputs = self._pool = 0
        self._strides = [self._stride(one) for one in system.over_states]
        self.reads = self._reads()
        self.orbits = entries.orbits
        renamings = 1 if self.orbits is None else len(self.orbits.renamings)
        self.image = Column(np.int32, (width + 2, 64, renamings), axis=1)
        self.image_digest = Column(np.uint64, (width + 1, 64, renamings), axis=1)
        self._images = [0] * (width + 1)
        self._made: tuple[Layout, int] | None = None
        self._tables: kernel.Tables | None = None

    def tables(self, layout: Layout) -> kernel.Tables:
        """The arrays as they are now, for states of this layout."""
        state = (layout, len(self.entries.entries))
        if self._tables is None or self._made != state:
            self._follow()
            self._made = state
            self._tables = kernel.Tables(
                self._shape(layout), self._layout(layout), self.pairs, self.entry.array, self.pool.array,
                self.local.array, self.input.array, self.block, self.digest.array, self.message.array, self.reads,
                self.table, self.image.array, self.image_digest.array,
            )  # fmt: skip
        return self._tables

    def _shape(self, layout: Layout) -> Any:
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
    def _layout(layout: Layout) -> Any:
        masks = [(1 << bits) - 1 for bits in layout.bits]
        return np.array(list(zip(layout.word, layout.shift, masks, strict=True)), np.uint64)

    # -- following ----------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        for number in range(len(self.entries.components)):
            self._follow_locals(number)
        self._follow_messages()
        self._follow_entries()
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
        rows = self.message.room(count)
        for number in range(self._messages, count):
            rows[number] = (
                entries.digests[number], entries.dest[number], entries.lossy[number], entries.channel[number]
            )  # fmt: skip
        self._messages = count

    def _follow_entries(self) -> None:
        entries = self.entries
        first, count = self._entries, len(entries.entries)
        rows = self.entry.room(count)
        for number in range(first, count):
            entry = entries.entries[number]
            sends, calls = self._pooled(entry.sends), self._pooled(entry.calls)
            rows[number] = (entry.local, *sends, *calls, entry.broken)
            place = self._places.pop(entries.pairs[number], None)
            if place is not None:
                self.input.array[place, 3] = number + 1
        self._entries = count
        if len(entries.envelopes) > EVENTS_MAX or count > ENTRIES_MAX:
            raise ConfigurationError(
                "entries", count, f"more than {ENTRIES_MAX}, or {EVENTS_MAX} events; bound what grows"
            )
        if 2 * (count + kernel.MISSING_MAX) > self.pairs.size:
            self.pairs = np.zeros(1 << (3 * (count + kernel.MISSING_MAX)).bit_length(), np.uint64)
            first = 0
        keys = np.array([event << 22 | local for event, local in entries.pairs[first:count]], np.uint64)
        kernel.add_pairs(self.pairs, keys, first)

    def _pooled(self, numbers: tuple[int, ...]) -> tuple[int, int]:
        first = self._pool
        self._pool += len(numbers)
        self.pool.room(self._pool)[first : self._pool] = numbers
        return first, self._pool

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
