"""Agent and Handler, clause by clause (spec/shared_subscriptions/clauses.md SS-170 to SS-182).

Names of groups, topics and filters, and the keys of records (clauses SS-213, SS-214).

Subscription and Registry: what the hosts themselves decide, between the machines.

What a session says it keeps of an answer is what the step on that answer counts, neither more nor less.

Who may relay to a member (SS-277), and how many ways around a host remembers (SS-278); the rest of the relay stands
in `steps/relay.txt`.
"""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from statemachines.kernel import Ask, ConfigurationError, LocalProtocolError, Map, RemoteProtocolError, Send, Tell
from statemachines.shared_subscriptions import agent_process, message, names, private_subscription, stream_store
from statemachines.shared_subscriptions.configuration import MS, Configuration, Detours
from statemachines.shared_subscriptions.group_store import (
    Claim,
    GroupStore,
    ReadDone,
    Scan,
    StoredRecord,
    StoreFailed,
    record_key,
)
from statemachines.shared_subscriptions.handler import Agent, Handler, Subscription
from statemachines.shared_subscriptions.message import (
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    RelayedToBorrower,
    RevokeFinished,
    UpdateProgress,
)
from statemachines.shared_subscriptions.private_subscription import Private, SharedFilter
from statemachines.shared_subscriptions.registry import Registry
from statemachines.shared_subscriptions.session import SESSION, Ended, list_kept
from statemachines.shared_subscriptions.session_record import (
    FETCHING,
    WAITING,
    OwnerLease,
    SessionRecord,
    StreamReading,
    reading_key,
)
from statemachines.shared_subscriptions.stream_store import Fetch, Fetched, MessageBatch, parse_filter

C = Configuration().check()
L = "leader-1~1/1"
STORE = GroupStore()
JOBS = SharedFilter("g", "jobs/#")


class Bench:
    """A handler, a leader that connects and grants on demand, a store in which every stream has `length` messages."""

    def __init__(self, host=None, length=5):
        self.groups = STORE.initial()
        self.host = host or Handler("c1~1", "leader-1", C, check=True)
        self.length = length
        self.now = 0
        self.told = []
        self.sent = []

    def do(self, out):
        for party, effect in out:
            if isinstance(effect, Send):
                self.sent.append((effect.to, effect.message))
            elif isinstance(effect, Tell):
                self.told.append(effect.event)
            elif isinstance(effect, Ask):
                self.do(self.host.feed(party, self.answer(effect.request), self.now))

    def answer(self, request):
        match request:
            case stream_store.Fetch(n, slices):
                return stream_store.Fetched(n, tuple(self.batch(one) for one in slices))
            case stream_store.ListStreams(n):
                return stream_store.StreamsListed(n, (stream_store.StreamInfo("p", 0, 0, 0, 0),), False)
            case _:
                self.groups, (answer,) = STORE.apply(self.groups, request, 1)
                return answer

    def batch(self, one):
        last = max(min(self.length, one.first + one.limit), one.first) - 1
        return stream_store.MessageBatch(one.stream, one.grant, one.first, last, False)

    def subscribe(self, wanted=JOBS):
        name, out = self.host.subscribe(wanted, self.now)
        self.do(out)
        return name

    def receive(self, message, sender=L):
        self.do(self.host.receive(sender, message.borrower, message, self.now))

    def claim(self, leader=L, epoch=3):
        """Whom the store names from now on, for every group that is subscribed to."""
        for place in self.host.record.claims:
            key = record_key(*place, "claim")
            self.groups = self.groups.set(key, StoredRecord(Claim(leader, epoch), 1))

    def connect(self, borrower, registration=1, epoch=3):
        self.claim(epoch=epoch)
        self.receive(LeaderConnectResponse(borrower, L, epoch, registration))
        self.receive(PingResponse(borrower, epoch, registration, 1))

    def grant(self, borrower, stream, grant, registration=1, progress=0):
        self.receive(Grant(borrower, 3, registration, stream, grant, progress))

    def run(self, ms=50):
        self.now += ms * MS
        while (deadline := self.host.deadline()) is not None and deadline <= self.now:
            self.do(self.host.fire(self.now))

    def record(self, party):
        return self.host.nodes[party].record

    @property
    def session(self):
        return self.record(self.host.session)


