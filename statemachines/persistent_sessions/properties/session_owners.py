"""SendingOwners, and what is promised of the owners of a session: one of them sends, and each comes to rest.

seen = seen.observe_replaced("a~1/1")
broken = seen.judge_sender("a~1/1")         property SPLIT breaks
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from statemachines.kernel import BrokenProperty, Map, in_order
from statemachines.persistent_sessions.delivery import DeliveryRecord
from statemachines.persistent_sessions.resume import RESUMING
from statemachines.persistent_sessions.resume_record import NORMAL, YIELDING, ResumeRecord
from statemachines.persistent_sessions.writer_flow import DONE

SUPERSEDED: Final = "superseded"
SUPERSEDING: Final = (SUPERSEDED, "discarded")
"""Why a connection is over whose client has made another."""


class SendingOwners(msgspec.Struct, frozen=True, gc=False):
    """Owners that another one has `replaced`; the `last` that has sent something to the client."""

    replaced: Map[str, bool] = Map()
    last: str = ""

    def observe_replaced(self, *owners: str) -> SendingOwners:
        """These have yielded, or a later one has sent something."""
        return SendingOwners(self.replaced.update((one, True) for one in owners), self.last)

    def observe_sender(self, owner: str) -> SendingOwners:
        """An owner sends something, and replaces the one that has sent before."""
        if owner == self.last or owner in self.replaced:
            return self
        replaced = self.replaced.set(self.last, True) if self.last else self.replaced
        return SendingOwners(replaced, owner)

    def judge_sender(self, owner: str) -> tuple[BrokenProperty, ...]:
        """An owner that is replaced sends nothing (SPLIT)."""
        if owner not in self.replaced:
            return ()
        return (BrokenProperty("SPLIT", f"{owner} sends something, and another owner has replaced it"),)


def judge_end(client: str, why: str) -> tuple[BrokenProperty, ...]:
    """The last connection of a client that alone has its client id ends (SUPERSEDED)."""
    return (BrokenProperty("SUPERSEDED", f"{client} is told that it is {why}"),) if why in SUPERSEDING else ()


def judge_losses(owner: str, delivery: DeliveryRecord | None) -> tuple[BrokenProperty, ...]:
    """Retention has removed nothing, so an owner counts nothing as lost (COUNTED)."""
    if delivery is None or not delivery.lost:
        return ()
    return (BrokenProperty("COUNTED", f"{owner} has counted {delivery.lost} as lost, and nothing is"),)


def judge_count(owners: int, clients: int) -> tuple[BrokenProperty, ...]:
    """At rest there is no owner without a client (ENDS)."""
    return (BrokenProperty("ENDS", f"there are {owners} owners of {clients} clients"),) if owners > clients else ()


def is_resuming(record: ResumeRecord) -> bool:
    """An owner has not come to normal operation, and works at it (ENDS)."""
    return record.status in RESUMING


def is_taking(record: Any) -> bool:
    """An owner takes its session over (TAKES); the machine of the source has no takeover."""
    return getattr(record, "takeover", None) is not None


def judge_takeover(owner: str, record: ResumeRecord) -> tuple[BrokenProperty, ...]:
    """At rest no takeover is left, on either side (TAKES)."""
    if record.status is YIELDING:
        return (BrokenProperty("TAKES", f"{owner} has yielded, and is still there"),)
    if record.status is NORMAL and is_taking(record):
        return (BrokenProperty("TAKES", f"{owner} takes over, and is not done"),)
    return ()


def list_unfinished(owner: str, record: ResumeRecord) -> Iterator[BrokenProperty]:
    """What an owner has not come to yet (ENDS)."""
    if record.status is not NORMAL:
        yield BrokenProperty("ENDS", f"{owner} is {record.status.value}")
    for writer, flow in in_order(record.flows):
        if flow.status is not DONE:
            yield BrokenProperty("ENDS", f"{owner} and {writer} are {flow.status.value}")
