"""Deliveries: what applications get.  S5, S6, S11, S12, S13, S14 and S15."""

from __future__ import annotations

import re

from statemachines.kernel import node_of
from statemachines.shared_subscriptions.message import Ranges
from statemachines.shared_subscriptions.session import Deliver, Nack
from statemachines.shared_subscriptions.session_record import reading_key
from statemachines_sim.judge import Judge
from statemachines_sim.shared_subscriptions.consumer import Consumer
from statemachines_sim.shared_subscriptions.monitors.assignments import Assignments
from statemachines_sim.shared_subscriptions.monitors.coverage import Deliveries as Delivered

Key = tuple[str, str, int]
"""Who delivers a stream: a consumer's life, a leader, a grant."""


class Owner:
    """Who delivers a stream, and which offset is next.  Where the group's order is relaxed: `acked` was acknowledged
    before (else None), and `returned` was given back, and comes alone at any time."""

    __slots__ = ("acked", "borrower", "consumer", "grant", "leader", "next", "returned")

    def __init__(
        self, consumer: Consumer, borrower: str, leader: str, grant: int, first: int, acked: Ranges | None
    ) -> None:
        self.acked = acked
        self.returned: set[int] = set()
        self.consumer = consumer
        self.borrower = borrower
        self.leader = leader
        self.grant = grant
        self.next = first

    def key(self) -> Key:
        """What it is told apart by."""
        return (self.consumer.life, self.leader, self.grant)

    def find_next(self) -> int:
        """The next message that is not acknowledged."""
        for first, last in self.acked or ():
            if first <= self.next <= last:
                self.next = last + 1
        return self.next

    def takes_again(self, event: Deliver) -> bool:
        """It was given back, and its stream went on."""
        if event.first != event.last or event.first not in self.returned:
            return False
        self.returned.discard(event.first)
        return True


