"""ByzantineConsumer: a Consumer that reports what nobody stored: more than a stream has, and the end of one that goes
on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from statemachines.kernel import Event, in_order
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines.shared_subscriptions.stream import GRANTED, StreamProgress
from statemachines_spec.shared_subscriptions.consumer import Consumer

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
