"""DeliveredMessages: S13, nothing twice without a reason; DeliveryPlace: S14, offsets in order; S6, none left out; S12,
only what matches; S22, what comes again says so."""

from __future__ import annotations

import re

import msgspec
from msgspec.structs import replace

from statemachines.kernel import BrokenProperty
from statemachines.shared_subscriptions.message import Ranges
from statemachines.shared_subscriptions.properties.offset_ranges import OffsetRanges
from statemachines.shared_subscriptions.session_record import Deliver


class DeliveredMessages(msgspec.Struct, frozen=True, gc=False):
    """Of one stream: what was delivered `once`, with no reason since for doing it again."""

    once: OffsetRanges = OffsetRanges()

    def observe(self, event: Deliver) -> tuple[DeliveredMessages, tuple[BrokenProperty, ...]]:
        """An application gets messages."""
        first, last = event.first, event.last
        after = DeliveredMessages(self.once.add(first, last))
        if not self.once.count_in(first, last):
            return after, ()
        detail = f"{event.stream}: {event.owner} got {first} again, and nothing happened in between"
        return after, (BrokenProperty("S13", detail),)


class DeliveryPlace(msgspec.Struct, frozen=True, gc=False):
    """Under one grant: which offset is `next`.  Where the order is relaxed, `acked` was acknowledged before (else
    None), and what was `returned` comes alone at any time."""

    grant: int
    next: int
    acked: Ranges | None = None
    returned: frozenset[int] = frozenset()

    def observe(self, event: Deliver) -> tuple[DeliveryPlace, tuple[BrokenProperty, ...]]:
        """An application gets messages under this grant."""
        first, last = event.first, event.last
        if first in self.returned and first == last:
            return replace(self, returned=self.returned - {first}), self._check_acknowledged(event)
        after = replace(self, next=last + 1)
        due = self.find_next()
        broken = () if self.acked is None else self._check_acknowledged(event)
        if first != due:
            broken = (BrokenProperty("S14", f"{event.stream}: {event.owner} got {first} where {due} was next"), *broken)
        return after, broken

    def give_back(self, offset: int) -> DeliveryPlace:
        """The application gives a message back: it is next, or comes alone."""
        if self.acked is None:
            return replace(self, next=offset)
        return replace(self, returned=self.returned | {offset})

    def find_next(self) -> int:
        """The next message that is not acknowledged."""
        due = self.next
        for first, last in self.acked or ():
            if first <= due <= last:
                due = last + 1
        return due

    def _check_acknowledged(self, event: Deliver) -> tuple[BrokenProperty, ...]:
        """What was acknowledged behind the grant's progress is passed over."""
        if any(first <= event.last and event.first <= last for first, last in self.acked or ()):
            detail = f"{event.stream}: {event.owner} got {event.first} to {event.last}, some of it acknowledged"
            return (BrokenProperty("S13", detail),)
        return ()


def check_durable(event: Deliver, progress: int) -> tuple[BrokenProperty, ...]:
    """Nothing is delivered below what is durable."""
    if event.first >= progress:
        return ()
    return (BrokenProperty("S13", f"{event.stream}: {event.owner} got {event.first}, below {progress}"),)


def check_none_left_out(event: Deliver, high: int) -> tuple[BrokenProperty, ...]:
    """All below `high` was delivered to somebody, and nothing behind it to anybody."""
    if event.first <= high:
        return ()
    return (BrokenProperty("S6", f"{event.stream}: {event.owner} got {event.first}, and nobody ever got {high}"),)


def check_marked(event: Deliver, seen: OffsetRanges) -> tuple[BrokenProperty, ...]:
    """What was `seen` before, by anybody, is counted as handed over."""
    first = max(event.first + (event.failed > 0), event.handed)
    if first > event.last or not seen.count_in(first, event.last):
        return ()
    detail = f"{event.stream}: {event.owner} got {event.first} to {event.last} as if nobody had been handed any"
    return (BrokenProperty("S22", detail),)


def check_topic(event: Deliver, pattern: re.Pattern[str]) -> tuple[BrokenProperty, ...]:
    """The topic of a stream is what follows its rank; `pattern` is that of the filter."""
    if pattern.fullmatch(event.stream.partition("/")[2]):
        return ()
    return (BrokenProperty("S12", f"{event.owner} got {event.stream}, which its filter does not match"),)


def compile_filter(topic_filter: str) -> re.Pattern[str]:
    """What matches a filter: written apart from the store's own matching, to judge it."""
    levels = [{"+": "[^/]*", "#": ".*"}.get(level, re.escape(level)) for level in topic_filter.split("/")]
    if levels[-1] == ".*" and len(levels) > 1:
        return re.compile("/".join(levels[:-1]) + "(/.*)?")
    return re.compile("/".join(levels))
