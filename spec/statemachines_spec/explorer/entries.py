"""Entries: what every component of a system does in every local state on every event, as integers.

An entry is made when a walker first needs it, and never again: `EntryTables` says how, and `Orbits` makes those of the
renamed pairs with it where components may change places.
"""

from __future__ import annotations

from typing import Any

from statemachines_spec.explorer.actor import Envelope
from statemachines_spec.explorer.entry_tables import Entry, EntryTables, encode_envelope, encode_value
from statemachines_spec.explorer.orbits import Orbits
from statemachines_spec.explorer.system import System


class Entries(EntryTables):
    """The tables of one system with its symmetries; `start`: the local state that each component begins in."""

    def __init__(self, system: System, *, twice: bool = True) -> None:
        super().__init__(system, twice=twice)
        self.orbits = Orbits(self) if system.symmetries else None
        self.start = tuple(
            self.local(number, one.actor.canonical(one.actor.initial())) for number, one in enumerate(self.components)
        )
        if self.orbits is not None:
            self.orbits.check_start(self.start)

    @property
    def unsound_start(self) -> int:
        """The step property that a record breaks at the beginning (0: none)."""
        return min(
            filter(None, (one.unsound[at] for one, at in zip(self.components, self.start, strict=True))), default=0
        )

    def local(self, component: int, local: Any) -> int:
        """The number of a local state."""
        if self.orbits is None:
            return self.add_local(component, local)
        number = self.components[component].numbers.get(encode_value(local))
        return self.orbits.local(component, local) if number is None else number

    def envelope(self, envelope: Envelope) -> int:
        """The number of an envelope."""
        if self.orbits is None:
            return self.add_envelope(envelope)
        number = self._numbers.get(encode_envelope(envelope))
        return self.orbits.envelope(envelope) if number is None else self._same(number, envelope)

    def entry(self, event: int, local: int) -> Entry:
        """The outcome of an event in a local state of the component it is for."""
        number = self.entry_of.get((event, local))
        return self.entries[self.fill(event, local) if number is None else number]

    def fill(self, event: int, local: int) -> int:
        """Make the entry of a pair that has none; its number."""
        return self.make(event, local) if self.orbits is None else self.orbits.fill(event, local)
