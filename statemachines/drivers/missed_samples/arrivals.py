"""Arrivals: the samples themselves, from when they come until the machine has delivered them or refused them.

The machine knows numbers alone.  While a source is live, the next sample of it is delivered by the thread that brings
it.  The machine is told of all of them as one range, before any other event of that source.  Other samples wait for the
loop: those that come one behind the other are put before the machine as one range, and of what it holds no more than so
many bytes are kept, of all sources together.

Party: one machine on the event loop, with its log: what a publisher, a cache and a subscriber have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from statemachines.drivers.clock import steady_ns
from statemachines.drivers.lives import Life
from statemachines.drivers.missed_samples.mailbox import Outlet
from statemachines.drivers.missed_samples.received_sample import ReceivedSample
from statemachines.drivers.node import NodeHost
from statemachines.drivers.port import Service, Transport
from statemachines.drivers.runtime import Runtime
from statemachines.kernel import Answer, Effect, Event, Fsm, Message, Node
from statemachines.missed_samples.message import Deliver, Heartbeat, Sample
from statemachines.missed_samples.serial_number import origin, wrap_number
from statemachines.missed_samples.source_record import KNOWN, LIVE, UNKNOWN, SourceRecord
from statemachines.missed_samples.subscriber_actions import number_of, source_of
from statemachines.wire import Packet


class PartyNode(Node[Any]):
    """`before(event)`: what the machine is told before it takes the event, a timer's included (None: nothing)."""

    before: Callable[[Event], Event | None]

    def take(self, event: Event, now_ns: int) -> Sequence[Effect]:
        first = self.before(event)
        effects = () if first is None else super().take(first, now_ns)
        return [*effects, *super().take(event, now_ns)]


class SampleParty:
    """`transport` gets what leaves, `services` what is asked, `told(event)` what the application is told; `before` as
    of `PartyNode`; `failed()` is called when it cannot go on, and `error` says why.  `came()` things are there, of
    which `taken()` were looked at: no timeout is believed before what came until it was due has been."""

    def __init__(
        self,
        fsm: Fsm[Any],
        record: Any,
        life: Life,
        *,
        transport: Transport,
        services: Mapping[str, Service] | None = None,
        told: Callable[[Event], None] = lambda event: None,
        before: Callable[[Event], Event | None] = lambda event: None,
        failed: Callable[[], None] = lambda: None,
        came: Callable[[], int] = lambda: 0,
        taken: Callable[[], int] = lambda: 0,
    ) -> None:
        self.name = life.name
        self._runtime = Runtime(
            life.name,
            life.number,
            services or {},
            handle=lambda sender, to, message, now_ns: self._host.receive(sender, to, message, now_ns),
            answered=lambda party, answer, now_ns: self._host.feed(party, answer, now_ns),
            route_tell=lambda party, event: told(event),
            log=life.log,
        )
        self._runtime.on_failure = failed
        self._runtime.came, self._runtime.taken = came, taken
        self._host = NodeHost(life.name)
        self._node = PartyNode(fsm, record, name=life.name, now_ns=steady_ns(), observe=self._runtime.observe)
        self._node.before = before
        self._host.add(self._node)
        self._runtime.attach(self._host, transport)

    @property
    def record(self) -> Any:
        """What the machine keeps."""
        return self._node.record

    @property
    def error(self) -> BaseException | None:
        """Why it cannot go on."""
        return self._runtime.failed

    def feed(self, event: Event) -> None:
        """An event of the application, or an answer."""
        self._runtime.run(lambda now_ns: self._host.feed(self.name, event, now_ns))

    def answer(self, answer: Answer) -> None:
        """An answer of a service."""
        self._runtime.feed(self.name, answer)

    def receive(self, sender: str, message: Message) -> None:
        """A message of another party."""
        self._runtime.receive(Packet(sender, self.name, -1, message))

    async def close(self) -> None:
        """No timer fires any more."""
        await self._runtime.close()


class SourceFlow:
    """A source that is live: `number` is the next (-1: whichever comes first), `told` the next as far as the machine
    knows; `has_beaten`: a heartbeat has come that said nothing new."""

    __slots__ = ("has_beaten", "number", "told")

    def __init__(self, number: int) -> None:
        self.number = self.told = number
        self.has_beaten = False


