"""ByHand: a closed system of the explorer, moved by hand: a test says what is called, handed over, lost, and when.

    run = ByHand(lock_system(), drop("granted", nth=1))          # rules: what becomes of single messages in calm
    run.call("want", at="holder-1")                              # the application, driven by hand
    run.calm()                                                   # whatever happens untroubled, until nothing can
    run.pause("holder-1"); run.deliver("acquire", to="lock"); run.fire("expiry")
    run.record("holder-1")                                       # what its machine knows

Words are the names of events (`Want` is "want"), places are components or parties.  Whatever breaks is raised as
`PropertyBroken`, told like a counterexample; a move that cannot be made raises `ConfigurationError` with those that
can, and so do words that fit several.
"""

from __future__ import annotations

from typing import Any, Final

from statemachines.kernel import ConfigurationError, name_of, node_of
from statemachines.testing.closed_run import (
    CALL,
    CRASH,
    DELIVER,
    DROP,
    DUPLICATE,
    FIRE,
    PAUSE,
    RESTART,
    WAKE,
    Choice,
    ClosedRun,
    MessageFate,
    SharedSystem,
    broken_type,
    tell_story,
)
from statemachines_spec.explorer.actor import Envelope
from statemachines_spec.explorer.system import System

CALM_MAX: Final = 1_000
"""Moves after which a system that never comes to rest is left alone."""


class HandRule:
    """What becomes of the `nth` message that it is about (0: of each), in calm; `seen` and `hit` count."""

    def __init__(self, event: str, fate: MessageFate, nth: int = 1, sender: str = "", to: str = "") -> None:
        if nth < 0:
            raise ConfigurationError("rule: nth", nth, "must be 1 or more, or 0 for every message")
        self.event, self.fate, self.nth, self.sender, self.to = event, fate, nth, sender, to
        self.seen = self.hit = 0

    def applies(self, message: Envelope) -> bool:
        """Whether it hits this message, which is counted."""
        if not is_fitting(message, self.event, self.sender, self.to):
            return False
        self.seen += 1
        hits = self.nth in (0, self.seen)
        self.hit += hits
        return hits


def drop(event: str = "", *, nth: int = 1, sender: str = "", to: str = "") -> HandRule:
    """It is lost.  `event`: the name of the message ("" = any); `sender`, `to`: a component, a node or a party."""
    return HandRule(event, MessageFate(DROP), nth, sender, to)


def delay(event: str = "", *, moves: int, nth: int = 1, sender: str = "", to: str = "") -> HandRule:
    """It comes so many moves later, or when nothing else can happen."""
    return HandRule(event, MessageFate(DELIVER, moves), nth, sender, to)


def duplicate(event: str = "", *, moves: int = 0, nth: int = 1, sender: str = "", to: str = "") -> HandRule:
    """It comes, and a copy of it so many moves later."""
    return HandRule(event, MessageFate(DUPLICATE, moves), nth, sender, to)


def is_fitting(message: Envelope, event: str, sender: str = "", to: str = "") -> bool:
    """Whether the message goes by these words ("" = any)."""
    if event and word_of(message) != event:
        return False
    places = ((sender, message.sender), (to, message.to))
    return all(not wanted or wanted in (party, node_of(party)) for wanted, party in places)


def word_of(message: Envelope) -> str:
    """What it is called: its event, or the request that it carries to a store."""
    return name_of(type(getattr(message.event, "request", message.event)))


