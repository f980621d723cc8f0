"""Rules: how the components of a system number and judge: by the shipped machines, or by the words of the source."""

from __future__ import annotations

from typing import Any

from statemachines.kernel import Event, Fsm, Tell
from statemachines.sequence_windows.message import Numbered
from statemachines.sequence_windows.publisher_window import PUBLISHER_WINDOW, Publish
from statemachines.sequence_windows.subscriber_window import SUBSCRIBER_WINDOW
from statemachines_spec.explorer.actor import Watch
from statemachines_spec.explorer.party import Party, step_party

Outcome = tuple[Any, tuple[Any, ...]]
"""The next record, and what the host is told."""


def step(fsm: Fsm[Any], record: Any, event: Event, name: str, watch: Watch | None) -> Outcome:
    """One step of a shipped machine of the component; each has a name of its own."""
    full = " ".join(filter(None, (name, fsm.name, fsm.key(record))))
    party, effects = step_party(fsm, Party(record), event, full, watch)
    return party.record, tuple(effect.event for effect in effects if isinstance(effect, Tell))


class WindowRules:
    """As they are shipped: a machine for each subject, and for each subject and publisher."""

    by_publisher = True
    """A receiver tells the publishers of a subject apart."""

    def stamp(self, record: Any, event: Publish, name: str, watch: Watch | None) -> Outcome:
        """Number a message."""
        return step(PUBLISHER_WINDOW, record, event, name, watch)

    def judge(self, record: Any, event: Numbered, name: str, watch: Watch | None) -> Outcome:
        """What a message is."""
        return step(SUBSCRIBER_WINDOW, record, event, name, watch)


SHIPPED = WindowRules()
