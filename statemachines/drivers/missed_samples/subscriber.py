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
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import zenoh
from msgspec.structs import replace

from statemachines.drivers.lives import Life, begin_life
from statemachines.drivers.missed_samples.arrivals import Arrivals, SampleParty, SubscriberStatistics
from statemachines.drivers.missed_samples.attachment import MalformedAttachment
from statemachines.drivers.missed_samples.layout import layout_of
from statemachines.drivers.missed_samples.mailbox import Item, LoopWaker, Outlet
from statemachines.drivers.missed_samples.publisher import PROTOCOL, check_options
from statemachines.drivers.missed_samples.query_sender import QuerySender
from statemachines.drivers.missed_samples.received_sample import OVERHEAD, ReceivedSample
from statemachines.drivers.missed_samples.zenoh_reader import ZenohReader, logger
from statemachines.drivers.missed_samples.zenoh_thread import direct
from statemachines.drivers.opening import finish_in_thread
from statemachines.drivers.port import Feed
from statemachines.kernel import Answer, ConfigurationError, Event
from statemachines.missed_samples.keys import BadKey
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


MISSES_MAX: Final = 1_000
"""So many reports of missed samples wait for who asks for them; what comes then is counted, and stands in the log."""

QUEUE_LEAST: Final = 100
"""A mailbox that holds less is asked for the same samples again and again."""

TOKENS_S: Final = 1.0
"""So long, at most, we wait to learn who was there before us."""


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
    caller: LoopWaker | None = None
    direct: bool = False
    newest: bool = False
    on_missed: Callable[[Missed], object] | None = None
    life: Life | None = None

    def __post_init__(self) -> None:
        least = {"queue_max": QUEUE_LEAST, "queue_bytes_max": 1, "held_bytes_max": 1, "waiting_max": 1}
        for name, count in least.items():
            if getattr(self, name) < count:
                raise ConfigurationError(name, getattr(self, name), f"at least {count}")
        if self.period_s < 0:
            raise ConfigurationError("period_s", self.period_s, "at least 0")

    def record(self, width: int) -> SubscriberRecord:
        """The machine as it begins."""
        recovery = self.recovery
        if self.period_s:
            recovery = replace(recovery, period_ms=round(self.period_s * 1_000))
        return SubscriberRecord(recovery, self.history, width)


