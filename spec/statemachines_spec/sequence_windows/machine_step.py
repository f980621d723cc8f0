"""Machine step: one step of a shipped machine of a component."""

from __future__ import annotations

from typing import Any

from statemachines.kernel import Event, Fsm, Tell
from statemachines_spec.explorer.actor import Watch
from statemachines_spec.explorer.party import Party, step_party

Outcome = tuple[Any, tuple[Any, ...]]
"""The next record, and what the host is told."""


def step(fsm: Fsm[Any], record: Any, event: Event, name: str, watch: Watch | None) -> Outcome:
    """One step of a shipped machine of the component; each has a name of its own."""
    full = " ".join(filter(None, (name, fsm.name, fsm.key(record))))
    party, effects = step_party(fsm, Party(record), event, full, watch)
    return party.record, tuple(effect.event for effect in effects if isinstance(effect, Tell))
