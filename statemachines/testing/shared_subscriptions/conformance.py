"""Conformance: what others may do otherwise who implement the Borrower, and what is told to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import Event
from statemachines.shared_subscriptions import borrower, message
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.stream import Finish, Install, StreamProgress, Uninstall
from statemachines.testing.conformance import role
from statemachines.testing.conformance.interface import Alphabet
from statemachines.testing.conformance.relation import Before, Chosen, Relation, Repeated, Unordered
from statemachines.testing.conformance.role import ConformanceRole
from statemachines.testing.shared_subscriptions.conformance_leader import LEADER_ROLE
from statemachines.testing.shared_subscriptions.wire_borrower import WIRE_BORROWER
from statemachines_spec.explorer.actor import Timing
from statemachines_spec.shared_subscriptions.succession import of_borrower

ID: Final = "consumer-1~1/1"
REGISTRIES: Final = ("leader-1", "leader-2")
SEEN: Final = 2
"""The highest epoch that the Agent knew when it made the borrower."""
TICK_NS: Final = 1_000 * MS
TIMES: Final = Configuration(ping_interval_ms=2_000, validity_ms=6_000, unsubscribe_timeout_ms=2_000).check()

NUMBERS: Final = (9, 10, 2**32 + 1)
"""A number is longer than the one before, and one has more than 32 bits."""
WIDE: Final = (2**32 + 2, 2**32 + 1)
STREAMS_MAX: Final = 6

RELATION: Final = Relation(
    before=(
        Before("uninstall", "revoke_finished", "stream", "SS-311"),
        Before("uninstall", "destroyed", "", "SS-311"),
    ),
    chosen=(Chosen("ping number", (("ping", "n"), ("ping_response", "n")), "SS-310"),),
    unordered=(
        Unordered("ping", "reports", "SS-312"),
        Unordered("disconnect", "reports", "SS-312"),
        Unordered("destroyed", "reports", "SS-312"),
    ),
    repeated=(
        Repeated("leader_wanted", "SS-313"),
        Repeated("update_progress", "SS-313"),
        Repeated("revoke_finished", "SS-313"),
    ),
)

ALPHABET: Final = Alphabet(
    takes=(
        borrower.Start,
        message.LeaderConnectResponse,
        message.Undeclared,
        message.PingResponse,
        message.Grant,
        message.Revoke,
        message.Revoked,
        message.Invalidate,
        StreamProgress,
        borrower.OnUnsubscribe,
        borrower.OnDisconnect,
        borrower.GiveBack,
    ),
    sends=(message.LeaderWanted, message.Ping, message.UpdateProgress, message.RevokeFinished, message.Disconnect),
    asks=(),
    tells=(borrower.LeaseBegan, borrower.LeaseEnded, Install, Finish, Uninstall, borrower.Destroyed),
)


def give_told(
    pairs: tuple[tuple[int, int], ...], streams: tuple[str, ...] = (), grants: int = 0, progress: tuple[int, ...] = ()
) -> Callable[[Any], Iterator[Event]]:
    """What leaders of these pairs say, and a session that reports this progress of these streams."""

    def say(record: borrower.BorrowerRecord) -> Iterator[Event]:
        yield from (
            borrower.Start(),
            message.Undeclared(ID),
            borrower.OnUnsubscribe(),
            borrower.OnDisconnect(),
            borrower.GiveBack(),
        )
        link = record.link
        own = (0, 0) if link is None else (link.epoch, link.registration)
        if link is not None:
            yield from (message.PingResponse(ID, *own, n) for n in (record.ping_n, record.ping_n - 1))
        for pair in pairs:
            yield message.LeaderConnectResponse(ID, f"leader-{1 + pair[0] % 2}~{pair[0]}/1", *pair)
            yield message.Invalidate(ID, *pair)
            if pair != own:
                yield message.PingResponse(ID, *pair, record.ping_n)
            for stream in streams:
                for grant in range(1, grants + 1):
                    yield message.Grant(ID, *pair, stream, grant, grant - 1)
                    yield from (taken(ID, *pair, stream, grant) for taken in (message.Revoke, message.Revoked))
        if link is not None:
            for stream in streams:
                for grant in range(1, grants + 1):
                    yield from (StreamProgress(stream, grant, one) for one in progress)
                    yield StreamProgress(stream, grant, progress[0], True)

    return say


def give_reported(record: borrower.BorrowerRecord) -> Iterator[Event]:
    """What one leader says that grants one stream and answers pings, and a session that reads it."""
    yield from (
        message.LeaderConnectResponse(ID, "leader-1~2/1", 2, 1),
        message.Grant(ID, 2, 1, "0.0/a", 1, 0),
        borrower.OnUnsubscribe(),
    )
    yield message.PingResponse(ID, 2, 1, record.ping_n)
    yield from (StreamProgress("0.0/a", 1, 2, True), *(StreamProgress("0.0/a", 1, one) for one in (0, 1, 2)))


def give_numbers(record: borrower.BorrowerRecord) -> Iterator[Event]:
    """What a leader says whose numbers get longer, and go beyond 32 bits."""
    yield from (borrower.Start(), message.LeaderConnectResponse(ID, "leader-1~2/1", *WIDE))
    for grant in NUMBERS:
        yield message.Grant(ID, *WIDE, "0.0/a", grant, grant)
        yield message.Revoked(ID, *WIDE, "0.0/a", grant)
        yield from (StreamProgress("0.0/a", grant, one) for one in NUMBERS if record.link is not None)


def give_many(record: borrower.BorrowerRecord) -> Iterator[Event]:
    """What a leader says that grants one stream after the other, and a session that reads the latest."""
    yield from (borrower.Start(), message.LeaderConnectResponse(ID, "leader-1~2/1", 2, 1))
    count = len(record.streams)
    if record.link is not None and count < STREAMS_MAX:
        yield message.Grant(ID, 2, 1, f"0.0/{count}", 1, 0)
    if count:
        yield StreamProgress(f"0.0/{count - 1}", 1, 1)
    if count == STREAMS_MAX:
        yield from (message.Revoked(ID, 2, 1, f"0.0/{count - 1}", 1), borrower.OnDisconnect())


def start_of(name: str, pings: int, say: Callable[[Any], Iterator[Event]]) -> role.Start:
    """A borrower that is told this, and sends so many pings."""
    record = borrower.BorrowerRecord(ID, "g", "#", REGISTRIES, TIMES, epoch=SEEN)
    return role.Start(name, record, say, lambda record: record.ping_n <= pings)


TIMING: Final[Timing] = replace(
    of_borrower(TIMES, ("find_leader", "ping_timeout", "ping", "lease", "unsubscribe")), tick_ns=TICK_NS
)

STARTS: Final = (
    start_of("several leaders", 3, give_told(((2, 1), (1, 2), (2, 2), (3, 1)))),
    start_of("a stream", 2, give_told(((2, 1),), ("0.0/a",), 2, (1, message.END_OF_STREAM))),
    start_of("two streams", 1, give_told(((2, 1),), ("0.0/a", "0.0/b"), 1, (1,))),
    start_of("reports of a stream", 4, give_reported),
    start_of("a stream of another leader", 1, give_told(((2, 1), (3, 1)), ("0.0/a",), 1, (1,))),
    start_of("long numbers", 1, give_numbers),
    start_of("many streams", 1, give_many),
)

ROLES: Final = {
    "borrower": ConformanceRole(
        borrower.BORROWER,
        STARTS,
        TIMING,
        RELATION,
        given=("id", "group", "filter", "registries", "epoch", "configuration"),
        alphabet=ALPHABET,
        wire=WIRE_BORROWER,
    ),
    "leader": LEADER_ROLE,
}