class SubscriberStatistics(msgspec.Struct):
    """Counts since the beginning.  `delivered` samples, of which `recovered` were brought by caches and `unnumbered`
    have no number; `missed` numbers were reported; `duplicates` dropped, of which `repeated` were no replies;
    `refused` for want of room while something older was missing, `doubted` for being too far ahead to be believed,
    `overflowed` because the loop was too slow; `malformed` samples, replies, heartbeats or tokens that cannot be read,
    `turned_away` samples of sources for which there was no place; `strange` replies nobody asked for; `queries` sent,
    of which `bad_ends` did not end well; `failed` callbacks of the application; `unread` reports of missed samples for
    which nobody came."""

    delivered: int = 0
    recovered: int = 0
    unnumbered: int = 0
    missed: int = 0
    duplicates: int = 0
    repeated: int = 0
    refused: int = 0
    doubted: int = 0
    overflowed: int = 0
    malformed: int = 0
    turned_away: int = 0
    strange: int = 0
    queries: int = 0
    bad_ends: int = 0
    failed: int = 0
    unread: int = 0


def find_next(known: SourceRecord) -> int | None:
    """The next number of a source that needs no machine for it (-1: whichever comes first; None: it needs one).  One
    that is known by its token may begin anywhere, where nothing that it sent before is ours."""
    anywhere = known.alive and not (known.history or known.from_start)
    return {LIVE: known.expected, UNKNOWN: -1 if anywhere else None}.get(known.status)


