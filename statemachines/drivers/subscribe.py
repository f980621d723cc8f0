"""SharedSubscription: a consumer in an application.

    async with SharedSubscription("$shared/workers/#", leader="127.0.0.1:7411", store="messages.db") as messages:
        async for message in messages:
            handle(message.topic, message.payload)
            await message.ack()

Messages of a stream come in order; one that was not acknowledged when its consumer died is delivered to another.  A
message is handed over in the same step in which the lease is checked; after a pause that was longer than the lease
nothing is handed over until the leader has answered again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any

from statemachines.drivers.lives import begin_life
from statemachines.drivers.open_stores import directory_of, open_stream_store
from statemachines.drivers.runtime import Runtime
from statemachines.drivers.tcp import TcpTransport, parse_address
from statemachines.kernel import Answer, Event, LocalProtocolError, Map, Node, Step
from statemachines.shared_subscriptions import stream_store
from statemachines.shared_subscriptions.borrower import Destroyed
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.message import LeaderMessage
from statemachines.shared_subscriptions.session import Deliver, Reading, Ready
from statemachines.shared_subscriptions.stream import Uninstall
from statemachines.shared_subscriptions.stream_store import Batch, Fetch, Fetched, parse_filter
from statemachines.shared_subscriptions.subscription import Subscription
from statemachines.wire import Codec

TURN_S = 0.005
"""An application that takes messages without ever waiting yields to the loop this often, so that pings go out."""


class Delivered:
    """A message in the application's hands: `topic`, `payload`, and where it is from."""

    __slots__ = ("_kept", "_subscription", "offset", "payload", "stream")

    def __init__(
        self, subscription: SharedSubscription, stream: str, kept: Payloads, offset: int, payload: bytes
    ) -> None:
        self._subscription = subscription
        self._kept = kept
        self.stream = stream
        self.offset = offset
        self.payload = payload

    @property
    def topic(self) -> str:
        """The topic it was published to."""
        return self.stream.partition("/")[2]

    @property
    def grant(self) -> int:
        """The number of the grant it was delivered under; each epoch of the leader numbers anew."""
        return self._kept.grant

    async def ack(self) -> None:
        """It is dealt with; told to the leader soon, together with others.  Under a grant that is gone by now it
        changes nothing: the message is delivered again."""
        self._ack_until(self.offset)

    def _ack_until(self, last: int) -> None:
        if self._subscription.reads(self.stream, self._kept):
            self._subscription.acknowledge(self.stream, self._kept.grant, self.offset, last)

    def __repr__(self) -> str:
        return f"<message {self.offset} of {self.stream}, {len(self.payload)} bytes>"


class Deliveries(list[Delivered]):
    """Some messages of one stream, in order, without a gap."""

    async def ack(self) -> None:
        """All of them are dealt with."""
        self[0]._ack_until(self[-1].offset)


