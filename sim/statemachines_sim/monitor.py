"""Monitors: the properties of the protocol, judged while a run goes on, from what every node did.

Each keeps its own books, apart from the records of the machines: S2, S4, S5, S6, S7 and S13 in every step, L2, L4 and
L5 when everything has healed.  A property that breaks is a `Violation` that ends the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from statemachines.kernel import Answer, Event, Map, Node, Request, Step
from statemachines.shared_subscriptions.assignment import NONE, Assign
from statemachines.shared_subscriptions.borrower import DESTROYED
from statemachines.shared_subscriptions.group_store import Commit, Committed
from statemachines.shared_subscriptions.leader_record import RESIGNED
from statemachines.shared_subscriptions.member import REGISTERED
from statemachines.shared_subscriptions.message import END_OF_STREAM, UpdateProgress
from statemachines.shared_subscriptions.session import Acknowledged, Deliver
from statemachines.shared_subscriptions.session_record import reading_key

if TYPE_CHECKING:
    from statemachines_sim.consumer import Consumer

EXCUSES = ("crash", "leader_crash", "unsubscribe")
"""What the nemesis or the world does that may lead to a second delivery."""


class Violation(Exception):
    """`monitor` (a property of the page) does not hold; `detail` says what happened."""

    def __init__(self, monitor: str, detail: str) -> None:
        self.monitor = monitor
        self.detail = detail
        super().__init__(f"{monitor}: {detail}")


class Covered:
    """Which offsets of a stream are covered: all below `prefix`, and ranges above it."""

    __slots__ = ("above", "prefix")

    def __init__(self) -> None:
        self.prefix = 0
        self.above: dict[int, int] = {}

    def add(self, first: int, last: int) -> None:
        """Cover `first`..`last`."""
        if first > self.prefix:
            self.above[first] = max(last, self.above.get(first, last))
            return
        self.prefix = max(self.prefix, last + 1)
        while self.above and (first := min(self.above)) <= self.prefix:
            self.prefix = max(self.prefix, self.above.pop(first) + 1)


class Deliveries:
    """When each offset of a stream was delivered last: ranges in order, each with the number of its delivery."""

    __slots__ = ("ranges",)

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int, int]] = []

    def add(self, first: int, last: int, number: int) -> tuple[int, int]:
        """Deliver `first`..`last`: how many of them were delivered before, and the latest number of such a one."""
        ranges = self.ranges
        again, latest = 0, -1
        above: list[tuple[int, int, int]] = []
        while ranges and ranges[-1][1] >= first:
            begin, end, earlier = ranges.pop()
            if begin <= last:
                again += min(end, last) - max(begin, first) + 1
                latest = max(latest, earlier)
            if end > last:
                above.append((max(begin, last + 1), end, earlier))
            if begin < first:
                ranges.append((begin, first - 1, earlier))
                break
        ranges.append((first, last, number))
        ranges.extend(reversed(above))
        return again, latest


class Owner:
    """Who delivers a stream: a consumer's life, under one grant of one leader."""

    __slots__ = ("borrower", "consumer", "grant", "leader", "next")

    def __init__(self, consumer: Consumer, borrower: str, leader: str, grant: int, first: int) -> None:
        self.consumer = consumer
        self.borrower = borrower
        self.leader = leader
        self.grant = grant
        self.next = first

    def key(self) -> tuple[str, str, int]:
        """What it is told apart by."""
        return (self.consumer.life, self.leader, self.grant)


