"""PlainWalker: the same search in pure Python, for systems so small that compiling takes longer, and without numba.

A state is one integer: the network (as a number of its own) in the low bits, then budgets, then local states.  What a
move does to a component, or to the network, is reckoned once and added from then on.
"""

from __future__ import annotations

from typing import NamedTuple

from statemachines_spec.explorer.entry_tables import CUT, FAILED, FREE, WAITS
from statemachines_spec.explorer.moves import BUDGET_DIGEST, CALLS_MAX, WORD, Moves, State, make_endless_error, mix_edge
from statemachines_spec.explorer.property import Always, Sometimes, combinations
from statemachines_spec.explorer.purity import Entries

NET_BITS, BUDGET_BITS, LOCAL_BITS = 32, 8, 24
NET_MASK, BUDGET_MASK, LOCAL_MASK = (1 << NET_BITS) - 1, (1 << BUDGET_BITS) - 1, (1 << LOCAL_BITS) - 1
STATES_PER_ADVANCE = 5_000

Watched = tuple[bool, bool, tuple[tuple[int, list[tuple[int, ...]], int], ...], list[bool]]
"""A property over states: whether it is an "always"; only where nothing is under way; (shift of a component, what is
seen of its local states, stride) for each view; its combinations."""


class KnownEdge(NamedTuple):
    """What one event does to the component it is for: added to the packed state, added to its digest, messages sent.
    `calls`: others take part, so it must be carried out each time; `ends`: as in an entry, if it does not happen."""

    ends: int
    calls: bool
    delta: int
    digest: int
    sends: tuple[int, ...]
    broken: int


