"""Arrivals: the samples themselves, from when they come until the machine has delivered them or refused them.

The machine knows numbers alone.  What comes in order in one turn of the loop, one behind the other, is put before it as
one range; what it holds is held here, of all sources together no more than so many bytes.

Party: one machine on the event loop, with its log: what a publisher, a cache and a subscriber have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec.structs import force_setattr

from statemachines.drivers.clock import steady_ns
from statemachines.drivers.lives import Life
from statemachines.drivers.missed_samples.received_sample import ReceivedSample
from statemachines.drivers.node import NodeHost
from statemachines.drivers.port import Service, Transport
from statemachines.drivers.runtime import Runtime
from statemachines.kernel import Answer, Event, Fsm, Message, Node, Outgoing
from statemachines.missed_samples.message import Deliver, Sample
from statemachines.missed_samples.serial_number import origin, wrap_number
from statemachines.missed_samples.source_record import KNOWN, UNKNOWN
from statemachines.missed_samples.subscriber_actions import number_of, source_of
from statemachines.wire import Packet


class SampleParty:
    """`transport` gets what leaves, `services` what is asked, `told(event)` what the application is told;
    `before(message)` is called when nothing comes before the message any more; `failed()` when it cannot go on,
    and `error` says why.  `came()` things are there, of which `taken()` were looked at: no timeout is believed before
    what came until it was due has been."""

    def __init__(
        self,
        fsm: Fsm[Any],
        record: Any,
        life: Life,
        *,
        transport: Transport,
        services: Mapping[str, Service] | None = None,
        told: Callable[[Event], None] = lambda event: None,
        before: Callable[[Message], None] = lambda message: None,
        failed: Callable[[], None] = lambda: None,
        came: Callable[[], int] = lambda: 0,
        taken: Callable[[], int] = lambda: 0,
    ) -> None:
        self.name = life.name
        self._runtime = Runtime(
            life.name,
            life.number,
            services or {},
            handle=self._handle,
            answered=lambda party, answer, now_ns: self._host.feed(party, answer, now_ns),
            route_tell=lambda party, event: told(event),
            log=life.log,
        )
        self._before = before
        self._runtime.on_failure = failed
        self._runtime.came, self._runtime.taken = came, taken
        self._host = NodeHost(life.name)
        self._node = Node(fsm, record, name=life.name, now_ns=steady_ns(), observe=self._runtime.observe)
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

    def _handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        """What comes before any event first: then `before` looks at the record that the message meets."""
        out = self._host.fire_first(now_ns)
        self._before(message)
        return out + self._host.receive(sender, to, message, now_ns)

    async def close(self) -> None:
        """No timer fires any more."""
        await self._runtime.close()


class ArrivalCounts(Protocol):
    """What is counted here."""

    duplicates: int
    repeated: int
    refused: int
    doubted: int


class Arrivals:
    """`party`: the Subscriber; `width` of numbers on the wire; at most `bytes_max` bytes are held."""

    def __init__(self, party: SampleParty, counts: ArrivalCounts, width: int, bytes_max: int) -> None:
        self.held = 0
        self._bytes = 0
        self._party = party
        self._counts = counts
        self._width = width
        self._mask = wrap_number(-1, width)
        self._bytes_max = bytes_max
        self._samples: dict[str, dict[int, ReceivedSample]] = {}
        self._run: list[ReceivedSample] = []
        self._run_bytes = 0
        self._source = ""
        self._first = 0
        self._next = 0
        self._flows = False
        self._fed: Sample | None = None
        self._numbers = range(0)
        self._straight: list[ReceivedSample] | None = None

    def add(self, source: str, sn: int, sample: ReceivedSample) -> bool:
        """Number `sn` of the wire has come; False: it is ahead of something, and there is no room to hold it.  Raises
        ValueError for a number that the wire does not have."""
        run = self._run
        if sn != self._next or source != self._source or not run:
            if sn >> self._width:
                raise ValueError(f"sample {sn} of {source}: expected a number of {self._width} bits")
            self.settle()
            self._source, self._first = source, sn
            self._flows = self._is_next(source, sn)
            run = self._run
        if not self._flows:
            size = sample.size
            if self._bytes + self._run_bytes + size > self._bytes_max:
                self._counts.refused += 1
                return False
            self._run_bytes += size
        run.append(sample)
        self._next = (sn + 1) & self._mask
        return True

    def settle(self) -> None:
        """Put before the machine what has come."""
        if not self._run:
            return
        self._fed = Sample(self._source, self._first, self._first + len(self._run) - 1)
        self._party.receive(self._source, self._fed)
        if self._straight is not None:  # the machine has refused what it was next to deliver
            self._hold()
        self._drop_refused(self._source)
        self._run, self._run_bytes, self._fed = [], 0, None

    def place(self, message: Any) -> None:
        """The machine is about to take `message`: if it is what was settled, keep the samples of it at hand."""
        if self._fed is None or message is not self._fed:
            return
        record = self._party.record
        known = source_of(record, self._source)
        first = number_of(record, known, self._fed.first)
        self._numbers = range(first, first + len(self._run))
        zero = origin(self._width)
        for number, sample in zip(self._numbers, self._run, strict=True):
            force_setattr(sample, "number", number - zero)
        self._straight = self._run
        if not self._flows or self._source in self._samples:
            self._hold()

    def _hold(self) -> None:
        """What is not delivered in one piece, as it came."""
        run, self._straight = self._straight or [], None
        samples = self._samples.setdefault(self._source, {})
        for number, sample in zip(self._numbers, run, strict=True):
            if number in samples:
                self._count_again(sample)
                continue
            samples[number] = sample
            self.held += 1
            self._bytes += sample.size

    def deliver(self, event: Deliver) -> list[ReceivedSample]:
        """The samples that the machine delivers."""
        if self._straight is not None:
            run, numbers = self._straight, self._numbers
            if event.source == self._source and (event.first, event.last + 1) == (numbers.start, numbers.stop):
                self._straight = None
                return run
            self._hold()
        samples = self._samples[event.source]
        found = [samples.pop(number) for number in range(event.first, event.last + 1)]
        self.held -= len(found)
        self._bytes -= sum(sample.size for sample in found)
        if not samples:
            del self._samples[event.source]
        return found

    def _drop_refused(self, source: str) -> None:
        """What the machine has not taken: older samples, such as are too far ahead to be believed, and all of a source
        that it does not keep."""
        samples, known = self._samples.get(source), self._party.record.sources.get(source)
        if samples is None:
            return
        numbers = list(samples) if known is None or known.status is UNKNOWN else self._numbers
        kept = range(0) if known is None or known.status is UNKNOWN else range(known.expected, known.top)
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
            del self._samples[source]

    def _count_again(self, sample: ReceivedSample) -> None:
        """A number that has come before."""
        self._counts.duplicates += 1
        self._counts.repeated += not sample.recovered

    def _is_next(self, source: str, sn: int) -> bool:
        """Whether it can be delivered at once."""
        known = self._party.record.sources.get(source)
        if known is None:
            return not self._party.record.recovery.past
        return known.status in KNOWN and number_of(self._party.record, known, sn) == known.expected