class ByHand:
    """One run of `system`, from its beginning."""

    def __init__(self, system: System, *rules: HandRule) -> None:
        self.closed = SharedSystem(system)
        self.rules = rules
        self.play = ClosedRun(self.closed, fate_of=self._fate_of)

    # -- moves --------------------------------------------------------------------------------------------------

    def call(self, event: str, at: str = "") -> ByHand:
        """A host or the environment calls."""
        return self._move(CALL, event, to=at)

    def deliver(self, event: str = "", *, sender: str = "", to: str = "") -> ByHand:
        """A message arrives; one that is held back arrives all the same."""
        self.play.let_go()
        return self._move(DELIVER, event, sender, to)

    def drop(self, event: str = "", *, sender: str = "", to: str = "") -> ByHand:
        """A message is lost."""
        return self._move(DROP, event, sender, to)

    def duplicate(self, event: str = "", *, sender: str = "", to: str = "") -> ByHand:
        """A copy of a message arrives, and the message is still on its way."""
        return self._move(DUPLICATE, event, sender, to)

    def hold_back(self, event: str = "", *, sender: str = "", to: str = "", moves: int = CALM_MAX) -> ByHand:
        """A message that is on its way comes so many moves later, or when nothing else can happen."""
        self.play.hold_back(self._choice(DELIVER, event, sender, to).event, moves)
        return self

    def fire(self, event: str = "", at: str = "") -> ByHand:
        """A timer that is set fires."""
        return self._move(FIRE, event, to=at)

    def crash(self, at: str) -> ByHand:
        """The process is gone."""
        return self._move(CRASH, to=at)

    def restart(self, at: str) -> ByHand:
        """It comes back."""
        return self._move(RESTART, to=at)

    def pause(self, at: str) -> ByHand:
        """It stands still."""
        return self._move(PAUSE, to=at)

    def wake(self, at: str, event: str = "") -> ByHand:
        """Time passes for a process that stands still (`event`: "pass"), or it goes on ("wake")."""
        return self._move(WAKE, event, to=at)

    def calm(self, moves: int = CALM_MAX) -> ByHand:
        """So many untroubled moves, by the rules; it ends when nothing can happen."""
        for _ in range(moves):
            if not self.play.calm():
                break
            self._check()
        return self

    # -- looking ------------------------------------------------------------------------------------------------

    def local(self, component: str) -> Any:
        """What the component of this name knows: its local state."""
        place = self._place(component)
        return self.closed.entries.components[place].locals[self.play.state[place]]

    def record(self, component: str) -> Any:
        """The record of the component's machine, or its local state where it has none."""
        local = self.local(component)
        party = getattr(local, "party", None)
        return local if party is None else party.record

    def can(self, *sorts: str) -> list[str]:
        """What can happen now, in words: "deliver granted to holder-1"."""
        every = sorts or (CALL, DELIVER, DROP, DUPLICATE, FIRE, CRASH, RESTART, PAUSE, WAKE)
        return sorted({self._words(choice) for choice in self.play.choices(*every)})

    @property
    def seen_properties(self) -> set[str]:
        """The properties that must happen sometimes, and have happened."""
        return self.play.shown

    def tell_story(self) -> str:
        """What happened so far, as the explorer tells it."""
        return tell_story(self.closed.system, tuple(self.play.script))

    # -- inside -------------------------------------------------------------------------------------------------

    def _move(self, sort: str, event: str = "", sender: str = "", to: str = "") -> ByHand:
        self.play.take(self._choice(sort, event, sender, to))
        self._check()
        return self

    def _choice(self, sort: str, event: str, sender: str = "", to: str = "") -> Choice:
        found = [
            choice
            for choice in self.play.choices(sort)
            if is_fitting(self._envelope(choice), event, sender) and self._is_at(choice, to)
        ]
        different = {self._words(choice) for choice in found}
        if len(different) == 1:
            return found[0]
        said = ((sort, sort), (event, event), (sender, f"from {sender}"), (to, f"to {to}"))
        words = " ".join(shown for value, shown in said if value)
        if different:
            raise ConfigurationError("move", words, f"may be several: {', '.join(sorted(different))}")
        raise ConfigurationError("move", words, f"cannot be made; there are: {', '.join(self.can(sort)) or 'none'}")

    def _is_at(self, choice: Choice, to: str) -> bool:
        entries = self.closed.entries
        component = entries.components[entries.dest[choice.event]].actor.name
        party = self._envelope(choice).to
        return not to or to in (component, party, node_of(party))

    def _check(self) -> None:
        if self.play.broken:
            name = self.play.broken[0]
            raise broken_type(name)(f"{name}\n\n{self.tell_story()}")

    def _fate_of(self, message: int) -> MessageFate | None:
        envelope = self.closed.entries.envelopes[message]
        return next((rule.fate for rule in self.rules if rule.applies(envelope)), None)

    def _envelope(self, choice: Choice) -> Envelope:
        return self.closed.entries.envelopes[choice.event]

    def _place(self, component: str) -> int:
        places = self.closed.entries.place
        if component not in places:
            raise ConfigurationError("component", component, f"unknown; there are: {', '.join(places)}")
        return places[component]

    def _words(self, choice: Choice) -> str:
        message = self._envelope(choice)
        sender = f" from {message.sender}" if message.sender else ""
        return f"{choice.sort} {word_of(message)}{sender} to {message.to}"
