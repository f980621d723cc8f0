"""Silent consumer: a Consumer that takes part in everything, and never answers a grant."""

from __future__ import annotations

from statemachines.shared_subscriptions.message import Grant
from statemachines_spec.explorer.actor import Envelope, Reaction, Watch
from statemachines_spec.shared_subscriptions.consumer import GOING_ON, Consumer, ConsumerLocal


class SilentConsumer(Consumer):
    """Registers, pings, and begins anew as others do."""

    def react(self, local: ConsumerLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        if local.mode in GOING_ON and isinstance(envelope.event, Grant):
            return Reaction(local)
        return super().react(local, envelope, watch)