def test_SS_171_an_unsubscribe_that_meets_an_overdue_ping_ends_its_borrower_for_good():
    bench = Bench()
    name = bench.subscribe()
    bench.connect("c1~1/1")
    bench.run(1_000)
    bench.do(bench.host.unsubscribe(name, 60_000 * MS))
    bench.do(bench.host.fire(60_000 * MS))
    assert bench.host.record.recreated == 0, "nobody follows, though the ping was not answered for a minute"
    assert bench.told[-1] == Ended(name)
    assert dict(bench.host.parties) == {}


def test_SS_174_the_number_of_subscriptions_is_bounded_and_those_that_there_are_begin_anew():
    bench = Bench()
    most = agent_process.SUBSCRIPTIONS_MAX
    names = [bench.subscribe() for _ in range(most)]
    for wanted in (JOBS, Private("p")):
        with pytest.raises(LocalProtocolError, match=f"at most {most} subscriptions"):
            bench.subscribe(wanted)
    for party in sorted(bench.host.parties):
        bench.connect(party, epoch=7)
        bench.receive(Invalidate(party, 7, 1))
    assert bench.host.record.recreated == most
    bench.do(bench.host.unsubscribe(names[0], 0))
    bench.subscribe()


def test_SS_175_last_words_are_bounded(monkeypatch):
    monkeypatch.setattr(private_subscription, "LAST_WORDS_MAX", 3)
    bench = Bench()
    for number in range(1, 8):
        name = bench.subscribe()
        bench.connect(f"c1~1/{number}", registration=number)
        bench.grant(f"c1~1/{number}", "s", number, registration=number)
        bench.do(bench.host.unsubscribe(name, bench.now))
    bench.run(10_000)
    assert dict(bench.host.parties) == {}
    assert [one.borrower for one in bench.host.record.words] == ["c1~1/5", "c1~1/6", "c1~1/7"]


PARTS = ("a", "g", "/", ":", ".", "1", "2", "#", "+", "%", "$", "~", ":progress:", ":claim", "/1.1/", "é", "\U0001f600")
TEXTS = st.lists(st.sampled_from(PARTS), max_size=5).map("".join)
NAMES = st.one_of(st.sampled_from(("claim", "root", "properties")), TEXTS.map("progress:{}".format))
RECORDS = st.tuples(TEXTS, TEXTS, NAMES)


@pytest.mark.long
@settings(max_examples=600, deadline=None)
@given(RECORDS, RECORDS)
@example(("g", "a:progress:x", "claim"), ("g", "a", "progress:x:claim"))
@example(("g", "t/#", "claim"), ("g/t", "#", "claim"))
@example(("g/1", "a", "root"), ("g", "1/a", "root"))
def test_SS_213_different_records_have_different_keys(one, other):
    assert (names.record_key(*one) == names.record_key(*other)) == (one == other)
    assert names.record_name(names.record_key(*one)) == names.RecordName(*one)


@pytest.mark.long
@settings(max_examples=400, deadline=None)
@given(st.tuples(TEXTS, TEXTS), RECORDS)
@example(("g", "a"), ("g", "a:progress:x", "properties"))
def test_SS_213_the_progress_of_a_group_is_found_without_that_of_another(group, record):
    state = {names.record_key(*record): StoredRecord(1, 1)}
    found = GroupStore().apply(state, Scan(1, names.record_key(*group, "progress:"), "", 9), 0)[1][0].records
    assert bool(found) == (group == record[:2] and record[2].startswith("progress:"))


@pytest.mark.parametrize("text", ["", "/", "g/#:claim", "/1.1", "/1/g/#:claim", "/1.2/g/#:claim", "/1.x/g/#:c", "/²./"])
def test_SS_213_what_is_no_key_says_nothing(text):
    assert names.record_name(text) == names.NOTHING
    assert names.record_name(text).stream == ""


WRONG_GROUPS = ["", "g/t", "g+", "#", "g" * 257, "é" * 129, "g\n", "g\x1b[2J", "g\x85", "g\0", "\ud800"]


@pytest.mark.parametrize("group", WRONG_GROUPS)
def test_SS_214_no_group_can_be_called_so_on_any_path(group):
    with pytest.raises(ConfigurationError):
        names.check_group(group)
    with pytest.raises(ConfigurationError):
        parse_filter(f"$shared/{group}/" + ("a" if "/" not in group else "a\0"))
    with pytest.raises(ConfigurationError):
        Agent("c1~1", "leader-1", C).subscribe(SharedFilter(group, "#"), 0)
    with pytest.raises(ConfigurationError):
        Subscription("c1~1", group, "#", "leader-1", C)
    registry = Registry("leader-1~1", C)
    with pytest.raises(RemoteProtocolError):
        registry.receive("c1~1/1", "leader-1", LeaderWanted("c1~1/1", group, "#"), 0)
    assert not registry.nodes


