"""What a session says it keeps of an answer is what the step on that answer counts, neither more nor less."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from test_handler import Bench, L

from statemachines.kernel import Ask, Map
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.handler import Handler
from statemachines.shared_subscriptions.message import Grant, LeaderConnectResponse, PingResponse
from statemachines.shared_subscriptions.session import SESSION, list_kept
from statemachines.shared_subscriptions.session_record import (
    FETCHING,
    WAITING,
    OwnerLease,
    SessionRecord,
    StreamReading,
    reading_key,
)
from statemachines.shared_subscriptions.stream_store import Fetched, MessageBatch

OWNER = "c1~1/1"
STREAMS = ("a", "b", "c")
C = Configuration().check()

WRONG = ("nothing", "nothing", "stream", "grant", "first", "finishing", "unread")


@st.composite
def parts(draw, stream):
    """What is read of the stream (None: nothing), and a batch that continues it but for one thing, or in everything."""
    wrong, at, grant = draw(st.sampled_from(WRONG)), draw(st.integers(0, 3)), draw(st.integers(0, 2))
    reading = StreamReading(OWNER, stream, grant, at, at, at, finishing=wrong == "finishing", queued=True)
    first = at + (wrong == "first")
    last = first + draw(st.integers(-1, 2))
    batch = MessageBatch("z" if wrong == "stream" else stream, grant + (wrong == "grant"), first, last, False)
    return None if wrong == "unread" else reading, batch


@st.composite
def answers(draw):
    """A session with an open fetch of three streams, some of which it does not read any more, and an answer."""
    drawn = [draw(parts(stream)) for stream in STREAMS]
    known = {one.stream: one for one, _ in drawn if one is not None}
    record = SessionRecord(
        "c1~1/0",
        status=draw(st.sampled_from((FETCHING, FETCHING, FETCHING, WAITING))),
        fetch_n=5,
        asked=tuple(reading_key(OWNER, stream) for stream in STREAMS),
        leases=Map({OWNER: OwnerLease(draw(st.booleans()), False, Map(dict.fromkeys(known, True)))}),
        readings=Map({reading_key(OWNER, stream): one for stream, one in known.items()}),
    )
    batches = tuple(batch for _, batch in drawn)[: draw(st.sampled_from((3, 3, 3, 2)))]
    return record, Fetched(draw(st.sampled_from((5, 5, 5, 4))), batches)


@given(answers())
def test_what_is_kept_is_what_the_step_counts(given_answer):
    record, answer = given_answer
    after = SESSION.step(record, answer, 0).record
    counted = []
    for key, reading in record.readings.items():
        grown = after.readings[key].fetched
        if grown > reading.fetched:
            counted.append((key, reading.grant, reading.fetched, grown - 1))
    said = list_kept(record, answer)
    assert sorted((one.key, one.grant, one.first, one.last) for one in said) == sorted(counted)
    assert all(answer.batches[one.part].first == one.first for one in said)


def opened(bench):
    """The fetch that its session has open."""
    return Fetched(bench.session.fetch_n, tuple(MessageBatch("s", 1, 0, 2, False) for _ in bench.session.asked))


def reading_a_stream():
    """A handler whose session has asked for the messages of a granted stream, and nobody has answered."""
    bench = Bench(Handler("c1~1", "leader-1", C, check=True))
    name = bench.subscribe()
    borrower = bench.host.borrower_of(name)
    bench.claim()
    bench.receive(LeaderConnectResponse(borrower, L, 3, 1))
    for message in (
        PingResponse(borrower, 3, 1, 1),
        Grant(borrower, 3, 1, "s", 1, 0),
    ):
        bench.host.receive(L, borrower, message, bench.now)
    asked = bench.host.fire(bench.now)
    assert [type(effect) for _, effect in asked if isinstance(effect, Ask)] == [Ask]
    return bench


def test_an_answer_in_time_is_kept():
    bench = reading_a_stream()
    _, counted = bench.host.take_in(opened(bench), bench.now)
    assert [(one.first, one.last) for one in counted] == [(0, 2)]
    assert next(iter(bench.session.readings.values())).fetched == 3
