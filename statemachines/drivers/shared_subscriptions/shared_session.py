"""SharedSubscription, SharedSession: a consumer in an application, with one subscription or with several.

    async with SharedSubscription("$shared/workers/#", leader="127.0.0.1:7411", store="messages.db") as messages:
        async for message in messages:
            handle(message.topic, message.payload)
            await message.ack()

    async with SharedSession(leader="127.0.0.1:7411", store="messages.db") as session:
        await session.subscribe("$shared/workers/jobs/#")
        await session.subscribe("news/#", start="beginning")
        async for message in session: ...

Messages of a stream come in order; one that was not acknowledged when its consumer died is delivered to another.  A
message is handed over in the same step in which the lease is checked; after a pause that was longer than the lease
nothing is handed over until the leader has answered again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self
from weakref import WeakSet

from msgspec.structs import replace

from statemachines.drivers.credentials import NONE, Credentials
from statemachines.drivers.loop_watchdog import LoopWatchdog
from statemachines.drivers.node import REAL, NodeEnvironment
from statemachines.drivers.opening import closed_on_failure
from statemachines.drivers.payload_buffer import PayloadBuffer
from statemachines.drivers.port import Feed, serve_replies
from statemachines.drivers.runtime import Runtime
from statemachines.drivers.shared_subscriptions.deliveries import AcknowledgementUncertain, DurableProgress, check_size
from statemachines.drivers.shared_subscriptions.deliveries import Delivered as Delivered
from statemachines.drivers.shared_subscriptions.deliveries import Deliveries as Deliveries
from statemachines.drivers.shared_subscriptions.deliveries import DeliveryRevoked as DeliveryRevoked
from statemachines.drivers.shared_subscriptions.node_life import IN_HAND_MAX, BytesInHand, begin_node_life
from statemachines.drivers.shared_subscriptions.open_stores import (
    OpenStores,
    directory_of,
    open_store_patiently,
    open_stores,
)
from statemachines.drivers.shared_subscriptions.rebalance_callbacks import (
    GRANTED,
    LOST,
    REVOKED,
    Callback,
    RebalanceCallbacks,
)
from statemachines.drivers.shared_subscriptions.roles import CONSUMER, LEADER
from statemachines.drivers.shared_subscriptions.stalled_streams import LeaderlessGroups, StalledStreams, name_first
from statemachines.drivers.shared_subscriptions.store import ANSWER_MAX, Payloads, StoredPayload
from statemachines.drivers.tcp import Address, parse_address
from statemachines.drivers.topic import is_shared
from statemachines.kernel import (
    Answer,
    ConfigurationError,
    Event,
    LocalProtocolError,
    Map,
    Node,
    Outgoing,
    Step,
    node_of,
)
from statemachines.kernel.node import Observer
from statemachines.shared_subscriptions import group_store, stream_store
from statemachines.shared_subscriptions.borrower import BorrowerStatus
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group import DeclarationRefused, make_difference_error, start_of
from statemachines.shared_subscriptions.handler import Handler
from statemachines.shared_subscriptions.listing import DeliveriesRevoked, Resumed, Suspended
from statemachines.shared_subscriptions.message import ToConsumer, check_relay
from statemachines.shared_subscriptions.names import FAILING, PROGRESS
from statemachines.shared_subscriptions.private_subscription import NOW, Private, ReadTo, SharedFilter
from statemachines.shared_subscriptions.returned_messages import check_reason, find_granted
from statemachines.shared_subscriptions.session import Deliver, Ended, Nack, Ready
from statemachines.shared_subscriptions.session_record import StreamReading, reading_key
from statemachines.shared_subscriptions.stream_store import (
    Fetch,
    Fetched,
    FetchFailed,
    ListStreams,
    check_filter,
    parse_filter,
)
from statemachines.trace.log import TraceLog

logger = logging.getLogger("gapless")

TURN_NS = 5_000_000
"""An application that takes messages without ever waiting yields to the loop this often, so that pings go out."""

CATCH_UP_S: Final = 0.002
"""How often a session that has fallen behind looks whether it has caught up."""

LET_IT_TURN: Final = (
    "messages are handed over again where they were not acknowledged in time; run what computes or blocks in a thread "
    "(await asyncio.to_thread(...)), or give the group a longer ping_interval and ping_timeout"
)
"""What an application does about a loop that stands still."""

GIVEN_BACK: Final = (
    "%(node)s: no read of the store has succeeded for %(wait_s).1f s (stream %(stream)s and others): the streams of"
    " %(names)s are given back to the group, and asked for again when a read succeeds; look at the database, and at"
    " the way there"
)
TAKEN_BACK: Final = (
    "%(node)s: a message of stream %(stream)s was not acknowledged for %(wait_s).1f s: the streams of %(names)s are"
    " given back to the group, and asked for again when the application takes messages; its late ack() raises"
    " DeliveryRevoked"
)
RETURNED: Final = (
    "%(node)s: the application takes messages again: %(names)s takes part again (it kept a message of stream"
    " %(stream)s)"
)
TAKES_PART: Final = "%(node)s: the store can be read again (stream %(stream)s): %(names)s takes part again"

Acknowledge = Literal["application", "delivery"]
"""Who acknowledges messages: the application, or nobody (fire and forget: handing them over counts)."""

STALL_WARNING_S: Final = 30.0
"""A stream whose next message is in hand for so long is named in the log, where nobody says otherwise."""

DELAY_MAX_S: Final = 86_400.0
"""A message that was given back is handed over again within a day."""

ACK_WAIT_MAX_S: Final = 86_400.0
"""A message may be in hand for a day, or for ever."""

REVOKED_MAX: Final = 1_000
"""So many owners whose messages were taken back are remembered; a late acknowledgement for an older one changes
nothing."""

LEADERS_MAX: Final = 16


class SharedSession:
    """A consumer with any number of subscriptions; use it as `async with`, subscribe, then iterate.

    `leader`: HOST:PORT of the leader host, or of all of them (in a sequence, or separated by commas), asked in turn;
    `store`: path or URL of the database with both stores (`postgresql://USER@HOST/DATABASE`); `node`: name of this
    process, one at a time (default: made of its host, its number and chance); `state`: directory for the number of its
    life, if it has a name (default: beside the store's file, or the current one); `trace`: directory for its log;
    `buffer`: messages of a stream that may be fetched ahead of what is acknowledged; `stall_warning_s`: a stream whose
    next message is in hand, and not acknowledged, for so many seconds is named in the log; `ack_wait`: seconds that a
    message may be in hand, before the streams go to other members (default: for ever); `buffer_bytes`: bytes of
    messages of all streams that may be in hand, fetched and not acknowledged; `on_granted`, `on_revoked`, `on_lost`:
    are called with the streams that come and go (`RebalanceCallbacks`), sync or async; `number`: for messages in
    traces, if two nodes' should clash; `credentials`: what leader hosts must prove, and what we show them;
    `environment`: what the node lives in, if not this machine.
    """

    def __init__(
        self,
        *,
        leader: str | Sequence[str],
        store: str | Path,
        node: str | None = None,
        state: str | Path | None = None,
        trace: str | Path | None = None,
        configuration: Configuration | None = None,
        buffer: int = 256,
        buffer_bytes: int = IN_HAND_MAX,
        stall_warning_s: float = STALL_WARNING_S,
        ack_wait: float | None = None,
        on_granted: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
        number: int | None = None,
        credentials: Credentials = NONE,
        environment: NodeEnvironment = REAL,
    ) -> None:
        self._log: TraceLog | None = None
        self._environment = environment
        credentials.dialling()  # raises what is wrong with them
        self.credentials = credentials
        self.configuration = limit_wait(configuration or Configuration(), ack_wait).check()
        self._name = node
        self.node = node or ""
        self._leaders = parse_leaders(leader)
        self._where = store
        self._state = Path(state) if state is not None else directory_of(store)
        self._trace = None if trace is None else Path(trace)
        self._buffer = buffer
        self._number = number
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._declaring: dict[str, str] = {}
        self._refused: dict[str, DeclarationRefused] = {}
        self._progress: dict[str, dict[str, int]] = {}
        self._locker: PayloadBuffer[StoredPayload] = PayloadBuffer()
        self._again: PayloadBuffer[StoredPayload] = PayloadBuffer()
        """Of each stream one message that was given back while the stream goes on."""
        self._stalled = StalledStreams(stall_warning_s, environment.steady_ns, self._reading_of)
        self._leaderless = LeaderlessGroups(environment.steady_ns, self._list_leaderless)
        self._is_failing = False
        """The last read of the store has failed."""
        self._in_hand = BytesInHand(buffer_bytes, lambda: self._host.reads.readings, stall_warning_s)
        callbacks = {GRANTED: on_granted, REVOKED: on_revoked, LOST: on_lost}
        self._rebalance = RebalanceCallbacks(callbacks, self.configuration.revoke_timeout_ms / 1_000)
        self._acks: dict[tuple[str, str, int], list[list[int]]] = {}
        self._ready = asyncio.Event()
        self._answer_came = asyncio.Event()
        self._turn_ns = 0
        self._given_back: WeakSet[Delivered] = WeakSet()
        self._taken: Deliver | None = None
        self._revoked: dict[str, bool] = {}
        self._notices: dict[str, tuple[str, list[str]]] = {}
        """Lines that are written when the loop turns: a stream, and the subscriptions of which it is told."""

    # -- life ---------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        make = self._environment.open_stores or open_stores
        stores: OpenStores = await open_store_patiently(make, self._where, who=self._name or "consumer")
        self._groups, self._store = stores
        async with closed_on_failure(self._close):
            await self._begin_life()
        return self

    async def _begin_life(self) -> None:
        environment = self._environment
        self._life = await begin_node_life(
            self._groups,
            environment,
            self.configuration,
            name=self._name,
            kind="consumer",
            state=self._state,
            trace=self._trace,
            number=self._number,
        )
        life = self._life.life
        self.node = self._stalled.node = self._rebalance.node = self._in_hand.node = node_of(life.name)
        self._leaderless.node = self.node
        self._log = life.log
        lease_ns = self.configuration.lease_ms * MS
        self._standing = LoopWatchdog(self.node, lease_ns, environment.steady_ns, LET_IT_TURN)
        self._durable = DurableProgress(self._groups.ask, self.configuration.commit_interval_ms / 1_000)
        self._runtime = Runtime(
            life.name,
            life.number,
            {stream_store.SERVICE: self._read, group_store.SERVICE: serve_replies(self._groups.ask)},
            handle=self._handle,
            answered=self._answered,
            route_tell=self._route_tell,
            log=self._log,
            clock=environment.steady_ns,
            offset_ns=environment.time_ns() - environment.steady_ns(),
            observe=observe_both(environment.observe, self._rebalance),
            refused=environment.refused,
            standing=self._standing,
        )
        self._runtime.on_failure = self._fail
        registries = tuple(self._leaders)
        observe = self._runtime.observe
        self._host = Handler(life.name, registries, self.configuration, buffer=self._buffer, observe=observe)
        self._transport = environment.transport(
            life=life.name,
            role=CONSUMER,
            receive=self._runtime.receive,
            dial=self._leaders,
            credentials=self.credentials,
            store=self._groups.identity,
        )
        self._runtime.attach(self._host, self._transport)
        await self._transport.__aenter__()
        self._life.hold(self._runtime)
        self._leaderless.look()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Say what is known and go: the streams are free for others at once."""
        self._flush_acks()
        self._rebalance.is_leaving = True
        self._runtime.run(self._host.leave_all)
        await self._rebalance.settle()
        await self._life.give_back()
        await self.abort()

    async def abort(self) -> None:
        """Stop as if the process had died: nothing is said to anybody.  In place of leaving the `async with`."""
        self._stalled.close()
        self._leaderless.close()
        self._durable.close()
        await self._rebalance.close()
        await self._life.end()
        await self._runtime.close()
        await self._transport.__aexit__(None, None, None)
        await self._close()

    async def _close(self) -> None:
        """Stores and log."""
        await self._store.close()
        await self._groups.close()
        if self._log is not None:
            self._log.close()

    # -- subscriptions ------------------------------------------------------------------------------------------

    async def subscribe(
        self,
        subscription: str,
        *,
        acknowledge: Acknowledge = "application",
        start: str | int = "now",
        progress: Mapping[str, int] | None = None,
        label: str = "",
    ) -> None:
        """Take part in the group of `$shared/GROUP/FILTER` (or `$share`, `$queue`); anything else is a topic filter
        that is read alone: from `start`, and streams in `progress` (as `progress` told it in an earlier life) from
        there.

        A group that is not declared yet is declared to begin at `start`: "now", "beginning" (everything stored), or
        nanoseconds of store time.  When this returns it is declared: whatever is published from then on is delivered to
        its members.  `acknowledge="delivery"`: messages are acknowledged when they are handed over.  `label`: what this
        subscription is called from then on, where several are to the same. Raises `ConfigurationError` for what is
        malformed or subscribed already, or where the group lives by other times.
        """
        wanted = parse_wanted(subscription, acknowledge, start, progress)
        label = label or subscription
        if label in self._ids:
            raise ConfigurationError("subscription", label, "is subscribed already; unsubscribe first")
        await self._begin(label, wanted)

    async def unsubscribe(self, subscription: str) -> None:
        """Deliver nothing new of it, and finish what is in hand.  It may be subscribed to again at once.

        Raises `ConfigurationError` where it is not subscribed.
        """
        if subscription not in self._ids:
            raise ConfigurationError("subscription", subscription, "is not subscribed")
        self._flush_acks()
        name = self._ids.pop(subscription)
        self._runtime.run(lambda now_ns: self._host.unsubscribe(name, now_ns))

    def leave(self, subscription: str) -> None:
        """Say what is known of it and go: its streams are free for others at once, and what is in hand comes to them.

        Raises `ConfigurationError` where it is not subscribed.
        """
        if subscription not in self._ids:
            raise ConfigurationError("subscription", subscription, "is not subscribed")
        self._flush_acks()
        name = self._ids.pop(subscription)
        self._runtime.run(lambda now_ns: self._host.leave(name, now_ns))

    def is_taken_back(self, subscription: str) -> bool:
        """A stream of it is to go to another member, which waits for what is in hand here to be acknowledged."""
        owner = self._host.party_of(self._ids.get(subscription, ""))
        return any(one.owner == owner and one.finishing for one in self._host.reads.readings.values())

    def progress(self, subscription: str) -> dict[str, int]:
        """How far a topic filter that is read alone has been read: stream -> next offset.  Keep it, and give it to
        `subscribe` in the next life.  Acknowledgements of this turn of the loop are counted.

        Raises `ConfigurationError` where it is not subscribed.
        """
        if subscription not in self._ids:
            raise ConfigurationError("subscription", subscription, "is not subscribed")
        self._flush_acks()
        return dict(self._progress.get(self._ids[subscription], {}))

    async def _begin(self, subscription: str, wanted: SharedFilter | Private) -> None:
        """Returns when the group is declared."""

        def act(now_ns: int) -> list[Any]:
            name, out = self._host.subscribe(wanted, now_ns)
            self._ids[subscription], self._names[name] = name, subscription
            if isinstance(wanted, Private):
                self._progress[name] = dict(wanted.progress)
            else:
                self._declaring[self._host.party_of(name)] = name
            return out

        self._runtime.run(act)
        name = self._ids[subscription]
        declarer = self._host.party_of(name)
        try:
            while self._host.is_being_declared(name):
                self._answer_came.clear()
                await self._answer_came.wait()
                self._raise_failure()
        finally:
            self._declaring.pop(declarer, None)
        refused = self._refused.pop(name, None)
        if refused is not None:
            del self._ids[subscription], self._names[name]
            raise make_difference_error(self.configuration, refused.properties)

    @property
    def machines(self) -> Handler:
        """The machines of this consumer, to be looked at."""
        return self._host

    # -- messages -----------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Delivered]:
        return self._each()

    async def _each(self) -> AsyncIterator[Delivered]:
        async for (message,) in self.batches(1):
            yield message

    async def batches(self, limit: int) -> AsyncIterator[Deliveries]:
        """At most `limit` messages of one stream at a time, handed over in one step; until no subscription is left.

        Raises `ConfigurationError` where `limit` is below 1.
        """
        check_size(limit)
        while True:
            self._ready.clear()
            self._raise_failure()
            if not self._rebalance.is_settled:
                await self._rebalance.settle()
                continue
            batch = self._take(limit)
            if batch:
                yield batch
                await self._yield()
            elif not self._host.parties:
                return
            else:
                await self._ready.wait()

    def acknowledge(self, owner: str, stream: str, grant: int, first: int, last: int) -> None:
        """Messages `first`..`last` are dealt with (the other words as `Delivered` has them); ranges that touch are told
        together, at the end of this turn.

        Raises `LocalProtocolError` where they were not all handed over under this grant.
        """
        self._host.check_ack(owner, stream, grant, first, last)
        self.note_ack(owner, stream, grant, first, last)

    def check_ack(self, messages: Iterable[Delivered]) -> None:
        """As `Delivered.ack` and `Deliveries.ack` say."""
        for message in messages if self._given_back else ():
            if message in self._given_back:
                what = f"message {message.offset} of {message.stream} cannot be acknowledged: it was given back"
                why = f"{what}; acknowledge it when it is handed over again"
                raise LocalProtocolError("session", "-", "ack", "SS-413", why)

    def note_ack(self, owner: str, stream: str, grant: int, first: int, last: int) -> None:
        """The same for messages that were handed over, as `Delivered` knows of itself.

        Raises `DeliveryRevoked` where they were taken back, since they were not acknowledged in time.
        """
        if owner in self._revoked:
            raise DeliveryRevoked(stream, first)
        if not self._acks:
            asyncio.get_running_loop().call_soon(self._flush_acks)
        ranges = self._acks.setdefault((owner, stream, grant), [])
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1][1] = last
        else:
            ranges.append([first, last])

    def give_back(self, message: Delivered, delay_s: float, reason: str = "") -> None:
        """Hand this message over again, as `Delivered.nack` says."""
        if not 0 <= delay_s <= DELAY_MAX_S:
            raise ConfigurationError("delay", delay_s, f"must be seconds, from 0 to {DELAY_MAX_S:.0f} (a day)")
        check_reason(reason)
        self._flush_acks()
        delay_ns = round(delay_s * 1e9)
        nack = Nack(message.owner, message.stream, message.grant, message.offset, delay_ns, reason)
        self._host.check_nack(nack, message.delivery_count - 1)
        self._runtime.run(partial(self._host.give_back, nack))
        self._given_back.add(message)
        self._durable.check_returned()

    async def wait_durable(self, message: Delivered) -> None:
        """Returns when the group store has the acknowledgement of this message, as `Delivered.ack` says."""
        owner, stream, grant = message.owner, message.stream, message.grant
        group, topic_filter = self._host.place_of(owner)
        if grant and not group:
            why = "its grant is over; it may be delivered again"
            raise AcknowledgementUncertain(f"message {message.offset} of {stream} was acknowledged too late: {why}")
        if not group:
            why = "a private subscription has no durable progress: keep what `progress` says yourself"
            raise LocalProtocolError("session", "-", "ack", "SS-330", why)
        key = reading_key(owner, stream)
        self._flush_acks()  # what is acknowledged is not handed over again
        record, beside = (
            group_store.record_key(group, topic_filter, f"{name}{stream}") for name in (PROGRESS, FAILING)
        )
        await self._durable.wait(
            (record, beside), stream, message.offset, lambda: find_granted(self._reading_of(key), grant)
        )

    def _take(self, limit: int) -> Deliveries:
        self._taken = None
        self._runtime.run(lambda now_ns: self._host.take_messages(limit, now_ns))
        taken = self._taken
        if taken is None:
            return Deliveries()
        key = reading_key(taken.owner, taken.stream)
        buffer = (self._locker, self._again)[self._again.has(key, taken.grant, taken.first)]
        payloads = buffer.take(key, taken.grant, taken.first, taken.last)
        subscription = self._names[self._host.subscription_of(taken.owner)]
        self._in_hand.note_change()  # where handing it over acknowledges it
        self._stalled.hand_over(key)
        owner, stream, grant = taken.owner, taken.stream, taken.grant
        messages = [
            Delivered(self, subscription, owner, stream, grant, offset, payload, 1, head)
            for offset, (payload, head) in enumerate(payloads, taken.first)
        ]
        if taken.failed or taken.handed:
            counts = [1 + (message.offset < taken.handed) for message in messages]
            counts[0] = max(counts[0], 1 + taken.failed)
            messages = [replace(message, delivery_count=count) for message, count in zip(messages, counts, strict=True)]
        return Deliveries(messages)

    def _reading_of(self, key: str) -> StreamReading | None:
        return self._host.reads.readings.get(key)

    def _list_leaderless(self) -> list[str]:
        """The subscriptions whose borrowers look for a leader."""
        nodes = ((self._host.nodes.get(self._host.borrower_of(one)), told) for one, told in self._names.items())
        return [told for node, told in nodes if node is not None and node.record.status is BorrowerStatus.CONNECTING]

    async def _yield(self) -> None:
        clock = self._environment.steady_ns
        if self._standing.is_late():
            await self._catch_up()
        elif clock() - self._turn_ns > TURN_NS:
            await asyncio.sleep(0)
        else:
            return
        self._turn_ns = clock()

    async def _catch_up(self) -> None:
        """The application kept the loop for a quarter of a lease or more: what it has acknowledged goes out, pings that
        are due go out, and their answers come in, before it gets more.  A leader that does not answer is not waited for
        beyond another quarter."""
        clock = self._environment.steady_ns
        end_ns = clock() + self._standing.quarter_ns
        self._flush_acks()
        await asyncio.sleep(0)
        while clock() < end_ns and (self._standing.is_late() or self._waits_for_answers()):
            await asyncio.sleep(CATCH_UP_S)

    def _waits_for_answers(self) -> bool:
        """A ping of some subscription is not answered yet."""
        return any(getattr(node.record, "outstanding", False) for node in self._host.nodes.values())

    def _flush_acks(self) -> None:
        acks, self._acks = self._acks, {}
        for (owner, stream, grant), ranges in acks.items():
            for first, last in ranges:
                self._runtime.act(partial(self._host.acknowledge, owner, stream, grant, first, last))
            self._stalled.acknowledge(reading_key(owner, stream), self._buffer)
        self._in_hand.note_change()

    def _fail(self) -> None:
        self._durable.close()
        self._ready.set()
        self._answer_came.set()

    def _raise_failure(self) -> None:
        if self._runtime.failed is not None:
            raise self._runtime.failed

    # -- from the machines --------------------------------------------------------------------------------------

    def _handle(self, sender: str, to: str, message: ToConsumer, now_ns: int) -> list[Outgoing]:
        check_relay(sender, message, self._transport.is_peer_of(LEADER.name, sender))
        return self._host.receive(sender, to, message, now_ns)

    def _route_tell(self, party: str, event: Event) -> None:
        match event:
            case Deliver():
                self._taken = event
            case ReadTo(name, stream, progress):
                self._progress[name][stream] = progress
            case DeliveriesRevoked(owner):
                self._revoked[owner] = True
                if len(self._revoked) > REVOKED_MAX:
                    del self._revoked[next(iter(self._revoked))]
            case Suspended(name, stream, is_late):
                self._note_kind(TAKEN_BACK if is_late else GIVEN_BACK, name, stream)
            case Resumed(name, stream, is_late):
                self._note_kind(RETURNED if is_late else TAKES_PART, name, stream)
            case DeclarationRefused():
                if party in self._declaring:
                    self._refused[self._declaring[party]] = event
                self._ready.set()
            case Ended(name):
                self._names.pop(name, None)
                self._progress.pop(name, None)
                self._ready.set()
            case Ready():
                self._ready.set()

    def _note_kind(self, line: str, name: str, stream: str) -> None:
        """One line for all subscriptions of which the same is told at the same time."""
        if line not in self._notices:
            self._notices[line] = (stream, [])
            asyncio.get_running_loop().call_soon(self._write_notice, line)
        self._notices[line][1].append(self._names.get(name, name))

    def _write_notice(self, line: str) -> None:
        stream, names = self._notices.pop(line)
        wait_ms = self.configuration.ack_wait_ms if line == TAKEN_BACK else self.configuration.validity_ms
        values = {"node": self.node, "stream": stream, "names": name_first(names), "wait_s": wait_ms / 1_000}
        logger.warning(line, values)

    async def _read(self, party: str, request: ListStreams | Fetch, feed: Feed) -> None:
        """The stream store, as the service of the session and of private subscriptions."""
        if isinstance(request, Fetch):
            # Whether the store answers again is not known by waiting: one message more is read.
            room = 1 if self._is_failing else await self._in_hand.wait_room()
            answer, payloads = await self._store.fetch(request, min(room, ANSWER_MAX))
            self._is_failing = isinstance(answer, FetchFailed)
            if isinstance(answer, Fetched):
                self._runtime.act(partial(self._take_in, answer, payloads))
            else:
                feed(party, answer)
            return
        if not isinstance(request, ListStreams):
            raise LocalProtocolError("session", "-", type(request).__name__, "", "a consumer only lists and fetches")
        for listed in await self._store.ask(request):
            feed(party, listed)

    def _take_in(self, answer: Fetched, payloads: Payloads, now_ns: int) -> list[Outgoing]:
        """What the session says it has counted is kept until it is delivered."""
        out, counted = self._host.take_in(answer, now_ns)
        for one in counted:
            place = (one.key, one.grant, one.first, payloads[one.part])
            (self._locker, self._again)[one.again].put(*place)
            (self._in_hand.put, self._in_hand.put_again)[one.again](*place)
        self._locker.forget(self._host.reads.readings)
        self._again.forget(self._host.reads.readings)
        return out

    def _answered(self, party: str, answer: Answer, now_ns: int) -> list[Outgoing]:
        out = self._host.feed(party, answer, now_ns)
        self._answer_came.set()
        return out


