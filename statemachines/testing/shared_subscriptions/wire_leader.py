"""WireLeader: how a Leader is tested over the wire: its borrowers, and the store that it works on.

The kit dials a leader host as a consumer with several borrowers.  The claim outlasts the run, and the streams are all
there from the beginning: what the table does with claims, listings and commits is tested in lockstep.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from statemachines.drivers.shared_subscriptions import Publisher, declare
from statemachines.drivers.shared_subscriptions.roles import CONSUMER, LEADER
from statemachines.kernel import Answer, Ask, Event, Map, Message, Request, in_order
from statemachines.shared_subscriptions import leader
from statemachines.shared_subscriptions.claim import StartLeader
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import (
    Commit,
    Committed,
    GroupStore,
    Properties,
    StoredRecord,
    record_key,
)
from statemachines.shared_subscriptions.leader_record import LeaderRecord, LeaderStatus
from statemachines.shared_subscriptions.message import (
    END_OF_STREAM,
    BorrowerMessage,
    Disconnect,
    Grant,
    LeaderConnectResponse,
    LeaderMessage,
    LeaderWanted,
    Ping,
    Report,
    Revoke,
    Revoked,
    RevokeFinished,
    UpdateProgress,
)
from statemachines.shared_subscriptions.stream_store import Append, Measure, StoredStreams, StreamStore
from statemachines.testing.conformance.relation import Output
from statemachines.testing.conformance.role import BegunRecord, EarlierInstance, WireRole

HOUR_MS: Final = 3_600_000

TIMES: Final = Configuration(
    find_leader_ms=300,
    ping_interval_ms=200,
    ping_timeout_ms=400,
    max_delay_ms=90,
    validity_ms=1_000,
    unsubscribe_timeout_ms=500,
    revoke_timeout_ms=1_500,
    resend_interval_ms=300,
    claim_ttl_ms=3 * HOUR_MS,
    claim_heartbeat_ms=HOUR_MS,
    renew_streams_ms=HOUR_MS,
    commit_interval_ms=HOUR_MS,
    idle_stop_ms=HOUR_MS,
).check()
"""Short times of members, since a run is real time; and a claim that nothing happens to meanwhile."""

GROUP: Final = "g"
FILTER: Final = "#"
TOPICS: Final = ("a", "b", "c")
COUNT: Final = 1_000
"""Messages of each stream."""

BEHIND: Final = 0.2
"""So much of what is reported is not further than what the leader knows."""
FURTHER: Final = 4
"""A report is less than so many messages further."""

BORROWERS_MAX: Final = 3
PHASE: Final = 150
"""After so many messages other borrowers fall silent, and others are deaf for one stream."""
UNKNOWN: Final = 99
"""A registration that nobody has."""

STREAMS: Final = StreamStore()


def fill_streams() -> StoredStreams:
    """The streams of the store."""
    state = STREAMS.initial()
    for topic in TOPICS:
        state, _ = STREAMS.apply(state, Append(0, topic, COUNT), 0)
    return state


FILLED: Final = fill_streams()


def prepare_store(path: Path, configuration: Configuration) -> None:
    """Make the store that a leader under test works on."""

    async def fill() -> None:
        await declare(f"$shared/{GROUP}/{FILTER}", store=path, start="beginning", configuration=configuration)
        async with Publisher(path) as publisher:
            for topic in TOPICS:
                await publisher.publish(topic, [b"x"] * COUNT)

    asyncio.run(fill())


# -- how it begins --------------------------------------------------------------------------------------------------


def load_leader(record: LeaderRecord) -> LeaderRecord:
    """The leader when it has taken its claim and loaded what the store has."""
    times = record.configuration
    properties = Properties(0, times.ping_interval_ms, times.ping_timeout_ms, times.claim_ttl_ms)
    groups, held = GroupStore(), Map({record_key(GROUP, FILTER, "properties"): StoredRecord(properties, 1)})
    events: deque[Any] = deque([StartLeader()])
    while events:
        step = leader.LEADER.step(record, events.popleft(), 0)
        record = step.record
        for effect in step.effects:
            if isinstance(effect, Ask) and effect.service == groups.name:
                held, answers = groups.apply(held, effect.request, 1)
                events += answers
            elif isinstance(effect, Ask):
                events += STREAMS.apply(FILLED, effect.request, 0)[1]
    return record


def begin_record(
    to: str, first: Any, configuration: Configuration, earlier: tuple[EarlierInstance, ...]
) -> tuple[BegunRecord, ...]:
    """The records of a leader that answers the first time: it has its claim and its streams.  One that follows another
    has a higher epoch, and the other has ended."""
    if not isinstance(first, LeaderConnectResponse):
        return ()
    if any(first.epoch <= one.first.epoch for one in earlier):
        return ()
    fresh = LeaderRecord(first.leader, GROUP, FILTER, configuration, alone=True)
    loaded = replace(load_leader(fresh), epoch=first.epoch)
    waiting = replace(loaded, grace=True, status=LeaderStatus.WAITING)
    return BegunRecord(loaded), BegunRecord(waiting)


def answer_request(record: LeaderRecord, request: Request) -> Answer | None:
    """What the store answers, unseen."""
    if isinstance(request, Commit):
        return Committed(request.n, 1)
    return STREAMS.apply(FILLED, request, 0)[1][0] if isinstance(request, Measure) else None


def find_unseen(record: LeaderRecord, came: Output | None) -> Iterator[Event]:
    """The end of the grace: it began before the leader was heard the first time, so nobody knows when."""
    if record.status is LeaderStatus.WAITING:
        yield leader.GraceEnd()


# -- its borrowers --------------------------------------------------------------------------------------------------


class BorrowersPlayer:
    """The borrowers of a group: they look for a leader, ping, report, let go, fall silent and disconnect."""

    def __init__(self, life: str, chance: Random) -> None:
        self._borrowers = [f"{life}/{number}" for number in range(1, BORROWERS_MAX + 1)]
        self._chance = chance
        self._n = 0
        self._silent: frozenset[str] = frozenset()
        self._unheard = ""
        """Nothing is said of this stream."""
        self._turns = 0

    def sender(self, message: Any) -> str:
        """The borrower itself."""
        borrower: str = message.borrower
        return borrower

    def greet(self) -> Iterator[Message]:
        """One borrower looks for a leader."""
        yield LeaderWanted(self._borrowers[0], GROUP, FILTER)

    def answer(self, record: LeaderRecord, message: LeaderMessage) -> Iterator[Message]:
        """What a borrower says to a message; sometimes nothing."""
        if not self._is_said(message) or self._chance.random() < 0.1:
            return
        match message:
            case LeaderConnectResponse(borrower, _, epoch, registration):
                yield self._ping(borrower, epoch, registration)
            case Grant(borrower, epoch, registration, stream, grant, progress):
                yield UpdateProgress(borrower, epoch, registration, stream, grant, progress, False)
            case Revoke(borrower, epoch, registration, stream, grant):
                yield UpdateProgress(borrower, epoch, registration, stream, grant, self._draw(record, stream), True)
            case Revoked(borrower, epoch, registration, stream, grant):
                yield RevokeFinished(borrower, epoch, registration, stream, grant)

    def propose(self, record: LeaderRecord) -> Iterator[Message]:
        """What borrowers may say: members and others, of grants that they have and of others."""
        self._turns += 1
        if self._turns % PHASE == 0:
            self._silent = frozenset(one for one in self._borrowers if self._chance.random() < 0.3)
            self._unheard = self._chance.choice(("", *FILLED.by_id))
        yield from filter(self._is_said, self._say_anything(record))

    def _is_said(self, message: Any) -> bool:
        return message.borrower not in self._silent and getattr(message, "stream", None) != self._unheard

    def _say_anything(self, record: LeaderRecord) -> Iterator[BorrowerMessage]:
        chance = self._chance
        yield from (LeaderWanted(one, GROUP, FILTER) for one in self._borrowers)
        for borrower, member in in_order(record.members):
            link = (borrower, member.link.epoch, member.link.registration)
            yield self._ping(*link)
            held = tuple(
                Report(stream, grant, self._draw(record, stream), False) for grant, stream in in_order(member.grants)
            )
            if held:
                yield self._ping(*link, held)
            if chance.random() < 0.1:
                yield Disconnect(*link, held if chance.random() < 0.5 else ())
            for grant, stream in in_order(member.grants):
                yield UpdateProgress(*link, stream, grant, self._draw(record, stream), chance.random() < 0.3)
                yield UpdateProgress(*link, stream, max(grant - 1, 0), 1, False)
                if chance.random() < 0.2:
                    yield RevokeFinished(*link, stream, grant if chance.random() < 0.5 else max(grant - 1, 0))
                if chance.random() < 0.1:
                    yield UpdateProgress(*link, stream, grant, chance.choice((COUNT + 1, END_OF_STREAM)), False)
        stranger = (chance.choice(self._borrowers), max(record.epoch, 1), UNKNOWN)
        yield self._ping(*stranger)
        yield UpdateProgress(*stranger, "0.0/a", 1, 1, False)
        yield RevokeFinished(*stranger, "0.0/a", 1)

    def _draw(self, record: LeaderRecord, stream: str) -> int:
        """Progress: mostly a little further than the leader knows, so that a run does not soon come to the end."""
        known = record.assignments[stream].progress if stream in record.assignments else 0
        if self._chance.random() < BEHIND:
            return self._chance.randrange(min(known, COUNT) + 1)
        return min(known + self._chance.randrange(FURTHER), COUNT)

    def probe(self, record: LeaderRecord) -> Message:
        """A stranger's ping: it is not registered."""
        return self._ping(self._borrowers[0], max(record.epoch, 1), UNKNOWN)

    def _ping(self, borrower: str, epoch: int, registration: int, reports: tuple[Report, ...] = ()) -> Ping:
        self._n += 1
        return Ping(borrower, epoch, registration, self._n, reports)


WIRE_LEADER: Final = WireRole(
    plays=CONSUMER,
    peer=LEADER.full_name,
    takes=LeaderMessage,
    configuration=TIMES,
    begin=begin_record,
    opening=(),
    unseen=find_unseen,
    player=BorrowersPlayer,
    addressee="borrower",
    dials=True,
    host="leader",
    node_says=("invalidate",),
    reply=answer_request,
    prepare=prepare_store,
)
