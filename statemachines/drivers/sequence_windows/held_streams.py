"""HeldStreams: a receiver's streams that miss something: what is known to be missing is asked for.

A stream costs nothing here until a message shows that others before it are missing, and how many.  What is done then
the process `held_streams` decides.  This keeps payloads, and the order of calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.drivers.clock import Clock
from statemachines.drivers.sequence_windows.held_messages import HeldMessage, HeldPayloads, Place
from statemachines.drivers.sequence_windows.recovery_query import RecoveryQuery
from statemachines.kernel import Ask, ConfigurationError, Event, Outgoing, ProcessRunner
from statemachines.missed_samples.message import QueryEnded
from statemachines.missed_samples.recovery import Recovery
from statemachines.sequence_windows.held_stream_record import (
    DropStream,
    MessageHeld,
    MessagePassed,
    MessageRepeated,
    MessagesReleased,
    NoRoom,
    PutQuery,
    QueryDue,
    RecoveredMessage,
    ReplyRepeated,
    ReplyUnexpected,
    StreamGivenUp,
    StreamMessage,
    stream_of,
)
from statemachines.sequence_windows.held_streams import (
    HELD_STREAMS,
    RUNS_MAX,
    HeldStreamsRecord,
    PlaceRefused,
    StreamBegun,
    StreamEnded,
    is_hole,
)
from statemachines.sequence_windows.message import Judged, Verdict

FOREVER_MS = 1 << 50
"""Silence ends no run, so no timer waits for it."""

ENDLESS = 1 << 50
"""A publisher answers for all numbers that it is asked for, so a query is about the whole of what is missing."""

RECEIVER = "receiver~1"
"""The life of the process: nobody outside knows its name."""


class RecoveryCounts(msgspec.Struct):
    """Counts since the beginning.  `asked`: queries; `recovered`: messages that were missing and were delivered after
    all, `lost`: such that were given up; `no_place`: times that a stream was not held, for want of places for sources;
    `given_up`: streams whose holes were given up, for want of places or of room; `again`: replies that had come
    already; `strange`: replies that nobody waits for."""

    asked: int = 0
    recovered: int = 0
    lost: int = 0
    no_place: int = 0
    given_up: int = 0
    again: int = 0
    strange: int = 0


class HeldStreams:
    """`ask(query)` is the transport's; `tell(message, judged)` hands a message over, or counts it; at most `bytes_max`
    bytes wait, and `recovery.sources` runs.  `ConfigurationError` for a recovery that cannot be.

    Nothing of it is entered again from within `ask` or `tell`: what they bring waits its turn.  What they raise comes
    out of what was called, when everything else has been done.
    """

    message = HeldMessage
    """What comes is made with it."""

    def __init__(
        self,
        recovery: Recovery,
        ask: Callable[[RecoveryQuery], object],
        tell: Callable[[HeldMessage, Judged], None],
        *,
        now: Clock,
        bytes_max: int = 64 << 20,
    ) -> None:
        _check(recovery, bytes_max)
        self.counts = RecoveryCounts()
        self.bytes = 0
        sources = min(recovery.sources, RUNS_MAX)
        bounds = {"retention_ms": FOREVER_MS, "jump": ENDLESS, "window": ENDLESS, "windows": 1}
        recovery = replace(recovery, sources=sources, timeout_max_ms=recovery.timeout_ms, **bounds)
        self._ask = ask
        self._tell = tell
        self._now = now
        self._at_ns = now()
        self._bytes_max = bytes_max
        self._runner = ProcessRunner(HELD_STREAMS, HeldStreamsRecord(RECEIVER, recovery), now_ns=self._at_ns)
        self._streams: dict[Place, HeldPayloads] = {}
        self._payloads: dict[str, HeldPayloads] = {}
        self._message: Any = None
        self._acts: deque[Callable[[], None]] = deque()
        self._acting = False
        self._error: BaseException | None = None

    def __len__(self) -> int:
        """How many streams miss something."""
        return len(self._streams)

    def concerns(self, place: Place, told: Judged) -> bool:
        """Whether a message of the place is to be taken here, and not to be handed over as it is."""
        if told.verdict is Verdict.NOT_SUBSCRIBED:
            return False
        return self._acting or place in self._streams or is_hole(told.verdict, told.unknown)

    # -- what comes -----------------------------------------------------------------------------------------------

    def take(self, message: HeldMessage) -> None:
        """A message has come by itself."""
        told = message.told
        event = StreamMessage(message.number, told.verdict, told.unknown, message.last, message.before)
        self._do(partial(self._take, message, event))

    def take_reply(self, message: HeldMessage) -> None:
        """A message has come because it was asked for."""
        self._do(partial(self._take, message, RecoveredMessage(message.number)))

    def end_query(self, query: RecoveryQuery, replied: bool) -> None:
        """The query is over; `replied`: the publisher has answered, and all of its answer has come."""
        brought = query.last - query.first + 1 if replied else 0
        self._do(partial(self._feed, stream_of(query.run), QueryEnded(query.run, query.n, brought)))

    def fire(self) -> None:
        """Do what is due."""
        self._do(lambda: self._carry_out(self._runner.fire(self._at_ns)))

    def deadline(self) -> int | None:
        """When `fire` is to be called next (None: nothing waits)."""
        return self._runner.deadline()

    def drop(self, subject: str) -> None:
        """Nothing of the subject is wanted any more: what is held of it is gone, without a word."""
        waits = [act for act in self._acts if not _is_of(subject, act)]
        self._acts.clear()
        self._acts.extend(waits)
        for payloads in [one for place, one in self._streams.items() if place[1] == subject]:
            self._forget(payloads.stream)
            self._do(partial(self._feed, payloads.stream, DropStream()))

    # -- one thing after the other --------------------------------------------------------------------------------

    def _do(self, act: Callable[[], None]) -> None:
        self._acts.append(act)
        if self._acting:
            return
        self._acting = True
        while self._acts:
            self._try(self._act)
        self._acting = False
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _act(self) -> None:
        act = self._acts.popleft()
        self._at_ns = self._now()
        act()

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:
            self._error = self._error or error

    # -- the process ----------------------------------------------------------------------------------------------

    def _take(self, message: HeldMessage, event: StreamMessage | RecoveredMessage) -> None:
        self._message = message
        payloads = self._streams.get(message.place)
        to = RECEIVER if payloads is None else payloads.stream
        self._carry_out(self._runner.receive("", to, event, self._at_ns))
        if self.bytes > self._bytes_max and (full := self._streams.get(message.place)) is not None:
            self._feed(full.stream, NoRoom())

    def _feed(self, stream: str, event: Event) -> None:
        self._carry_out(self._runner.feed(stream, event, self._at_ns))

    def _carry_out(self, effects: list[Outgoing]) -> None:
        for stream, effect in effects:
            if type(effect) is Ask:
                self._put(stream, effect.request)
            else:
                event = effect.event  # type: ignore[union-attr]
                _CARRIED[type(event)](self, stream, event)

    def _put(self, stream: str, query: Any) -> None:
        payloads = self._payloads.get(stream)
        if payloads is not None:
            self.counts.asked += 1
            publisher, subject, life = payloads.place
            self._ask(RecoveryQuery(publisher, subject, query.first, query.last, query.source, query.n, life))

    # -- what it tells --------------------------------------------------------------------------------------------

    def _begin(self, stream: str, event: StreamBegun) -> None:
        place = self._message.place
        self._streams[place] = self._payloads[event.stream] = HeldPayloads(event.stream, place)

    def _end(self, stream: str, event: StreamEnded) -> None:
        self._forget(event.stream)

    def _keep(self, stream: str, event: MessageHeld) -> None:
        message = self._message
        message.recovered = event.filled
        self._payloads[stream].messages[event.number] = message
        self.bytes += message.size

    def _release(self, stream: str, event: MessagesReleased) -> None:
        payloads, lost, own = self._payloads.get(stream), event.lost, event.own
        if payloads is None:  # the application has dropped the stream meanwhile
            return
        self.counts.lost += lost
        for number in range(event.first, event.last + 1):
            if not payloads.messages:
                return
            message = payloads.messages.pop(number)
            self.bytes -= message.size
            self.counts.recovered += message.recovered
            self._hand_over(message, message.judge_released(lost, own))
            lost, own = 0, False

    def _pass(self, stream: str, event: MessagePassed) -> None:
        self._hand_over(self._message, self._message.told)

    def _repeat(self, stream: str, event: MessageRepeated) -> None:
        self._hand_over(self._message, self._message.judge_repeat())

    def _delay(self, stream: str, event: QueryDue) -> None:
        """It is asked when everything else is done."""
        self._acts.append(partial(self._feed, stream, PutQuery(event.run)))

    def _count_repeated(self, stream: str, event: ReplyRepeated) -> None:
        self.counts.again += 1

    def _count_unexpected(self, stream: str, event: ReplyUnexpected) -> None:
        self.counts.strange += 1

    def _count_refused(self, stream: str, event: PlaceRefused) -> None:
        self.counts.no_place += 1

    def _count_given_up(self, stream: str, event: StreamGivenUp) -> None:
        self.counts.given_up += 1

    # -- payloads -------------------------------------------------------------------------------------------------

    def _forget(self, stream: str) -> None:
        payloads = self._payloads.pop(stream, None)
        if payloads is not None:
            del self._streams[payloads.place]
            self.bytes -= sum(message.size for message in payloads.messages.values())
            payloads.messages.clear()

    def _hand_over(self, message: HeldMessage, told: Judged) -> None:
        self._try(partial(self._tell, message, told))


_CARRIED: dict[type[Event], Callable[[HeldStreams, str, Any], None]] = {
    StreamBegun: HeldStreams._begin,
    StreamEnded: HeldStreams._end,
    MessageHeld: HeldStreams._keep,
    MessagesReleased: HeldStreams._release,
    MessagePassed: HeldStreams._pass,
    MessageRepeated: HeldStreams._repeat,
    QueryDue: HeldStreams._delay,
    ReplyRepeated: HeldStreams._count_repeated,
    ReplyUnexpected: HeldStreams._count_unexpected,
    PlaceRefused: HeldStreams._count_refused,
    StreamGivenUp: HeldStreams._count_given_up,
}
"""What is done with each event that the process tells."""


def _is_of(subject: str, act: Callable[[], None]) -> bool:
    """Whether it takes a message of the subject."""
    given = act.args[0] if isinstance(act, partial) else None
    return isinstance(given, HeldMessage) and given.subject == subject


def _check(recovery: Recovery, bytes_max: int) -> None:
    if bytes_max < 1:
        raise ConfigurationError("held_bytes_max", bytes_max, "at least 1")
    if recovery.past:
        raise ConfigurationError("past", True, "must be false: what was sent before the first message is not asked for")
    if recovery.period_ms:
        raise ConfigurationError("period_ms", recovery.period_ms, "must be 0: only what is known to be missing is")
