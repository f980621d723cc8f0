"""The life of a Borrower as a list of events: what dispatch is measured on.

One second of it: a ping and its answer, progress of streams drawn at random, and some streams taken back and given
again (revoke, final progress, revoked, grant).  The events fit each other: numbers of pings and grants, increasing
progress.  The same seed gives the same list.
"""

from __future__ import annotations

from random import Random

from statemachines.kernel import Event
from statemachines.shared_subscriptions.borrower import BORROWER, BorrowerRecord, PingTimer, Start
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.message import Grant, LeaderConnectResponse, PingResponse, Revoke, Revoked
from statemachines.shared_subscriptions.stream import StreamProgress

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
