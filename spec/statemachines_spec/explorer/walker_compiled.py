"""CompiledWalker: breadth-first search over the tables, exact, by the compiled kernel, in one thread or several.

States are shared out by their digests (`shard`).  In a turn each shard expands some of its states, all at once; then
each takes in what the others found for it; then what is missing of the tables is made, in Python, by one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from statemachines.kernel import ConfigurationError
from statemachines_spec.explorer.entry_arrays import EntryArrays
from statemachines_spec.explorer.layout import StateLayout
from statemachines_spec.explorer.moves import Moves, State
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.shard import Candidate, Shard
from statemachines_spec.explorer.walker_numba import (
    CROWDED,
    CUTS,
    EDGES,
    HITS,
    LOOKUPS,
    MOVES_MAX,
    TERMINAL,
    TRANSITIONS,
    WalkerTables,
)

R = TypeVar("R")

SHARDS_MAX = 64


class CompiledWalker:
    """Explores level by level.  `states_max` bounds the number of states (memory is taken as it is needed); `threads`:
    how many shards, each with a thread.

    Counts, edge hash and counterexamples are the same for any number of threads.  Raises `ConfigurationError` for one
    that is not in 1..64.
    """

    name = "compiled"

    def __init__(self, entries: Entries, *, states_max: int, hashing: bool = True, threads: int = 1) -> None:
        if not 1 <= threads <= SHARDS_MAX:
            raise ConfigurationError("threads", threads, f"must be 1 to {SHARDS_MAX}")
        self.entries = entries
        self.states_max = states_max
        first = Moves(entries).first()
        self.layout = StateLayout([max(1, value.bit_length()) for value in first])
        self.arrays = EntryArrays(entries, hashing)
        properties = max(len(entries.system.over_states), len(entries.step_properties) + 2)
        self.shards = [
            Shard(number, threads, states_max, self.layout, len(first), properties) for number in range(threads)
        ]
        self.levels = [0]
        self._widen()
        self.shards[0].begin(self._tables(), first)
        with self._threads() as pool:
            self._exchange(pool)
        self._end_level()

    # -- what it came to ----------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """States so far."""
        return sum(one.count for one in self.shards)

    @property
    def transitions(self) -> int:
        """Transitions so far."""
        return self._sum(TRANSITIONS)

    @property
    def lookups(self) -> int:
        """Entries that were used so far: one a transition, and one for each call within it."""
        return self._sum(LOOKUPS)

    @property
    def cuts(self) -> int:
        """Transitions not taken because they lead beyond the bounds."""
        return self._sum(CUTS)

    @property
    def terminal(self) -> int:
        """States without any transition."""
        return self._sum(TERMINAL)

    @property
    def edges(self) -> int:
        """The edge hash: a sum over all transitions, whatever their order."""
        return self._sum(EDGES) & (1 << 64) - 1

    @property
    def hits(self) -> list[int]:
        """For each property over states, how many states break it (always) or show it (sometimes)."""
        many = len(self.entries.system.over_states)
        return [sum(int(one.found[HITS, number]) for one in self.shards) for number in range(many)]

    @property
    def bytes_held(self) -> int:
        """Memory of states and table."""
        return sum(one.bytes_held for one in self.shards)

    def state(self, index: int) -> State:
        """A state by its place in the lists of the shards, one behind the other."""
        for one in self.shards:
            if index < one.count:
                return one.state(index)
            index -= one.count
        raise IndexError("there are fewer states")

    def broken_state(self, number: int) -> State | None:
        """The state with the least digest that breaks a property over states."""
        return _least(one.broken_state(number) for one in self.shards)

    def broken_step(self, number: int) -> State | None:
        """The state with the least digest out of which a step breaks step property `number`."""
        return _least(one.broken_step(number) for one in self.shards)

    def _sum(self, place: int) -> int:
        return sum(int(one.control[place]) for one in self.shards)

    # -- searching ----------------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """Go on for a while; True when a level is complete (`levels` then has one more), False in between.

        Raises MemoryError when `states_max` is reached.
        """
        tables = self._tables()
        with self._threads() as pool:
            whys = self._each(pool, lambda one: one.walk(tables))
            self._exchange(pool)
        if CROWDED in whys:
            raise ConfigurationError(
                "transitions", MOVES_MAX, "one state has more transitions than this; fewer messages in flight?"
            )
        if any(one.is_short() for one in self.shards):
            self._fill_and_redo()
        done = [one.is_done() for one in self.shards]
        if all(done):
            self._end_level()
        return all(done)

    def source_of(self, target: State, level: int) -> State:
        """Of the states of `level` that lead to `target`, the one with the least digest."""
        found = _least(one.source_of(self._tables(), target, level) for one in self.shards)
        assert found is not None
        return found

    def stand_for(self) -> int:
        """How many states these stand for, with symmetry; 0 without."""
        if self.entries.orbits is None:
            return 0
        return sum(one.stand_for(self._tables()) for one in self.shards)

    def _exchange(self, pool: ThreadPoolExecutor | None) -> None:
        """Each takes in what the others found for it."""
        if pool is None:
            return
        tables, most = self._tables(), max(one.count for one in self.shards)
        self._each(pool, lambda one: one.take_in(tables, self.shards, most))
        for one in self.shards:
            one.is_taken()
        if self.count >= self.states_max:
            raise MemoryError(f"{self.states_max} states")

    def _end_level(self) -> None:
        for one in self.shards:
            one.end_level()
        self.levels.append(self.count)

    def _fill_and_redo(self) -> None:
        """Fill in what is missing, then expand the states that were put aside; then where the walk was."""
        for event, local in dict.fromkeys(pair for one in self.shards for pair in one.ask_for()):
            self.entries.entry(event, local)  # another one may have brought it with its orbit
        self._widen()
        for one in self.shards:
            one.redo_them()

    def _widen(self) -> None:
        """Wider fields where numbers no longer fit."""
        entries = self.entries
        largest = [len(one.locals) - 1 for one in entries.components]
        largest += [one.limit for one in entries.system.spendable]
        largest += [len(entries.envelopes) - 1] * entries.system.network.in_flight
        layout = self._widen_layout(largest)
        if layout is not self.layout:
            self.layout = layout
            for one in self.shards:
                one.widen(layout)

    def _widen_layout(self, largest: list[int]) -> StateLayout:
        """The layout for these values; one that does not fit is refused by the bits of its parts."""
        try:
            return self.layout.widen(largest)
        except ConfigurationError as error:
            bits = [max(1, value.bit_length()) for value in largest]
            places = self.entries.system.network.in_flight
            parts = f"{sum(bits[:-places])} for components and budgets, {places} x {bits[-1]} for messages in flight"
            raise ConfigurationError(error.key, f"{sum(bits)} bits ({parts})", error.rule) from None

    def _tables(self) -> WalkerTables:
        return self.arrays.tables(self.layout)

    # -- threads ------------------------------------------------------------------------------------------------

    def _threads(self) -> AbstractContextManager[ThreadPoolExecutor | None]:
        """As many threads as there are shards beside the first; at the end they are waited for, after Ctrl-C too."""
        if len(self.shards) == 1:
            return nullcontext()
        return ThreadPoolExecutor(len(self.shards) - 1, thread_name_prefix="shard")

    def _each(self, pool: ThreadPoolExecutor | None, work: Callable[[Shard], R]) -> list[R]:
        """The work of each shard, all at once."""
        others = [] if pool is None else [pool.submit(work, one) for one in self.shards[1:]]
        return [work(self.shards[0]), *(one.result() for one in others)]


def _least(candidates: Iterable[Candidate | None]) -> State | None:
    """The state with the least digest."""
    return min((one for one in candidates if one is not None), default=(0, None))[1]
