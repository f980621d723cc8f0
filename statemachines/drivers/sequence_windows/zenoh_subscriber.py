"""SequencedZenohSubscriber: tells what each message over zenoh is, and asks for what is known to be missing.

async with declare_sequenced_subscriber(session, "room/*", recovery=Recovery()) as subscriber:
    async for message in subscriber:
        print(message.subject, message.verdict, message.payload)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import zenoh
from msgspec.structs import replace

from statemachines.drivers.clock import steady_ns
from statemachines.drivers.missed_samples.attachment import EndAttachment, MalformedAttachment, decode
from statemachines.drivers.missed_samples.declaration import Declarations
from statemachines.drivers.missed_samples.layout import PLAIN, attachment_of
from statemachines.drivers.missed_samples.mailbox import Item, Mailbox
from statemachines.drivers.missed_samples.open_query import OpenQuery
from statemachines.drivers.missed_samples.outlet import Outlet
from statemachines.drivers.missed_samples.publisher import check_options
from statemachines.drivers.missed_samples.query_queue import stop
from statemachines.drivers.missed_samples.received_sample import OVERHEAD
from statemachines.drivers.missed_samples.sample_store import OURS
from statemachines.drivers.missed_samples.zenoh_thread import direct
from statemachines.drivers.opening import finish_in_thread
from statemachines.drivers.sequence_windows.recovery_query import RecoveryQuery
from statemachines.drivers.sequence_windows.subscriber import Delivery, Loss, SequencedSubscriber
from statemachines.kernel import ConfigurationError
from statemachines.missed_samples.keys import BadKey, check_expression
from statemachines.missed_samples.message import Query
from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.selector import range_text
from statemachines.sequence_windows.rotation import Window
from statemachines.sequence_windows.subject_publishers import PLACES
from statemachines.wire import quote_for_log

logger = logging.getLogger("gapless")

BACKSTOP_MS: Final = 24 * 3_600_000
"""zenoh ends every query after the greatest timeout of the recovery, and its end waits behind its replies.  The
machine's own timer is there for an end that never comes."""


class SequencedSubscriberOptions(msgspec.Struct, frozen=True, kw_only=True):
    """See `declare_sequenced_subscriber`."""

    recovery: Recovery | None = None
    on_loss: Callable[[Loss], object] | None = None
    on_advisory: Callable[[dict[str, str | int]], object] | None = None
    window: Window | None = None
    allowed_origin: zenoh.Locality | None = None
    queue_max: int = 50_000
    queue_bytes_max: int = 64 << 20
    held_bytes_max: int = 64 << 20
    publishers_max: int = PLACES
    waiting_max: int = 10_000

    def __post_init__(self) -> None:
        for name in ("queue_max", "queue_bytes_max", "held_bytes_max", "publishers_max", "waiting_max"):
            if getattr(self, name) < 1:
                raise ConfigurationError(name, getattr(self, name), "at least 1")


