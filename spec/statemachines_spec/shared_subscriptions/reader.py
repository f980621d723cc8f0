"""Reader: a Consumer whose streams end.

It reports the end of a stream of the first generation whenever it has read all `offsets` of it.  Those that are there
at the beginning have ended; of one that the script begins before it rotates it may be a lie, and is refused (S16).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from statemachines.kernel import Event, in_order
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines.shared_subscriptions.stream import GRANTED, StreamProgress
from statemachines.shared_subscriptions.stream_store import rank_of
from statemachines_spec.shared_subscriptions.consumer import Consumer


class ReadingConsumer(Consumer):
    """Acknowledges one by one up to `offsets`, and then the end."""

    def _progress(self, record: Any) -> Iterator[Event]:
        yield from super()._progress(record)
        for stream, child in in_order(record.streams):
            has_ended = rank_of(stream)[1] == 0
            if child.status is GRANTED and has_ended and child.progress == self.offsets:
                yield StreamProgress(stream, child.grant, END_OF_STREAM)
