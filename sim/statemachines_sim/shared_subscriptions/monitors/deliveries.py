"""Deliveries: what applications get, by which S4, S5, S6, S11, S12, S13, S14, S15 and
S22 are judged."""

from __future__ import annotations

from statemachines.kernel import BrokenProperty
from statemachines.shared_subscriptions.properties.delivered_messages import (
    DeliveredMessages,
    DeliveryPlace,
    check_marked,
    check_none_left_out,
    check_topic,
    compile_filter,
)
from statemachines.shared_subscriptions.properties.delivery_right import (
    Deliverer,
    check_granted,
    check_hand_over,
    check_right,
    reads_stream,
)
from statemachines.shared_subscriptions.properties.offset_ranges import OffsetRanges
from statemachines.shared_subscriptions.session import Deliver, Nack
from statemachines.shared_subscriptions.session_record import reading_key
from statemachines_sim.judge import Judge
from statemachines_sim.shared_subscriptions.consumer import ConsumerNode
from statemachines_sim.shared_subscriptions.monitors.assignments import Assignments


class StreamOwner:
    """Who delivers a stream, and where it is."""

    __slots__ = ("borrower", "consumer", "key", "place")

    def __init__(self, consumer: ConsumerNode, borrower: str, key: Deliverer, place: DeliveryPlace) -> None:
        self.consumer = consumer
        self.borrower = borrower
        self.key = key
        self.place = place


