"""Due timeouts: when the timeouts of shared subscriptions are no faults: once faults have stopped, these fire, and no
others."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from statemachines.shared_subscriptions.assignment import RevokeTimeout
from statemachines.shared_subscriptions.borrower import PingTimeout
from statemachines.shared_subscriptions.member import ExpiryTimer
from statemachines.shared_subscriptions.message import Invalidate, Ping, PingResponse
from statemachines_spec.explorer.actor import Envelope
from statemachines_spec.explorer.system import Due
from statemachines_spec.shared_subscriptions.consumer import ConsumerLocal

ANSWER, LIFE = "answer", "life"


def about(actor: str, local: Any, event: Any) -> Hashable | None:
    """A ping timeout waits for the answer; expiry and revoke timeout are about the life of a borrower."""
    if isinstance(event, PingTimeout):
        return (ANSWER, local.party.record.id)
    if isinstance(event, ExpiryTimer):
        return (LIFE, event.key)
    if isinstance(event, RevokeTimeout):
        return (LIFE, local.party.record.assignments[event.key].link.borrower)
    return None


def list_kept(actor: str, local: Any) -> Iterable[Hashable]:
    """A borrower that lives speaks for itself; an answer that is only to come is a message."""
    if not isinstance(local, ConsumerLocal) or local.party is None:
        return ()
    return ((LIFE, local.party.record.id),)


def list_carried(envelope: Envelope) -> Iterable[Hashable]:
    """Whatever a borrower has sent is heard of it; a ping on its way will be answered, and its answer arrive."""
    message = envelope.event
    borrower = getattr(message, "borrower", None)
    if borrower is None:
        return ()
    subjects: list[Hashable] = [(LIFE, borrower)] if envelope.sender == borrower else []
    if isinstance(message, Ping | PingResponse | Invalidate):
        subjects.append((ANSWER, borrower))
    return subjects


DUE = Due(about, list_kept, list_carried)
