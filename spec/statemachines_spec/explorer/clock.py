"""Clock: the instants of a system, one after the other: what its machines get as `now_ns`.

Without one it is always 0.  A system whose machines hold time as data declares a short list; time goes from one instant
to the next at any moment, for all components that keep time (`FsmActor`, `ServiceActor`) or for those in `of`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from statemachines.kernel import ConfigurationError, Event
from statemachines_spec.explorer.actor import EVERYBODY, Actor, At, Envelope, Reaction, Watch

INSTANTS_MAX = 16


class Advance(Event, frozen=True, gc=False):
    """It is the next instant."""


class Hand(msgspec.Struct, frozen=True, gc=False):
    """Which instant it is."""

    place: int = 0


class Clock(Actor):
    """`instants` in nanoseconds, rising from 0; `of`: the components that it tells (none named: all that keep time).
    Two clocks are those of two nodes, one ahead of the other or behind."""

    def __init__(self, *instants: int, of: tuple[str, ...] = (), name: str = "clock") -> None:
        super().__init__(name)
        if not 2 <= len(instants) <= INSTANTS_MAX or instants[0] != 0 or list(instants) != sorted({*instants}):
            rule = f"must be 2 to {INSTANTS_MAX} instants in nanoseconds, rising from 0"
            raise ConfigurationError(f"instants of {name}", instants, rule)
        self.instants = instants
        self.of = of

    def initial(self) -> Hand:
        return Hand()

    def inputs(self, local: Hand) -> tuple[Any, ...]:
        return (Advance(),) if local.place + 1 < len(self.instants) else ()

    def react(self, local: Hand, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        now = At(self.instants[local.place + 1])
        calls = tuple(Envelope(self.name, one, now) for one in self.of or (EVERYBODY,))
        return Reaction(Hand(local.place + 1), (), calls)

    def describe(self, local: Hand) -> str:
        return f"{self.instants[local.place]} ns"

    def bounds(self) -> dict[str, str]:
        return {"instants": f"{', '.join(map(str, self.instants))} ns"}
