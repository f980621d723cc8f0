"""Named leader: a borrower follows nobody but whom the claim named (S17), whoever speaks to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from statemachines.kernel import node_of
from statemachines.shared_subscriptions.group_store import SERVICE, Claim
from statemachines.shared_subscriptions.properties.committed_claim import check_leader
from statemachines.shared_subscriptions.witness import ASKING, RESTING, RestTimer
from statemachines_spec.explorer.property import Always, Property, Sometimes, Stepwise, View
from statemachines_spec.shared_subscriptions.stores import StoreLocal
from statemachines_spec.shared_subscriptions.witness_consumer import LIAR, Arriving, WitnessedLocal

EPOCHS = 8
"""Epochs are told apart below this."""

FALSE = EPOCHS
"""Of a borrower that follows somebody who never had the claim."""


def believes(consumers: Iterable[str]) -> tuple[Property, ...]:
    """S17, of every consumer that has a witness."""
    consumers = tuple(consumers)
    return (
        *(
            Always(
                f"S17 {name}",
                "follows nobody who never had the claim",
                (View(name, FALSE + 1, read_followed_epoch),),
                lambda epoch: epoch != FALSE,
            )
            for name in consumers
        ),
        *(
            Always(
                f"S17 as read {name}",
                "follows whom the claim named when it was read last, and waits for no epoch above that",
                (View(name, 2, _follows_the_read),),
                bool,
            )
            for name in consumers
        ),
        *(
            Always(
                f"epochs of {name}",
                "S17: goes by no epoch, and waits for none, that the claim has not reached",
                (View(name, FALSE + 1, read_followed_epoch), View(SERVICE, EPOCHS, read_claim_epoch)),
                lambda epoch, now: epoch <= now,
            )
            for name in consumers
        ),
        *(
            Always(
                f"S17 asked {name}",
                "what was said waits only while the claim is read, or will be when the last read has rested",
                (View(name, 2, _is_asked_about),),
                bool,
            )
            for name in consumers
        ),
        Stepwise("S17 once", "the claim is read once in a period", reads_once),
        Stepwise("S17 kept", "what was read last is what is known, whatever was known before", keeps_what_was_read),
        *(
            Sometimes(f"S17 doubts {name}", "what was said waits for the claim", (View(name, 2, _doubts),), bool)
            for name in consumers
        ),
    )


def read_followed_epoch(local: Any) -> int:
    """The epoch that a borrower goes by, or waits for; `FALSE` where it follows a liar."""
    if not isinstance(local, WitnessedLocal) or local.party is None:
        return 0
    record = local.party.record
    if record.link is not None and node_of(record.link.leader) == node_of(LIAR):
        return FALSE
    epoch: int = record.epoch if record.link is None else record.link.epoch
    return min(epoch, FALSE)


def read_claim_epoch(local: StoreLocal) -> int:
    """The epoch of the claim."""
    values = (stored.value for stored in local.state.values())
    return min(next((value.epoch for value in values if isinstance(value, Claim)), 0), EPOCHS - 1)


def reads_once(actor: str, before: Any, event: Any, after: Any) -> bool:
    """A read begins where none is open, and not before the last one has rested."""
    if not isinstance(before, WitnessedLocal) or not isinstance(after, WitnessedLocal) or before.witness is None:
        return True
    if after.open is None or after.open == before.open:
        return True
    return before.witness.record.status is not RESTING or isinstance(event, RestTimer)


def keeps_what_was_read(actor: str, before: Any, event: Any, after: Any) -> bool:
    """Where the answer arrives the witness knows what it says, and nothing else makes it know another thing."""
    if not isinstance(before, WitnessedLocal) or not isinstance(after, WitnessedLocal):
        return True
    if before.witness is None or after.witness is None:
        return True
    was, now = before.witness.record, after.witness.record
    if not isinstance(event, Arriving):
        return (was.leader, was.epoch) == (now.leader, now.epoch)
    (found,) = before.answer.records
    claim = Claim("", 0) if found is None else found.value
    return (claim.leader, claim.epoch) == (now.leader, now.epoch)


def _follows_the_read(local: Any) -> int:
    if not isinstance(local, WitnessedLocal) or local.party is None or local.witness is None:
        return 1
    record, known = local.party.record, local.witness.record
    if record.link is None:
        return int(record.epoch <= known.epoch)
    return int(not check_leader(record.id, record.link, ((known.leader, known.epoch),)))


def _is_asked_about(local: Any) -> int:
    if not isinstance(local, WitnessedLocal) or local.witness is None:
        return 1
    record = local.witness.record
    if record.status is ASKING:
        return int(local.open is not None)
    return int(local.open is None and (not local.doubted or (record.status is RESTING and record.doubted)))


def _doubts(local: Any) -> int:
    return int(isinstance(local, WitnessedLocal) and bool(local.doubted))