@pytest.mark.parametrize("group", ["g", "$queue", "g" * 256, "é" * 128, "a:progress:x", "%2F", " "])
def test_SS_214_a_group_may_be_called_so(group):
    names.check_group(group)
    registry = Registry("leader-1~1", C)
    assert registry.receive("c1~1/1", "leader-1", LeaderWanted("c1~1/1", group, "#"), 0)
    assert len(registry.nodes) == 1


def connected():
    host = Subscription("c1~1", "g", "#", "leader-1", C, check=True)
    declare(host)
    ((witness, asked),) = host.receive(L, "c1~1/1", LeaderConnectResponse("c1~1/1", L, 3, 1), 0)
    host.feed(witness, ReadDone(asked.request.n, (StoredRecord(Claim(L, 3), 1),), 1), 0)
    host.receive(L, "c1~1/1", PingResponse("c1~1/1", 3, 1, 1), MS)
    host.receive(L, "c1~1/1", Grant("c1~1/1", 3, 1, "s", 1, 0), 2 * MS)
    return host


def declare(host):
    """The group store does what the subscription asks of it."""
    store, out = GroupStore(), host.start(0)
    state = store.initial()
    while requests := [(party, effect.request) for party, effect in out if isinstance(effect, Ask)]:
        ((party, request),) = requests
        state, (answer,) = store.apply(state, request, 1)
        out = host.feed(party, answer, 0)
    return out


def sends(out):
    return [(effect.to, effect.message) for _, effect in out if isinstance(effect, Send)]


def test_the_end_of_a_subscription_is_told_to_the_application():
    host = connected()
    out = host.leave_all(5 * MS)
    assert host.is_ended
    assert (host.session, Tell(Ended("c1~1/1"))) in out
    assert host.take_messages(10, 6 * MS) == []
    assert host.leave_all(7 * MS) == []


def asked(out):
    return [effect.request for _, effect in out if isinstance(effect, Ask)]


def test_SS_224_a_host_that_ends_starts_no_leader():
    """It would take the claim that was just given up, and keep it when the host is gone."""
    host = Registry("leader-1~1", C)
    first = host.receive("a~1/1", "leader-1", LeaderWanted("a~1/1", "g", "#"), 0)
    host.feed("leader-1~1/1", StoreFailed(asked(first)[0].n), MS)
    host.close(2 * MS)
    assert host.receive("a~1/1", "leader-1", LeaderWanted("a~1/1", "g", "#"), 3 * MS) == []
    assert (host.nodes, dict(host.leaders)) == ({}, {})


def test_SS_221_whoever_talks_to_a_leader_that_is_gone_is_told():
    host = Registry("leader-1~2", C)
    out = host.receive("a~1/1", "leader-1~1/1", Ping("a~1/1", 4, 2, 7), 0)
    assert sends(out) == [("a~1/1", Invalidate("a~1/1", 4, 2))]
    out = host.receive("a~1/1", "leader-1~1/1", UpdateProgress("a~1/1", 4, 2, "s", 1, 0, False), 0)
    assert sends(out) == [("a~1/1", Invalidate("a~1/1", 4, 2))]
    assert host.receive("a~1/1", "leader-1~1/1", RevokeFinished("a~1/1", 4, 2, "s", 1), 0) == []


def test_SS_222_who_was_passed_on_to_a_leader_that_is_gone_is_not_passed_on_again():
    host = Registry("leader-1~2", C)
    assert host.receive("a~1/1", "leader-1~1/1", LeaderWanted("a~1/1", "g", "#"), 0) == []
    assert host.nodes == {}


@pytest.mark.parametrize("gone", ["leader-1~1/1", "leader-1~2/1", "leader-1~2/7", "leader-2~2/1"])
def test_SS_256_a_leader_that_is_gone_is_started_anew_for_nobody(gone):
    """Of this life or another, of this host or another, and whoever leads the group by now."""
    host = Registry("leader-1~2", C)
    out = host.receive("a~1/1", "leader-1", LeaderWanted("a~1/1", "g", "#"), 0)
    assert list(host.nodes) == ["leader-1~2/1"]
    host.feed("leader-1~2/1", StoreFailed(asked(out)[0].n), 0)
    host.halt(0)
    assert host.receive("a~1/1", gone, LeaderWanted("a~1/1", "g", "#"), 0) == []
    assert host.nodes == {}
    assert dict(host.leaders) == {}
    host.receive("a~1/1", "leader-1", LeaderWanted("a~1/1", "g", "#"), 0)
    assert list(host.nodes) == ["leader-1~2/2"], "under an id of its own"


