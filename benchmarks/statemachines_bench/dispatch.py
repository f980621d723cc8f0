"""Rows about the step itself: against `transitions`, against code written by hand, and how it grows.

The life of a Borrower as a list of events: what dispatch is measured on.

One second of it: a ping and its answer, progress of streams drawn at random, and some streams taken back and given
again (revoke, final progress, revoked, grant).  The events fit each other: numbers of pings and grants, increasing
progress.  The same seed gives the same list.

A Borrower as one would write it by hand: a mutable class, dictionaries, if and elif.  The baseline of two rows.

It does for a connecting and connected borrower what the table does, and returns equal effects for equal events (a
test compares them).  It has no table, no records to keep, no rows to report and no clauses; unsubscribing and what
ends a borrower are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import CancelTimer, Effect, Event, Fsm, Node, Send, SetTimer, Step, Tell
from statemachines.kernel.fsm import Model
from statemachines.shared_subscriptions.acknowledged_ranges import limit_reports
from statemachines.shared_subscriptions.borrower import (
    BORROWER,
    REPORTS_PER_PING,
    BorrowerRecord,
    LeaseBegan,
    PingTimer,
    Start,
)
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.message import (
    END_OF_STREAM,
    Grant,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    Ranges,
    Report,
    Revoke,
    Revoked,
    RevokeFinished,
    UpdateProgress,
)
from statemachines.shared_subscriptions.stream import Finish, Install, StreamProgress, Uninstall
from statemachines_bench.harness import compare
from statemachines_bench.measure import bytes_each, ns_per_event
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair


class HandStream:
    """One stream: `grant` is the number held or, absent, the highest seen; what follows `finished` as in a `Report`."""

    __slots__ = ("acked", "failed", "finished", "grant", "in_hand", "name", "progress", "reason", "status")

    def __init__(self, name: str) -> None:
        self.name = name
        self.status = "absent"
        self.grant = 0
        self.progress = 0
        self.finished = False
        self.failed = 0
        self.in_hand = False
        self.acked: Ranges = ()
        self.reason = ""


class HandBorrower:
    """One borrower; `feed(event, now_ns)` returns what is to be done."""

    def __init__(
        self, borrower: str, group: str, topic_filter: str, registry: str, configuration: Configuration
    ) -> None:
        self.id = borrower
        self.group = group
        self.filter = topic_filter
        self.registry = registry
        self.configuration = configuration
        self.status = "connecting"
        self.leader = ""
        self.epoch = 0
        self.registration = 0
        self.ping_n = 0
        self.ping_at_ns = 0
        self.outstanding = False
        self.leased = False
        self.streams: dict[str, HandStream] = {}
        self.changed: set[str] = set()
        self.carried: set[str] = set()
        self.unfinished = 0

    def feed(self, event: Event, now_ns: int) -> list[Effect]:
        """Do what the event asks for; raises ValueError for an event that this class leaves out."""
        if self.status == "connected":
            if isinstance(event, StreamProgress):
                return self._progress(event)
            if isinstance(event, Grant):
                return self._grant(event) if self._is_mine(event) else []
            if isinstance(event, Revoke):
                return self._revoke(event) if self._is_mine(event) else []
            if isinstance(event, Revoked):
                return self._revoked(event) if self._is_mine(event) else []
            if isinstance(event, PingResponse):
                return self._answered(event, now_ns) if self._is_mine(event) else []
            if isinstance(event, PingTimer):
                timeout = SetTimer("ping_timeout", now_ns + self.configuration.ping_timeout_ms * MS)
                return [timeout, self._ping(now_ns)]
        elif isinstance(event, Start):
            return [Send(self.registry, LeaderWanted(self.id, self.group, self.filter))]
        elif isinstance(event, LeaderConnectResponse):
            return self._adopt(event, now_ns) if event.epoch >= self.epoch else []
        raise ValueError(f"a {self.status} hand-written borrower does not take {type(event).__name__}")

    def _is_mine(self, event: Grant | Revoke | Revoked | PingResponse) -> bool:
        return event.epoch == self.epoch and event.registration == self.registration

    def _adopt(self, event: LeaderConnectResponse, now_ns: int) -> list[Effect]:
        self.leader, self.epoch, self.registration = event.leader, event.epoch, event.registration
        self.status = "connected"
        timeout = SetTimer("ping_timeout", now_ns + self.configuration.ping_timeout_ms * MS)
        return [CancelTimer("find_leader"), timeout, self._ping(now_ns)]

    def _ping(self, now_ns: int) -> Send:
        names = sorted(self.carried) + sorted(self.changed - self.carried)
        names = names[:REPORTS_PER_PING]
        reports = limit_reports(tuple(self._report(self.streams[name]) for name in names))
        self.ping_n += 1
        self.ping_at_ns = now_ns
        self.outstanding = True
        self.carried = set(names)
        self.changed -= self.carried
        return Send(self.leader, Ping(self.id, self.epoch, self.registration, self.ping_n, reports))

    def _report(self, stream: HandStream) -> Report:
        said = (stream.failed, stream.in_hand, stream.acked, stream.reason)
        return Report(stream.name, stream.grant, stream.progress, stream.finished, *said)

    def _answered(self, event: PingResponse, now_ns: int) -> list[Effect]:
        if not self.outstanding or event.n != self.ping_n:
            return []
        effects: list[Effect] = [
            CancelTimer("ping_timeout"),
            SetTimer("ping", now_ns + self.configuration.ping_interval_ms * MS),
            SetTimer("lease", self.ping_at_ns + self.configuration.lease_ms * MS),
        ]
        if not self.leased:
            effects.append(Tell(LeaseBegan(self.id)))
        self.outstanding = False
        self.leased = True
        self.carried = set()
        return effects

    def _progress(self, event: StreamProgress) -> list[Effect]:
        stream = self.streams.get(event.stream)
        if stream is None or stream.status == "absent" or event.grant != stream.grant:
            return []
        if event.progress < stream.progress:
            return []
        stream.progress = event.progress
        stream.failed = event.failed
        stream.in_hand = event.in_hand
        stream.acked = event.acked
        stream.reason = event.reason
        if not stream.finished and (event.finished or event.progress == END_OF_STREAM):
            stream.finished = True
            self.unfinished -= 1
        self.changed.add(stream.name)
        return [self._update(stream)]

    def _grant(self, event: Grant) -> list[Effect]:
        effects: list[Effect] = []
        stream = self.streams.get(event.stream)
        if stream is None:
            stream = self.streams[event.stream] = HandStream(event.stream)
        if stream.status != "absent":
            if event.grant == stream.grant:
                return [self._update(stream)]
            if event.grant < stream.grant:
                return []
            effects = [self._drop(stream)]
        elif event.grant <= stream.grant:
            return []
        stream.status = "granted"
        stream.grant = event.grant
        stream.progress = event.progress
        stream.finished = False
        stream.failed = event.failed
        stream.in_hand = False
        stream.acked = event.acked
        stream.reason = ""
        self.unfinished += 1
        self.changed.add(stream.name)
        said = (event.failed, event.most, event.relaxed, event.acked, event.repeats)
        install = Install(self.id, stream.name, stream.grant, stream.progress, *said)
        return [*effects, Tell(install), self._update(stream)]

    def _revoke(self, event: Revoke) -> list[Effect]:
        stream = self.streams.get(event.stream)
        if stream is not None and stream.status != "absent" and event.grant == stream.grant:
            if stream.status == "revoking":
                return [self._update(stream)]
            stream.status = "revoking"
            self.changed.add(stream.name)
            return [Tell(Finish(self.id, stream.name, stream.grant)), self._update(stream)]
        return self._forget(event)

    def _revoked(self, event: Revoked) -> list[Effect]:
        stream = self.streams.get(event.stream)
        if stream is not None and stream.status != "absent" and event.grant == stream.grant:
            return [self._drop(stream), self._confirm(event)]
        return self._forget(event)

    def _forget(self, event: Revoke | Revoked) -> list[Effect]:
        """Of a grant that is not held: what is held under a lower number is dropped, the number counts as seen."""
        stream = self.streams.get(event.stream)
        if stream is None:
            stream = self.streams[event.stream] = HandStream(event.stream)
        effects: list[Effect] = []
        if event.grant > stream.grant:
            if stream.status != "absent":
                effects.append(self._drop(stream))
            stream.grant = event.grant
        return [*effects, self._confirm(event)]

    def _drop(self, stream: HandStream) -> Tell:
        if not stream.finished:
            self.unfinished -= 1
        stream.status = "absent"
        self.changed.discard(stream.name)
        self.carried.discard(stream.name)
        return Tell(Uninstall(self.id, stream.name, stream.grant))

    def _update(self, stream: HandStream) -> Send:
        update = UpdateProgress(
            self.id,
            self.epoch,
            self.registration,
            stream.name,
            stream.grant,
            stream.progress,
            stream.finished,
            stream.failed,
            stream.in_hand,
            stream.acked,
            stream.reason,
        )
        return Send(self.leader, update)

    def _confirm(self, event: Revoke | Revoked) -> Send:
        finished = RevokeFinished(self.id, self.epoch, self.registration, event.stream, event.grant)
        return Send(self.leader, finished)


BORROWER_ID = "consumer-1~1/1"
LEADER_ID = "leader-1~1/1"
REGISTRY = "leader-1"
PAIR = (BORROWER_ID, 1, 1)

Fed = tuple[Event, int]
"""An event, and when in nanoseconds."""


def new_record() -> BorrowerRecord:
    """A borrower before its first event."""
    return BorrowerRecord(BORROWER_ID, "group", "orders/#", (REGISTRY,), Configuration().check())


def stream_name(number: int) -> str:
    """Name of a stream, as long as those of an application."""
    return f"orders/{number:06}"


def list_connecting() -> list[Fed]:
    """From the start until the first ping is answered."""
    return [(Start(), 0), (LeaderConnectResponse(BORROWER_ID, LEADER_ID, 1, 1), MS), (PingResponse(*PAIR, 1), 2 * MS)]


def list_granting(streams: int) -> list[Fed]:
    """Each stream is granted, in order: stream i under grant i + 1."""
    return [(Grant(*PAIR, stream_name(number), number + 1, 0), 3 * MS) for number in range(streams)]


def make_held_record(streams: int) -> BorrowerRecord:
    """A connected borrower that holds so many streams."""
    record = new_record()
    for event, now_ns in list_connecting() + list_granting(streams):
        record = BORROWER.step(record, event, now_ns).record
    return record


def list_progressing(streams: int, events: int, seed: int = 1) -> list[Fed]:
    """Progress of streams drawn uniformly among those that `held_record(streams)` holds."""
    chance = Random(seed)
    drawn = [chance.randrange(streams) for _ in range(events)]
    return [(StreamProgress(stream_name(number), number + 1, at + 1), 4 * MS) for at, number in enumerate(drawn)]


class BorrowerLife:
    """Seconds of a connected borrower."""

    def __init__(self, streams: int, seed: int = 1) -> None:
        self._chance = Random(seed)
        self._grants = {stream_name(number): number + 1 for number in range(streams)}
        self._progress = dict.fromkeys(self._grants, 0)
        self._names = list(self._grants)
        self._grant = streams
        self._ping = 1

    def second(self, number: int, *, progresses: int, moves: int) -> list[Fed]:
        """One ping and its answer, so many progress events, and so many streams taken back and given again."""
        now = number * 1000 * MS
        self._ping += 1
        events: list[Event] = [PingTimer(), PingResponse(*PAIR, self._ping)]
        for move in range(moves):
            events += [self._advance() for _ in range(progresses // moves)]
            events += self._move(self._names[(number * moves + move) % len(self._names)])
        return [(event, now + at * MS) for at, event in enumerate(events)]

    def _advance(self, stream: str = "", *, finished: bool = False) -> StreamProgress:
        stream = stream or self._chance.choice(self._names)
        self._progress[stream] += self._chance.randrange(1, 50)
        return StreamProgress(stream, self._grants[stream], self._progress[stream], finished)

    def _move(self, stream: str) -> list[Event]:
        old = self._grants[stream]
        self._grant += 1
        events = [Revoke(*PAIR, stream, old), self._advance(stream, finished=True), Revoked(*PAIR, stream, old)]
        self._grants[stream] = self._grant
        return [*events, Grant(*PAIR, stream, self._grant, self._progress[stream])]


def mix(*, streams: int = 100, seconds: int = 12, progresses: int = 500, moves: int = 2) -> list[Fed]:
    """A whole life, from the start on: what the rows `dispatch` and `dispatch-hand` run."""
    life = BorrowerLife(streams)
    events = list_connecting() + list_granting(streams)
    for number in range(1, seconds + 1):
        events += life.second(number, progresses=progresses, moves=moves)
    return events


SMALL, LARGE = 10, 100_000
"""Between so many streams `step-scale` looks at growth."""

TIMES = 8
"""The whole mix so often in one value of ours: once takes 15 ms, in which a neighbour on the machine decides."""

LITTLE = 40
"""Streams of the small size instead of `LARGE`."""

SCALE_EVENTS = 20_000
IDLE = 500
"""So many machines are made by each round of `idle`."""


TakeStep = Callable[[Any, Event, int], Step[Any]]


# -- what is run ----------------------------------------------------------------------------------------------------


def run_steps(step: TakeStep, record: Any, events: list[Fed]) -> Any:
    """The record after all events; what they want done is dropped."""
    for event, now_ns in events:
        record = step(record, event, now_ns).record
    return record


def run_hand(feed: Callable[[Any, int], list[Effect]], events: list[Fed]) -> None:
    """The same for something that changes in place."""
    for event, now_ns in events:
        feed(event, now_ns)


@contextmanager
def by_transitions(fsm: Fsm[Any]) -> Iterator[None]:
    """Within, this machine and its children step by `transitions`."""
    fsm.use_engine("transitions")
    try:
        yield
    finally:
        fsm.use_engine("compiled")


def hand_borrower(record: BorrowerRecord) -> HandBorrower:
    """A borrower written by hand, as new as the record."""
    return HandBorrower(record.id, record.group, record.filter, record.registries[0], record.configuration)


def make_held_hand(streams: int) -> HandBorrower:
    """As `held_record`: connected, with so many streams."""
    hand = hand_borrower(new_record())
    run_hand(hand.feed, list_connecting() + list_granting(streams))
    return hand


def make_mix(times: int, streams: int, seconds: int) -> tuple[int, list[Fed]]:
    """What the dispatch rows are run over, and how often in one value."""
    return times, mix(streams=streams, seconds=seconds)


def measure_own_ns(times: int, events: list[Fed]) -> float:
    """Nanoseconds a step of ours, over the whole mix, some times over."""
    record = new_record()
    return ns_per_event(lambda: [run_steps(BORROWER.step, record, events) for _ in range(times)], times * len(events))


def measure_transitions_ns(times: int, events: list[Fed]) -> float:
    """Nanoseconds a step by `transitions`, over the mix once."""
    record = new_record()
    with by_transitions(BORROWER):
        return ns_per_event(lambda: run_steps(BORROWER.step, record, events), len(events))


def measure_hand_ns(times: int, events: list[Fed]) -> float:
    """Nanoseconds an event of the class by hand, over the whole mix, some times over."""
    hands = [hand_borrower(new_record()) for _ in range(times)]

    def run() -> None:
        for hand in hands:
            run_hand(hand.feed, events)

    return ns_per_event(run, times * len(events))


# -- the rows -------------------------------------------------------------------------------------------------------


def prepare_step_scale(size: Size) -> TurnPair:
    """Every record and every hand-written borrower holds its streams before anything is timed."""
    large, count = size.pick(LARGE, LITTLE), size.pick(SCALE_EVENTS, 200)
    events = {streams: list_progressing(streams, count) for streams in (SMALL, large)}
    records = {streams: make_held_record(streams) for streams in (SMALL, large)}

    def ours(streams: int) -> float:
        return ns_per_event(lambda: run_steps(BORROWER.step, records[streams], events[streams]), count)

    def by_hand(streams: int) -> float:
        hand = make_held_hand(streams)
        return ns_per_event(lambda: run_hand(hand.feed, events[streams]), count)

    return TurnPair(lambda: ours(large) / ours(SMALL), lambda: by_hand(large) / by_hand(SMALL))


def prepare_idle(size: Size) -> TurnPair:
    """A machine that waits: our node, against a model that a prebuilt `transitions` machine looks after."""
    count = size.pick(IDLE, 20)
    record = new_record()
    machine = BORROWER.machine()

    def node(number: int) -> object:
        mine = replace(record, id=f"{record.id}{number}")
        return Node(BORROWER, mine, name=mine.id, now_ns=0)

    def model(number: int) -> object:
        made: Model[BorrowerRecord] = Model()
        made.record = replace(record, id=f"{record.id}{number}")
        machine.add_model(made)
        return made

    return TurnPair(lambda: bytes_each(node, count), lambda: bytes_each(model, count))


ROWS = (
    BenchRow(
        name="dispatch",
        about="a whole Borrower step, against the same rows through prebuilt transitions machines",
        unit="ns / event",
        baseline_name="transitions.Machine",
        prepare=compare(measure_own_ns, measure_transitions_ns, (TIMES, 100, 12), (1, 5, 1), make_mix),
        ratio=RatioKind.BASELINE_OVER_OURS,
        at_least=8,
        aim="12",
    ),
    BenchRow(
        name="dispatch-hand",
        about="a whole Borrower step, against a mutable class written by hand",
        unit="ns / event",
        baseline_name="HandBorrower",
        prepare=compare(measure_own_ns, measure_hand_ns, (TIMES, 100, 12), (1, 5, 1), make_mix),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=4,
    ),
    BenchRow(
        name="step-scale",
        about="growth of the Borrower's step from 10 to 100 000 streams, against that of a hand-written class",
        unit="x",
        baseline_name="HandBorrower",
        prepare=prepare_step_scale,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.5,
    ),
    BenchRow(
        name="idle",
        about="memory of a Borrower that waits, its record and timers included",
        unit="bytes",
        baseline_name="add_model of transitions",
        prepare=prepare_idle,
        ratio=RatioKind.BASELINE_OVER_OURS,
        aim="at most 1 000 bytes",
    ),
)