class SequencedZenohSubscriber:
    """See `declare_sequenced_subscriber`.  For one thread: that of the loop it was declared in.  `misplaced` counts
    messages that came under another key than that of their subject, `queries` those that were sent, `bad_ends` those of
    them that did not end well, `failed` calls of the application that raised."""

    def __init__(
        self,
        session: zenoh.Session,
        key_expr: str,
        handler: Callable[[Delivery], object] | None,
        options: SequencedSubscriberOptions,
    ) -> None:
        self.key_expr = check_expression(key_expr)
        self.misplaced = self.queries = self.bad_ends = self.failed = 0
        self._session = session
        self._handler = handler
        self._options = options
        self._declared = Declarations()
        self._breaks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.sequenced = self._make()

    def _make(self) -> SequencedSubscriber:
        options, recovery = self._options, self._options.recovery
        return SequencedSubscriber(
            self._deliver,
            on_loss=self._guarded(options.on_loss),
            on_advisory=self._guarded(options.on_advisory),
            everything=True,
            window=options.window,
            recovery=None if recovery is None else replace(recovery, timeout_ms=BACKSTOP_MS),
            ask=None if recovery is None else self._ask,
            held_bytes_max=options.held_bytes_max,
            publishers_max=options.publishers_max,
        )

    # -- its life -------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        options = self._options
        self._loop = asyncio.get_running_loop()
        self._messages: Outlet[Delivery] = Outlet(options.waiting_max)
        self._mailbox = Mailbox(
            f"sequenced {self.key_expr}", self._take, count_max=options.queue_max, bytes_max=options.queue_bytes_max
        )
        self._asker = ThreadPoolExecutor(1, "gapless-queries")
        self._declared.on_close(self._stop)
        try:
            await asyncio.to_thread(self._declare)
            self._task = asyncio.ensure_future(self._mailbox.run(self._messages.room))
            self._task.add_done_callback(self._note_end)
        except BaseException:
            await self._declared.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self._declared.close()

    def _declare(self) -> None:
        """In a thread: declarations may wait for the network."""
        put = self._mailbox.put

        def take_sample(sample: zenoh.Sample) -> None:
            put(self._hear, sample, OVERHEAD + len(sample.payload))

        def broken(event: zenoh.TransportEvent) -> None:
            self._breaks += event.kind == zenoh.SampleKind.DELETE

        session, origin = self._session, self._options.allowed_origin
        self._declared.add(session.info.declare_transport_events_listener(direct(broken)))
        hear = direct(take_sample)
        self._declared.add(session.declare_subscriber(self.key_expr, hear, allowed_origin=origin))

    async def _stop(self) -> None:
        self._mailbox.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await stop(self._task)
        await finish_in_thread(lambda: self._asker.shutdown(True, cancel_futures=True))
        self._messages.end()

    def _note_end(self, task: asyncio.Task[Any]) -> None:
        """Who waits for messages learns why there are none."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._messages.end(error)

    # -- the application ------------------------------------------------------------------------------------------

    @property
    def overflow_count(self) -> int:
        """Messages that found no room because the loop, or the reader, was too slow: they are lost like any other."""
        return self._mailbox.refused

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        """The next message; waits for it."""
        if self._handler is not None:
            raise ConfigurationError("handler", self._handler, "gets the messages already; leave it out to iterate")
        return await self._messages.get()

    def _deliver(self, one: Delivery) -> None:
        if self._handler is None:
            self._messages.put(one)
        else:
            self._call(self._handler, one)

    def _guarded(self, callback: Callable[[Any], object] | None) -> Callable[[Any], object] | None:
        return None if callback is None else lambda given: self._call(callback, given)

    def _call(self, callback: Callable[[Any], object], given: object) -> None:
        """What a callback raises is said and counted, and stops nobody."""
        try:
            callback(given)
        except Exception:
            self.failed += 1
            if self.failed.bit_count() == 1:  # the 1st, 2nd, 4th ...
                logger.exception("a callback raised, %d times so far", self.failed)

    # -- what comes -----------------------------------------------------------------------------------------------

    def _take(self, items: list[Item]) -> None:
        for act, given, _ in items:
            act(given)
        self._set_timer()

    def _hear(self, sample: zenoh.Sample) -> None:
        one = self.sequenced.decode_datagram(sample.payload.to_bytes())
        if one is None:
            return
        if one.subject != str(sample.key_expr):
            self.misplaced += 1
            return
        parts = (one.payload, one.time_ns, one.chain, one.life)
        self.sequenced.receive_message(one.publisher, one.subject, one.number, *parts)

    def _set_timer(self) -> None:
        deadline = self.sequenced.deadline()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            self._timer = self._loop.call_later(max(0, deadline - steady_ns()) / 1e9, self._wake_up)

    def _wake_up(self) -> None:
        self._timer = None
        self.sequenced.poll()
        self._set_timer()

    # -- queries --------------------------------------------------------------------------------------------------

    def _ask(self, query: RecoveryQuery) -> None:
        """zenoh waits while the link is full, so a thread of our own asks."""
        self.queries += 1
        self._asker.submit(self._get, query, OpenQuery(Query(query.publisher, query.n, query.first, last=query.last)))

    def _get(self, query: RecoveryQuery, open_: OpenQuery) -> None:
        recovery, put = self._options.recovery, self._mailbox.put
        assert recovery is not None

        def replied(reply: zenoh.Reply) -> None:
            size = OVERHEAD + (len(reply.ok.payload) if reply.ok is not None else 0)
            if not put(self._hear_reply, (open_, reply), size):
                open_.lost = True

        def over() -> None:
            put(self._end, (query, open_), always=True)

        open_.breaks, open_.links = self._breaks, self._links()
        try:
            key = PLAIN.query_key(query.publisher, query.subject)
            self._session.get(
                f"{key}?{range_text(query.first, query.last)};{OURS}=1",
                direct(replied, over),
                target=zenoh.QueryTarget.ALL,
                consolidation=zenoh.ConsolidationMode.NONE,
                accept_replies=zenoh.ReplyKeyExpr.ANY,
                congestion_control=zenoh.CongestionControl.BLOCK,
                timeout=max(recovery.timeout_ms, recovery.timeout_max_ms) / 1_000,
            )
        except (zenoh.ZError, BadKey) as error:
            logger.warning("a query could not be sent: %s", quote_for_log(str(error)))
            open_.lost = True
            over()

    def _links(self) -> frozenset[str]:
        return frozenset(str(link.zid) for link in self._session.info.transports())

    def _hear_reply(self, given: tuple[OpenQuery, zenoh.Reply]) -> None:
        open_, reply = given
        sample = reply.ok
        if sample is None:
            open_.lost = True
            return
        publisher = "" if reply.replier_id is None else f"{reply.replier_id.zid}/{reply.replier_id.eid}"
        data = attachment_of(sample)
        if data is None:
            open_.count(publisher)
            self.sequenced.receive_recovered(sample.payload.to_bytes())
            return
        try:
            said = decode(data)
        except MalformedAttachment:
            said = None
        if not isinstance(said, EndAttachment):
            open_.lost = True
        elif sample.payload.to_bytes() == open_.query.source.encode():
            open_.end(publisher, said.count)

    def _end(self, given: tuple[RecoveryQuery, OpenQuery]) -> None:
        """All that it brought has been taken.  It has ended well if the publisher said how much that is."""
        query, open_ = given
        well = bool(open_.ends) and open_.is_complete(self._links(), self._breaks)
        self.bad_ends += not well
        self.sequenced.close_query(query, well)


def declare_sequenced_subscriber(
    session: zenoh.Session,
    key_expr: str,
    handler: Callable[[Delivery], object] | None = None,
    **options: Any,
) -> SequencedZenohSubscriber:
    """A subscriber under a key expression, to be entered with `async with`, and iterated with `async for` unless
    `handler(delivery)` gets the messages.  `sequenced` is the `SequencedSubscriber`, with its counts.

    `recovery`: what is known to be missing is asked for, with these retries, timeout (a zenoh query's) and limits
    (none: it counts as lost at once); `on_loss(loss)` and `on_advisory(fields)` get what is lost; `window`: when to
    forget; `allowed_origin` as zenoh's; `queue_max`, `queue_bytes_max`: what may wait for the loop; `held_bytes_max`:
    what may wait for something that is missing; `publishers_max`: so many of one key are remembered; `waiting_max`:
    what may wait for `async for`.

    Raises `BadKey` for what is no key expression, `ConfigurationError` for an option that cannot be, `zenoh.ZError`.
    """
    return SequencedZenohSubscriber(session, key_expr, handler, check_options(SequencedSubscriberOptions, options))
