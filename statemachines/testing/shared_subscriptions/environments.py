"""Environments: what the machines live among: the stores that they ask, and what others do to these meanwhile.

Values: what is drawn for the fields of shared subscriptions, so that ids and numbers of different messages meet.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st
from msgspec.structs import replace

from statemachines.kernel import Map
from statemachines.shared_subscriptions import group_store, message, stream_store
from statemachines.shared_subscriptions.borrower import LeaseBegan, OnUnsubscribe, Start
from statemachines.shared_subscriptions.claim import StartLeader
from statemachines.shared_subscriptions.configuration import MS, Configuration, Doubt
from statemachines.shared_subscriptions.group_store import (
    Claim,
    Commit,
    GroupStore,
    Properties,
    StoredRecord,
    StoreFailed,
    record_key,
)
from statemachines.shared_subscriptions.listing import RenewTimer
from statemachines.shared_subscriptions.member import Kick, MemberRecord
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines.shared_subscriptions.private_subscription import CheckLink
from statemachines.shared_subscriptions.stream import Install, StreamLink, StreamProgress
from statemachines.shared_subscriptions.stream_store import Append, FetchFailed, StreamStore
from statemachines.testing.protocol import Environment, Values
from statemachines.testing.struct_values import SMALL

CONSUMERS: Final = ("consumer-1~1/1", "consumer-2~1/1")
STREAMS: Final = ("0.0/a", "1.0/b", "2.0/c")

VALUES: Final = Values(
    ints={
        "progress": (*SMALL, END_OF_STREAM),
        "start_ns": (0, -1, 1_000 * MS),
        "resend_ns": (1_000 * MS,),
        "grant_timeout_ns": (5_000 * MS,),
        "revoke_timeout_ns": (10_000 * MS,),
        "poll_ns": (20 * MS,),
    },
    names={
        "borrower": CONSUMERS,
        "owner": CONSUMERS,
        "leader": ("leader-1~1/1", "leader-2~1/1"),
        "registries": ("leader-1",),
        "stream": STREAMS,
        "free": STREAMS,
        "wanting": CONSUMERS,
        "group": ("g",),
        "filter": ("#", "a/+"),
        "topic": ("a", "b", "a/b"),
    },
    choices={
        Configuration: (
            Configuration(),
            Configuration(exclusive=False),
            Configuration(validity_ms=9_000, clock_drift=0.0, claim_ttl_ms=30_000),
        ),
        CheckLink: tuple(map(CheckLink, CONSUMERS)),
    },
)


APPENDS = st.builds(Append, st.just(0), st.sampled_from(("a", "b", "c")), st.sampled_from((1, 2, 25)))


def publishers(record: Any) -> st.SearchStrategy[Append]:
    """Somebody publishes."""
    return APPENDS


READS: Final = Environment(
    services={stream_store.SERVICE: StreamStore(shards=1)},
    failed={stream_store.SERVICE: FetchFailed},
    others={stream_store.SERVICE: publishers},
)


def other_leaders(record: Any) -> st.SearchStrategy[Commit]:
    """Somebody else commits: takes the claim, gives it up, moves the root, declares the group with other times."""
    put: tuple[tuple[str, Claim | Properties | int | None], ...] = (
        ("claim", Claim("leader-9~1/1", record.epoch + 1)),
        ("claim", Claim("", record.epoch + 1, clean=True)),
        ("claim", Claim("", record.epoch + 1)),
        ("root", 77),
        ("progress:0.0/a", 3),
        ("properties", Properties(0, 1, 2, 3)),
        ("properties", Properties(0, 1_000, 2_000, 15_000)),
        ("properties", Properties(0, 1_000, 2_000, 15_000, destroyed=True)),
        ("properties", None),
    )
    return st.sampled_from(put).map(lambda one: Commit(0, (), ((record.key(one[0]), one[1]),)))


def other_nodes(record: Any) -> st.SearchStrategy[Commit]:
    """Somebody else declares, marks or removes the group, or leads it."""
    put: tuple[tuple[str, Claim | Properties | int | None], ...] = (
        ("claim", Claim("leader-9~1/1", 1)),
        ("claim", Claim("", 1, clean=True)),
        ("progress:0.0/a", 3),
        ("properties", Properties(0, 1_000, 2_000, 15_000)),
        ("properties", Properties(0, 1_000, 2_000, 15_000, destroyed=True)),
        ("properties", None),
    )
    return st.sampled_from(put).map(lambda one: Commit(0, (), ((record.key(one[0]), one[1]),)))


def other_claims(record: Any) -> st.SearchStrategy[Commit]:
    """Leaders take the claim and give it up, and a copy of the store takes its place."""
    key = record_key(record.group, record.filter, "claim")
    put = (Claim("leader-1~1/1", 1), Claim("leader-2~1/1", 2), Claim("", 2, clean=True), None)
    return st.sampled_from(put).map(lambda one: Commit(0, (), ((key, one),)))


class DeclaredGroups(GroupStore):
    """A store in which the groups are declared already."""

    def initial(self) -> Map[str, StoredRecord]:
        properties = StoredRecord(Properties(0, 1_000, 2_000, 15_000), 1)
        return Map({record_key("g", topic_filter, "properties"): properties for topic_filter in ("#", "a/+")})


BORROWER = "consumer-1~1/1"
MEMBERS = st.builds(
    MemberRecord,
    st.builds(StreamLink, st.just(BORROWER), st.just("leader-1~1/1"), st.just(1), st.just(1)),
    st.sampled_from(VALUES.choices[Configuration]),
    grants=st.sampled_from((Map(), Map({1: "0.0/a"}))),
)

CONNECT_AND_READ = (
    lambda record: Start(),
    lambda record: message.LeaderConnectResponse(record.id, "leader-1~1/1", 3, 2),
    lambda record: message.PingResponse(record.id, 3, 2, record.ping_n),
    lambda record: message.Grant(record.id, 3, 2, "0.0/a", 1, 0),
    lambda record: message.Grant(record.id, 3, 2, "1.0/b", 2, 0),
    lambda record: StreamProgress("0.0/a", 1, 1),
    lambda record: OnUnsubscribe(),
)


def choose_grant(record: Any) -> message.UpdateProgress:
    """The borrower takes what is granted first."""
    stream, assignment = min(record.assignments.items(), default=("0.0/a", None))
    grant = 0 if assignment is None else assignment.grant
    return message.UpdateProgress(BORROWER, record.epoch, record.registration, stream, grant, 0, False)


LEAD_AND_SHARE = (
    lambda record: StartLeader(),
    lambda record: RenewTimer(),
    lambda record: message.LeaderWanted(BORROWER, record.group, record.filter),
    lambda record: message.Ping(BORROWER, record.epoch, record.registration, 1),
    choose_grant,
    lambda record: message.LeaderWanted("consumer-2~1/1", record.group, record.filter),
)

READ = (
    lambda record: LeaseBegan("consumer-1~1/1"),
    lambda record: Install("consumer-1~1/1", "0.0/a", 1, 0),
)

ENVIRONMENTS: Final = {
    "borrower": Environment(opening=CONNECT_AND_READ),
    "member": Environment(
        start=MEMBERS, opening=(lambda record: message.Ping(BORROWER, 1, 1, 1), lambda record: Kick())
    ),
    "session": replace(READS, opening=READ),
    "private": replace(READS, opening=(lambda record: Start(),)),
    "leader": Environment(
        services={group_store.SERVICE: DeclaredGroups(), **READS.services},
        failed={group_store.SERVICE: StoreFailed, **READS.failed},
        others={group_store.SERVICE: other_leaders, **READS.others},
        opening=LEAD_AND_SHARE,
    ),
    "group": Environment(
        services={group_store.SERVICE: GroupStore()},
        failed={group_store.SERVICE: StoreFailed},
        others={group_store.SERVICE: other_nodes},
    ),
    "witness": Environment(
        services={group_store.SERVICE: GroupStore()},
        failed={group_store.SERVICE: StoreFailed},
        others={group_store.SERVICE: other_claims},
        opening=(lambda record: Doubt(),),
    ),
}
"""Streams and assignments ask nothing, and begin as any record does."""