class ReliableSubscriber(ZenohReader[ReceivedSample]):
    """See `declare_reliable_subscriber`.  For one thread: that of the loop it was declared in."""

    def __init__(
        self,
        session: zenoh.Session,
        key_expr: str,
        handler: Callable[[ReceivedSample], object] | None,
        options: SubscriberOptions,
    ) -> None:
        super().__init__(session, key_expr, handler, options)
        self.statistics = SubscriberStatistics()
        self.layout = layout_of(options.layout)
        self._record = options.record(self.layout.width)
        self._tokens = Tokens()
        self._failure = asyncio.Event()
        self._unnumbered: ReceivedSample | None = None
        self._unnumbered_history = UnnumberedHistory()
        self._leaves = False
        self._reports = 0
        self.on_missed = [] if options.on_missed is None else [options.on_missed]

    # -- its life -----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        options = self._options
        life = options.life or begin_life(None, Path(), None, None, PROTOCOL, kind="subscriber")
        self._misses: Outlet[Missed] = Outlet(MISSES_MAX)
        self._make(life.name, caller=options.caller, direct=options.direct, newest=options.newest)
        self._sender = QuerySender(self._session, self.layout, self.key_expr, self)
        self._party = SampleParty(SUBSCRIBER, self._record, life, transport=self, services={QUERY: self._ask},
                            told=self._route_tell, before=lambda event: self._arrivals.close_flow(event),
                            failed=lambda: self.fail(self._party.error),
                            came=self._mailbox.came, taken=self._mailbox.take_count)  # fmt: skip
        self._arrivals = Arrivals(self._party, self.statistics, self.outlet, self.layout.width,
                            options.held_bytes_max, life.log is not None)  # fmt: skip
        self.put, self.add_reply = self._mailbox.put, self._arrivals.add
        self.queue_bytes_max = options.queue_bytes_max
        await self._open()
        return self

    def _begin(self) -> None:
        self._party.feed(Subscribe())  # the query after the subscription

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._leaves = True
        self._arrivals.close()
        if self._party.error is None:
            self._party.feed(Unsubscribe())
        await self._declared.close()

    def _note_closed(self, given: None) -> None:
        """Of its session: nothing comes any more."""
        if not self._leaves:
            logger.warning("%s: its session was closed, and nothing more comes", self.key_expr)
            self.fail(None)

    def _declare(self) -> None:
        session, options, put = self._session, self._options, self._mailbox.put
        layout, arrivals = self.layout, self._arrivals
        watch = layout.watch_key(self.key_expr)

        def take_sample(sample: zenoh.Sample) -> None:
            found = layout.read_sample(sample)
            if found is not None:
                source, sn, attachment = found
                one = ReceivedSample(sample, source, -1, attachment)
                if not arrivals.pass_through(source, sn, one):
                    put(self._hear, (sn, one), one.size)

        def beat(sample: zenoh.Sample) -> None:
            said = layout.read_beat(sample)
            if said is not None and not arrivals.is_known(*said):
                put(self._hear_beat, said, OVERHEAD)

        def checked(act: Callable[[zenoh.Sample], None], over: Callable[[], object] | None = None) -> Any:
            def take(sample: zenoh.Sample) -> None:
                try:
                    act(sample)
                except ValueError as error:
                    put(self._malformed, error, OVERHEAD)

            return direct(take, over)

        def broken(event: zenoh.TransportEvent) -> None:
            self._sender.breaks += event.kind == zenoh.SampleKind.DELETE

        def end() -> None:
            put(self._note_closed, None, always=True)

        declared = self._declared
        declared.add(session.info.declare_transport_events_listener(direct(broken)))
        if options.heartbeats:
            declared.add(session.declare_subscriber(watch, checked(beat)))
        hears = checked(take_sample, end)
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
        await super()._stop()
        await self._party.close()
        await finish_in_thread(self._sender.close)

    async def wait_for_failure(self) -> None:
        """Wait until it cannot go on, and raise why."""
        await self._failure.wait()
        if self.outlet.error is not None:
            raise self.outlet.error

    def fail(self, error: BaseException | None) -> None:
        """It cannot go on, for this reason."""
        self._arrivals.close()
        super().fail(error)
        self._misses.end(error)
        self._failure.set()

    # -- the application ----------------------------------------------------------------------------------------

    @property
    def held_samples(self) -> int:
        """How many samples are held because something older is missing."""
        return self._arrivals.held

    @property
    def sources(self) -> tuple[str, ...]:
        """The publishers that it keeps something of."""
        return tuple(sorted(self._party.record.sources.keys()))

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
                self._arrivals.deliver(event)
            case DeliverUnnumbered():
                assert self._unnumbered is not None
                self.statistics.unnumbered += 1
                self._arrivals.hand_over([self._unnumbered])
            case TurnedAway():
                self.statistics.turned_away += event.last - event.first + 1
                if self.statistics.turned_away.bit_count() == 1:  # the 1st, 2nd, 4th ...
                    text = "no place for one more source, %d samples turned away so far: %s"
                    logger.warning(text, self.statistics.turned_away, quote_for_log(event.source))
            case Missed():
                zero = origin(self.layout.width)
                self.statistics.missed += event.last - event.first + 1
                self._report(Missed(event.source, event.first - zero, event.last - zero))

    def _report(self, missed: Missed) -> None:
        if self.on_missed:
            for listener in self.on_missed:
                self._call(listener, missed)
            return
        if not self._misses.is_full:
            self._misses.put(missed)
        else:
            self.statistics.unread += 1
        self._reports += 1
        if self._reports.bit_count() == 1:  # the 1st, 2nd, 4th ...
            text = "%s: %d samples were missed so far, the last of them %d..%d of %s"
            count = self.statistics.missed
            logger.warning(text, self.key_expr, count, missed.first, missed.last, quote_for_log(missed.source))

    def _note_failure(self) -> None:
        super()._note_failure()
        self.statistics.failed = self.failed

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
        self._arrivals.open_flows()
        if self.statistics.repeated.bit_length() > repeated.bit_length() and not self.layout.has_zenohs_ids:
            logger.warning(
                "%s: %d samples so far came under numbers that were settled: has somebody the id of somebody else, or "
                "begun anew under its own?", self.key_expr, self.statistics.repeated,
            )  # fmt: skip

    def _malformed(self, error: Exception) -> None:
        self.statistics.malformed += 1
        if self.statistics.malformed.bit_count() == 1:  # the 1st, 2nd, 4th ...: a flood does not fill the log
            logger.warning("malformed, %d so far: %s", self.statistics.malformed, quote_for_log(str(error)))

    def _hear(self, given: tuple[int, ReceivedSample]) -> None:
        sn, sample = given
        if sample.source:
            self._arrivals.add(sample.source, sn, sample)
        elif self._unnumbered_history.note(sample):
            self._pass_on(sample)

    def _pass_on(self, sample: ReceivedSample) -> None:
        self._arrivals.settle()
        self._unnumbered = sample
        self._party.receive("-", Unnumbered())

    def _hear_beat(self, said: tuple[str, int]) -> None:
        self._arrivals.settle()
        self._party.receive(said[0], Heartbeat(*said))

    def _hear_token(self, token: zenoh.Sample) -> None:
        source = self.layout.read_key(str(token.key_expr)).source
        self._arrivals.settle()
        if token.kind == zenoh.SampleKind.DELETE:
            self._party.feed(Disappeared(source))
        else:
            self._party.feed(Appeared(source, self._tokens.is_new(source)))

    def _hear_old_token(self, token: zenoh.Sample) -> None:
        self._tokens.note(self.layout.read_key(str(token.key_expr)).source)

    def _note_tokens(self, given: None) -> None:
        self._tokens.begin()

    # -- for its queries ----------------------------------------------------------------------------------------

    def _ask(self, party: str, query: Query, feed: Feed) -> None:
        """The service: ask all caches that can be reached.  Whatever comes of it comes by the mailbox: a future would
        wake the loop once more."""
        self._sender.ask(query)

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
