"""Conformance: what others may do otherwise who implement the Leader, and what is told to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import Answer, Event, Map, Request, in_order
from statemachines.shared_subscriptions.claim import Halt, StartLeader
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import (
    Claim,
    Commit,
    Committed,
    GroupStore,
    Properties,
    Read,
    ReadDone,
    Refused,
    Scan,
    Scanned,
    StoredRecord,
    StoreFailed,
    Value,
    record_key,
)
from statemachines.shared_subscriptions.leader import LEADER, Resigned
from statemachines.shared_subscriptions.leader_record import LeaderRecord
from statemachines.shared_subscriptions.message import (
    END_OF_STREAM,
    Disconnect,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    RelayedToBorrower,
    RelayedToLeader,
    Report,
    Revoke,
    Revoked,
    RevokeFinished,
    Undeclared,
    UpdateProgress,
)
from statemachines.shared_subscriptions.progress_cover import ProgressRefused, StreamBehind
from statemachines.shared_subscriptions.stream_store import (
    Append,
    Drop,
    FetchFailed,
    ListStreams,
    Measure,
    Measured,
    Rotate,
    StoredStreams,
    StreamsListed,
    StreamStore,
)
from statemachines.testing.conformance import role
from statemachines.testing.conformance.interface import Alphabet
from statemachines.testing.conformance.relation import Chosen, Relation, Repeated, Unordered
from statemachines.testing.conformance.role import ConformanceRole, PlayedService
from statemachines.testing.shared_subscriptions.wire_leader import WIRE_LEADER
from statemachines_spec.shared_subscriptions.succession import TICK_NS, of_leader
from statemachines_spec.shared_subscriptions.succession import TIMES as SHORT

ID: Final = "leader-1~1/2"
GROUP: Final = "g"
FILTER: Final = "#"
HOLDER: Final = "leader-9~1/1"
BORROWERS: Final = ("consumer-1~1/1", "consumer-2~1/1")
AGE_NS: Final = 3 * TICK_NS
"""A commit is answered within this, on the paths of the tour."""
UNKNOWN: Final = 99
"""A registration that nobody has."""

LONG_MS: Final = 4_000_000

CALM: Final = replace(
    SHORT,
    claim_ttl_ms=3 * LONG_MS,
    claim_heartbeat_ms=LONG_MS,
    renew_streams_ms=LONG_MS,
    commit_interval_ms=LONG_MS,
    idle_stop_ms=LONG_MS,
)
"""The claim lasts longer than any run: what members do is not mixed with what becomes of the claim."""

OF_REQUESTS: Final = (
    ("read", "n"), ("scan", "n"), ("commit", "n"), ("list_streams", "n"), ("measure", "n"),
    ("read_done", "n"), ("scanned", "n"), ("committed", "n"), ("refused", "n"), ("store_failed", "n"),
    ("streams_listed", "n"), ("measured", "n"), ("fetch_failed", "n"),
)  # fmt: skip
OF_REGISTRATION: Final = tuple(
    (kind, "registration")
    for kind in (
        "leader_connect_response", "ping_response", "grant", "revoke", "revoked",
        "ping", "update_progress", "revoke_finished", "disconnect",
    )
)  # fmt: skip
OF_GRANT: Final = (
    ("grant", "grant"), ("revoke", "grant"), ("revoked", "grant"), ("update_progress", "grant"),
    ("revoke_finished", "grant"), ("ping", "reports.grant"), ("disconnect", "reports.grant"),
)  # fmt: skip

RELATION: Final = Relation(
    chosen=(
        Chosen("request number", OF_REQUESTS, "SS-314"),
        Chosen("registration", OF_REGISTRATION, "SS-315", (("invalidate", "registration"),), rises=True),
        Chosen("grant number", OF_GRANT, "SS-315", rises=True),
    ),
    unordered=(
        Unordered("commit", "expect", "SS-316"),
        Unordered("commit", "put", "SS-316"),
        Unordered("measure", "streams", "SS-316"),
    ),
    repeated=tuple(
        Repeated(kind, "SS-317")
        for kind in (
            "leader_connect_response",
            "ping_response",
            "grant",
            "revoke",
            "revoked",
            "invalidate",
            "undeclared",
        )
    ),
)

ALPHABET: Final = Alphabet(
    takes=(
        StartLeader, Halt, LeaderWanted, Ping, UpdateProgress, RevokeFinished, Disconnect,
        RelayedToLeader, RelayedToBorrower,
        ReadDone, Scanned, Committed, Refused, StoreFailed, StreamsListed, Measured, FetchFailed,
    ),
    sends=(
        LeaderConnectResponse, Undeclared, PingResponse, Grant, Revoke, Revoked, Invalidate,
        RelayedToLeader, RelayedToBorrower,
    ),
    asks=(Read, Scan, Commit, ListStreams, Measure),
    tells=(Resigned, StreamBehind, ProgressRefused),
)  # fmt: skip

Told = Callable[[LeaderRecord], Iterator[Event]]


# -- the stores -----------------------------------------------------------------------------------------------------


class NumberedStore(GroupStore):
    """A group store with these records; the stamp of a commit is its number."""

    def __init__(self, **records: Value) -> None:
        self._records = records

    def initial(self) -> Map[str, StoredRecord]:
        return Map({record_key(GROUP, FILTER, name): StoredRecord(value, 1) for name, value in self._records.items()})

    def apply(
        self, state: Map[str, StoredRecord], request: Request, now_ns: int
    ) -> tuple[Map[str, StoredRecord], tuple[Answer, ...]]:
        stamp = 1 + max((one.stamp for one in state.values()), default=0)
        return super().apply(state, request, stamp if isinstance(request, Commit) else 0)


class TopicStore(StreamStore):
    """A stream store of one shard in which each of these topics has a message; its streams may have `ended`."""

    def __init__(self, topics: tuple[str, ...], ended: bool) -> None:
        super().__init__(shards=1)
        self._topics = topics
        self._ended = ended

    def initial(self) -> StoredStreams:
        state = StoredStreams()
        for topic in self._topics:
            state, _ = self.apply(state, Append(0, topic, 1), 0)
        return self.apply(state, Rotate(0), 0)[0] if self._ended else state


def fail_store(request: Any) -> Iterator[Answer]:
    """The group store does not answer."""
    yield StoreFailed(request.n)


def fail_fetch(request: Any) -> Iterator[Answer]:
    """The stream store does not answer."""
    yield FetchFailed(request.n)


def put(name: str, value: Value | None) -> Commit:
    """What another host writes."""
    return Commit(0, (), ((record_key(GROUP, FILTER, name), value),))


def take_claim(state: Map[str, StoredRecord]) -> Iterator[Request]:
    """Another host takes the claim, once."""
    claim = state.get(record_key(GROUP, FILTER, "claim"))
    held = claim.value if claim is not None and isinstance(claim.value, Claim) else Claim("", 0)
    if held.leader != HOLDER and held.epoch < 3:
        yield put("claim", Claim(HOLDER, held.epoch + 1))


def destroy_group(state: Map[str, StoredRecord]) -> Iterator[Request]:
    """The group is destroyed, once."""
    found = state.get(record_key(GROUP, FILTER, "properties"))
    if found is not None and isinstance(found.value, Properties) and not found.value.destroyed:
        yield put("properties", replace(found.value, destroyed=True))


def go_on(state: StoredStreams) -> Iterator[Request]:
    """A generation follows, and the first is dropped."""
    if state.generation == 0:
        yield Rotate(0)
    elif "0.1/a" not in state.by_id:
        yield Append(0, "a", 1)
    elif state.oldest == 0:
        yield Drop(0, 1)


def append(state: StoredStreams) -> Iterator[Request]:
    """One more message."""
    if all(one.count < 2 for one in state.by_id.values()):
        yield Append(0, "a", 1)


# -- what is told ---------------------------------------------------------------------------------------------------


def begin(record: LeaderRecord) -> Iterator[Event]:
    """The registry begins the leader."""
    if not record.number:
        yield StartLeader()


def halt(record: LeaderRecord) -> Iterator[Event]:
    """The host stops."""
    yield Halt()


def want_leader(*borrowers: str) -> Told:
    """These borrowers look for a leader."""

    def say(record: LeaderRecord) -> Iterator[Event]:
        yield from (LeaderWanted(borrower, GROUP, FILTER) for borrower in borrowers)

    return say


def ping(record: LeaderRecord) -> Iterator[Event]:
    """Members ping, with and without a report of what they hold; and one that is not registered."""
    for borrower, member in in_order(record.members):
        link = member.link
        yield Ping(borrower, link.epoch, link.registration, 1)
        reports = tuple(Report(stream, grant, 1, False) for grant, stream in in_order(member.grants))
        if reports:
            yield Ping(borrower, link.epoch, link.registration, 2, reports)
    yield Ping(BORROWERS[0], max(record.epoch, 1), UNKNOWN, 1)


def ping_alone(record: LeaderRecord) -> Iterator[Event]:
    """Members ping."""
    for borrower, member in in_order(record.members):
        yield Ping(borrower, member.link.epoch, member.link.registration, 1)


def report(*progress: int) -> Told:
    """Owners report such progress of their streams, final or not."""

    def say(record: LeaderRecord) -> Iterator[Event]:
        for stream, one in in_order(record.assignments):
            of = (one.link.borrower, one.link.epoch, one.link.registration, stream)
            yield from (UpdateProgress(*of, one.grant, each, False) for each in progress)
            yield UpdateProgress(*of, one.grant, progress[0], True)
            yield RevokeFinished(*of, one.grant)

    return say


def report_strays(record: LeaderRecord) -> Iterator[Event]:
    """Of grants that are over, of others, and of registrations that are none."""
    for borrower, member in in_order(record.members):
        of = (borrower, member.link.epoch, member.link.registration)
        yield UpdateProgress(*of, "0.0/a", 0, 1, False)
        yield RevokeFinished(*of, "0.0/a", 0)
    of = (BORROWERS[0], max(record.epoch, 1), UNKNOWN)
    yield from (UpdateProgress(*of, "0.0/a", 1, 1, False), RevokeFinished(*of, "0.0/a", 1))


def disconnect(record: LeaderRecord) -> Iterator[Event]:
    """Borrowers say their last word: with what they hold, with nothing, and one that nobody knows."""
    for borrower, member in in_order(record.members):
        of = (borrower, member.link.epoch, member.link.registration)
        reports = tuple(Report(stream, grant, 1, True) for grant, stream in in_order(member.grants))
        yield Disconnect(*of)
        if reports:
            yield Disconnect(*of, reports)
    yield Disconnect("consumer-7~1/1", 1, UNKNOWN)


def relay(record: LeaderRecord) -> Iterator[Event]:
    """Messages that are passed on between borrowers and a leader that they do not reach."""
    asked = LeaderWanted(BORROWERS[0], GROUP, FILTER)
    answer = LeaderConnectResponse(BORROWERS[0], HOLDER, 1, 1)
    for leader in (HOLDER, "leader-8~1/1"):
        yield RelayedToLeader(leader, ID, asked)
        yield RelayedToBorrower(leader, ID, answer)


def say_all(*some: Told) -> Told:
    """All that these say, and the begin."""

    def say(record: LeaderRecord) -> Iterator[Event]:
        for one in (begin, *some):
            yield from one(record)

    return say


# -- the role -------------------------------------------------------------------------------------------------------


def make_properties(configuration: Configuration) -> Properties:
    """A group that lives by these times."""
    times = (configuration.ping_interval_ms, configuration.ping_timeout_ms, configuration.claim_ttl_ms)
    return Properties(0, *times)


def make_start(
    name: str,
    told: Told,
    bounds: tuple[int, int, int],
    configuration: Configuration = CALM,
    topics: tuple[str, ...] = ("a",),
    records: dict[str, Value] | None = None,
    groups: dict[str, Any] | None = None,
    streams: dict[str, Any] | None = None,
    alone: bool = True,
    ended: bool = False,
) -> role.Start:
    """A start with at most so many requests, registrations and grants."""
    known = {"properties": make_properties(configuration)} if records is None else records
    requests, registrations, grants = bounds
    return role.Start(
        name,
        LeaderRecord(ID, GROUP, FILTER, configuration, alone=alone),
        told,
        lambda record: (
            record.number <= requests
            and record.registration <= registrations
            and record.grant <= grants
            and (record.trial is None or record.trial.sent_at_ns >= -AGE_NS)
        ),
        (
            PlayedService(NumberedStore(**known), **(groups or {})),
            PlayedService(TopicStore(topics, ended), **(streams or {})),
        ),
    )


ONE, TWO = BORROWERS
DECLARED: Final = make_properties(SHORT)
RENEWING: Final = replace(CALM, renew_streams_ms=8, validity_ms=LONG_MS)
QUIET: Final = replace(CALM, validity_ms=LONG_MS, resend_interval_ms=8)
LASTING: Final = replace(SHORT, claim_ttl_ms=40)
WRITING: Final = replace(QUIET, commit_interval_ms=8, resend_interval_ms=LONG_MS)
OPEN_HANDED: Final = replace(CALM, exclusive=False)
LEFT: Final[dict[str, Value]] = {"properties": make_properties(CALM), "claim": Claim("", 1)}
EARLIER: Final[dict[str, Value]] = {"properties": make_properties(CALM), "claim": Claim("leader-1~1/1", 4)}
HELD: Final[dict[str, Value]] = {"properties": DECLARED, "claim": Claim(HOLDER, 1)}
READ_ON: Final[dict[str, Value]] = {"properties": make_properties(CALM), "root": 3, "progress:0.0/a": 5}
OTHER_TIMES: Final[dict[str, Value]] = {"properties": Properties(0, 1, 2, 3)}
FAILING: Final = {"failed": fail_store}
BLIND: Final = {"failed": fail_fetch}

STARTS: Final = (
    make_start("a claim that is taken", say_all(want_leader(ONE), halt), (5, 0, 0), SHORT, groups=FAILING),
    make_start("a claim that is renewed", say_all(), (8, 0, 0), LASTING, groups=FAILING),
    make_start("a claim that others take", say_all(halt), (7, 0, 0), SHORT, groups={"others": take_claim}),
    make_start("a group that is destroyed", say_all(halt), (8, 0, 0), SHORT, groups={"others": destroy_group}),
    make_start(
        "a claim that is held", say_all(want_leader(ONE), relay, halt), (9, 0, 0), SHORT, records=HELD, groups=FAILING
    ),
    make_start(
        "a claim that was left",
        say_all(want_leader(ONE), ping_alone, report_strays, disconnect),
        (5, 1, 1),
        QUIET,
        records=LEFT,
    ),
    make_start("a claim of an earlier leader", say_all(halt), (6, 0, 0), records=EARLIER),
    make_start("a group that is not declared", say_all(want_leader(ONE)), (3, 0, 0), records={}),
    make_start("a group of other times", say_all(want_leader(ONE)), (3, 0, 0), records=OTHER_TIMES),
    make_start("a member", say_all(want_leader(ONE), ping, report_strays), (5, 1, 1)),
    make_start("what a member reports", say_all(want_leader(ONE), report(1, END_OF_STREAM)), (6, 1, 2)),
    make_start("an ended stream", say_all(want_leader(ONE), report(END_OF_STREAM)), (6, 1, 1), QUIET, ended=True),
    make_start("progress that is committed", say_all(want_leader(ONE), report(1)), (8, 1, 1), WRITING, groups=FAILING),
    make_start("a last word", say_all(want_leader(ONE), ping_alone, disconnect), (6, 2, 2)),
    make_start("two members", say_all(want_leader(ONE, TWO), report(0)), (5, 2, 3), QUIET, ("a", "b")),
    make_start("leases", say_all(want_leader(ONE), ping_alone, report(0)), (5, 2, 2)),
    make_start("hand-over at once", say_all(want_leader(ONE), ping_alone, report(0)), (5, 2, 2), OPEN_HANDED),
    make_start("generations", say_all(want_leader(ONE), report(0)), (8, 1, 2), RENEWING, streams={"others": go_on}),
    make_start("a blind leader", say_all(halt), (9, 0, 0), RENEWING, streams=BLIND, alone=False),
    make_start(
        "progress beyond the store",
        say_all(want_leader(ONE), report(2)),
        (7, 1, 1),
        streams={"others": append, **BLIND},
    ),
    make_start("progress that the store has lost", say_all(want_leader(ONE)), (8, 1, 1), RENEWING, records=READ_ON),
    make_start("an idle leader", say_all(want_leader(ONE), halt), (7, 1, 1), replace(CALM, idle_stop_ms=12)),
)

TIMING: Final = of_leader(
    SHORT,
    (
        "retry", "claim_end", "heartbeat", "grace", "renew", "commit", "recheck", "measure", "idle",
        "expiry", "hand_over", "resend", "grant_timeout", "revoke_timeout",
    ),
)  # fmt: skip

LEADER_ROLE: Final = ConformanceRole(
    LEADER, STARTS, TIMING, RELATION, given=("id", "group", "filter", "configuration", "alone"), alphabet=ALPHABET,
    wire=WIRE_LEADER,
)  # fmt: skip
