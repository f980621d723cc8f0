"""RestoredStore: a group store that is put back once, to a claim of before: epochs begin anew there, or come twice."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Event, Map
from statemachines.shared_subscriptions.group_store import Claim, StoredRecord, record_key
from statemachines.shared_subscriptions.names import CLAIM
from statemachines_spec.explorer.actor import Envelope, Reaction, Watch
from statemachines_spec.explorer.property import Property
from statemachines_spec.shared_subscriptions.consumer import FILTER, GROUP
from statemachines_spec.shared_subscriptions.stores import Store, StoreLocal

FIRST = 1
"""The epoch of the claim at the beginning, which nobody holds."""

KEPT = ("S1", "S17")
"""The first words of the names of what is promised all the same; the rest rests on a store that keeps what it has
committed (D-33)."""


class Restore(Event, frozen=True, gc=False):
    """All that was committed since is lost; the claim has this epoch."""

    epoch: int


class RestoredStore(Store):
    """A group store; how often it is put back a budget says."""

    def inputs(self, local: StoreLocal) -> tuple[Any, ...]:
        return (*super().inputs(local), Restore(FIRST - 1), Restore(FIRST))

    def react(self, local: StoreLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        if isinstance(envelope.event, Restore):
            return Reaction(replace(self.count_commit(local), state=release_claim(self.state, envelope.event.epoch)))
        return super().react(local, envelope, watch)


def release_claim(state: Map[str, StoredRecord], epoch: int) -> Map[str, StoredRecord]:
    """The same records, and a claim of that epoch that nobody holds."""
    return state.set(record_key(GROUP, FILTER, CLAIM), StoredRecord(Claim("", epoch), 0))


def keep_unbroken(properties: tuple[Property, ...]) -> tuple[Property, ...]:
    """Those of the properties that a store which is put back does not break."""
    return tuple(one for one in properties if one.name.split(" ")[0] in KEPT)
