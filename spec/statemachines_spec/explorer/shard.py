"""Shard: some of the states of a system, by their digests, and the compiled walk over them, in a thread of its own.

Who is alone has all states.  Of several, each expands its own, and hands over the successors that fall to others; after
each turn of all, each takes in what it was given (`walker_compiled`).  A digest stays what it is when fields get wider,
so a state stays where it is.

Memory for each state: its one or two words in the list of states (which is also the queue, level behind level, and
what a counterexample is rebuilt from), and its place in an open-addressing table of the same words, which is never
emptier than half once it has grown.  No hash stands for a state, no parent is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from statemachines_spec.explorer import walker_numba
from statemachines_spec.explorer.layout import StateLayout
from statemachines_spec.explorer.moves import State
from statemachines_spec.explorer.walker_numba import (
    AT,
    BEST,
    CONTROLS,
    COUNT,
    DIGEST,
    DONE,
    END,
    GROW,
    LIMIT,
    MISSING,
    MOVES_MAX,
    OUT,
    OUT_LIMIT,
    REDO,
    SEEKS,
    SHARD,
    SHARDS,
    SOUGHT,
    STATE,
    STEP_DIGEST,
    STEP_STATE,
    SUMS,
    UNTIL,
    WORK,
    WalkerTables,
)

FILLING = {1: (0.76, 1.42), 2: (0.86, 1.28)}
"""By words of a state: how full the table gets, and by how much it then grows: at most 23 and 40 bytes a state."""
TABLE_FIRST = 1 << 14
CHUNK_STATES = 100_000
REDO_MAX = 1 << 16
OUT_MAX = 1 << 17
"""States that are handed over in one turn, at most."""
ENDLESS = np.iinfo(np.int64).max

Candidate = tuple[int, State]
"""A state, behind its digest: of several, the least counts."""


class Shard:
    """Number `number` of `shards`.  `states_max` bounds its states; `width`: fields of a state; `properties`: places
    for what breaks them.  Raises MemoryError where there is no room for more."""

    def __init__(
        self, number: int, shards: int, states_max: int, layout: StateLayout, width: int, properties: int
    ) -> None:
        self.number = number
        self.states_max = states_max
        self.layout = layout
        self.levels = [0]
        self.control = np.zeros(CONTROLS + shards, np.int64)
        self.control[SHARD], self.control[SHARDS] = number, shards
        self.control[OUT_LIMIT] = OUT_MAX if shards > 1 else ENDLESS
        self.states = np.empty((states_max + MOVES_MAX, layout.words), np.uint64)
        self.table = np.zeros(TABLE_FIRST * layout.words, np.uint64)
        self.work: Any = np.zeros(0, np.int64)
        self.missing = np.zeros((walker_numba.MISSING_MAX, 2), np.int64)
        self.redo = np.zeros(REDO_MAX, np.int64)
        self.out = np.empty((shards, OUT_MAX if shards > 1 else 0, 2), np.uint64)
        wide = max(width, walker_numba.SENDS_MAX, walker_numba.CALLS_MAX)
        self.room = np.zeros((6, wide), np.int64)
        self.listed = np.zeros((MOVES_MAX, 4), np.int64)
        self.parts = np.zeros((walker_numba.PARTS, 3), np.uint64)
        self.sums = np.zeros(SUMS, np.uint64)
        self.keys = np.zeros((walker_numba.BATCH + MOVES_MAX, 3), np.uint64)
        self.recent = np.zeros((walker_numba.RECENT + 1, 2), np.uint64)
        self.found = np.zeros((5, properties), np.uint64)
        self._resume = (0, 0)
        self._why = DONE

    @property
    def count(self) -> int:
        """States so far."""
        return int(self.control[COUNT])

    @property
    def bytes_held(self) -> int:
        """Memory of states and table."""
        return self.count * self.layout.words * 8 + int(self.table.nbytes)

    def state(self, index: int) -> State:
        """A state by its place in the list."""
        return self.layout.unpack(self.states[index])

    def broken_state(self, number: int) -> Candidate | None:
        """The state with the least digest that breaks a property over states."""
        return self._read_candidate(STATE, DIGEST, number)

    def broken_step(self, number: int) -> Candidate | None:
        """The state with the least digest out of which a step breaks step property `number`."""
        return self._read_candidate(STEP_STATE, STEP_DIGEST, number)

    def _read_candidate(self, row: int, digest: int, number: int) -> Candidate | None:
        index = int(self.found[row, number])
        return (int(self.found[digest, number]), self.state(index - 1)) if index else None

    # -- walking ------------------------------------------------------------------------------------------------

    def begin(self, tables: WalkerTables, first: State) -> None:
        """The first state, here or at the shard that it falls to."""
        words = self.layout.pack(first)
        self.keys[0] = (words[0], words[-1] if len(words) > 1 else 0, 0)
        walker_numba.begin(tables, self.space())

    def end_level(self) -> None:
        """Every state so far is of this level or one before it: the next turn begins with them."""
        self.levels.append(self.count)
        self.control[END] = self.count

    def walk(self, tables: WalkerTables) -> int:
        """Expand states for a turn; why it came back, never GROW."""
        self.control[UNTIL] = self.control[AT] + CHUNK_STATES
        while True:
            self.control[LIMIT] = self._limit()
            self._why = walker_numba.walk(tables, self.space())
            if self._why != GROW:
                return self._why
            self._grow(MOVES_MAX, 0)

    def is_short(self) -> bool:
        """Whether this shard waits for entries."""
        return self._why == walker_numba.FILL or (self._why == DONE and self.control[REDO] > 0)

    def take_in(self, tables: WalkerTables, shards: Sequence[Shard], most: int) -> None:
        """What the others found and falls to this one.  The fullest has `most` states: all grow when it is about to, or
        they would wait for each other."""
        handed = [int(other.control[CONTROLS + self.number]) for other in shards]
        soon = min(most + OUT_MAX, self.states_max + MOVES_MAX)
        if max(self.count + sum(handed), soon) > self._limit():
            self._grow(sum(handed), soon)
        for other, count in zip(shards, handed, strict=True):
            walker_numba.take_in(tables, self.space(), other.out[self.number], count)

    def is_taken(self) -> None:
        """The others have taken in what this one found."""
        self.control[CONTROLS:] = self.control[OUT] = 0

    def ask_for(self) -> list[tuple[int, int]]:
        """Event and local state of the entries that are missing."""
        return [(int(event), int(local)) for event, local in self.missing[: self.control[MISSING]]]

    def redo_them(self) -> None:
        """The entries are there: expand the states that were put aside, then go on where the walk was."""
        control = self.control
        control[MISSING] = 0
        if not control[REDO]:
            return
        waiting = self.redo[: control[REDO]].copy()
        if control[WORK]:
            waiting = np.concatenate((waiting, self.work[control[AT] : control[END]]))
        else:
            self._resume = (int(control[AT]), int(control[END]))
        self.work = waiting
        control[REDO], control[WORK] = 0, 1
        control[AT], control[END] = 0, len(waiting)

    def is_done(self) -> bool:
        """Whether every state of this level is expanded."""
        control = self.control
        if control[REDO] or control[AT] < control[END]:
            return False
        if control[WORK]:
            control[WORK] = 0
            control[AT], control[END] = self._resume
        return bool(control[AT] == control[END])

    def source_of(self, tables: WalkerTables, target: State, level: int) -> Candidate | None:
        """Of the states of `level` that lead to `target`, the one with the least digest."""
        words = self.layout.pack(target)
        self.parts[SOUGHT] = (words[0], words[-1] if len(words) > 1 else 0, 0)
        control = np.zeros_like(self.control)
        control[AT], control[END] = self.levels[level], self.levels[level + 1]
        control[UNTIL] = control[LIMIT] = control[OUT_LIMIT] = ENDLESS
        control[SEEKS] = 1
        walker_numba.walk(tables, self.space()._replace(control=control, found=np.zeros_like(self.found)))
        best = int(control[BEST])
        return (int(self.parts[SOUGHT, 2]), self.state(best - 1)) if best else None

    def stand_for(self, tables: WalkerTables) -> int:
        """How many states these stand for, with symmetry."""
        return int(walker_numba.stand_for(tables, self.space()))

    def space(self) -> walker_numba.WalkerSpace:
        """What the kernel works in."""
        return walker_numba.WalkerSpace(
            self.states, self.table, self.recent, self.control, self.missing, self.redo, self.work, self.keys,
            self.out, self.room, self.listed, self.parts, self.sums, self.found,
        )  # fmt: skip

    # -- memory -------------------------------------------------------------------------------------------------

    def _limit(self) -> int:
        words = self.layout.words
        return min(self.states_max + MOVES_MAX, int(FILLING[words][0] * (self.table.size // words)))

    def _grow(self, more: int, least: int) -> None:
        """A larger table, with room for so many states `more`, and for `least` in all."""
        if self.count + more >= self.states_max:
            raise MemoryError(f"{self.states_max} states")
        full, times = FILLING[self.layout.words]
        places = int(self.table.size // self.layout.words * times)
        self._rebuild(max(places, int(max(self.count + more, least) / full)) + 4 * MOVES_MAX)

    def _rebuild(self, places: int) -> None:
        self.table = np.zeros(0, np.uint64)  # the old one is given back before the new one is filled
        self.table = np.zeros(places * self.layout.words, np.uint64)
        walker_numba.rebuild(self.space(), self.count)

    def widen(self, layout: StateLayout) -> None:
        """Wider fields: every state is packed anew."""
        old, count, self.layout = self.layout, self.count, layout
        before = self.states
        words = np.zeros((count, layout.words), np.uint64)
        for number, bits in enumerate(old.bits):
            value = before[:count, old.word[number]] >> np.uint64(old.shift[number]) & np.uint64((1 << bits) - 1)
            words[:, layout.word[number]] |= value << np.uint64(layout.shift[number])
        if layout.words != before.shape[1]:
            self.states = np.empty((self.states_max + MOVES_MAX, layout.words), np.uint64)
        self.states[:count] = words
        self.recent[:] = 0
        del before, words
        self._rebuild(max(self.table.size // old.words, int(count / FILLING[layout.words][0]) + 4 * MOVES_MAX))
