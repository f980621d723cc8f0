"""ReliableSubscriber: delivers each sample once and in order, asks caches for what it missed, and says what is lost
(source: "The `ReliableSubscriber`").

    async with declare_reliable_subscriber(session, "room/*", on_missed=print) as subscriber:
        async for sample in subscriber:
            print(sample.source, sample.number, sample.payload.to_string())

Tokens: which publishers were there before us, and which came up while we were there.

UnnumberedHistory: which samples without a number are from before a subscriber came.

zenoh's advanced publishers with a cache alone number nothing, and stamp with the time.  A sample of the history is
passed on if it is older than the first of its key that came by itself, and newer than what history has brought.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import zenoh
from msgspec.structs import replace

from statemachines.drivers.lives import Life, begin_life
from statemachines.drivers.missed_samples.arrivals import Arrivals, SampleParty
from statemachines.drivers.missed_samples.attachment import MalformedAttachment
from statemachines.drivers.missed_samples.layout import Declarations, layout_of
from statemachines.drivers.missed_samples.mailbox import Item, Mailbox, Outlet
from statemachines.drivers.missed_samples.publisher import PROTOCOL, check_options
from statemachines.drivers.missed_samples.query_sender import QuerySender, stop
from statemachines.drivers.missed_samples.received_sample import OVERHEAD, ReceivedSample
from statemachines.drivers.missed_samples.zenoh_thread import direct
from statemachines.drivers.opening import closed_on_failure, finish_in_thread
from statemachines.drivers.port import Feed
from statemachines.kernel import Answer, ConfigurationError, Event
from statemachines.missed_samples.keys import BadKey, check_expression
from statemachines.missed_samples.message import (
    QUERY,
    Deliver,
    DeliverUnnumbered,
    Heartbeat,
    Missed,
    Query,
    TurnedAway,
    Unnumbered,
)
from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.serial_number import origin
from statemachines.missed_samples.source_record import Appeared, Disappeared
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines.missed_samples.subscriber_record import History, Subscribe, SubscriberRecord, Unsubscribe
from statemachines.wire import Packet, quote_for_log

SEEN_MAX: Final = 10_000
"""So many sources are remembered; one that comes back after more others is taken for one that was there before."""


class Tokens:
    """A source is new if its token comes after `begin` for the first time: one that comes back with its link is not."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._begun = False
        self._forgot = False

    def begin(self) -> None:
        """What was there when we came has been told."""
        self._begun = True

    def is_new(self, source: str) -> bool:
        """Its token has come."""
        new = self._begun and source not in self._seen and not self._forgot
        self.note(source)
        return new

    def note(self, source: str) -> None:
        """It is there."""
        self._seen[source] = None
        self._seen.move_to_end(source)
        while len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
            self._forgot = True


KEYS_MAX: Final = 10_000
"""Of so many keys it is known where the history ends; of others none is passed on."""


class UnnumberedHistory:
    """By key: the time of the first sample that came by itself, and of the last of the history."""

    def __init__(self) -> None:
        self._began: dict[str, Any] = {}
        self._reached: dict[str, Any] = {}

    def note(self, sample: ReceivedSample) -> bool:
        """It has come by itself; False: history has brought it already."""
        key, time = sample.key_expr, sample.timestamp
        if time is None:
            return True
        if len(self._began) < KEYS_MAX:
            self._began.setdefault(key, time)
        reached = self._reached.get(key)
        return reached is None or time > reached

    def is_older(self, sample: ReceivedSample) -> bool:
        """It is of the history, and comes for the first time."""
        key, time = sample.key_expr, sample.timestamp
        if time is None or (key not in self._reached and len(self._reached) >= KEYS_MAX):
            return False
        began, reached = self._began.get(key), self._reached.get(key)
        if (began is not None and time >= began) or (reached is not None and time <= reached):
            return False
        self._reached[key] = time
        return True


logger = logging.getLogger("gapless")

MISSES_MAX: Final = 1_000
"""So many reports of missed samples wait for who asks for them; what comes then is counted, and stands in the log."""

