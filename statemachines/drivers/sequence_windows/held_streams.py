"""HeldStreams: a receiver's streams that miss something: what is known to be missing is asked for.

A stream costs nothing here until a message shows that others before it are missing, and how many.  Then a Source of
missed samples takes over: it holds what comes, asks, and says what is delivered and what will not come.  When nothing
is missing any more the stream goes the short way again.  What begins another frame has a run, and a Source, of its own,
which asks at once, and is handed over when the runs before it are settled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

import msgspec
from msgspec.structs import replace

from statemachines.drivers.clock import Clock
from statemachines.drivers.sequence_windows.held_messages import HeldMessage, HeldRun, HeldStream, Place
from statemachines.drivers.sequence_windows.recovery_query import RecoveryQuery
from statemachines.kernel import Ask, ConfigurationError, Event, Host, Node, Outgoing, Tell
from statemachines.missed_samples.message import Deliver, Heartbeat, Missed, Query, QueryEnded, Sample
from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.source import SOURCE
from statemachines.missed_samples.source_actions import settle_below
from statemachines.missed_samples.source_record import SourceRecord
from statemachines.sequence_windows.message import Judged, Verdict
from statemachines.sequence_windows.sequence import frame_of

FOREVER_MS = 1 << 50
"""A run ends when it is settled, and not because it was silent."""


ENDLESS = 1 << 50
"""A publisher answers for all numbers that it is asked for, so a query is about the whole of what is missing."""


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
        self._recovery = replace(recovery, retention_ms=FOREVER_MS, timeout_max_ms=recovery.timeout_ms, jump=ENDLESS,
                                 window=ENDLESS, windows=1)  # fmt: skip
        self._ask = ask
        self._tell = tell
        self._now = now
        self._at_ns = now()
        self._bytes_max = bytes_max
        self._host = Host()
        self._streams: dict[Place, HeldStream] = {}
        self._runs: dict[str, HeldRun] = {}
        self._n = 0
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
        return self._acting or place in self._streams or (told.verdict is Verdict.SKIP and not told.unknown)

    # -- what comes -----------------------------------------------------------------------------------------------

    def take(self, message: HeldMessage) -> None:
        """A message has come by itself."""
        self._do(partial(self._take, message))

    def take_reply(self, message: HeldMessage) -> None:
        """A message has come because it was asked for."""
        self._do(partial(self._take_reply, message))

    def end_query(self, query: RecoveryQuery, replied: bool) -> None:
        """The query is over; `replied`: the publisher has answered, and all of its answer has come."""
        self._do(partial(self._end_query, query, replied))

    def fire(self) -> None:
        """Do what is due."""
        self._do(lambda: self._carry_out(self._host.fire(self._at_ns)))

    def deadline(self) -> int | None:
        """When `fire` is to be called next (None: nothing waits)."""
        return self._host.deadline()

    def drop(self, subject: str) -> None:
        """Nothing of the subject is wanted any more: what is held of it is gone, without a word."""
        for stream in [one for place, one in self._streams.items() if place[1] == subject]:
            self._close(stream)
        waits = [act for act in self._acts if not _is_of(subject, act)]
        self._acts.clear()
        self._acts.extend(waits)

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
        """What goes on at once comes first; what it settles is settled before the next thing is looked at."""
        act = self._acts.popleft()
        self._at_ns = self._now()
        self._carry_out(self._host.fire_first(self._at_ns))
        act()

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:
            self._error = self._error or error

    # -- streams --------------------------------------------------------------------------------------------------

    def _take(self, message: HeldMessage) -> None:
        stream = self._streams.get(message.place)
        if stream is None:
            stream = self._begin(message)
        if stream is None:
            self._hand_over(message, message.told)
        elif message.number <= stream.high:
            self._fill(stream, message)
        elif not self._append(stream, message):
            self._give_up(stream)
            self._hand_over(message, message.told)
        if stream is not None and self.bytes > self._bytes_max:
            self._give_up(stream)

    def _begin(self, message: HeldMessage) -> HeldStream | None:
        """Take over from behind the last number that the window knew, if it is known what is missing since; None: it is
        not, or there is no place."""
        told = message.told
        if told.verdict is not Verdict.SKIP or told.unknown:
            return None
        if not self._has_place(1 if frame_of(message.last) == told.frame else 2):
            self.counts.no_place += 1
            return None
        stream = self._streams[message.place] = HeldStream(message.place)
        self._begin_run(stream, message.last + 1)
        return stream

    def _fill(self, stream: HeldStream, message: HeldMessage) -> None:
        """It is no newer than what is known: it was overtaken, or is here already."""
        run = stream.run_of(message.number)
        if run is None or not run.misses(message.number):
            self._hand_over(message, message.judge_repeat())
            return
        message.told = Judged(Verdict.NEXT, message.told.frame, message.told.first, message.told.last)
        message.recovered = True
        self._feed(run, message)

    def _append(self, stream: HeldStream, message: HeldMessage) -> bool:
        """It is newer than all that is known; False: there is no place for its run."""
        run = stream.runs[-1]
        if frame_of(run.high) == message.told.frame:
            message.told = replace(message.told, lost=0, unknown=False)  # the Source says what was lost before it
            self._feed(run, message)
            return True
        if not self._has_place(1):
            return False
        if frame_of(run.high) == frame_of(message.before):
            message.told = replace(message.told, lost=0, unknown=False)
            if message.before > run.high:
                self._feed_run(run, Heartbeat(run.node.name, message.before))
        self._feed(self._begin_run(stream, message.number), message)
        return True

    def _take_reply(self, message: HeldMessage) -> None:
        stream = self._streams.get(message.place)
        run = stream.run_of(message.number) if stream is not None else None
        if stream is None or run is None:
            self.counts.strange += 1
        elif not run.misses(message.number):
            self.counts.again += 1
        else:
            message.recovered = True
            self._feed(run, message)
            if self.bytes > self._bytes_max:
                self._give_up(stream)

    def _end_query(self, query: RecoveryQuery, replied: bool) -> None:
        run = self._runs.get(query.run)
        if run is not None:
            brought = query.last - query.first + 1 if replied else 0
            self._feed_run(run, QueryEnded(query.run, query.n, brought))

    def _give_up(self, stream: HeldStream) -> None:
        """Of every run what is missing will not come: the rest is handed over."""
        if self._streams.get(stream.place) is not stream:
            return
        self.counts.given_up += 1
        for run in stream.runs:
            record = run.node.record
            _, effects = settle_below(record, record.top)
            run.out += [effect.event for effect in effects if isinstance(effect, Tell)]  # type: ignore[misc]
            run.given_up = True
            self._forget(run)
        self._flush(stream)

    def _close(self, stream: HeldStream) -> None:
        """What is left of it is nobody's."""
        del self._streams[stream.place]
        while stream.runs:
            self._end_run(stream)

    # -- runs -----------------------------------------------------------------------------------------------------

    def _has_place(self, count: int) -> bool:
        return len(self._runs) + count <= self._recovery.sources

    def _begin_run(self, stream: HeldStream, first: int) -> HeldRun:
        """From this number on; what was before is of no interest.  A name is given once: no key can be two streams'."""
        self._n += 1
        name = str(self._n)
        node: Node[SourceRecord] = Node(SOURCE, SourceRecord(name, self._recovery), name=name, now_ns=self._at_ns)
        run = self._runs[name] = HeldRun(stream.place, first, node)
        stream.runs.append(run)
        self._host.add(node)
        self._host.feed(name, Heartbeat(name, first - 1), self._at_ns)
        return run

    def _feed(self, run: HeldRun, message: HeldMessage) -> None:
        """A number that the Source misses, or that is ahead of it."""
        run.messages[message.number] = message
        self.bytes += message.size
        self._feed_run(run, Sample(run.node.name, message.number, message.number))

    def _feed_run(self, run: HeldRun, event: Event) -> None:
        self._carry_out(self._host.feed(run.node.name, event, self._at_ns))

    def _carry_out(self, effects: Iterable[Outgoing]) -> None:
        """What Sources want: to ask when everything else is done, and to say what has come or will not."""
        places: dict[Place, None] = {}
        for name, effect in effects:
            run = self._runs[name]
            places[run.place] = None
            if isinstance(effect, Ask):
                assert isinstance(effect.request, Query)
                self._acts.append(partial(self._issue, run, effect.request))
            elif isinstance(effect, Tell):
                assert isinstance(effect.event, Deliver | Missed)
                run.out.append(effect.event)
        for place in places:
            if place in self._streams:
                self._flush(self._streams[place])

    def _issue(self, run: HeldRun, query: Query) -> None:
        """Up to the highest number that is missing; unless it has been answered by what came meanwhile."""
        record = run.node.record
        waits = any(one.n == query.n for one in record.windows)
        if self._runs.get(query.source) is not run or not waits or not record.missing:
            return
        self.counts.asked += 1
        publisher, subject, life = run.place
        last = min(query.last, run.missing_until)
        self._ask(RecoveryQuery(publisher, subject, query.first, last, query.source, query.n, life))

    def _end_run(self, stream: HeldStream) -> None:
        """The oldest is settled, or not wanted."""
        run = stream.runs.popleft()
        self._forget(run)
        self.bytes -= sum(message.size for message in run.messages.values())
        run.messages.clear()

    def _forget(self, run: HeldRun) -> None:
        self._runs.pop(run.node.name, None)
        self._host.remove(run.node.name)

    # -- out ------------------------------------------------------------------------------------------------------

    def _flush(self, stream: HeldStream) -> None:
        """Hand over what the oldest run has said, and what the next has, once that is settled."""
        while stream.runs:
            run = stream.runs[0]
            while run.out:
                event = run.out.popleft()
                if isinstance(event, Missed):
                    stream.lost += event.last - event.first + 1
                    self.counts.lost += event.last - event.first + 1
                elif not self._deliver(stream, run, event):
                    return
            if not run.is_settled:
                return
            self._end_run(stream)
        self._streams.pop(stream.place, None)

    def _deliver(self, stream: HeldStream, run: HeldRun, event: Deliver) -> bool:
        """False: the application has dropped the stream meanwhile."""
        for number in range(event.first, event.last + 1):
            message = run.messages.pop(number)
            self.bytes -= message.size
            self.counts.recovered += message.recovered
            lost, stream.lost = stream.lost, 0
            self._hand_over(message, message.judge_after_loss(lost))
            if self._streams.get(stream.place) is not stream:
                return False
        return True

    def _hand_over(self, message: HeldMessage, told: Judged) -> None:
        self._try(partial(self._tell, message, told))


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