class Deliveries:
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
        self._wanted = re.compile(pattern_of(topic_filter))
        self._matching: set[str] = set()
        self._owner: dict[str, Owner] = {}
        self._past: dict[str, dict[Key, Owner]] = {}
        self._high: dict[str, int] = {}
        self._deliveries: dict[str, Delivered] = {}
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

    def deliver(self, consumer: Consumer, event: Deliver, now_ns: int, number: int) -> None:
        """An application gets messages: the `number`-th thing that happens in the run."""
        self.delivered += event.last - event.first + 1
        stream = event.stream
        if stream not in self._matching:
            self._check_topic(consumer, stream)
        if event.owner in self.liars:
            self._excused[stream] = number + 1
        owner = self._owner_of(consumer, event, now_ns)
        if owner is None:
            return
        if not owner.takes_again(event):
            if event.first != owner.find_next():
                what = f"{stream}: {consumer.life} got {event.first} where {owner.next} was next"
                self._judge.report_broken("S14", what)
            owner.next = event.last + 1
        if any(first <= event.last and event.first <= last for first, last in owner.acked or ()):
            what = f"{stream}: {consumer.life} got {event.first} to {event.last}, some of it acknowledged"
            self._judge.report_broken("S13", what)
        high = max(self._high.get(stream, 0), self._assignments.find_claimed(stream))
        if event.first > high:
            self._judge.report_broken("S6", f"{stream}: {consumer.life} got {event.first}, and nobody ever got {high}")
        self._high[stream] = max(high, event.last + 1)
        again, latest = self._deliveries.setdefault(stream, Delivered()).add(event.first, event.last, number)
        if again:
            self._second_delivery(consumer, event, again, latest)

    def give_back(self, consumer: Consumer, event: Nack, number: int) -> None:
        """A message is given back: its stream goes back to it."""
        self._excused[event.stream] = number
        owner = self._owner.get(event.stream)
        if owner is not None and owner.consumer is consumer and owner.grant == event.grant:
            if owner.acked is None:
                owner.next = event.offset
            else:
                owner.returned.add(event.offset)

    def _check_topic(self, consumer: Consumer, stream: str) -> None:
        """S12, once a stream: its topic is what follows its rank."""
        if self._wanted.fullmatch(stream.partition("/")[2]):
            self._matching.add(stream)
        else:
            self._judge.report_broken("S12", f"{consumer.life} got {stream}, which its filter does not match")

    def _owner_of(self, consumer: Consumer, event: Deliver, now_ns: int) -> Owner | None:
        """The owner that delivers now; a change of owner is where S5 may break."""
        stream = event.stream
        borrower = consumer.host.nodes.get(event.owner)
        link = None if borrower is None else borrower.record.link
        if borrower is None or link is None:
            if consumer.host.record.recreated or borrower is None:
                self._judge.report_broken("S11", f"{consumer.life} delivers {stream} under a borrower that is gone")
            else:
                self._judge.report_broken("S5", f"{consumer.life} delivers {stream} without a leader")
            return None
        if self._exclusive and not borrower.record.leased:
            self._judge.report_broken("S5", f"{consumer.life} delivers {stream} after the end of its lease")
        owner = self._owner.get(stream)
        key = (consumer.life, link.leader, event.grant)
        if owner is not None and owner.key() == key:
            return owner
        if owner is not None and event.owner in self.liars and not is_later(key, owner):
            return None  # it says that it let the stream go, and goes on
        return self._hand_over(event, owner, consumer, key, now_ns)

    def _hand_over(
        self, event: Deliver, owner: Owner | None, consumer: Consumer, key: Key, now_ns: int
    ) -> Owner | None:
        stream = event.stream
        past = self._past.setdefault(stream, {})
        if self._exclusive:
            self._check_hand_over(stream, owner, key, now_ns)
        if owner is not None:
            past[owner.key()] = owner
        granted = self._assignments.grants.get((key[1], key[2]))
        if granted is None or granted[0] != stream:
            self._judge.report_broken(
                "S4", f"{consumer.life} delivers {stream} under {key[2]}, never granted by {key[1]}"
            )
            return None
        acked = self._assignments.acked.get((key[1], key[2]))
        fresh = past.get(key) or Owner(consumer, event.owner, key[1], key[2], granted[2], acked)
        self._owner[stream] = fresh
        return fresh

    def _check_hand_over(self, stream: str, owner: Owner | None, key: Key, now_ns: int) -> None:
        if key in self._past[stream]:
            self._judge.report_broken("S5", f"{key[0]} delivers {stream} under {key[2]} again, after somebody else did")
        if owner is not None and owner.borrower not in self.liars and can_deliver(owner, stream, now_ns):
            two_lives = node_of(key[0]) == node_of(owner.consumer.life) and key[0] != owner.consumer.life
            what = f"{key[0]} delivers {stream} while {owner.consumer.life} may under {owner.grant}"
            self._judge.report_broken("S15" if two_lives else "S5", what)

    def _second_delivery(self, consumer: Consumer, event: Deliver, again: int, latest: int) -> None:
        self.duplicates += again
        # In the source's mode the old owner may go on after the expiry that made the new one.
        if self._exclusive and max(self.excuse, self._excused.get(event.stream, -1)) <= latest:
            self._judge.report_broken(
                "S13", f"{event.stream}: {consumer.life} got {event.first} again, and nothing happened in between"
            )


def is_later(key: Key, owner: Owner) -> bool:
    """By a later grant of the same leader."""
    return key[1] == owner.leader and key[2] > owner.grant


def can_deliver(owner: Owner, stream: str, now_ns: int) -> bool:
    """It lives, its lease holds by its own clock, and the stream is installed under that grant and not finishing."""
    consumer = owner.consumer
    if not consumer.alive:
        return False
    session = consumer.host.nodes[consumer.host.session].record
    reading = session.readings.get(reading_key(owner.borrower, stream))
    if reading is None or not session.leases[owner.borrower].held:
        return False
    if reading.grant != owner.grant or reading.finishing:
        return False
    borrower = consumer.host.nodes.get(owner.borrower)
    if borrower is None or borrower.record.link is None or borrower.record.link.leader != owner.leader:
        return False
    local_ns = now_ns if consumer.clock is None else consumer.clock.local(now_ns)
    return borrower.armed_timers().get(("lease", ""), 0) > local_ns


def pattern_of(topic_filter: str) -> str:
    """A regular expression for the topics of a filter: written apart from the store's own matching, to judge it."""
    levels = [{"+": "[^/]*", "#": ".*"}.get(level, re.escape(level)) for level in topic_filter.split("/")]
    if levels[-1] == ".*" and len(levels) > 1:
        return "/".join(levels[:-1]) + "(/.*)?"
    return "/".join(levels)
