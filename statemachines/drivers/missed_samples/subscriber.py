"""ReliableSubscriber: delivers each sample once and in order, asks caches for what it missed, and says what is lost
(source: "The `ReliableSubscriber`").

    async with declare_reliable_subscriber(session, "room/*", on_missed=print) as subscriber:
        async for sample in subscriber:
            print(sample.source, sample.number, sample.payload.to_string())
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import zenoh
from msgspec.structs import replace

from statemachines.drivers.lives import Life, begin_life
from statemachines.drivers.missed_samples.arrivals import Arrivals
from statemachines.drivers.missed_samples.attachment import End, MalformedAttachment, Stamp, decode
from statemachines.drivers.missed_samples.declared import Declared
from statemachines.drivers.missed_samples.layout import attachment_of, layout_of, read_source
from statemachines.drivers.missed_samples.mailbox import Item, Mailbox
from statemachines.drivers.missed_samples.open_query import OpenQuery
from statemachines.drivers.missed_samples.outlet import Outlet
from statemachines.drivers.missed_samples.party import Party
from statemachines.drivers.missed_samples.publisher import PROTOCOL, checked
from statemachines.drivers.missed_samples.query_desk import stop
from statemachines.drivers.missed_samples.received import OVERHEAD, ReceivedSample
from statemachines.drivers.missed_samples.sample_store import OURS, PRIORITIES
from statemachines.drivers.missed_samples.tokens import Tokens
from statemachines.drivers.missed_samples.zenoh_thread import direct
from statemachines.drivers.port import Feed
from statemachines.kernel import ConfigurationError, Event
from statemachines.missed_samples.keys import BadKey, check_expression, matches
from statemachines.missed_samples.message import (
    EVERY_SOURCE,
    QUERY,
    Deliver,
    DeliverUnnumbered,
    Heartbeat,
    Missed,
    Query,
    QueryEnded,
    TurnedAway,
    Unnumbered,
)
from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.selector import history_text, range_text
from statemachines.missed_samples.serial_number import origin, wrapped
from statemachines.missed_samples.source_record import Appeared, Disappeared
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines.missed_samples.subscriber_record import History, Subscribe, SubscriberRecord, Unsubscribe
from statemachines.wire import Packet, shown

logger = logging.getLogger("gapless")

MISSES_MAX: Final = 1_000
"""So many reports of missed samples wait for who asks for them; what comes then is counted, and stands in the log."""

BACKSTOP_MS: Final = 24 * 3_600_000
"""zenoh ends every query after `timeout_ms`, and its end waits behind its replies.  The timers of the machine, which do
not wait for a reader that is slow, are there for an end that never comes."""

TOKENS_S: Final = 1.0
"""So long, at most, we wait to learn who was there before us."""


class SubscriberStatistics(msgspec.Struct):
    """Counts since the beginning.  `delivered` samples, of which `recovered` were brought by caches and `unnumbered`
    have no number; `missed` numbers were reported; `duplicates` dropped, of which `repeated` were no replies;
    `refused` for want of room while something older was missing, `overflowed` because the loop was too slow;
    `malformed` samples, replies, heartbeats or tokens that cannot be read, `turned_away` samples of sources for which
    there was no place; `strange` replies nobody asked for; `queries` sent, of which `bad_ends` did not end well;
    `failed` callbacks of the application; `unread` reports of missed samples for which nobody came."""

    delivered: int = 0
    recovered: int = 0
    unnumbered: int = 0
    missed: int = 0
    duplicates: int = 0
    repeated: int = 0
    refused: int = 0
    overflowed: int = 0
    malformed: int = 0
    turned_away: int = 0
    strange: int = 0
    queries: int = 0
    bad_ends: int = 0
    failed: int = 0
    unread: int = 0


class SubscriberOptions(msgspec.Struct, frozen=True, kw_only=True):
    """See `declare_reliable_subscriber`."""

    layout: str = "advanced"
    history: History | None = None
    recovery: Recovery = Recovery()
    period_s: float = 0.0
    heartbeats: bool = True
    detect_publishers: bool = True
    allowed_origin: zenoh.Locality | None = None
    queue_max: int = 50_000
    queue_bytes_max: int = 64 << 20
    held_bytes_max: int = 256 << 20
    waiting_max: int = 10_000
    on_missed: Callable[[Missed], object] | None = None
    life: Life | None = None

    def __post_init__(self) -> None:
        for name in ("queue_max", "queue_bytes_max", "held_bytes_max", "waiting_max"):
            if getattr(self, name) < 1:
                raise ConfigurationError(name, getattr(self, name), "at least 1")
        if self.period_s < 0:
            raise ConfigurationError("period_s", self.period_s, "at least 0")

    def record(self, width: int) -> SubscriberRecord:
        """The machine as it begins."""
        recovery = replace(self.recovery, timeout_ms=BACKSTOP_MS)
        if self.period_s:
            recovery = replace(recovery, period_ms=round(self.period_s * 1_000))
        return SubscriberRecord(recovery, self.history, width)


class ReliableSubscriber:
    """See `declare_reliable_subscriber`.  For one thread: that of the loop it was declared in."""

    def __init__(
        self,
        session: zenoh.Session,
        key_expr: str,
        handler: Callable[[ReceivedSample], object] | None,
        options: SubscriberOptions,
    ) -> None:
        self.statistics = SubscriberStatistics()
        self.key_expr = check_expression(key_expr)
        self._session = session
        self._handler = handler
        self._options = options
        self._layout = layout_of(options.layout)
        self._record = options.record(self._layout.width)
        self._declared = Declared()
        self._queries: dict[tuple[str, int], OpenQuery] = {}
        self._breaks = 0
        self._task: asyncio.Task[None] | None = None
        self._tokens = Tokens()
        self._failure = asyncio.Event()
        self._error: BaseException | None = None
        self._unnumbered: ReceivedSample | None = None

    # -- its life -----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        options = self._options
        life = options.life or begin_life(None, Path(), None, None, PROTOCOL, kind="subscriber")
        self._samples: Outlet[ReceivedSample] = Outlet(options.waiting_max)
        self._misses: Outlet[Missed] = Outlet(MISSES_MAX)
        self._mailbox = Mailbox(
            life.name, self._take, count_max=options.queue_max, bytes_max=options.queue_bytes_max
        )  # fmt: skip
        self._asker = ThreadPoolExecutor(1, "gapless-queries")
        self._party = Party(SUBSCRIBER, self._record, life, transport=self, services={QUERY: self._ask},
                            told=self._told, before=self._before, failed=self._fail)  # fmt: skip
        self._arrivals = Arrivals(self._party, self.statistics, self._layout.width, options.held_bytes_max)
        self._declared.on_close(self._stop)
        try:
            await asyncio.to_thread(self._declare)
            self._party.feed(Subscribe())  # the query after the subscription; what came between waits in the mailbox
            self._task = asyncio.ensure_future(self._mailbox.run(self._samples.room))
            self._task.add_done_callback(self._note_end)
        except BaseException:
            await self._declared.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._party.error is None:
            self._party.feed(Unsubscribe())
        await self._declared.close()

    def _declare(self) -> None:
        """In a thread: declarations may wait for the network."""
        session, options, put = self._session, self._options, self._mailbox.put
        hear, hear_beat = self._hear, self._hear_beat
        watch = self._layout.watch_key(self.key_expr)

        def heard(sample: zenoh.Sample) -> None:
            put(hear, sample, OVERHEAD + len(sample.payload))

        def beat(sample: zenoh.Sample) -> None:
            put(hear_beat, sample, OVERHEAD + len(sample.payload))

        def broken(event: zenoh.TransportEvent) -> None:
            self._breaks += event.kind == zenoh.SampleKind.DELETE

        declared = self._declared
        declared.add(session.info.declare_transport_events_listener(direct(broken)))
        if options.heartbeats:
            declared.add(session.declare_subscriber(watch, direct(beat)))
        declared.add(session.declare_subscriber(self.key_expr, direct(heard), allowed_origin=options.allowed_origin))
        if options.detect_publishers:
            self._watch_tokens(watch)

    def _watch_tokens(self, watch: str) -> None:
        """First the subscription, then what is there already: what comes before the end of that was there before us."""
        put, liveliness = self._mailbox.put, self._session.liveliness()

        def heard(token: zenoh.Sample) -> None:
            put(self._hear_token, token, OVERHEAD)

        def there(reply: zenoh.Reply) -> None:
            if reply.ok is not None:  # the subscription says the same, and maybe later
                put(self._hear_old_token, reply.ok, OVERHEAD)

        def over() -> None:
            put(self._note_tokens, None, always=True)

        hear = direct(heard)
        self._declared.add(liveliness.declare_subscriber(watch, hear, history=True))
        liveliness.get(watch, direct(there, over), timeout=TOKENS_S)

    async def _stop(self) -> None:
        self._mailbox.close()
        if self._task is not None:
            await stop(self._task)
        await self._party.close()
        await asyncio.to_thread(self._asker.shutdown, True, cancel_futures=True)
        self._samples.end()
        self._misses.end()

    def _note_end(self, task: asyncio.Task[Any]) -> None:
        """Of the task that takes out what comes: who waits for samples learns why there are none."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._end_with(error)

    def _fail(self) -> None:
        self._end_with(self._party.error)

    async def failed(self) -> None:
        """Wait until it cannot go on, and raise why."""
        await self._failure.wait()
        if self._error is not None:
            raise self._error

    def _end_with(self, error: BaseException | None) -> None:
        self._error = error
        self._failure.set()
        self._samples.end(error)
        self._misses.end(error)

    # -- the application ----------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """How many samples are held because something older is missing."""
        return self._arrivals.held

    @property
    def sources(self) -> tuple[str, ...]:
        """The publishers that it keeps something of."""
        return tuple(sorted(self._party.record.sources.keys()))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedSample:
        """The next sample; waits for it.  Who does not read lets the mailbox fill up, and what finds no room there is
        asked for later."""
        if self._handler is not None:
            raise ConfigurationError("handler", self._handler, "gets the samples already; leave it out to iterate")
        return await self._samples.get()

    async def misses(self) -> AsyncIterator[Missed]:
        """What is reported as missed, as it comes; not with `on_missed`."""
        while True:
            try:
                yield await self._misses.get()
            except StopAsyncIteration:
                return

    def _told(self, event: Event) -> None:
        match event:
            case Deliver():
                self._hand_over(self._arrivals.deliver(event))
            case DeliverUnnumbered():
                assert self._unnumbered is not None
                self.statistics.unnumbered += 1
                self._hand_over([self._unnumbered])
            case TurnedAway():
                self.statistics.turned_away += event.last - event.first + 1
                if self.statistics.turned_away.bit_count() == 1:  # the 1st, 2nd, 4th ...
                    text = "no place for one more source, %d samples turned away so far: %s"
                    logger.warning(text, self.statistics.turned_away, shown(event.source))
            case Missed():
                zero = origin(self._layout.width)
                self.statistics.missed += event.last - event.first + 1
                self._report(Missed(event.source, event.first - zero, event.last - zero))

    def _hand_over(self, samples: list[ReceivedSample]) -> None:
        statistics, take = self.statistics, self._handler or self._samples.put
        for sample in samples:
            statistics.delivered += 1
            if sample.recovered:
                statistics.recovered += 1
            try:
                take(sample)
            except Exception:
                self._note_failure()

    def _report(self, missed: Missed) -> None:
        if self._options.on_missed is not None:
            self._call(self._options.on_missed, missed)
        elif len(self._misses) < MISSES_MAX:
            self._misses.put(missed)
        else:
            self.statistics.unread += 1
            if self.statistics.unread.bit_count() == 1:
                logger.warning("missed and not asked for, %d reports so far: %s", self.statistics.unread, missed)

    def _call(self, function: Callable[[Any], object], given: object) -> None:
        try:
            function(given)
        except Exception:
            self._note_failure()

    def _note_failure(self) -> None:
        """What a callback raises is said and counted, and stops nobody."""
        self.statistics.failed += 1
        if self.statistics.failed.bit_count() == 1:  # the 1st, 2nd, 4th ...
            logger.exception("a callback raised, %d times so far", self.statistics.failed)

    # -- what comes ---------------------------------------------------------------------------------------------

    def _take(self, items: list[Item]) -> None:
        self.statistics.overflowed = self._mailbox.refused
        repeated = self.statistics.repeated
        for act, given, _ in items:
            try:
                act(given)
            except (BadKey, MalformedAttachment, ValueError) as error:
                self._malformed(error)
        self._arrivals.settle()
        if self.statistics.repeated.bit_length() > repeated.bit_length() and not self._layout.has_zenohs_ids:
            logger.warning(
                "%s: %d samples so far came under numbers that were settled: has somebody the id of somebody else, or "
                "begun anew under its own?", self.key_expr, self.statistics.repeated,
            )  # fmt: skip

    def _malformed(self, error: Exception) -> None:
        self.statistics.malformed += 1
        if self.statistics.malformed.bit_count() == 1:  # the 1st, 2nd, 4th ...: a flood does not fill the log
            logger.warning("malformed, %d so far: %s", self.statistics.malformed, shown(str(error)))

    def _hear(self, sample: zenoh.Sample) -> None:
        found = self._layout.read_sample(sample)
        if found is None:
            return
        source, sn, attachment = found
        if source:
            self._arrivals.add(source, sn, ReceivedSample(sample, source, -1, attachment))
            return
        self._arrivals.settle()
        self._unnumbered = ReceivedSample(sample, attachment=attachment)
        self._party.receive("-", Unnumbered())

    def _hear_beat(self, sample: zenoh.Sample) -> None:
        said = self._layout.read_beat(sample)
        if said is not None:
            self._arrivals.settle()
            self._party.receive(said[0], Heartbeat(*said))

    def _hear_token(self, token: zenoh.Sample) -> None:
        source = self._layout.read_key(str(token.key_expr)).source
        self._arrivals.settle()
        if token.kind == zenoh.SampleKind.DELETE:
            self._party.feed(Disappeared(source))
        else:
            self._party.feed(Appeared(source, self._tokens.is_new(source)))

    def _hear_old_token(self, token: zenoh.Sample) -> None:
        self._tokens.note(self._layout.read_key(str(token.key_expr)).source)

    def _note_tokens(self, given: None) -> None:
        self._tokens.begin()

    def _before(self, message: Any) -> None:
        """Timers have fired, the message comes next."""
        self._arrivals.place(message)

    # -- queries ------------------------------------------------------------------------------------------------

    def _ask(self, party: str, query: Query, feed: Feed) -> None:
        """The service: ask all caches that can be reached.  Whatever comes of it comes by the mailbox: a future would
        wake the loop once more."""
        self._asker.submit(self._get, query, self._open(query))

    def _open(self, query: Query) -> OpenQuery:
        """Note that it is under way, and how far its source is."""
        self.statistics.queries += 1
        open_ = OpenQuery(query.source, query.n, reached=self._reached(query.source))
        self._queries[query.source, query.n] = open_
        return open_

    def _reached(self, source: str) -> int:
        """Grows with every sample that was missing."""
        known = self._party.record.sources.get(source)
        return 0 if known is None else known.expected + known.held_count

    def _get(self, query: Query, open_: OpenQuery) -> None:
        """In a thread of our own: zenoh waits while the link is full."""
        try:
            self._send_query(query, open_)
        except BaseException as error:
            self._mailbox.put(self._end_with, error, always=True)

    def _send_query(self, query: Query, open_: OpenQuery) -> None:
        first = wrapped(query.first, self._layout.width)
        said = history_text(query.newest, query.age_ms) if query.source == EVERY_SOURCE else range_text(first)
        key = self._layout.query_key(query.source, self.key_expr)
        open_.breaks, open_.links = self._breaks, self._links()
        put = self._mailbox.put

        def replied(reply: zenoh.Reply) -> None:
            size = OVERHEAD + (len(reply.ok.payload) if reply.ok is not None else 0)
            if not put(self._hear_reply, (open_, reply), size):
                open_.lost = open_.overflowed = True

        def over() -> None:
            put(self._end, open_, always=True)

        try:
            self._session.get(
                f"{key}?{said};{OURS}=1" if said else f"{key}?{OURS}=1",
                direct(replied, over),
                target=zenoh.QueryTarget.ALL,
                consolidation=zenoh.ConsolidationMode.NONE,
                accept_replies=zenoh.ReplyKeyExpr.ANY,
                congestion_control=zenoh.CongestionControl.BLOCK,
                timeout=self._options.recovery.timeout_ms / 1_000,
            )
        except zenoh.ZError as error:
            logger.warning("a query could not be sent: %s", shown(str(error)))
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
        cache = "" if reply.replier_id is None else f"{reply.replier_id.zid}/{reply.replier_id.eid}"
        numbered: tuple[str, int] | None
        if sample.source_info is not None:
            numbered, attachment, priority = read_source(sample.source_info), attachment_of(sample), None
        else:
            data = attachment_of(sample)
            said = None if data is None else decode(data)
            if isinstance(said, End):
                open_.end(cache, said.count)
                return
            if not isinstance(said, Stamp):
                self.statistics.strange += 1
                return
            open_.count(cache)
            self._layout.query_key(said.source, self.key_expr)
            numbered, attachment = (said.source, said.sn), said.attachment
            priority = PRIORITIES[said.priority - 1] if said.priority else None
        self._take_reply(open_, sample, numbered, attachment, priority)

    def _take_reply(
        self,
        open_: OpenQuery,
        sample: zenoh.Sample,
        numbered: tuple[str, int] | None,
        attachment: bytes | None,
        priority: zenoh.Priority | None,
    ) -> None:
        """One that was asked for; what else a cache says is counted, and nothing more."""
        asked = numbered is not None and open_.source in (numbered[0], EVERY_SOURCE)
        if numbered is None or not asked or not matches(self.key_expr, str(sample.key_expr)):
            self.statistics.strange += 1
            return
        open_.replied = True
        one = ReceivedSample(sample, numbered[0], -1, attachment, True, priority)
        if not self._arrivals.add(*numbered, one):
            open_.lost = True

    def _end(self, open_: OpenQuery) -> None:
        """Everything that it brought has been taken."""
        self._arrivals.settle()
        if self._queries.get((open_.source, open_.n)) is not open_:
            return
        del self._queries[open_.source, open_.n]
        well = open_.ended_well(self._links(), self._breaks)
        self.statistics.bad_ends += not well
        if open_.overflowed and self._goes_on(open_):
            return
        self._party.answer(QueryEnded(open_.source, open_.n, well and open_.replied))

    def _goes_on(self, open_: OpenQuery) -> bool:
        """What our own mailbox had no room for convicts nobody: it is asked for at once, within the same query, as long
        as each answer brings something new."""
        known = self._party.record.sources.get(open_.source)
        if known is None or known.query_n != open_.n or not known.missing:
            return False
        if self._reached(open_.source) <= open_.reached:
            return False
        query = Query(open_.source, open_.n, known.expected)
        self._asker.submit(self._get, query, self._open(query))
        return True

    def send(self, packet: Packet[Any]) -> None:
        """A subscriber sends nothing: it asks."""
        raise AssertionError(packet)


def declare_reliable_subscriber(
    session: zenoh.Session,
    key_expr: str,
    handler: Callable[[ReceivedSample], object] | None = None,
    **options: Any,
) -> ReliableSubscriber:
    """A subscriber under a key expression, to be entered with `async with`, and iterated with `async for` unless
    `handler(sample)` gets the samples.

    `history`: `History(newest, age_ms)`, ask the caches first for what was published before we came; `period_s`: ask
    every so many seconds for what may have been missed at the end (0: never); `heartbeats`: listen to those of
    publishers; `detect_publishers`: what a publisher sent since its token appeared is ours, the first sample too;
    `recovery`: retries, timeouts, pauses and limits (`Recovery`); `on_missed(missed)`: gets what is lost, otherwise
    `misses()` says it; `allowed_origin`, `layout` as for caches; `queue_max`, `queue_bytes_max`: what may wait for the
    loop; `held_bytes_max`: what may wait for something older; `waiting_max`: what may wait for `async for`.

    Raises `BadKey` for what is no key expression, `ConfigurationError` for an option that cannot be, `zenoh.ZError`.
    """
    return ReliableSubscriber(session, key_expr, handler, checked(SubscriberOptions, options))
