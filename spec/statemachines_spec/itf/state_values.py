"""StateValues: a global state as the variables of an ITF trace: each component by its name, and the network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from statemachines.kernel import GaplessError, name_of
from statemachines.trace.itf import Value, encode_itf
from statemachines_spec.explorer.actor import Envelope
from statemachines_spec.explorer.explore import ScriptLine
from statemachines_spec.explorer.moves import Moves, State
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.system import System

NETWORK = "network"
"""The variable of messages in flight."""


class StateValues:
    """The variables of a system, and their values in its global states."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.entries = Entries(system.in_full())
        self.moves = Moves(self.entries)
        self.components = tuple(actor.name for actor in system.actors)
        sends = system.post is None and NETWORK not in self.components
        self.names = (*self.components, NETWORK) if sends else self.components

    def local(self, state: State, name: str) -> Any:
        """The local state of a component."""
        place = self.entries.place[name]
        return self.entries.components[place].locals[state[place]]

    def messages(self, state: State) -> Value:
        """The messages in flight, as a list."""
        return [_encode_envelope(self.entries.envelopes[one]) for one in state[self.moves.net :] if one]

    def of(self, state: State) -> dict[str, Value]:
        """The value of each variable."""
        values = {name: encode_itf(self.local(state, name)) for name in self.components}
        return values | ({NETWORK: self.messages(state)} if NETWORK in self.names else {})

    def along(self, script: Iterable[ScriptLine]) -> Iterator[State]:
        """The states of a run, from the initial one; the last step has none if it raises.

        Raises `GaplessError` where the script is not of this system.
        """
        state = self.moves.first()
        yield state
        digests = self.entries.digests
        for number, (kind, digest, kept) in enumerate(script, 1):
            found = [
                move
                for move in self.moves.of(state)
                if (move.action.kind.name.lower(), f"{digests[move.action.event]:016x}", move.action.kept)
                == (kind, digest, kept)
            ]
            if not found:
                raise GaplessError(f"step {number} of the run cannot be taken in {self.system.name}")
            target = found[0].target
            if target is None:
                return
            state = target
            yield state


def _encode_envelope(envelope: Envelope) -> Value:
    event = {"kind": name_of(type(envelope.event)), "fields": encode_itf(envelope.event)}
    return {"from": envelope.sender, "to": envelope.to, **event}