class Monitors:
    """All monitors of one run; `exclusive`: S5 holds (it does not in the source's mode)."""

    def __init__(self, exclusive: bool = True) -> None:
        self.exclusive = exclusive
        self.published: dict[str, int] = {}
        self.acked: dict[str, Covered] = {}
        self.delivered = 0
        self.duplicates = 0
        self._number = 0
        self._excuse = -1
        self._assigned: dict[tuple[str, str], int] = {}
        self._grants: dict[tuple[str, int], tuple[str, str, int]] = {}
        self._accepted: dict[tuple[str, str], int] = {}
        self._durable: dict[str, int] = {}
        self._owner: dict[str, Owner] = {}
        self._past: dict[str, set[tuple[str, str, int]]] = {}
        self._high: dict[str, int] = {}
        self._deliveries: dict[str, Deliveries] = {}

    # -- what happens -------------------------------------------------------------------------------------------

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """A step of any machine, before its effects."""
        self._number += 1
        status = step.record.status
        if status is DESTROYED or status is RESIGNED:
            self._excuse = self._number
        for child in step.children:
            if child.machine == "assignment":
                self._assignment(node.name, child.instance, child.event, child.source, child.dest, step.record)
            elif child.machine == "member" and child.source is REGISTERED and child.dest is not REGISTERED:
                self._excuse = self._number

    def fault(self, fault: str, node: str, now_ns: int) -> None:
        """The nemesis, or the world, did something."""
        self._number += 1
        if fault in EXCUSES:
            self._excuse = self._number

    def publish(self, stream: str, first: int, last: int) -> None:
        """Messages are in the stream store."""
        self.published[stream] = last + 1

    def deliver(self, consumer: Consumer, event: Deliver, now_ns: int) -> None:
        """S5 and S13: one session at a time, and nothing twice without a reason."""
        self._number += 1
        self.delivered += event.last - event.first + 1
        stream = event.stream
        owner = self._owner_of(consumer, event, now_ns)
        if event.first != owner.next:
            self._broken("S14", f"{stream}: {consumer.life} got {event.first} where {owner.next} was next")
        owner.next = event.last + 1
        high = self._high.get(stream, 0)
        if event.first > high:
            self._broken("S6", f"{stream}: {consumer.life} got {event.first}, and nobody ever got {high}")
        self._high[stream] = max(high, event.last + 1)
        again, latest = self._deliveries.setdefault(stream, Deliveries()).add(event.first, event.last, self._number)
        if again:
            self._second_delivery(consumer, event, again, latest)

    def acknowledge(self, event: Acknowledged) -> None:
        """An application has dealt with messages."""
        self.acked.setdefault(event.stream, Covered()).add(event.first, event.last)

    def commit(self, request: Request, answers: tuple[Answer, ...]) -> None:
        """S6 and S7: durable progress passes no unacknowledged offset and never decreases."""
        if not isinstance(request, Commit) or not isinstance(answers[0], Committed):
            return
        for key, value in request.put:
            _, found, stream = key.partition(":progress:")
            if found and isinstance(value, int):
                self._durable_progress(stream, value)

    # -- safety -------------------------------------------------------------------------------------------------

    def _assignment(self, leader: str, instance: str, event: Event, source: Any, dest: Any, record: Any) -> None:
        stream, _, number = instance.rpartition("#")
        grant = int(number)
        if type(event) is Assign:
            self._granted(leader, stream, grant, record)
        elif type(event) is UpdateProgress and source is not NONE:
            self._progress(leader, stream, event)
        if dest is NONE and self._assigned.get((leader, stream)) == grant:
            del self._assigned[leader, stream]

    def _granted(self, leader: str, stream: str, grant: int, record: Any) -> None:
        held = self._assigned.get((leader, stream))
        if held is not None:
            self._broken("S2", f"{leader} assigns {stream} under {grant} while {held} stands")
        self._assigned[leader, stream] = grant
        assignment = record.assignments[stream]
        accepted = max(self._accepted.get((leader, stream), 0), self._durable.get(stream, 0))
        if assignment.progress < accepted:
            self._broken("S13", f"{leader} grants {stream} from {assignment.progress}, below {accepted}")
        self._grants[leader, grant] = (stream, assignment.link.borrower, assignment.progress)

    def _progress(self, leader: str, stream: str, event: UpdateProgress) -> None:
        owned, borrower, _ = self._grants[leader, event.grant]
        if self._assigned.get((leader, stream)) != event.grant or (owned, borrower) != (stream, event.borrower):
            self._broken("S4", f"{leader} takes progress of {stream} under {event.grant} from {event.borrower}")
        self._check_acknowledged(stream, event.progress, "accepted")
        known = self._accepted.get((leader, stream), 0)
        self._accepted[leader, stream] = max(known, event.progress)

    def _durable_progress(self, stream: str, progress: int) -> None:
        known = self._durable.get(stream, 0)
        if progress < known:
            self._broken("S7", f"{stream}: durable progress falls from {known} to {progress}")
        self._durable[stream] = progress
        self._check_acknowledged(stream, progress, "durable")

    def _check_acknowledged(self, stream: str, progress: int, what: str) -> None:
        prefix = self.acked[stream].prefix if stream in self.acked else 0
        whole = progress == END_OF_STREAM and prefix == self.published.get(stream, 0)
        if progress > prefix and not whole:
            self._broken("S6", f"{stream}: {what} progress {progress}, acknowledged only below {prefix}")

    def _owner_of(self, consumer: Consumer, event: Deliver, now_ns: int) -> Owner:
        """The owner that delivers now; a change of owner is where S5 may break."""
        stream = event.stream
        borrower = consumer.host.nodes.get(event.owner)
        link = None if borrower is None else borrower.record.link
        if link is None:
            self._broken("S5", f"{consumer.life} delivers {stream} without a leader")
        owner = self._owner.get(stream)
        key = (consumer.life, link.leader, event.grant)  # type: ignore[union-attr]
        if owner is not None and owner.key() == key:
            return owner
        if self.exclusive:
            self._check_hand_over(stream, owner, key, now_ns)
        if owner is not None:
            self._past.setdefault(stream, set()).add(owner.key())
        granted = self._grants.get((key[1], key[2]))
        if granted is None or granted[0] != stream:
            self._broken("S4", f"{consumer.life} delivers {stream} under {event.grant}, never granted by {key[1]}")
        fresh = Owner(consumer, event.owner, key[1], key[2], granted[2])  # type: ignore[index]
        self._owner[stream] = fresh
        return fresh

    def _check_hand_over(self, stream: str, owner: Owner | None, key: tuple[str, str, int], now_ns: int) -> None:
        if key in self._past.get(stream, ()):
            self._broken("S5", f"{key[0]} delivers {stream} under {key[2]} again, after somebody else did")
        if owner is not None and can_deliver(owner, stream, now_ns):
            self._broken("S5", f"{key[0]} delivers {stream} while {owner.consumer.life} may under {owner.grant}")

    def _second_delivery(self, consumer: Consumer, event: Deliver, again: int, latest: int) -> None:
        self.duplicates += again
        # In the source's mode the old owner may go on after the expiry that made the new one.
        if self.exclusive and self._excuse <= latest:
            self._broken(
                "S13", f"{event.stream}: {consumer.life} got {event.first} again, and nothing happened in between"
            )

    def _broken(self, monitor: str, detail: str) -> None:
        raise Violation(monitor, detail)

    # -- liveness -----------------------------------------------------------------------------------------------

    def unacknowledged(self) -> list[str]:
        """L5: streams of which something published is not acknowledged."""
        return [
            stream
            for stream, count in sorted(self.published.items())
            if stream not in self.acked or self.acked[stream].prefix < count
        ]


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
    return borrower.armed().get(("lease", ""), 0) > now_ns


def balanced(members: Map[str, Any]) -> bool:
    """L4: the numbers of streams of registered members differ by at most one."""
    counts = [member.count for member in _registered(members)]
    return not counts or max(counts) - min(counts) <= 1


def _registered(members: Map[str, Any]) -> Iterable[Any]:
    return (member for _, member in sorted(members.items()) if member.status is REGISTERED)