def test_SS_223_a_malformed_filter_is_the_peer_s_error_and_creates_nothing():
    host = Registry("leader-1~1", C)
    with pytest.raises(RemoteProtocolError, match="whole last level"):
        host.receive("a~1/1", "leader-1", LeaderWanted("a~1/1", "g", "x#"), 0)
    assert host.nodes == {}


@pytest.mark.parametrize("leave", [Subscription.end, Subscription.leave_all])
def test_SS_259_who_leaves_is_not_made_to_begin_anew_by_what_was_due(leave):
    host = connected()
    host.fire(1_100 * MS)  # a ping, which nobody answers
    leave(host, 3_500 * MS)
    host.fire(3_500 * MS)
    assert (host.record.recreated, host.is_ended) == (0, True)


def test_SS_260_the_next_fetch_goes_out_before_anything_else_is_heard():
    host = connected()
    assert not asked_for(host.nodes[host.session].record)
    out = host.take_messages(1, 2 * MS)
    assert [type(effect.request) for _, effect in out if isinstance(effect, Ask)] == [Fetch]
    assert asked_for(host.nodes[host.session].record)


def asked_for(session):
    return session.status is FETCHING


OWNER = "c1~1/1"
STREAMS = ("a", "b", "c")

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
    for told in (
        PingResponse(borrower, 3, 1, 1),
        Grant(borrower, 3, 1, "s", 1, 0),
    ):
        bench.host.receive(L, borrower, told, bench.now)
    asked = bench.host.fire(bench.now)
    assert [type(effect) for _, effect in asked if isinstance(effect, Ask)] == [Ask]
    return bench


def test_an_answer_in_time_is_kept():
    bench = reading_a_stream()
    _, counted = bench.host.take_in(opened(bench), bench.now)
    assert [(one.first, one.last) for one in counted] == [(0, 2)]
    assert next(iter(bench.session.readings.values())).fetched == 3


RELAY_L, F = "leader-1~1/1", "leader-2~1/1"
RESPONSE = LeaderConnectResponse("c1~1/1", RELAY_L, 3, 1)


@pytest.mark.parametrize(
    ("sender", "is_leader_host"), [(F, False), ("leader-2~1/2", True), (RELAY_L, True), ("pretender~1/1", True)]
)
def test_SS_277_a_member_hears_through_nobody_but_a_leader_host_under_its_own_id(sender, is_leader_host):
    message.check_relay(F, RelayedToBorrower(RELAY_L, F, RESPONSE), True)
    message.check_relay(sender, RESPONSE, False)
    with pytest.raises(RemoteProtocolError, match="by no leader host"):
        message.check_relay(sender, RelayedToBorrower(RELAY_L, F, RESPONSE), is_leader_host)


def test_SS_278_a_host_remembers_a_way_around_for_those_who_used_it_last():
    known = Detours()
    for number in (*range(10_000), 0, 10_000):
        known = known.keep(f"c{number}~1/1", F)
    assert [f"c{number}~1/1" in known.of for number in (0, 1, 2, 10_000)] == [True, False, True, True]


def test_SS_220_a_registry_starts_one_leader_a_group_and_filter():
    host = Registry("leader-1~1", C)
    first = host.receive("a~1/1", "leader-1", LeaderWanted("a~1/1", "g", "#"), 0)
    assert len(asked(first)) == 1
    assert asked(host.receive("b~1/1", "leader-1", LeaderWanted("b~1/1", "g", "#"), 0)) == []
    host.receive("c~1/1", "leader-1", LeaderWanted("c~1/1", "h", "#"), 0)
    assert sorted(host.nodes) == ["leader-1~1/1", "leader-1~1/2"]
    host.feed("leader-1~1/1", StoreFailed(asked(first)[0].n), MS)
    host.halt(2 * MS)
    assert host.nodes == {}
    assert dict(host.leaders) == {}
    host.receive("a~1/1", "leader-1", LeaderWanted("a~1/1", "g", "#"), 0)
    assert sorted(host.nodes) == ["leader-1~1/3"], "a leader that resigned is followed by one with another id"
