"""ByzantineConsumer: a Consumer that reports what nobody stored: more than a stream has, and the end of one that goes
on.

Silent consumer: a Consumer that takes part in everything, and never answers a grant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from statemachines.kernel import Event, in_order
from statemachines.shared_subscriptions.message import END_OF_STREAM, Grant
from statemachines.shared_subscriptions.stream import GRANTED, StreamProgress
from statemachines_spec.explorer.actor import Envelope, Reaction, Watch
from statemachines_spec.shared_subscriptions.consumer import GOING_ON, Consumer, ConsumerLocal

BEYOND = 3
"""More messages than any stream of its systems has."""


class ByzantineConsumer(Consumer):
    """Acknowledges as others do, and lies about every stream it is granted whenever it likes."""

    def _progress(self, record: Any) -> Iterator[Event]:
        yield from super()._progress(record)
        for stream, child in in_order(record.streams):
            if child.status is GRANTED and child.progress <= self.offsets:
                yield StreamProgress(stream, child.grant, BEYOND)
                yield StreamProgress(stream, child.grant, END_OF_STREAM)


class SilentConsumer(Consumer):
    """Registers, pings, and begins anew as others do."""

    def react(self, local: ConsumerLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        if local.mode in GOING_ON and isinstance(envelope.event, Grant):
            return Reaction(local)
        return super().react(local, envelope, watch)