def observe_both(observe: Observer | None, rebalance: RebalanceCallbacks) -> Observer | None:
    """Both of them, where the application wants to hear of its streams."""
    if not rebalance or observe is None:
        return rebalance.observe if rebalance else observe

    def both(node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        observe(node, event, before, step, now_ns)
        rebalance.observe(node, event, before, step, now_ns)

    return both


class SharedSubscription(SharedSession):
    """A member of one consumer group; use it as `async with`, then iterate.

    `subscription`: `$shared/GROUP/FILTER`; `start` and `acknowledge` as for `SharedSession.subscribe`, everything else
    as for `SharedSession`.  Once it is entered the group is declared: whatever is published from then on is delivered
    to its members.
    """

    def __init__(
        self,
        subscription: str,
        *,
        leader: str | Sequence[str],
        store: str | Path,
        start: str | int = "now",
        acknowledge: Acknowledge = "application",
        **options: Any,
    ) -> None:
        super().__init__(leader=leader, store=store, **options)
        self.subscription = subscription
        self.group, self.filter = parse_filter(subscription)
        self._wanted = parse_wanted(subscription, acknowledge, start, None)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            await self._begin(self.subscription, self._wanted)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def unsubscribe(self, subscription: str = "") -> None:
        """Deliver nothing new, finish what is in hand; iteration ends when that is done."""
        await super().unsubscribe(subscription or self.subscription)


def limit_wait(configuration: Configuration, ack_wait_s: float | None) -> Configuration:
    """With this acknowledgement wait, in seconds (None: as it was).

    Raises `ConfigurationError` unless it is between a millisecond and a day.
    """
    if ack_wait_s is None:
        return configuration
    if not 0.001 <= ack_wait_s <= ACK_WAIT_MAX_S:
        rule = f"must be seconds, from 0.001 to {ACK_WAIT_MAX_S:.0f} (a day); leave it out for no limit"
        raise ConfigurationError("ack_wait", ack_wait_s, rule)
    return replace(configuration, ack_wait_ms=round(ack_wait_s * 1_000))


def parse_wanted(
    subscription: str, acknowledge: Acknowledge, start: str | int, progress: Mapping[str, int] | None
) -> SharedFilter | Private:
    """What to subscribe to; raises `ConfigurationError` where a word of it is wrong."""
    if acknowledge not in ("application", "delivery"):
        raise ConfigurationError("acknowledge", acknowledge, 'must be "application" or "delivery"')
    start_ns = start_of(start)
    at_delivery = acknowledge == "delivery"
    if is_shared(subscription):
        if progress is not None:
            rule = "is the group's: give no progress with a shared subscription"
            raise ConfigurationError("progress", dict(progress), rule)
        return SharedFilter(*parse_filter(subscription), at_delivery, start_ns)
    check_filter(subscription, subscription)
    return Private(subscription, NOW if start_ns < 0 else start_ns, Map(progress or {}), at_delivery)


def parse_leaders(leader: str | Sequence[str]) -> dict[str, Address]:
    """Name -> address of each leader host: `leader`, and for more of them names that no node can have.

    Raises `ConfigurationError` for an address that is none, for none at all, and for too many.
    """
    texts = [text.strip() for text in leader.split(",")] if isinstance(leader, str) else list(leader)
    addresses = list(dict.fromkeys(parse_address(text) for text in texts))
    if not 1 <= len(addresses) <= LEADERS_MAX:
        raise ConfigurationError("leader", leader, f"must be 1 to {LEADERS_MAX} addresses HOST:PORT")
    return {"leader" if number == 1 else f"leader:{number}": one for number, one in enumerate(addresses, 1)}
