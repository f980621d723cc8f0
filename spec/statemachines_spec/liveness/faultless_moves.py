"""Tail: what can still happen once faults have stopped: nothing is lost or copied any more, and no budget is spent.

An event with a budget is a fault, with one exception: where its budget says when it is `Due`, it then happens by itself
and costs nothing.  A timer with a budget that does not say so leads nobody knows where, as does a step beyond the
bounds of a component, or one that sends more than the network has room for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from statemachines.kernel import ConfigurationError, TimerFired
from statemachines_spec.explorer.entry_tables import FREE
from statemachines_spec.explorer.moves import Kind, Move, Moves, ReplayedAction, State
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.system import Budget

SUBJECTS_MAX = 63
UNKNOWN = (1 << 64) - 1
"""In place of a subject: a timer with a budget that does not say when it is due."""
ANSWERS_MAX = 8
"""Messages in flight without faults, answers included, at most; more where the system has room for more."""
ROOM = 2
"""Messages that find room without faults, at least: one on its way to each of two parties."""


class Possible(NamedTuple):
    """What may happen by itself in a local state: the event, the deadlines it waits for, and the subject that nobody
    may speak for (a bit; 0: it costs nothing anyway; `UNKNOWN`)."""

    event: int
    wait: int
    subject: int


class Calm(NamedTuple):
    """A local state once faults have stopped: what may happen by itself, and the subjects that it speaks for (bits)."""

    possible: tuple[Possible, ...]
    kept: int


class Tail(Moves):
    """The transitions without faults, one state at a time.  `target` None: nobody knows where it leads."""

    def __init__(self, entries: Entries, room: int | None = None) -> None:
        """`room`: messages in flight beyond which nothing is sent but in answer to one of them; without it as many as
        the system has, and two at least."""
        network = entries.system.network
        places = max(ANSWERS_MAX, network.in_flight)
        super().__init__(entries, replace(network, in_flight=places, lossy=False))
        self.room = min(places, max(network.in_flight, ROOM if room is None else room))
        self._dues = [(one, one.due) for one in entries.system.budgets if one.due is not None]
        self._subjects: dict[tuple[str, Hashable], int] = {}
        self._locals: list[dict[int, Calm]] = [{} for _ in entries.components]
        self._messages: dict[int, int] = {0: 0}

    def calm(self, state: State) -> State:
        """The same state with all the room that there is in the network, and nothing left of the budgets (since nothing
        is spent any more, states that differ only there are one)."""
        return (
            *state[: self.width],
            *(0,) * self.budgets,
            *state[self.net :],
            *(0,) * (self.net + self.network.in_flight - len(state)),
        )

    def of(self, state: State) -> Iterator[Move]:
        """Every transition without a fault, in a fixed order."""
        kept = self._read_kept(state)
        for number in range(self.width):
            for one in self.local(number, state[number]).possible:
                if one.wait and self.is_blocked(state, one.wait):
                    continue
                if one.subject == UNKNOWN:
                    yield Move(ReplayedAction(Kind.INPUT, one.event, 0), None, 0)
                elif not one.subject & kept:
                    yield from self._with_room(one.event, state)
        messages = state[self.net :]
        for place, message in enumerate(messages):
            if not message:
                return
            if not (place and self.hides(messages[place - 1], message)):
                rest = (*messages[:place], *messages[place + 1 :], 0)
                yield from self._handle(Kind.DELIVER, message, state, rest, FREE)

    def _with_room(self, event: int, state: State) -> Iterator[Move]:
        """What comes of something that happens by itself: no more messages than there is room for."""
        used = sum(message > 0 for message in state[self.net :])
        for move in self._handle(Kind.INPUT, event, state, state[self.net :], FREE):
            fits = move.target is None or not any(move.target[self.net + max(self.room, used) :])
            yield move if fits else Move(move.action, None, 0)

    # -- what budgets say ---------------------------------------------------------------------------------------

    def local(self, component: int, number: int) -> Calm:
        """What is known of a local state of a component."""
        known = self._locals[component].get(number)
        if known is None:
            known = self._locals[component][number] = self._calm(component, number)
        return known

    def find_carried(self, message: int) -> int:
        """The subjects that a message on its way speaks for (bits)."""
        known = self._messages.get(message)
        if known is None:
            envelope = self.entries.envelopes[message]
            known = self._messages[message] = self._bits(
                (budget, subject) for budget, due in self._dues if envelope.sender for subject in due.carried(envelope)
            )
        return known

    def _read_kept(self, state: State) -> int:
        bits = 0
        if not self._dues:
            return bits
        for number in range(self.width):
            bits |= self.local(number, state[number]).kept
        for message in state[self.net :]:
            bits |= self.find_carried(message)
        return bits

    def _calm(self, component: int, number: int) -> Calm:
        actor, local = self.entries.components[component].actor, self.entries.components[component].locals[number]
        budgets = self.entries.system.budgets
        possible = []
        for event in actor.inputs(local):
            budget = next((one for one in budgets if one.spends(actor.name, event)), None)
            subject = 0
            if budget is not None:
                about = None if budget.due is None else budget.due.about(actor.name, local, event)
                if about is not None:
                    subject = self._bits([(budget, about)])
                elif budget.limit and isinstance(event, TimerFired):
                    subject = UNKNOWN
                else:
                    continue
            possible.append(Possible(*self.entries.spontaneous(actor, local, event), subject))
        kept = self._bits((budget, subject) for budget, due in self._dues for subject in due.kept(actor.name, local))
        return Calm(tuple(possible), kept)

    def _bits(self, subjects: Iterable[tuple[Budget, Hashable]]) -> int:
        bits = 0
        for budget, subject in subjects:
            number = self._subjects.setdefault((budget.name, subject), len(self._subjects))
            if number >= SUBJECTS_MAX:
                rule = f"the budgets of a system may speak of {SUBJECTS_MAX} subjects; make them coarser"
                raise ConfigurationError(f"budget {budget.name!r}", subject, rule)
            bits |= 1 << number
        return bits