TOKENS_S: Final = 1.0
"""So long, at most, we wait to learn who was there before us."""


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
        recovery = self.recovery
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
        self._declared = Declarations()
        self._task: asyncio.Task[None] | None = None
        self._tokens = Tokens()
        self._failure = asyncio.Event()
        self._error: BaseException | None = None
        self._unnumbered: ReceivedSample | None = None
        self._unnumbered_history = UnnumberedHistory()
        self._leaves = False
        self._reports = 0

    # -- its life -----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        options = self._options
        life = options.life or begin_life(None, Path(), None, None, PROTOCOL, kind="subscriber")
        self._samples: Outlet[ReceivedSample] = Outlet(options.waiting_max)
        self._misses: Outlet[Missed] = Outlet(MISSES_MAX)
        self._mailbox = Mailbox(
            life.name, self._take, count_max=options.queue_max, bytes_max=options.queue_bytes_max
        )  # fmt: skip
        self._sender = QuerySender(self._session, self._layout, self.key_expr, self)
        self._party = SampleParty(SUBSCRIBER, self._record, life, transport=self, services={QUERY: self._ask},
                            told=self._route_tell, before=self._before, failed=self._fail,
                            came=self._mailbox.came, taken=self._mailbox.take_count)  # fmt: skip
        self._arrivals = Arrivals(self._party, self.statistics, self._layout.width, options.held_bytes_max)
        self._declared.on_close(self._stop)
        async with closed_on_failure(self._declared.close):
            await asyncio.to_thread(self._declare)
            self._party.feed(Subscribe())  # the query after the subscription; what came between waits in the mailbox
            self._task = asyncio.ensure_future(self._mailbox.run(self._samples.room))
            self._task.add_done_callback(self._note_end)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._leaves = True
        if self._party.error is None:
            self._party.feed(Unsubscribe())
        await self._declared.close()

    def _note_closed(self, given: None) -> None:
        """Of its session: nothing comes any more."""
        if not self._leaves:
            logger.warning("%s: its session was closed, and nothing more comes", self.key_expr)
            self._end_with(None)

    def _declare(self) -> None:
        """In a thread: declarations may wait for the network."""
        session, options, put = self._session, self._options, self._mailbox.put
        hear, hear_beat = self._hear, self._hear_beat
        watch = self._layout.watch_key(self.key_expr)

        def take_sample(sample: zenoh.Sample) -> None:
            put(hear, sample, OVERHEAD + len(sample.payload))

        def beat(sample: zenoh.Sample) -> None:
            put(hear_beat, sample, OVERHEAD + len(sample.payload))

        def broken(event: zenoh.TransportEvent) -> None:
            self._sender.breaks += event.kind == zenoh.SampleKind.DELETE

        def end() -> None:
            put(self._note_closed, None, always=True)

        declared = self._declared
        declared.add(session.info.declare_transport_events_listener(direct(broken)))
        if options.heartbeats:
            declared.add(session.declare_subscriber(watch, direct(beat)))
        hears = direct(take_sample, end)
        declared.add(session.declare_subscriber(self.key_expr, hears, allowed_origin=options.allowed_origin))
        if options.detect_publishers:
            self._watch_tokens(watch)

    def _watch_tokens(self, watch: str) -> None:
        """First the subscription, then what is there already: what comes before the end of that was there before us."""
        put, liveliness = self._mailbox.put, self._session.liveliness()

        def take_token(token: zenoh.Sample) -> None:
            put(self._hear_token, token, OVERHEAD)

        def there(reply: zenoh.Reply) -> None:
            if reply.ok is not None:  # the subscription says the same, and maybe later
                put(self._hear_old_token, reply.ok, OVERHEAD)

        def over() -> None:
            put(self._note_tokens, None, always=True)

        hear = direct(take_token)
        self._declared.add(liveliness.declare_subscriber(watch, hear, history=True))
        liveliness.get(watch, direct(there, over), timeout=TOKENS_S)

    async def _stop(self) -> None:
        self._mailbox.close()
        if self._task is not None:
            await stop(self._task)
        await self._party.close()
        await finish_in_thread(self._sender.close)
        self._samples.end()
        self._misses.end()

    def _note_end(self, task: asyncio.Task[Any]) -> None:
        """Of the task that takes out what comes: who waits for samples learns why there are none."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._end_with(error)

    def _fail(self) -> None:
        self._end_with(self._party.error)

    async def wait_for_failure(self) -> None:
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
    def held_samples(self) -> int:
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

    def _route_tell(self, event: Event) -> None:
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
                    logger.warning(text, self.statistics.turned_away, quote_for_log(event.source))
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
            return
        if len(self._misses) < MISSES_MAX:
            self._misses.put(missed)
        else:
            self.statistics.unread += 1
        self._reports += 1
        if self._reports.bit_count() == 1:  # the 1st, 2nd, 4th ...
            text = "%s: %d samples were missed so far, the last of them %d..%d of %s"
            count = self.statistics.missed
            logger.warning(text, self.key_expr, count, missed.first, missed.last, quote_for_log(missed.source))

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
        self._sender.settle()
        if self.statistics.repeated.bit_length() > repeated.bit_length() and not self._layout.has_zenohs_ids:
            logger.warning(
                "%s: %d samples so far came under numbers that were settled: has somebody the id of somebody else, or "
                "begun anew under its own?", self.key_expr, self.statistics.repeated,
            )  # fmt: skip

    def _malformed(self, error: Exception) -> None:
        self.statistics.malformed += 1
        if self.statistics.malformed.bit_count() == 1:  # the 1st, 2nd, 4th ...: a flood does not fill the log
            logger.warning("malformed, %d so far: %s", self.statistics.malformed, quote_for_log(str(error)))

    def _hear(self, sample: zenoh.Sample) -> None:
        found = self._layout.read_sample(sample)
        if found is None:
            return
        source, sn, attachment = found
        if source:
            self._arrivals.add(source, sn, ReceivedSample(sample, source, -1, attachment))
            return
        one = ReceivedSample(sample, attachment=attachment)
        if self._unnumbered_history.note(one):
            self._pass_on(one)

    def _pass_on(self, sample: ReceivedSample) -> None:
        self._arrivals.settle()
        self._unnumbered = sample
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

    # -- for its queries ----------------------------------------------------------------------------------------

    def _ask(self, party: str, query: Query, feed: Feed) -> None:
        """The service: ask all caches that can be reached.  Whatever comes of it comes by the mailbox: a future would
        wake the loop once more."""
        self._sender.ask(query)

    def put(self, act: Callable[[Any], object], given: Any, size: int = 0, *, always: bool = False) -> bool:
        """Into its mailbox, from any thread; see `Mailbox.put`."""
        return self._mailbox.put(act, given, size, always=always)

    def add_reply(self, source: str, sn: int, sample: ReceivedSample) -> bool:
        """A sample that was asked for; False: there is no room to hold it."""
        return self._arrivals.add(source, sn, sample)

    def add_unnumbered(self, sample: ReceivedSample) -> bool:
        """One of history; False: it is not from before what has come by itself."""
        if not self._unnumbered_history.is_older(sample):
            return False
        self._pass_on(sample)
        return True

    def answer(self, answer: Answer) -> None:
        """To the machine, behind the samples that have come."""
        self._arrivals.settle()
        self._party.answer(answer)

    def fail(self, error: BaseException) -> None:
        """It cannot go on, for this reason."""
        self._end_with(error)

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
    `recovery`: windows, retries, timeouts, pauses and limits (`Recovery`); `on_missed(missed)`: gets what is lost,
    otherwise `misses()` says it, and the log; `allowed_origin`, `layout` as for caches; `queue_max`, `queue_bytes_max`:
    what may wait for the loop; `held_bytes_max`: what may wait for something older; `waiting_max`: what may wait for
    `async for`.

    Raises `BadKey` for what is no key expression, `ConfigurationError` for an option that cannot be, `zenoh.ZError`.
    """
    return ReliableSubscriber(session, key_expr, handler, check_options(SubscriberOptions, options))
