"""What the catalogued machines live among: the stores that they ask, and what others do to these meanwhile."""

from __future__ import annotations

from hypothesis import strategies as st

from statemachines import catalogue
from statemachines.cursor_recovery import memory
from statemachines.cursor_recovery.memory import Memory, Queue
from statemachines.cursor_recovery.writer_record import Write, new_writer
from statemachines.kernel import Map
from statemachines.missed_samples.source import Recovery, SourceRecord
from statemachines.shared_subscriptions import group_store, stream_store
from statemachines.shared_subscriptions.borrower import LeaseBegan, OnUnsubscribe, Start
from statemachines.shared_subscriptions.claim import StartLeader
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import (
    Claim,
    Commit,
    GroupStore,
    Properties,
    Stored,
    StoreFailed,
    record_key,
)
from statemachines.shared_subscriptions.listing import RenewTimer
from statemachines.shared_subscriptions.member import Kick, MemberRecord
from statemachines.shared_subscriptions.message import (
    Grant,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    UpdateProgress,
)
from statemachines.shared_subscriptions.stream import Install, Link, StreamProgress
from statemachines.shared_subscriptions.stream_store import Append, FetchFailed, StreamStore
from statemachines.testing.machine import MachineTest

APPENDS = st.builds(Append, st.just(0), st.sampled_from(("a", "b", "c")), st.sampled_from((1, 2, 25)))
STREAMS = {
    "services": {stream_store.SERVICE: StreamStore(shards=1)},
    "failed": {stream_store.SERVICE: FetchFailed},
    "others": {stream_store.SERVICE: lambda record: APPENDS},
}


def other_leaders(record):
    """Somebody else commits: takes the claim, gives it up, moves the root, declares the group with other times."""
    put = (
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


def other_nodes(record):
    """Somebody else declares, marks or removes the group, or leads it."""
    put = (
        ("claim", Claim("leader-9~1/1", 1)),
        ("claim", Claim("", 1, clean=True)),
        ("progress:0.0/a", 3),
        ("properties", Properties(0, 1_000, 2_000, 15_000)),
        ("properties", Properties(0, 1_000, 2_000, 15_000, destroyed=True)),
        ("properties", None),
    )
    return st.sampled_from(put).map(lambda one: Commit(0, (), ((record.key(one[0]), one[1]),)))


class DeclaredGroups(GroupStore):
    """A store in which the groups are declared already."""

    def initial(self):
        properties = Stored(Properties(0, 1_000, 2_000, 15_000), 1)
        return Map({record_key("g", topic_filter, "properties"): properties for topic_filter in ("#", "a/+")})


QUEUE = Queue(capacity=64)
WORDS = (memory.READ_HEAD, memory.WRITE_HEAD, *(
    word for cursor in (0, 1) for pool in ("read", "write")
    for word in (memory.state_of(pool, cursor), memory.position_of(pool, cursor))
), memory.lock_of(0), memory.lock_of(1), memory.incarnation_of(1))  # fmt: skip
VALUES = (0, 1, 16, 64, memory.NONE, memory.token(1, 1, 0), memory.token(0, 1, 10**12), memory.token(1, 2, 10**12))


def other_processes(record):
    return st.builds(memory.Store, st.sampled_from(WORDS), st.sampled_from(VALUES))


BORROWER = "consumer-1~1/1"
MEMBERS = st.builds(
    MemberRecord,
    st.builds(Link, st.just(BORROWER), st.just("leader-1~1/1"), st.just(1), st.just(1)),
    st.from_type(Configuration),
    grants=st.sampled_from((Map(), Map({1: "0.0/a"}))),
)
SOURCES = st.builds(SourceRecord, st.just("p"), st.just("caches"), st.from_type(Recovery), history=st.booleans())

CONNECT_AND_READ = (
    lambda record: Start(),
    lambda record: LeaderConnectResponse(record.id, "leader-1~1/1", 3, 2),
    lambda record: PingResponse(record.id, 3, 2, record.ping_n),
    lambda record: Grant(record.id, 3, 2, "0.0/a", 1, 0),
    lambda record: Grant(record.id, 3, 2, "1.0/b", 2, 0),
    lambda record: StreamProgress("0.0/a", 1, 1),
    lambda record: OnUnsubscribe(),
)


def accepted(record):
    """The borrower takes what is granted first."""
    stream, assignment = min(record.assignments.items(), default=("0.0/a", None))
    grant = 0 if assignment is None else assignment.grant
    return UpdateProgress(BORROWER, record.epoch, record.registration, stream, grant, 0, False)


LEAD_AND_SHARE = (
    lambda record: StartLeader(),
    lambda record: RenewTimer(),
    lambda record: LeaderWanted(BORROWER, record.group, record.filter),
    lambda record: Ping(BORROWER, record.epoch, record.registration, 1),
    accepted,
    lambda record: LeaderWanted("consumer-2~1/1", record.group, record.filter),
)

READ = (
    lambda record: LeaseBegan("consumer-1~1/1"),
    lambda record: Install("consumer-1~1/1", "0.0/a", 1, 0),
)

ENVIRONMENTS = {
    "borrower": {"opening": CONNECT_AND_READ},
    "stream": {},
    "member": {"start": MEMBERS, "opening": (lambda record: Ping(BORROWER, 1, 1, 1), lambda record: Kick())},
    "assignment": {},
    "source": {"start": SOURCES},
    "session": {**STREAMS, "opening": READ},
    "private": {**STREAMS, "opening": (lambda record: Start(),)},
    "leader": {
        "services": {group_store.SERVICE: DeclaredGroups(), **STREAMS["services"]},
        "failed": {group_store.SERVICE: StoreFailed, **STREAMS["failed"]},
        "others": {group_store.SERVICE: other_leaders, **STREAMS["others"]},
        "opening": LEAD_AND_SHARE,
    },
    "group": {
        "services": {group_store.SERVICE: GroupStore()},
        "failed": {group_store.SERVICE: StoreFailed},
        "others": {group_store.SERVICE: other_nodes},
    },
    "writer": {
        "start": st.just(new_writer(QUEUE, 0, 1)),
        "services": {memory.SERVICE: Memory(QUEUE)},
        "others": {memory.SERVICE: other_processes},
        "opening": (lambda record: Write(b"some text"),),
    },
}


def test_of(name):
    """The test of a catalogued machine in its environment; a machine without one is an error."""
    return MachineTest.of(catalogue.machine(name), **ENVIRONMENTS[catalogue.full_name(name).partition("/")[2]])


test_of.__test__ = False
