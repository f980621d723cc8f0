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

from statemachines.drivers.credentials import NONE, Credentials
from statemachines.drivers.lives import begin_life
from statemachines.drivers.runtime import Runtime
from statemachines.drivers.sqlite import SqliteStreamStore
from statemachines.drivers.tcp import TcpTransport, parse_address
from statemachines.kernel import Answer, Event, LocalProtocolError
from statemachines.shared_subscriptions import stream_store
from statemachines.shared_subscriptions.borrower import Destroyed
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.message import LeaderMessage
from statemachines.shared_subscriptions.session import Deliver, Reading, Ready
from statemachines.shared_subscriptions.stream_store import Batch, Fetch, Fetched, parse_filter
from statemachines.shared_subscriptions.subscription import Subscription
from statemachines.wire import Codec

TURN_S = 0.005
"""An application that takes messages without ever waiting yields to the loop this often, so that pings go out."""


class Delivered:
    """A message in the application's hands: `topic`, `payload`, and where it is from."""

    __slots__ = ("_borrower", "_subscription", "grant", "offset", "payload", "stream")

    def __init__(self, subscription: SharedSubscription, stream: str, grant: int, offset: int, payload: bytes) -> None:
        self._subscription = subscription
        self._borrower = subscription.borrower
        self.stream = stream
        self.grant = grant
        self.offset = offset
        self.payload = payload

    @property
    def topic(self) -> str:
        """The topic it was published to."""
        return self.stream.partition("/")[2]

    async def ack(self) -> None:
        """It is dealt with; told to the leader soon, together with others.  Under a grant that is gone by now it
        changes nothing: the message is delivered again."""
        if self._borrower == self._subscription.borrower:
            self._subscription.acknowledge(self.stream, self.grant, self.offset, self.offset)

    def __repr__(self) -> str:
        return f"<message {self.offset} of {self.stream}, {len(self.payload)} bytes>"


class SharedSubscription:
    """A member of a consumer group; use it as `async with`, then iterate.

    `subscription`: `$shared/GROUP/FILTER`; `leader`: HOST:PORT of the leader host; `store`: path of the stream store;
    `node`: name of this process, one at a time; `state`: directory for the number of its life (default: beside the
    store); `trace`: directory for its log; `number`: for messages in traces, if two nodes' should clash;
    `credentials`: what the leader host must prove, and what we show it.
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
        credentials: Credentials = NONE,
    ) -> None:
        credentials.dialling()  # raises what is wrong with them
        self.credentials = credentials
        self.group, self.filter = parse_filter(subscription)
        self.configuration = (configuration or Configuration()).check()
        self.node = node
        self._leader = parse_address(leader)
        self._path = Path(store)
        self._state = Path(state) if state is not None else self._path.parent
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
        self._store = SqliteStreamStore(self._path)
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
            observe=self._runtime.observe,
        )
        self._transport = TcpTransport(
            life=life.name,
            role="consumer",
            codec=Codec(LeaderMessage),
            receive=self._runtime.receive,
            dial={"leader": self._leader},
            credentials=self.credentials,
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

    async def batches(self, limit: int) -> AsyncIterator[list[Delivered]]:
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

    @property
    def borrower(self) -> str:
        """Whose grants count now.  A leader begins to count its grants anew: only together with the borrower, which
        follows one leader and no other, is the number of a grant never used twice."""
        return self._host.borrower

    def acknowledge(self, stream: str, grant: int, first: int, last: int) -> None:
        """Messages `first`..`last` are dealt with; ranges that touch are told together, at the end of this turn."""
        if not self._acks:
            asyncio.get_running_loop().call_soon(self._flush_acks)
        ranges = self._acks.setdefault((stream, grant), [])
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1][1] = last
        else:
            ranges.append([first, last])

    def _take(self, limit: int) -> list[Delivered]:
        self._taken = None
        self._runtime.run(lambda now_ns: self._host.take(limit, now_ns))
        taken = self._taken
        if taken is None:
            return []
        payloads = self._payloads[taken.stream].take(taken.grant, taken.first, taken.last)
        return [
            Delivered(self, taken.stream, taken.grant, taken.first + position, payload)
            for position, payload in enumerate(payloads)
        ]

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

    # -- from the machines --------------------------------------------------------------------------------------

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
        out = self._host.answer(answer, now_ns)
        if isinstance(answer, Fetched):
            for batch, payloads in zip(answer.batches, self._fetched, strict=True):
                self._keep(batch, payloads)
            self._fetched = []
            self._forget_uninstalled()
        return out

    def _keep(self, batch: Batch, payloads: list[bytes]) -> None:
        """The payloads of what the session has taken in."""
        reading = self._host.nodes[self._host.session].record.readings.get(batch.stream)
        if reading is None or reading.grant != batch.grant or reading.fetched != batch.last + 1 or not payloads:
            return
        kept = self._payloads.get(batch.stream)
        if kept is None or not kept.is_of(reading, batch.first):
            kept = self._payloads[batch.stream] = Payloads(batch.grant, batch.first)
        kept.add(batch.first, payloads)

    def _forget_uninstalled(self) -> None:
        readings = self._host.nodes[self._host.session].record.readings
        if len(self._payloads) > len(readings):
            for stream in [stream for stream in self._payloads if stream not in readings]:
                del self._payloads[stream]


class Payloads:
    """What was fetched of a stream under a grant and is not handed over yet."""

    __slots__ = ("_first", "_kept", "grant")

    def __init__(self, grant: int, first: int) -> None:
        self.grant = grant
        self._first = first
        self._kept: deque[bytes] = deque()

    def is_of(self, reading: Reading, end: int) -> bool:
        """Whether this is what the reading has up to `end`, or was left by an earlier one of the same number."""
        return (self.grant, self._first, self._first + len(self._kept)) == (reading.grant, reading.delivered, end)

    def add(self, first: int, payloads: list[bytes]) -> None:
        """Keep the payloads from offset `first` on."""
        assert first == self._first + len(self._kept)
        self._kept += payloads

    def take(self, grant: int, first: int, last: int) -> list[bytes]:
        """Hand out `first`..`last`."""
        assert (grant, first) == (self.grant, self._first)
        self._first = last + 1
        return [self._kept.popleft() for _ in range(first, last + 1)]