class PlainWalker:
    """Explores level by level, as `CompiledWalker` does: equal counts, levels and edge hash."""

    name = "plain"

    def __init__(self, entries: Entries, *, states_max: int, hashing: bool = True) -> None:
        self.entries = entries
        self.moves = Moves(entries)
        self.states_max = states_max
        self.hashing = hashing
        self.transitions = self.cuts = self.terminal = self.edges = self.lookups = 0
        system = entries.system
        self.hits = [0] * len(system.over_states)
        self.levels = [0, 1]
        self._width, self._budgets = len(entries.components), len(system.spendable)
        self._shifts = [NET_BITS + BUDGET_BITS * self._budgets + LOCAL_BITS * n for n in range(self._width)]
        self._budget_shifts = [NET_BITS + BUDGET_BITS * n for n in range(self._budgets)]
        self._nets: list[State] = []
        self._net_numbers: dict[State, int] = {}
        self._net_digests: list[int] = []
        self._net_images: list[tuple[int, ...]] = []
        self._orbits = entries.orbits
        self._handed: list[list[tuple[int, int, int, int]]] = []
        self._lost: list[list[int]] = []
        self._spread: dict[tuple[int, int, tuple[int, ...]], list[int]] = {}
        self._known: dict[tuple[int, int], KnownEdge] = {}
        self._inputs = [one.inputs for one in entries.components]
        self._watched = [self._watching(one) for one in system.over_states]
        self._broken_states: dict[int, tuple[int, State]] = {}
        self._broken_steps: dict[int, tuple[int, State]] = {}
        self._empty = self._net((0,) * system.network.in_flight)
        first = self.pack_state(self.moves.first())
        self.states = [first]
        self._seen = {first}
        self._at, self._end = 0, 1
        self._judge(first)

    # -- what it came to ----------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """States so far."""
        return len(self.states)

    @property
    def bytes_held(self) -> int:
        """Memory of states and table, roughly: an integer object, a place in the list, a place in the set."""
        return self.count * (8 + 52 + 40)

    def broken_state(self, number: int) -> State | None:
        """The state with the least digest that breaks a property over states."""
        return self._broken_states.get(number, (0, None))[1]

    def broken_step(self, number: int) -> State | None:
        """The state with the least digest out of which a step breaks step property `number`."""
        return self._broken_steps.get(number, (0, None))[1]

    def state(self, index: int) -> State:
        """A state by its place in the list."""
        return self.unpack_state(self.states[index])

    # -- searching ----------------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """Go on for a while; True when a level is complete.  Raises MemoryError when `states_max` is reached."""
        last = min(self._end, self._at + STATES_PER_ADVANCE)
        seen, states = self._seen, self.states
        while self._at < last:
            if len(states) >= self.states_max:
                raise MemoryError(f"{self.states_max} states")
            for target in self._expanded(states[self._at], True):
                if self._orbits is not None:
                    target = self._least(target)
                if target not in seen:
                    seen.add(target)
                    states.append(target)
                    self._judge(target)
            self._at += 1
        if self._at < self._end:
            return False
        self._end = len(states)
        self.levels.append(self._end)
        return True

    def source_of(self, target: State, level: int) -> State:
        """Of the states of `level` that lead to `target`, the one with the least digest."""
        wanted = self.pack_state(target)
        found = [
            state for state in self.states[self.levels[level] : self.levels[level + 1]]
            if wanted in map(self._least, self._expanded(state, False))
        ]  # fmt: skip
        return min((self.unpack_state(state) for state in found), key=self.moves.digest)

    def stand_for(self) -> int:
        """How many states these stand for, with symmetry; 0 without."""
        if self._orbits is None:
            return 0
        return sum(len(self.moves.orbit(self.unpack_state(state))) for state in self.states)

    def _least(self, state: int) -> int:
        """`Moves.least`; where the digests differ and the state's own is the least, it is that already."""
        if self._orbits is None:
            return state
        rows = [
            table[state >> shift & LOCAL_MASK] for table, shift in zip(self._orbits.digests, self._shifts, strict=True)
        ]
        digests = [sum(column) & WORD for column in zip(*rows, self._net_images[state & NET_MASK], strict=True)]
        least = min(digests)
        if digests[0] == least and digests.count(least) == 1:
            return state
        return self.pack_state(self.moves.least(self.unpack_state(state)))

    def _expanded(self, state: int, counted: bool) -> list[int]:
        """The targets of every transition, one for each."""
        out: list[int] = []
        digests: list[int] = []
        cuts = 0
        net = state & NET_MASK
        rest = state - net
        for number, shift in enumerate(self._shifts):
            local = state >> shift & LOCAL_MASK
            for one in self._inputs[number][local]:
                event, budget, wait = one.event, one.budget, one.wait
                delta, digest = 0, 0
                if budget != FREE:
                    place = self._budget_shifts[budget]
                    if not state >> place & BUDGET_MASK:
                        continue
                    delta, digest = -(1 << place), -(BUDGET_DIGEST + 2 * budget)
                if wait and self.moves.is_blocked(self.unpack_state(state), wait):
                    continue
                known = self._known.get((event, local)) or self._learn(event, local)
                cuts += self._take(state, rest + delta, digest, event, net, -1, known, out, digests)
        for event, component, place, copies in self._handed[net]:
            local = state >> self._shifts[component] & LOCAL_MASK
            known = self._known.get((event, local)) or self._learn(event, local)
            cuts += self._take(state, rest, 0, event, net, place, known, out, digests)
            if copies:
                cuts += self._take(state, rest, 0, event, net, -1, known, out, digests)
        for after in self._lost[net]:
            out.append(rest + after)
            digests.append(self._net_digests[after])
        if counted:
            self._count(state, out, digests, cuts)
        return out

    def _take(
        self, state: int, rest: int, digest: int, event: int, net: int, place: int, known: KnownEdge, out: list[int],
        digests: list[int],
    ) -> int:  # fmt: skip
        """Successors by one event into `out`; how many transitions were cut."""
        if known.calls:
            known = self._carried_out(event, state)
        if known.ends == WAITS:
            return 0
        if known.broken:
            self._note_step(known.broken, state)
        if known.ends in (CUT, FAILED):
            return 1
        key = (net, place, known.sends)
        spread = self._spread.get(key)
        if spread is None:
            spread = self._spread[key] = self._spread_of(*key)
        base = rest + known.delta
        for after in spread:
            out.append(base + after)
            digests.append(digest + known.digest + self._net_digests[after])
        return not spread

    def _count(self, state: int, out: list[int], digests: list[int], cuts: int) -> None:
        self.transitions += len(out)
        self.cuts += cuts
        self.terminal += not out
        if self.hashing:
            source = self.moves.digest(self.unpack_state(state))
            base = source - self._net_digests[state & NET_MASK]
            edges = self.edges
            for change in digests:
                edges += mix_edge(source, base + change & WORD)
            self.edges = edges & WORD

    # -- what is reckoned once ----------------------------------------------------------------------------------

    def _learn(self, event: int, local: int) -> KnownEdge:
        entry = self.entries.entry(event, local)
        component = self.entries.dest[event]
        if entry.local <= WAITS or entry.calls:
            known = KnownEdge(entry.local, bool(entry.calls), 0, 0, (), entry.broken)
        else:
            known = KnownEdge(1, False, *self._change(component, local, entry.local), entry.sends, entry.broken)
        self._known[event, local] = known
        return known

    def _change(self, component: int, before: int, after: int) -> tuple[int, int]:
        digests = self.entries.components[component].digests
        return after - before << self._shifts[component], digests[after] - digests[before]

    def _carried_out(self, event: int, state: int) -> KnownEdge:
        """`Moves.cascade`, of a packed state: the components that take no part in it are not looked at."""
        entries, shifts = self.entries, self._shifts
        after: dict[int, int] = {}
        sends: list[int] = []
        delta = digest = broken = 0
        queue = [event]
        for turn, one in enumerate(queue):
            if turn >= CALLS_MAX:
                raise make_endless_error(entries, event)
            component = entries.dest[one]
            local = after.get(component) or state >> shifts[component] & LOCAL_MASK
            entry = entries.entry(one, local)
            if entry.local <= WAITS:
                return KnownEdge(entry.local, False, 0, 0, (), entry.broken)
            if entry.local != local:
                more, changed = self._change(component, local, entry.local)
                delta += more
                digest += changed
                after[component] = entry.local
            sends += entry.sends
            queue += entry.calls
            broken = broken or entry.broken
        return KnownEdge(1, False, delta, digest, tuple(sends), broken)

    def _net(self, places: State) -> int:
        """The number of a filling of the network."""
        number = self._net_numbers.get(places)
        if number is not None:
            return number
        number = self._net_numbers[places] = len(self._nets)
        network, entries = self.moves.network, self.entries
        self._nets.append(places)
        self._net_digests.append(self.moves.net_digest(places))
        if self._orbits is not None:
            self._net_images.append(self.moves.net_digests(places))
        self._handed.append([])
        self._lost.append([])
        for place, message in enumerate(places):
            if message and not (place and self.moves.hides(places[place - 1], message)):
                lossy = entries.lossy[message]
                self._handed[number].append((message, entries.dest[message], place, network.duplicating and lossy))
                if network.lossy and lossy:
                    self._lost[number].append(self._net((*places[:place], *places[place + 1 :], 0)))
        return number

    def _spread_of(self, net: int, place: int, sends: tuple[int, ...]) -> list[int]:
        places = self._nets[net]
        if place >= 0:
            places = (*places[:place], *places[place + 1 :], 0)
        return [self._net(after) for _, after in self.moves.fits(places, sends)]

    # -- properties ---------------------------------------------------------------------------------------------

    def _watching(self, one: Always | Sometimes) -> Watched:
        reads, stride = [], 1
        for view in one.views:
            component = self.entries.place[view.actor]
            reads.append((self._shifts[component], self.entries.components[component].seen, stride))
            stride *= view.size
        return isinstance(one, Always), one.quiet, tuple(reads), combinations(one)

    def _judge(self, state: int) -> None:
        flying = state & NET_MASK != self._empty
        for number, (always, quiet, reads, table) in enumerate(self._watched):
            if quiet and flying:
                continue
            place = 0
            for shift, seen, stride in reads:
                place += seen[state >> shift & LOCAL_MASK][number] * stride
            if table[place]:
                self.hits[number] += 1
                if always:
                    _keep_least(self._broken_states, number, self.moves, self.unpack_state(state))

    def _note_step(self, broken: int, state: int) -> None:
        _keep_least(self._broken_steps, broken, self.moves, self.unpack_state(state))

    # -- packing ------------------------------------------------------------------------------------------------

    def pack_state(self, state: State) -> int:
        """A state as one integer."""
        number = self._net(state[self._width + self._budgets :])
        for local, shift in zip(state, self._shifts, strict=False):
            number += local << shift
        for left, shift in zip(state[self._width :], self._budget_shifts, strict=False):
            number += left << shift
        return number

    def unpack_state(self, state: int) -> State:
        """The fields of a state."""
        return (
            *(state >> shift & LOCAL_MASK for shift in self._shifts),
            *(state >> shift & BUDGET_MASK for shift in self._budget_shifts),
            *self._nets[state & NET_MASK],
        )


def _keep_least(kept: dict[int, tuple[int, State]], number: int, moves: Moves, state: State) -> None:
    digest = moves.digest(state)
    if number not in kept or digest < kept[number][0]:
        kept[number] = (digest, state)