class SharedSubscription:
    """A member of a consumer group; use it as `async with`, then iterate.

    `subscription`: `$shared/GROUP/FILTER`; `leader`: HOST:PORT of the leader host; `store`: path or URL of the stream
    store (`postgresql://USER@HOST/DATABASE`); `node`: name of this process, one at a time; `state`: directory for the
    number of its life (default: beside the store's file, or the current one); `trace`: directory for its log; `number`:
    for messages in traces, if two nodes' should clash.
    """

    def __init__(
        self,
        subscription: str,
        *,
        leader: str,
        store: str | Path,
        node: str = "consumer-1",
        state: str | Path | None = None,
        trace: str | Path | None = None,
        configuration: Configuration | None = None,
        buffer: int = 256,
        number: int | None = None,
    ) -> None:
        self.group, self.filter = parse_filter(subscription)
        self.configuration = (configuration or Configuration()).check()
        self.node = node
        self._leader = parse_address(leader)
        self._where = store
        self._state = Path(state) if state is not None else directory_of(store)
        self._trace = None if trace is None else Path(trace)
        self._buffer = buffer
        self._number = number
        self._payloads: dict[str, Payloads] = {}
        self._acks: dict[tuple[str, int], list[list[int]]] = {}
        self._ready = asyncio.Event()
        self._turn = 0.0
        self._taken: Deliver | None = None

    # -- life ---------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> SharedSubscription:
        self._store = await asyncio.to_thread(open_stream_store, self._where)
        life = begin_life(self.node, self._state, self._trace, self._number)
        self._log = life.log
        self._runtime = Runtime(
            life.name,
            life.number,
            {stream_store.SERVICE: self._fetch},
            handle=lambda sender, to, message, now: self._host.receive(sender, message, now),
            answered=self._answered,
            told=self._told,
            log=self._log,
        )
        self._runtime.on_failure = self._ready.set
        self._host = Subscription(
            life.name,
            self.group,
            self.filter,
            "leader",
            self.configuration,
            buffer=self._buffer,
            observe=self._observe,
        )
        self._transport = TcpTransport(
            life=life.name,
            role="consumer",
            codec=Codec(LeaderMessage),
            receive=self._runtime.receive,
            dial={"leader": self._leader},
        )
        self._runtime.attach(self._host, self._transport)
        await self._transport.__aenter__()
        self._runtime.run(self._host.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Say what is known and go: the streams are free for others at once."""
        self._flush_acks()
        self._runtime.run(self._host.disconnect)
        await self._runtime.close()
        await self._transport.__aexit__(None, None, None)
        await self._store.close()
        if self._log is not None:
            self._log.close()

    async def unsubscribe(self) -> None:
        """Deliver nothing new, finish what is in hand; iteration ends when that is done."""
        self._runtime.run(self._host.unsubscribe)

    # -- messages -----------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Delivered]:
        return self._each()

    async def _each(self) -> AsyncIterator[Delivered]:
        async for batch in self.batches(1):
            yield batch[0]

    async def batches(self, limit: int) -> AsyncIterator[Deliveries]:
        """At most `limit` messages of one stream at a time, handed over in one step."""
        while True:
            self._ready.clear()
            self._raise_failure()
            batch = self._take(limit)
            if batch:
                yield batch
                await self._yield()
            elif self._host.ended:
                return
            else:
                await self._ready.wait()

    def acknowledge(self, stream: str, grant: int, first: int, last: int) -> None:
        """Messages `first`..`last` are dealt with; ranges that touch are told together, at the end of this turn."""
        if not self._acks:
            asyncio.get_running_loop().call_soon(self._flush_acks)
        ranges = self._acks.setdefault((stream, grant), [])
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1][1] = last
        else:
            ranges.append([first, last])

    def _take(self, limit: int) -> Deliveries:
        self._taken = None
        self._runtime.run(lambda now_ns: self._host.take(limit, now_ns))
        taken = self._taken
        if taken is None:
            return Deliveries()
        stream, kept = taken.stream, self._payloads[taken.stream]
        payloads = kept.take(taken.grant, taken.first, taken.last)
        return Deliveries(
            [Delivered(self, stream, kept, offset, payload) for offset, payload in enumerate(payloads, taken.first)]
        )

    async def _yield(self) -> None:
        now = time.monotonic()
        if now - self._turn > TURN_S:
            await asyncio.sleep(0)
            self._turn = time.monotonic()

    def _flush_acks(self) -> None:
        acks, self._acks = self._acks, {}
        for (stream, grant), ranges in acks.items():
            for first, last in ranges:
                self._runtime.run(
                    lambda now_ns, s=stream, g=grant, a=first, b=last: self._host.acknowledge(s, g, a, b, now_ns)  # type: ignore[misc]
                )

    def _raise_failure(self) -> None:
        if self._runtime.failed is not None:
            raise self._runtime.failed

    def reads(self, stream: str, kept: Payloads) -> bool:
        """Whether the stream is still read under the grant that these payloads came under."""
        return self._payloads.get(stream) is kept

    # -- from the machines --------------------------------------------------------------------------------------

    def _observe(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """A stream that is dropped takes with it what was fetched and not yet told: it may come back under the same
        number, from a leader of a later epoch."""
        self._runtime.observe(node, event, before, step, now_ns)
        if isinstance(event, Uninstall) and event.stream not in self._readings:
            self._payloads.pop(event.stream, None)
            self._acks.pop((event.stream, event.grant), None)

    @property
    def _readings(self) -> Map[str, Reading]:
        readings: Map[str, Reading] = self._host.nodes[self._host.session].record.readings
        return readings

    def _told(self, party: str, event: Event) -> None:
        if isinstance(event, Deliver):
            self._taken = event
        elif isinstance(event, Ready | Destroyed):
            self._ready.set()

    async def _fetch(self, party: str, request: Any) -> tuple[Answer, ...]:
        if not isinstance(request, Fetch):
            raise LocalProtocolError("session", "-", type(request).__name__, "", "a consumer only fetches")
        answer, payloads = await self._store.fetch(request)
        self._fetched = payloads
        return (answer,)

    def _answered(self, party: str, answer: Answer, now_ns: int) -> list[Any]:
        before = self._readings
        out = self._host.answer(answer, now_ns)
        if isinstance(answer, Fetched):
            for batch, payloads in zip(answer.batches, self._fetched, strict=True):
                self._keep(before.get(batch.stream), batch, payloads)
            self._fetched = []
        return out

    def _keep(self, before: Reading | None, batch: Batch, payloads: list[bytes]) -> None:
        """The payloads of what the session has taken in; `before`: how far it was."""
        reading = self._readings.get(batch.stream)
        if before is None or reading is None or not payloads:
            return
        if reading.grant != batch.grant or (before.fetched, reading.fetched) != (batch.first, batch.last + 1):
            return
        kept = self._payloads.get(batch.stream)
        if kept is None or kept.grant != batch.grant:
            kept = self._payloads[batch.stream] = Payloads(batch.grant, batch.first)
        kept.add(batch.first, payloads)


class Payloads:
    """What was fetched of a stream under a grant and is not handed over yet."""

    __slots__ = ("_first", "_kept", "grant")

    def __init__(self, grant: int, first: int) -> None:
        self.grant = grant
        self._first = first
        self._kept: deque[bytes] = deque()

    def add(self, first: int, payloads: list[bytes]) -> None:
        """Keep the payloads from offset `first` on."""
        assert first == self._first + len(self._kept)
        self._kept += payloads

    def take(self, grant: int, first: int, last: int) -> list[bytes]:
        """Hand out `first`..`last`."""
        assert (grant, first) == (self.grant, self._first)
        self._first = last + 1
        return [self._kept.popleft() for _ in range(first, last + 1)]