class DeliveryMonitor:
    """`exclusive`: S5 holds (it does not in the source's mode).  `delivered`, `duplicates` count messages; `excuse`:
    the number of the last thing that happened after which something may be delivered again; `liars`: borrowers that
    lie, whose own streams may be delivered again after each lie, and after what they deliver."""

    def __init__(self, judge: Judge, assignments: Assignments, topic_filter: str, exclusive: bool) -> None:
        self.delivered = 0
        self.duplicates = 0
        self.excuse = -1
        self._judge = judge
        self._assignments = assignments
        self._exclusive = exclusive
        self._wanted = compile_filter(topic_filter)
        self._matching: set[str] = set()
        self._owner: dict[str, StreamOwner] = {}
        self._past: dict[str, dict[Deliverer, StreamOwner]] = {}
        self._high: dict[str, int] = {}
        self._seen: dict[str, OffsetRanges] = {}
        self._once: dict[str, tuple[DeliveredMessages, int]] = {}
        self.liars: set[str] = set()
        self._excused: dict[str, int] = {}

    def skip(self, stream: str, first: int) -> None:
        """The group begins at `first` of this stream."""
        self._high[stream] = first

    def observe_lie(self, borrower: str, number: int) -> None:
        """A borrower says what is not so: whatever it was granted its leader may give to another."""
        self.liars.add(borrower)
        for stream, owner, _ in self._assignments.grants.values():
            if owner == borrower:
                self._excused[stream] = number

    def deliver(self, consumer: ConsumerNode, event: Deliver, now_ns: int, number: int) -> None:
        """An application gets messages: the `number`-th thing that happens in the run."""
        self.delivered += event.last - event.first + 1
        stream = event.stream
        if stream not in self._matching:
            self._check_topic(event)
        if event.owner in self.liars:
            self._excused[stream] = number + 1
        owner = self._owner_of(consumer, event, now_ns)
        if owner is None:
            return
        owner.place, broken = owner.place.observe(event)
        high = max(self._high.get(stream, 0), self._assignments.find_claimed(stream))
        broken += check_none_left_out(event, high)
        self._high[stream] = max(high, event.last + 1)
        broken += self._count_again(event, number)
        if broken:
            self._judge.report_properties(broken)

    def give_back(self, consumer: ConsumerNode, event: Nack, number: int) -> None:
        """A message is given back: its stream goes back to it."""
        self._excused[event.stream] = number
        owner = self._owner.get(event.stream)
        if owner is not None and owner.consumer is consumer and owner.place.grant == event.grant:
            owner.place = owner.place.give_back(event.offset)

    def _check_topic(self, event: Deliver) -> None:
        """Once a stream."""
        if broken := check_topic(event, self._wanted):
            self._judge.report_properties(broken)
        else:
            self._matching.add(event.stream)

    def _owner_of(self, consumer: ConsumerNode, event: Deliver, now_ns: int) -> StreamOwner | None:
        """The owner that delivers now; a change of owner is where S5 may break."""
        stream = event.stream
        node = consumer.host.nodes.get(event.owner)
        borrower = None if node is None else node.record
        if broken := check_right(
            consumer.life, stream, borrower, bool(consumer.host.record.recreated), self._exclusive
        ):
            self._judge.report_properties(broken)
        if borrower is None or borrower.link is None:
            return None
        owner = self._owner.get(stream)
        key = (consumer.life, borrower.link.leader, event.grant)
        if owner is not None and owner.key == key:
            return owner
        if owner is not None and event.owner in self.liars and not is_later(key, owner.key):
            return None  # it says that it let the stream go, and goes on
        return self._hand_over(event, owner, consumer, key, now_ns)

    def _hand_over(
        self, event: Deliver, owner: StreamOwner | None, consumer: ConsumerNode, key: Deliverer, now_ns: int
    ) -> StreamOwner | None:
        stream = event.stream
        past = self._past.setdefault(stream, {})
        if owner is not None:
            if self._exclusive:
                may_still = owner.borrower not in self.liars and can_deliver(owner, stream, now_ns)
                self._judge.report_properties(
                    check_hand_over(stream, key, owner.key, may_still=may_still, is_again=key in past)
                )
            past[owner.key] = owner
        stream_of, _, first = self._assignments.grants.get(key[1:], ("", "", 0))
        if broken := check_granted(stream, key, stream_of):
            self._judge.report_properties(broken)
            return None
        place = DeliveryPlace(key[2], first, self._assignments.acked.get(key[1:]))
        self._owner[stream] = past.get(key) or StreamOwner(consumer, event.owner, key, place)
        return self._owner[stream]

    def _count_again(self, event: Deliver, number: int) -> tuple[BrokenProperty, ...]:
        """What is delivered again counts; in the source's mode the old owner may go on after the expiry that made the
        new one."""
        seen = self._seen.get(event.stream, NOTHING)
        self.duplicates += seen.count_in(event.first, event.last)
        self._seen[event.stream] = seen.add(event.first, event.last)
        if not self._exclusive:
            return ()
        marked = () if self.liars else check_marked(event, seen)
        once, at = self._once.get(event.stream, UNDELIVERED)
        if max(self.excuse, self._excused.get(event.stream, -1)) > at:
            once = DeliveredMessages()
        once, broken = once.observe(event)
        self._once[event.stream] = (once, number)
        return (*marked, *broken)


NOTHING, UNDELIVERED = OffsetRanges(), (DeliveredMessages(), -1)


def is_later(key: Deliverer, earlier: Deliverer) -> bool:
    """By a later grant of the same leader."""
    return key[1] == earlier[1] and key[2] > earlier[2]


def can_deliver(owner: StreamOwner, stream: str, now_ns: int) -> bool:
    """It lives, its lease holds by its own clock, and the stream is installed under that grant and not finishing."""
    consumer = owner.consumer
    if not consumer.alive:
        return False
    session = consumer.host.nodes[consumer.host.session].record
    if not reads_stream(session, owner.borrower, stream):
        return False
    reading = session.readings[reading_key(owner.borrower, stream)]
    if reading.grant != owner.key[2] or reading.finishing:
        return False
    borrower = consumer.host.nodes.get(owner.borrower)
    if borrower is None or borrower.record.link is None or borrower.record.link.leader != owner.key[1]:
        return False
    local_ns = now_ns if consumer.clock is None else consumer.clock.local(now_ns)
    return borrower.armed_timers().get(("lease", ""), 0) > local_ns