class Arrivals:
    """`party`: the Subscriber; `outlet` gets what is delivered; `width` of numbers on the wire; at most `bytes_max`
    bytes are held.  Where a log says what the machine does (`logged`), it takes every sample itself."""

    def __init__(
        self,
        party: SampleParty,
        counts: SubscriberStatistics,
        outlet: Outlet[ReceivedSample],
        width: int,
        bytes_max: int,
        logged: bool = False,
    ) -> None:
        self.held = 0
        self._bytes = 0
        self._party = party
        self._counts = counts
        self._outlet = outlet
        self._width = width
        self._mask = wrap_number(-1, width)
        self._zero = origin(width)
        self._bytes_max = bytes_max
        self._logged = logged
        self._samples: dict[str, dict[int, ReceivedSample]] = {}
        self._run: list[ReceivedSample] = []
        self._run_bytes = 0
        self._source = ""
        self._first = 0
        self._next = 0
        self._flows: dict[str, SourceFlow] = {}
        self._touched: set[str] = set()
        self._flowed: Deliver | None = None

    # -- in any thread ------------------------------------------------------------------------------------------

    # A number is delivered by whoever brings it only while its flow is open, and it is the next one.  The loop closes
    # the flow under the same lock before the machine takes anything of that source: so neither overtakes the other.

    def pass_through(self, source: str, sn: int, sample: ReceivedSample) -> bool:
        """Deliver number `sn` of the wire if it is the next of a source that is live; False: it is for the loop."""
        outlet = self._outlet
        with outlet.lock:
            flow = self._flows.get(source)
            if flow is None or outlet.is_full or sn >> self._width:
                return False
            if flow.number < 0:
                flow.number = flow.told = self._zero + sn
            elif flow.number & self._mask != sn:
                return False
            force_setattr(sample, "number", flow.number - self._zero)
            flow.number += 1
            self._counts.delivered += 1
            outlet.items.append(sample)
        outlet.wake()
        return True

    def is_known(self, source: str, last: int) -> bool:
        """Whether a heartbeat says what is known of a source that is live."""
        flow = self._flows.get(source)
        if flow is None or flow.number < 0 or flow.number - 1 & self._mask != last:
            return False
        flow.has_beaten = True
        return True

    # -- in the loop --------------------------------------------------------------------------------------------

    def close_flow(self, event: Event) -> Message | None:
        """The machine is about to take `event`: what it is told first of the source that this is about."""
        source: str = getattr(event, "source", "") or getattr(event, "key", "")
        self._touched.add(source)
        with self._outlet.lock:
            flow = self._flows.pop(source, None)
        if flow is None or (flow.number == flow.told and not flow.has_beaten):
            return None
        first = flow.told & self._mask
        if flow.number == flow.told:
            return Heartbeat(source, first - 1 & self._mask)
        self._flowed = Deliver(source, flow.told, flow.number - 1)
        return Sample(source, first, first + flow.number - flow.told - 1)

    def open_flows(self) -> None:
        """After a turn: of the sources that it was about, those that are live go on without the machine."""
        touched, self._touched = self._touched, set()
        for source in () if self._logged else touched - self._flows.keys():
            known = self._party.record.sources.get(source)
            if known is not None and (number := find_next(known)) is not None:
                self._flows[source] = SourceFlow(number)

    def close(self) -> None:
        """Nothing flows any more."""
        self._logged = True
        with self._outlet.lock:
            self._flows.clear()

    def add(self, source: str, sn: int, sample: ReceivedSample) -> bool:
        """Number `sn` of the wire has come; False: it is ahead of something, and there is no room to hold it.  Raises
        ValueError for a number that the wire does not have."""
        if sn != self._next or source != self._source or not self._run:
            if sn >> self._width:
                raise ValueError(f"sample {sn} of {source}: expected a number of {self._width} bits")
            self.settle()
            self._source, self._first = source, sn
        size = sample.size
        if self._bytes + self._run_bytes + size > self._bytes_max and not self._is_next(source, self._first):
            self._counts.refused += 1
            return False
        self._run_bytes += size
        self._run.append(sample)
        self._next = (sn + 1) & self._mask
        return True

    def settle(self) -> None:
        """Put before the machine what has come."""
        if not self._run:
            return
        run, self._run, self._run_bytes = self._run, [], 0
        source = self._source
        if (passed := self.close_flow(Sample(source, self._first, self._first))) is not None:
            self._party.receive(source, passed)
        record = self._party.record
        first = number_of(record, source_of(record, source), self._first)
        samples = self._samples.setdefault(source, {})
        for number, sample in enumerate(run, first):
            force_setattr(sample, "number", number - self._zero)
            if samples.setdefault(number, sample) is not sample:
                self._count_again(sample)
                continue
            self.held += 1
            self._bytes += sample.size
        self._party.receive(source, Sample(source, self._first, self._first + len(run) - 1))
        self._drop_refused(source, range(first, first + len(run)))

    def deliver(self, event: Deliver) -> None:
        """The application gets the samples that the machine delivers, unless it has them already."""
        if event == self._flowed:
            self._flowed = None
            return
        samples = self._samples[event.source]
        found = [samples.pop(number) for number in range(event.first, event.last + 1)]
        if not samples:
            del self._samples[event.source]
        self.held -= len(found)
        self._bytes -= sum(sample.size for sample in found)
        self.hand_over(found)

    def hand_over(self, samples: list[ReceivedSample]) -> None:
        """To the application."""
        with self._outlet.lock:
            self._counts.delivered += len(samples)
            self._counts.recovered += sum(sample.recovered for sample in samples)
            self._outlet.items.extend(samples)
        self._outlet.wake(here=True)

    def _drop_refused(self, source: str, numbers: Iterable[int]) -> None:
        """What the machine has not taken: older samples, such as are too far ahead to be believed, and all of a source
        that it does not keep."""
        samples, known = self._samples.get(source, {}), self._party.record.sources.get(source)
        if known is None or known.status is UNKNOWN:
            kept, numbers = range(0), list(samples)
        else:
            kept = range(known.expected, known.top)
        for number in numbers:
            if number in samples and number not in kept:
                sample = samples.pop(number)
                self.held -= 1
                self._bytes -= sample.size
                if number >= kept.stop > 0:
                    self._counts.doubted += 1
                elif known is not None:
                    self._count_again(sample)
        if not samples:
            self._samples.pop(source, None)

    def _count_again(self, sample: ReceivedSample) -> None:
        """A number that has come before."""
        self._counts.duplicates += 1
        self._counts.repeated += not sample.recovered

    def _is_next(self, source: str, sn: int) -> bool:
        """Whether it can be delivered at once."""
        flow, known = self._flows.get(source), self._party.record.sources.get(source)
        if flow is not None:
            return flow.number < 0 or flow.number & self._mask == sn
        if known is None:
            return not self._party.record.recovery.past
        return known.status in KNOWN and number_of(self._party.record, known, sn) == known.expected
