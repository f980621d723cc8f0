"""What persistent sessions give to tests: one session in a database, two writers, small numbers that collide."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from statemachines.kernel import Event, Request
from statemachines.persistent_sessions.collector import Collect, CollectorRecord, Graces
from statemachines.persistent_sessions.delivery import DeliveryRecord
from statemachines.persistent_sessions.group_member_record import (
    GROUPS,
    GroupMemberRecord,
    GroupsOpened,
    HandedOut,
    MessagesCame,
    RouteStored,
)
from statemachines.persistent_sessions.life_record import KEEP, Attach, Connect, LifeRecord, LockDue
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.message import Live, LiveMarker, MarkerWanted, Queued
from statemachines.persistent_sessions.request import DATABASE, EpochRows, PutMarker, PutRows
from statemachines.persistent_sessions.resume_record import ResumeRecord, ResumeSession
from statemachines.persistent_sessions.session_host_record import Undelivered
from statemachines.persistent_sessions.session_tables import SESSION
from statemachines.persistent_sessions.takeover_record import (
    FinishTakeover,
    StartTakeover,
    TakeoverBegun,
    TakeoverEnded,
    TakeoverRecord,
)
from statemachines.persistent_sessions.times import Times
from statemachines.persistent_sessions.writer_flow import Begin, Take, WriterFlowRecord
from statemachines.persistent_sessions.writer_record import LiveKnown, Start, WriterRecord
from statemachines.testing.persistent_sessions.garbage import Garbage, OneClient, OneGroup, of_every_kind
from statemachines.testing.persistent_sessions.played_database import StoredSession, UnclearDatabase, two_rows
from statemachines.testing.protocol import Environment, TestProtocol, Values

NUMBERS = (1, 2, 3, 4)
OWNER = "owner-1~1/1"

VALUES = Values(
    ints={
        "number": NUMBERS,
        "k": NUMBERS,
        "n": NUMBERS,
        "epoch": (1, 2, 3),
        "below": (2, 3),
        "token": (1, 2),
        "packet": (1, 2, 3),
        "qos": (1, 0, 2),
        "receive_maximum": (1, 2, 65_535),
        "count": (1, 2),
        "expiry_ms": (0, 60_000, KEEP),
    },
    names={
        "session": (SESSION,),
        "writer": ("w1", "w2"),
        "owner": (OWNER,),
        "client": ("c1",),
        "message": ("m1", "m2"),
    },
    choices={
        Times: (Times(), Times(resume_buffer=1, receive_maximum=1, handover=1, queue=1)),
        Undelivered: (Undelivered(OWNER, "w1", "nothing of a takeover"),),
        Graces: tuple(Graces(retention_ms=3_600_000, page=page) for page in (2, 1, 100)),
    },
    closed=("qos",),
)
TIMES = st.sampled_from(VALUES.choices[Times])
OF_OTHERS = st.one_of(
    st.builds(
        PutRows,
        st.just(SESSION),
        st.sampled_from(("w1", "w2")),
        st.just(1),
        st.lists(st.sampled_from(("m3", "m4")), min_size=1, max_size=2, unique=True).map(
            lambda messages: tuple(Queued(number, message) for number, message in enumerate(messages, 3))
        ),
    ),
    st.builds(
        PutMarker, st.just(SESSION), st.sampled_from(("w1", "w2")), st.just(1), st.just(3), st.just(1), st.just(4)
    ),
)


def writers(record: Any) -> st.SearchStrategy[Request]:
    """What the writers of the session store meanwhile."""
    return OF_OTHERS


def is_taken(record: Any, event: Event) -> bool:
    """What a flow takes are rows that follow each other."""
    if not isinstance(event, Take) or not event.rows:
        return not isinstance(event, Take)
    first = event.rows[0].number
    return all(row.number == first + place for place, row in enumerate(event.rows))


def names_owner(record: Any, event: Event) -> bool:
    """An owner has a name and a token."""
    return not isinstance(event, LiveKnown | MarkerWanted) or (bool(event.to) and event.token > 0)


DATABASE_OF_TWO = {DATABASE: UnclearDatabase(two_rows("w1", "w2"))}

TESTING = TestProtocol(
    values=VALUES,
    searches="statemachines.testing.persistent_sessions.searches:SEARCHES",
    roles="statemachines.testing.persistent_sessions.conformance:ROLES",
    environments={
        "writer": Environment(
            start=st.just(WriterRecord(SESSION, "w1")),
            services={DATABASE: UnclearDatabase(StoredSession())},
            opening=(lambda record: Start(),),
            legal=names_owner,
        ),
        "session_resume": Environment(
            start=st.builds(
                ResumeRecord, st.just(OWNER), st.just("c1"), st.just(1), TIMES, st.sampled_from(("", "owner-9~1/1"))
            ),
            services=DATABASE_OF_TWO,
            others={DATABASE: writers},
            opening=(
                lambda record: ResumeSession(),
                lambda record: LiveMarker(SESSION, "w1", 1, 3, 1, 1),
                lambda record: LiveMarker(SESSION, "w2", 1, 3, 1, 1),
            ),
        ),
        "writer_flow": Environment(
            start=st.builds(WriterFlowRecord, st.just(SESSION), st.just("w1"), st.just(OWNER), st.just(1), TIMES),
            services=DATABASE_OF_TWO,
            others={DATABASE: writers},
            opening=(
                lambda record: Begin(),
                lambda record: LiveMarker(SESSION, "w1", 1, 3, 1, 1),
                lambda record: Live(SESSION, "w1", 1, Queued(3, "m3")),
            ),
        ),
        "takeover": Environment(
            start=st.builds(
                TakeoverRecord,
                st.just(SESSION),
                st.just("c1"),
                st.just(OWNER),
                st.just(1),
                st.just("owner-9~1/1"),
                TIMES,
            ),
            services=DATABASE_OF_TWO,
            others={DATABASE: writers},
            opening=(
                lambda record: StartTakeover(),
                lambda record: TakeoverBegun("c1", 1),
                lambda record: FinishTakeover(),
                lambda record: TakeoverEnded("c1", 1, (EpochRows("w1", 1, (Queued(1, "m1"),)),)),
            ),
        ),
        "delivery": Environment(
            start=st.builds(
                DeliveryRecord, st.just(SESSION), st.just("c1"), st.just(1), st.sampled_from((1, 2, 65_535))
            ),
            services={DATABASE: UnclearDatabase(StoredSession())},
            legal=is_taken,
        ),
        "collector": Environment(
            start=st.builds(CollectorRecord, st.sampled_from(VALUES.choices[Graces])),
            services={DATABASE: Garbage(of_every_kind(), fails=6)},
            opening=(lambda record: Collect(),),
        ),
        "session_life": Environment(
            start=st.builds(LifeRecord, st.just(OWNER), st.just("c1"), st.just(LifeTimes())),
            services={DATABASE: OneClient(fails=6)},
            opening=(
                lambda record: Connect(False, 60_000),
                lambda record: LockDue(),
                lambda record: LockDue(),
                lambda record: Attach(),
            ),
        ),
        "group_member": Environment(
            start=st.builds(
                GroupMemberRecord, st.just(OWNER), st.just(1), is_bounded=st.booleans(), most=st.sampled_from((1, 2))
            ),
            services={GROUPS: OneGroup()},
            opening=(
                lambda record: GroupsOpened(),
                lambda record: RouteStored(),
                lambda record: MessagesCame(3),
                lambda record: HandedOut(),
            ),
        ),
    },
)
