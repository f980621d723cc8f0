"""WireBorrower: how a Borrower is tested over the wire: its leaders, and the calls that nobody sees."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from statemachines.drivers.shared_subscriptions.roles import CONSUMER, LEADER
from statemachines.kernel import Call, Message
from statemachines.shared_subscriptions.borrower import (
    BorrowerRecord,
    BorrowerStatus,
    GiveBack,
    OnDisconnect,
    OnUnsubscribe,
    Start,
)
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.message import (
    BorrowerMessage,
    Disconnect,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    Revoke,
    Revoked,
    RevokeFinished,
    Undeclared,
    UpdateProgress,
)
from statemachines.shared_subscriptions.stream import StreamProgress, StreamStatus
from statemachines.testing.conformance.relation import Output
from statemachines.testing.conformance.role import BegunRecord, EarlierInstance, WireRole

TIMES: Final = Configuration(
    find_leader_ms=300,
    ping_interval_ms=200,
    ping_timeout_ms=400,
    max_delay_ms=90,
    validity_ms=1_000,
    unsubscribe_timeout_ms=500,
    revoke_timeout_ms=2_000,
    count_deliveries=False,
).check()
"""Short times: a run is real time."""

STREAMS: Final = ("0.0/a", "0.0/b", "0.0/c")
PROBE: Final = "0.0/probe"
"""A stream that is never granted: the answer to its `revoked` shows that what came before is handled."""

FIRST_EPOCH: Final = 5
"""There are lower ones, of leaders that are gone."""


def begin_record(
    to: str, first: Any, configuration: Configuration, earlier: tuple[EarlierInstance, ...]
) -> tuple[BegunRecord, ...]:
    """The records of a new borrower.  One that follows another knows the epoch that the other has told; a client that
    has unsubscribed and subscribes again may know of none."""
    if not isinstance(first, LeaderWanted):
        return ()
    same = [one for one in earlier if (one.first.group, one.first.filter) == (first.group, first.filter)]
    epochs = set() if same else {(0, False)}
    for record, farewell in same[-1].ends if same else ():
        said = next((output.fields for output in farewell if output.name == "destroyed"), None)
        if said is not None:
            epochs |= {(said["epoch"], False)} | (set() if said["recreate"] else {(0, False)})
        elif record.status is BorrowerStatus.UNSUBSCRIBING:
            epochs |= {(0, True), (record.epoch, True)}  # the client subscribes again at once
    return tuple(
        BegunRecord(
            BorrowerRecord(first.borrower, first.group, first.filter, (to,), configuration, epoch=epoch), goes_on
        )
        for epoch, goes_on in sorted(epochs)
    )


def find_unseen(record: BorrowerRecord, came: Output | None) -> Iterator[Call]:
    """The calls of a session and its client."""
    if came is not None and came.name == "update_progress":
        said = came.fields
        yield StreamProgress(said["stream"], said["grant"], said["progress"], said["finished"])
    if came is not None and came.name == "disconnect":
        yield from (
            StreamProgress(one["stream"], one["grant"], one["progress"], True) for one in came.fields["reports"]
        )
        yield from (OnDisconnect(), GiveBack())
    elif record.status is BorrowerStatus.CONNECTING:
        yield from (OnDisconnect(), GiveBack())
    if record.status is not BorrowerStatus.UNSUBSCRIBING:
        yield OnUnsubscribe()


class LeaderPlayer:
    """The leaders of a group, and all that an unlucky network and leaders of other epochs make of them."""

    def __init__(self, life: str, chance: Random) -> None:
        self._life = life
        self._chance = chance
        self._epoch = FIRST_EPOCH
        self._registration = 0
        self._grant = 0
        self._is_silent = False
        self._registered = ""

    def sender(self, message: Any) -> str:
        """The leader of the epoch that the message names."""
        return f"{self._life}/{getattr(message, 'epoch', 0)}"

    def greet(self) -> Iterator[Message]:
        """A leader waits until it is looked for."""
        yield from ()

    def answer(self, record: BorrowerRecord, message: BorrowerMessage) -> Iterator[Message]:
        """What a leader says to a message; sometimes it says something else, or nothing."""
        match message:
            case LeaderWanted():
                yield from self._register(record)
            case Ping() if self._is_silent:
                return
            case Ping(borrower, epoch, registration):
                yield PingResponse(borrower, epoch, registration, record.ping_n)
                yield from self._grant_one(record, (epoch, registration))
            case UpdateProgress(borrower, epoch, registration, stream, grant, _, finished):
                if finished:
                    yield Revoked(borrower, epoch, registration, stream, grant)
            case RevokeFinished() | Disconnect():
                return

    def _register(self, record: BorrowerRecord) -> Iterator[Message]:
        choice = self._chance.random()
        if choice < 0.1:
            yield Undeclared(record.id)
        elif choice < 0.2:
            yield Invalidate(record.id, self._epoch, self._registration)
        elif choice < 0.5:
            yield self._connect(record, self._epoch - 1, self._registration + 1)
        if choice < 0.9:
            if record.id != self._registered or choice > 0.8:
                self._is_silent = self._chance.random() < 0.2
                self._registration += 1
                self._epoch += choice > 0.8
                self._registered = record.id
            yield self._connect(record, self._epoch, self._registration)

    def _grant_one(self, record: BorrowerRecord, pair: tuple[int, int]) -> Iterator[Message]:
        """A stream that is not held, as a leader does that has some."""
        held = [one.stream for one in record.streams.values() if one.status is not StreamStatus.ABSENT]
        free = [stream for stream in STREAMS if stream not in held]
        if free and self._chance.random() < 0.7:
            self._grant += 1
            yield Grant(record.id, *pair, self._chance.choice(free), self._grant, self._chance.randrange(4))

    def _connect(self, record: BorrowerRecord, epoch: int, registration: int) -> Message:
        return LeaderConnectResponse(record.id, f"{self._life}/{epoch}", epoch, registration)

    def propose(self, record: BorrowerRecord) -> Iterator[Message]:
        """What leaders may say, of the pair that the borrower has adopted, of one below and of one above it."""
        own = (
            (self._epoch, self._registration) if record.link is None else (record.link.epoch, record.link.registration)
        )
        above = (own[0], own[1] + 1) if self._chance.random() < 0.5 else (own[0] + 1, 1)
        below = (own[0], own[1] - 1) if own[1] > 1 and self._chance.random() < 0.5 else (own[0] - 1, own[1] + 1)
        yield from self._grants(record, own)
        for pair in (own, below, above):
            yield self._connect(record, *pair)
            yield Invalidate(record.id, *pair)
            yield PingResponse(record.id, *pair, max(record.ping_n - self._chance.randrange(2), 0))
        for pair in (below, above):
            yield self._chance.choice(
                (Grant(record.id, *pair, STREAMS[0], self._grant + 1, 0), *self._takes(record, pair))
            )
        yield Undeclared(record.id)

    def probe(self, record: BorrowerRecord) -> Message | None:
        """A stream that it never had is taken back."""
        link = record.link
        return None if link is None else Revoked(record.id, link.epoch, link.registration, PROBE, self._grant + 1)

    def _grants(self, record: BorrowerRecord, own: tuple[int, int]) -> Iterator[Message]:
        """Grants of this leader, new ones and copies, and that they are taken back."""
        self._grant += 1
        yield Revoked(record.id, *own, PROBE, self._grant)
        for stream in STREAMS:
            known = record.streams.get(stream)
            if known is None or self._chance.random() < 0.2:
                yield Grant(record.id, *own, stream, self._grant, self._chance.randrange(4))
            if known is not None:
                yield Grant(record.id, *own, stream, max(known.grant - self._chance.randrange(2), 1), 0)
        yield from self._takes(record, own)

    def _takes(self, record: BorrowerRecord, pair: tuple[int, int]) -> Iterator[Message]:
        for stream in STREAMS:
            known = record.streams.get(stream)
            grant = self._grant if known is None else max(known.grant + self._chance.choice((0, 0, 0, -1, 1)), 1)
            yield Revoke(record.id, *pair, stream, grant)
            yield Revoked(record.id, *pair, stream, grant)


WIRE_BORROWER: Final = WireRole(
    plays=LEADER,
    peer=CONSUMER.full_name,
    takes=BorrowerMessage,
    configuration=TIMES,
    begin=begin_record,
    opening=(Start(),),
    unseen=find_unseen,
    player=LeaderPlayer,
    speaker="borrower",
    after_end=("disconnect",),
)
