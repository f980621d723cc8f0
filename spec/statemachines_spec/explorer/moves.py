"""Moves: every transition that leaves one global state, in plain Python: the meaning that both walkers carry out.

A global state is a tuple of integers: one local state for each component, what is left of each budget, then the places
of the network (message numbers; the empty ones, 0, at the end).  Where order between messages means nothing the places
are sorted; in an ordered network they are sorted by channel, those of a channel as they were sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from statemachines_spec.explorer.entry_tables import CUT, FAILED, FREE, WAITS
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.purity import Entries

State = tuple[int, ...]

WORD = (1 << 64) - 1
BUDGET_DIGEST, SOURCE_DIGEST, TARGET_DIGEST, MIX_DIGEST = (
    0x9E3779B97F4A7C15,
    0xBF58476D1CE4E5B9,
    0x94D049BB133111EB,
    0xD6E8FEB86659FD93,
)
CALLS_MAX = 64


class Kind(IntEnum):
    """What sort of transition: something by itself, a message handed over, a copy of it, a message lost."""

    INPUT = 0
    DELIVER = 1
    COPY = 2
    DROP = 3


class ReplayedAction(NamedTuple):
    """One transition out of a state.  `kept`: of the messages sent, those that found room (bits)."""

    kind: Kind
    event: int
    kept: int


class Move(NamedTuple):
    """An action, where it leads, and the step property that breaks on the way (0: none).  `target` None: the step was
    cut at the bounds, or it raised (then `broken` is 1)."""

    action: ReplayedAction
    target: State | None
    broken: int


class Cascade(NamedTuple):
    """An event with all the calls that follow from it: the local states after, what was sent, what broke.  `ends`:
    `WAITS`, `CUT` or `FAILED` where it does not happen."""

    ends: int
    locals: tuple[int, ...]
    sends: tuple[int, ...]
    broken: int


class Moves:
    """The transitions of a system, one state at a time."""

    def __init__(self, entries: Entries, network: Network | None = None) -> None:
        """`network`: another than the system's."""
        system = entries.system
        self.entries = entries
        self.network = system.network if network is None else network
        self.width = len(entries.components)
        self.budgets = len(system.spendable)
        self.net = self.width + self.budgets

    def first(self) -> State:
        """The initial state."""
        system = self.entries.system
        return (*self.entries.start, *(one.limit for one in system.spendable), *(0,) * self.network.in_flight)

    def of(self, state: State) -> Iterator[Move]:
        """Every transition, in a fixed order."""
        yield from self._inputs(state)
        messages = state[self.net :]
        for place, message in enumerate(messages):
            if not message:
                return
            if place and self.hides(messages[place - 1], message):
                continue
            rest = messages[:place] + messages[place + 1 :]
            yield from self._handle(Kind.DELIVER, message, state, rest, FREE)
            if self.entries.lossy[message]:
                if self.network.duplicating:
                    yield from self._handle(Kind.COPY, message, state, messages, FREE)
                if self.network.lossy:
                    yield Move(ReplayedAction(Kind.DROP, message, 0), (*state[: self.net], *rest, 0), 0)

    def cascade(self, event: int, local: tuple[int, ...]) -> Cascade:
        """One event and the calls that follow from it, in the order they were made."""
        entries = self.entries
        after, broken = list(local), 0
        sends: list[int] = []
        queue = [event]
        for turn, one in enumerate(queue):
            if turn >= CALLS_MAX:
                raise make_endless_error(entries, event)
            component = entries.dest[one]
            entry = entries.entry(one, after[component])
            if entry.local <= WAITS:
                return Cascade(entry.local, local, (), entry.broken)
            after[component] = entry.local
            sends += entry.sends
            queue += entry.calls
            broken = broken or entry.broken
        return Cascade(1, tuple(after), tuple(sends), broken)

    def fits(self, messages: State, sends: tuple[int, ...]) -> Iterator[tuple[int, State]]:
        """The places after `sends`, and which of them were kept; nothing where they must stay and cannot."""
        network, entries = self.network, self.entries
        there = [message for message in messages if message]
        sends = self.fresh(there, sends)
        room = network.in_flight - len(there)
        if len(sends) <= room:
            yield (1 << len(sends)) - 1, self._placed(there, sends)
            return
        must = sum(1 << bit for bit, one in enumerate(sends) if not (network.lossy and entries.lossy[one]))
        for kept in range(1 << len(sends)):
            if kept & must == must and kept.bit_count() == room:
                yield kept, self._placed(there, tuple(one for bit, one in enumerate(sends) if kept >> bit & 1))

    def fresh(self, there: list[int], sends: tuple[int, ...]) -> tuple[int, ...]:
        """In a duplicating network a copy of what is there is nothing new."""
        if not self.network.duplicating:
            return sends
        once = dict.fromkeys(sends)
        return tuple(one for one in once if one not in there or not self.entries.lossy[one])

    def digest(self, state: State) -> int:
        """64 bits of what a state means, whatever the numbers in it are."""
        entries = self.entries
        total = 0
        for component, local in zip(entries.components, state, strict=False):
            total += component.digests[local]
        for number in range(self.budgets):
            total += (state[self.width + number] + 1) * (BUDGET_DIGEST + 2 * number)
        return (total + self.net_digest(state[self.net :])) & WORD

    def net_digest(self, messages: State) -> int:
        """The part of the network in `digest`."""
        total, behind, before = 0, 0, 0
        for message in messages:
            if message:
                channel = self.entries.channel[message]
                behind = behind + 1 if self.network.ordered and channel == before else 0
                before = channel
                total += self.entries.digests[message] * (2 * behind + 1)
        return total & WORD

    # -- symmetry -----------------------------------------------------------------------------------------------

    def least(self, state: State) -> State:
        """The state that stands for this one and all that differ only in who is who: of those with the least digest
        (budgets left out: they do not change) the first by its numbers.  Without symmetry: itself."""
        orbits = self.entries.orbits
        if orbits is None:
            return state
        digests = self._digests(state)
        least = min(digests)
        return min(self.rename_state(state, turn) for turn, one in enumerate(digests) if one == least)

    def orbit(self, state: State) -> set[State]:
        """All states that differ only in who is who, itself included."""
        orbits = self.entries.orbits
        return {state} if orbits is None else {self.rename_state(state, turn) for turn in range(len(orbits.renamings))}

    def rename_state(self, state: State, turn: int) -> State:
        """A state under a renaming of `Orbits`."""
        orbits = self.entries.orbits
        assert orbits is not None
        places = orbits.places[turn]
        locals_after = [0] * self.width
        for component, local in enumerate(state[: self.width]):
            locals_after[places[component]] = orbits.locals[component][local][turn]
        messages = [orbits.envelopes[message][turn] for message in state[self.net :] if message]
        return (*locals_after, *state[self.width : self.net], *self._placed(messages, ()))

    def _digests(self, state: State) -> list[int]:
        """The digest under each renaming, without the budgets."""
        orbits = self.entries.orbits
        assert orbits is not None
        rows = [orbits.digests[component][local] for component, local in enumerate(state[: self.width])]
        rows.append(self.net_digests(state[self.net :]))
        return [sum(column) & WORD for column in zip(*rows, strict=True)]

    def net_digests(self, messages: State) -> tuple[int, ...]:
        """`net_digest` under each renaming: places in a channel do not change."""
        orbits = self.entries.orbits
        assert orbits is not None
        total = [0] * len(orbits.renamings)
        behind, before = 0, 0
        for message in messages:
            if message:
                channel = self.entries.channel[message]
                behind = behind + 1 if self.network.ordered and channel == before else 0
                before = channel
                total = [
                    one + more * (2 * behind + 1)
                    for one, more in zip(total, orbits.envelope_digests[message], strict=True)
                ]
        return tuple(one & WORD for one in total)

    # -- moves --------------------------------------------------------------------------------------------------

    def _inputs(self, state: State) -> Iterator[Move]:
        entries = self.entries
        for number, component in enumerate(entries.components):
            for one in component.inputs[state[number]]:
                if one.budget != FREE and not state[self.width + one.budget]:
                    continue
                if one.wait and self.is_blocked(state, one.wait):
                    continue
                yield from self._handle(Kind.INPUT, one.event, state, state[self.net :], one.budget)

    def is_blocked(self, state: State, wait: int) -> bool:
        """Whether some component has a deadline open that comes before."""
        row = self.entries.block[wait]
        return any(
            row[component.pending[local]] for component, local in zip(self.entries.components, state, strict=False)
        )

    def hides(self, before: int, message: int) -> bool:
        """Whether the message in the place before is another copy, or must be handled first."""
        if self.network.ordered:
            return self.entries.channel[before] == self.entries.channel[message]
        return before == message

    def _handle(self, kind: Kind, event: int, state: State, messages: State, budget: int) -> Iterator[Move]:
        ends, local, sends, broken = self.cascade(event, state[: self.width])
        if ends == WAITS:
            return
        if ends in (CUT, FAILED):
            yield Move(ReplayedAction(kind, event, 0), None, broken)
            return
        left = list(state[self.width : self.net])
        if budget != FREE:
            left[budget] -= 1
        some = False
        for kept, places in self.fits(messages, sends):
            some = True
            yield Move(ReplayedAction(kind, event, kept), (*local, *left, *places), broken)
        if not some:  # what broke has broken, though what was sent finds no room
            yield Move(ReplayedAction(kind, event, 0), None, broken)

    def _placed(self, there: list[int], sends: tuple[int, ...]) -> State:
        """In order: by channel, those of a channel as they were sent; or by number."""
        places = there + list(sends)
        places.sort(key=self.entries.channel.__getitem__ if self.network.ordered else None)
        return tuple(places) + (0,) * (self.network.in_flight - len(places))


def make_endless_error(entries: Entries, event: int) -> RecursionError:
    """What is raised where the calls after an event do not end."""
    return RecursionError(f"{entries.envelopes[event]}: more than {CALLS_MAX} calls within one transition")


def mix_edge(source: int, target: int) -> int:
    """One edge of the graph as 64 bits; the sum over all is the edge hash."""
    value = (source * SOURCE_DIGEST + target * TARGET_DIGEST) & WORD
    value ^= value >> 32
    value = value * MIX_DIGEST & WORD
    return value ^ value >> 29
