"""CompiledWalker: breadth-first search over the tables, exact, by the compiled kernel.

Memory for each state: its one or two words in the list of states (which is also the queue, level behind level, and
what a counterexample is rebuilt from), and its place in an open-addressing table of the same words, which is never
emptier than half once it has grown.  No hash stands for a state, no parent is kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from statemachines.kernel import ConfigurationError
from statemachines_spec.explorer import walker_numba
from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.entry_arrays import EntryArrays
from statemachines_spec.explorer.layout import Layout
from statemachines_spec.explorer.moves import Moves, State
from statemachines_spec.explorer.walker_numba import (
    AT,
    BEST,
    CHUNK,
    CONTROLS,
    COUNT,
    CROWDED,
    CUTS,
    DONE,
    EDGES,
    END,
    FILL,
    GROW,
    HITS,
    LIMIT,
    LOOKUPS,
    MISSING,
    MOVES_MAX,
    REDO,
    SEEKS,
    STATE,
    STEP_STATE,
    SUMS,
    TERMINAL,
    TRANSITIONS,
    UNTIL,
    WORK,
)

FILLING = {1: (0.76, 1.42), 2: (0.86, 1.28)}
"""By words of a state: how full the table gets, and by how much it then grows: at most 23 and 40 bytes a state."""
TABLE_FIRST = 1 << 14
CHUNK_STATES = 100_000
REDO_MAX = 1 << 16


class CompiledWalker:
    """Explores level by level.  `states_max` bounds the number of states (memory is taken as it is needed)."""

    name = "compiled"

    def __init__(self, entries: Entries, *, states_max: int, hashing: bool = True) -> None:
        self.entries = entries
        self.moves = Moves(entries)
        self.states_max = states_max
        first = self.moves.first()
        self.layout = Layout([max(1, value.bit_length()) for value in first])
        self.arrays = EntryArrays(entries, hashing)
        self.control = np.zeros(CONTROLS, np.int64)
        self.states = np.empty((states_max + MOVES_MAX, 1), np.uint64)
        self.table = np.zeros(TABLE_FIRST, np.uint64)
        self.work: Any = np.zeros(0, np.int64)
        self.missing = np.zeros((walker_numba.MISSING_MAX, 2), np.int64)
        self.redo = np.zeros(REDO_MAX, np.int64)
        self.levels = [0, 1]
        self._spaces(len(first))
        self._add_first(first)

    # -- what it came to ----------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """States so far."""
        return int(self.control[COUNT])

    @property
    def transitions(self) -> int:
        """Transitions so far."""
        return int(self.control[TRANSITIONS])

    @property
    def lookups(self) -> int:
        """Entries that were used so far: one a transition, and one for each call within it."""
        return int(self.control[LOOKUPS])

    @property
    def cuts(self) -> int:
        """Transitions not taken because they lead beyond the bounds."""
        return int(self.control[CUTS])

    @property
    def terminal(self) -> int:
        """States without any transition."""
        return int(self.control[TERMINAL])

    @property
    def edges(self) -> int:
        """The edge hash: a sum over all transitions, whatever their order."""
        return int(self.control[EDGES]) & (1 << 64) - 1

    @property
    def hits(self) -> list[int]:
        """For each property over states, how many states break it (always) or show it (sometimes)."""
        return [int(value) for value in self.found[HITS, : len(self.entries.system.over_states)]]

    @property
    def bytes_held(self) -> int:
        """Memory of states and table."""
        return self.count * self.layout.words * 8 + int(self.table.nbytes)

    def broken_state(self, number: int) -> State | None:
        """The state with the least digest that breaks a property over states."""
        index = int(self.found[STATE, number])
        return self.state(index - 1) if index else None

    def broken_step(self, number: int) -> State | None:
        """The state with the least digest out of which a step breaks step property `number`."""
        index = int(self.found[STEP_STATE, number])
        return self.state(index - 1) if index else None

    def state(self, index: int) -> State:
        """A state by its place in the list."""
        return self.layout.unpack(self.states[index])

    # -- searching ----------------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """Go on for a while; True when a level is complete (`levels` then has one more), False in between.

        Raises MemoryError when `states_max` is reached.
        """
        control = self.control
        if control[AT] == 0 and control[END] == 0:
            control[END] = 1
        control[UNTIL] = control[AT] + CHUNK_STATES
        why = self._walk()
        if why == FILL or (why == DONE and control[REDO]):
            self._fill_and_redo()
            return False
        if why == GROW:
            self._grow()
            return False
        if why == CHUNK:
            return False
        if why == CROWDED:
            raise ConfigurationError(
                "transitions", MOVES_MAX, "one state has more transitions than this; fewer messages in flight?"
            )
        return self._end_of_level()

    def source_of(self, target: State, level: int) -> State:
        """Of the states of `level` that lead to `target`, the one with the least digest."""
        words = self.layout.pack(target)
        self.parts[walker_numba.SOUGHT] = (words[0], words[-1] if len(words) > 1 else 0, 0)
        control = np.zeros_like(self.control)
        control[AT], control[END] = self.levels[level], self.levels[level + 1]
        control[UNTIL] = control[LIMIT] = self.states_max + MOVES_MAX
        control[SEEKS] = 1
        self._run(control, np.zeros_like(self.found))
        return self.state(int(control[BEST]) - 1)

    def stand_for(self) -> int:
        """How many states these stand for, with symmetry; 0 without."""
        if self.entries.orbits is None:
            return 0
        return int(walker_numba.stand_for(self._tables(), self._space()))

    def _end_of_level(self) -> bool:
        control = self.control
        if control[WORK]:
            control[WORK] = 0
            control[AT], control[END] = self._resume
            if control[AT] < control[END]:
                return False
        self.levels.append(int(control[COUNT]))
        control[END] = control[COUNT]
        return True

    def _fill_and_redo(self) -> None:
        """Fill in what is missing, then expand the states that were put aside; then where the walk was."""
        control = self.control
        waiting = [int(index) for index in self.redo[: control[REDO]]]
        if control[WORK]:
            waiting += [int(index) for index in self.work[control[AT] : control[END]]]
        else:
            self._resume = (int(control[AT]), int(control[END]))
        for event, local in self.missing[: control[MISSING]]:
            self.entries.entry(int(event), int(local))  # another one may have brought it with its orbit
        control[MISSING] = control[REDO] = 0
        self._widen()
        self.work = np.array(waiting, np.int64)
        control[WORK] = 1
        control[AT], control[END] = 0, len(waiting)

    def _walk(self) -> int:
        self.control[LIMIT] = min(
            self.states_max + MOVES_MAX, int(FILLING[self.layout.words][0] * (self.table.size // self.layout.words))
        )
        return self._run(self.control, self.found)

    def _run(self, control: Any, found: Any) -> int:
        why: int = walker_numba.walk(self._tables(), self._space()._replace(control=control, found=found))
        return why

    def _space(self) -> walker_numba.Space:
        return walker_numba.Space(
            self.states, self.table, self.recent, self.control, self.missing, self.redo, self.work, self.keys,
            self.room, self.listed, self.parts, self.sums, self.found,
        )  # fmt: skip

    def _tables(self) -> walker_numba.Tables:
        return self.arrays.tables(self.layout)

    # -- memory -------------------------------------------------------------------------------------------------

    def _grow(self) -> None:
        if self.count + MOVES_MAX >= self.states_max:
            raise MemoryError(f"{self.states_max} states")
        places = int(self.table.size // self.layout.words * FILLING[self.layout.words][1]) + 4 * MOVES_MAX
        self._rebuild(places)

    def _rebuild(self, places: int) -> None:
        self.table = np.zeros(0, np.uint64)  # the old one is given back before the new one is filled
        self.table = np.zeros(places * self.layout.words, np.uint64)
        walker_numba.rebuild(self._space(), self.count)

    def _widen(self) -> None:
        """Wider fields where numbers no longer fit: every state is packed anew."""
        entries = self.entries
        largest = [len(one.locals) - 1 for one in entries.components]
        largest += [one.limit for one in entries.system.spendable]
        largest += [len(entries.envelopes) - 1] * entries.system.network.in_flight
        layout = self.layout.grown(largest)
        if layout is self.layout:
            return
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

    def _spaces(self, width: int) -> None:
        """What the kernel works in."""
        wide = max(width, walker_numba.SENDS_MAX, walker_numba.CALLS_MAX)
        properties = max(len(self.entries.system.over_states), len(self.entries.system.over_steps) + 2)
        self.room = np.zeros((6, wide), np.int64)
        self.listed = np.zeros((MOVES_MAX, 4), np.int64)
        self.parts = np.zeros((walker_numba.PARTS, 3), np.uint64)
        self.sums = np.zeros(SUMS, np.uint64)
        self.keys = np.zeros((walker_numba.BATCH + MOVES_MAX, 3), np.uint64)
        self.recent = np.zeros((walker_numba.RECENT + 1, 2), np.uint64)
        self.found = np.zeros((5, properties), np.uint64)
        self._resume = (0, 0)

    def _add_first(self, first: State) -> None:
        self._widen()
        if self.layout.words != self.states.shape[1]:
            self.states = np.empty((self.states_max + MOVES_MAX, self.layout.words), np.uint64)
        self._rebuild(self.table.size // self.layout.words)
        self.keys[0, : self.layout.words] = self.layout.pack(first)
        walker_numba.begin(self._tables(), self._space())
