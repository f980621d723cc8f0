"""Systems whose steps are no functions; the second one can be made by another process."""

from __future__ import annotations

import msgspec
from toy_system import Count, Listener, Say, Talker

from statemachines_spec.explorer.actor import Actor, Envelope, Reaction
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.system import System


class Forgetting(Listener):
    """Counts its calls in itself and not in its record."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def react(self, local, envelope, watch=None):
        self.calls += 1
        return Reaction(Count(self.calls, 0))


class Word(msgspec.Struct, frozen=True):
    text: str = ""


class Iterating(Actor):
    """Writes a set down in its own order."""

    def __init__(self):
        super().__init__("writer")

    def initial(self):
        return Word()

    def inputs(self, local):
        return (Say(),)

    def react(self, local, envelope: Envelope, watch=None):
        return Reaction(Word(" ".join({f"word{n}" for n in range(20)})))


def forgetting():
    return System("forgetting", "", (Talker(2), Forgetting()), Network())


def iterating():
    return System("iterating", "", (Iterating(),), Network(), origin=("impure_system:iterating", {}))
