"""The Leader, clause by clause (spec/shared_subscriptions/clauses.md SS-120 to SS-162), over the pure stores.

SS-264 to SS-267: a member has a window of unanswered grants and of streams that are taken back, and a member that
goes frees many streams a part at a time.

Configuration relations: each broken one names both values and the rule.

The group store as a pure function: batches are all or nothing.

The stream store's meaning, and the filters.
"""

from fractions import Fraction

import pytest
from msgspec.structs import replace

from statemachines.kernel import Ask, ConfigurationError, Map, Node, Send, Stop, Tell
from statemachines.shared_subscriptions import group_store, member, membership, plan, stream_store
from statemachines.shared_subscriptions.claim import StartLeader
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import (
    Commit,
    Committed,
    GroupStore,
    Properties,
    Read,
    ReadDone,
    Refused,
    StoredRecord,
    StoreFailed,
)
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.leader_record import LeaderRecord, LeaderStatus
from statemachines.shared_subscriptions.message import (
    Disconnect,
    Grant,
    LeaderWanted,
    Ping,
    Revoke,
    Revoked,
    RevokeFinished,
    UpdateProgress,
)
from statemachines.shared_subscriptions.stream_store import (
    Append,
    Appended,
    FetchFailed,
    ListStreams,
    StreamInfo,
    StreamStore,
    matches,
    parse_filter,
    shard_of,
    stream_id,
)

CONFIGURATION = Configuration(
    claim_ttl_ms=15_000, claim_heartbeat_ms=5_000, commit_interval_ms=1_000, count_deliveries=False
).check()
"""With a claim that outlasts what else these tests wait for."""
GRACE_MS = CONFIGURATION.lease_by_other_clock_ns() // MS + 1


def declared(configuration=CONFIGURATION, start_ns=0):
    """A group store that knows the group."""
    ours = configuration
    properties = Properties(start_ns, ours.ping_interval_ms, ours.ping_timeout_ms, ours.claim_ttl_ms)
    return Map({"/1.1/g/#:properties": StoredRecord(properties, 0)})


class Bench:
    """A leader over pure stores that answer at once, unless `down`."""

    def __init__(self, topics=2, groups=None, node="leader-1", configuration=CONFIGURATION, now_ms=0):
        self.now = now_ms
        self.groups_service = GroupStore()
        self.streams_service = StreamStore()
        self.groups = groups if groups is not None else declared(configuration)
        self.streams = self.streams_service.initial()
        self.topics(topics)
        self.clauses = []
        self.sent = []
        self.commits = []
        self.down = ""
        self.lost = []
        self.requests = []
        record = LeaderRecord(f"{node}~1/1", "g", "#", configuration)
        self.before = record
        self.node = Node(LEADER, record, name=record.id, now_ns=now_ms * MS, check=True, observe=self.saw)

    def topics(self, count):
        for number in range(count):
            self.streams, _ = self.streams_service.apply(self.streams, Append(0, f"t{number:05}", 10), 0)

    def saw(self, node, event, before, step, now_ns):
        self.clauses.append(LEADER.lines[step.row].clause)
        reference = LEADER.reference_step(self.before, event, now_ns)
        assert (reference.record, reference.effects, reference.row, reference.children) == (
            step.record,
            step.effects,
            step.row,
            step.children,
        )
        self.before = step.record

    def feed(self, event, at_ms=None):
        self.now = self.now if at_ms is None else at_ms
        return self.perform(self.node.feed(event, self.now * MS))

    def perform(self, effects):
        """What was sent by this step, and by the steps that the stores' answers led to."""
        sent = []
        for effect in effects:
            if isinstance(effect, Send):
                sent.append(effect.message)
            elif isinstance(effect, Ask):
                sent += self.answer(effect)
        return sent

    def answer(self, effect):
        self.requests.append(effect.request)
        if self.node.stopped:
            return []
        if self.down == "deaf":
            self.lost.append(effect.request)
            return []
        if self.down:
            failed = FetchFailed if effect.service == stream_store.SERVICE else StoreFailed
            if self.down == "after":
                self.apply(effect)
            return self.perform(self.node.feed(failed(effect.request.n), self.now * MS))
        sent = []
        for answer in self.apply(effect):
            sent += self.perform(self.node.feed(answer, self.now * MS))
        return sent

    def apply(self, effect):
        now = self.now * MS + 1
        if effect.service == group_store.SERVICE:
            if isinstance(effect.request, Commit):
                self.commits.append(effect.request)
            self.groups, answers = self.groups_service.apply(self.groups, effect.request, now)
        else:
            self.streams, answers = self.streams_service.apply(self.streams, effect.request, now)
        return answers

    def at(self, ms):
        """Let time pass up to `ms`, firing every timer at its time."""
        sent = []
        while (deadline := self.node.deadline()) is not None and deadline <= ms * MS and not self.node.stopped:
            self.now = max(self.now, -(-deadline // MS))
            sent += self.perform(self.node.fire(self.now * MS))
        self.now = max(ms, self.now)
        return sent

    def start(self):
        self.feed(StartLeader())
        return self

    def join(self, name, at_ms=None):
        """Register a borrower and answer all its grants."""
        borrower = f"{name}~1/1"
        sent = self.feed(LeaderWanted(borrower, "g", "#"), at_ms)
        for grant in [one for one in sent if isinstance(one, Grant) and one.borrower == borrower]:
            self.progress(grant)
        return sent

    def ping(self, name, n=1, reports=(), at_ms=None):
        member = self.record.members[f"{name}~1/1"]
        return self.feed(Ping(f"{name}~1/1", self.record.epoch, member.link.registration, n, reports), at_ms)

    def progress(self, grant, progress=None, finished=False):
        at = grant.progress if progress is None else progress
        return self.feed(
            UpdateProgress(grant.borrower, grant.epoch, grant.registration, grant.stream, grant.grant, at, finished)
        )

    def finish(self, revoke, progress=10):
        """Answer a revoke to its end: final progress, then revoke_finished."""
        sent = self.feed(
            UpdateProgress(
                revoke.borrower, revoke.epoch, revoke.registration, revoke.stream, revoke.grant, progress, True
            )
        )
        assert any(isinstance(one, Revoked) for one in sent)
        return self.feed(
            RevokeFinished(revoke.borrower, revoke.epoch, revoke.registration, revoke.stream, revoke.grant)
        )

    @property
    def record(self):
        return self.node.record

    @property
    def status(self):
        return self.record.status


def only(kind, sent):
    return [one for one in sent if isinstance(one, kind)]


def test_SS_138_no_more_borrowers_are_remembered_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr("statemachines.shared_subscriptions.leader.ASKERS_MAX", 1)
    bench = Bench(groups=Map())
    bench.node.feed(StartLeader(), 0)
    bench.feed(LeaderWanted("c1~1/1", "g", "#"))
    bench.feed(LeaderWanted("c2~1/1", "g", "#"))
    assert bench.clauses[-1] == "SS-150"
    assert list(bench.record.askers) == ["c1~1/1"]


def test_SS_128_a_batch_is_bounded_and_the_rest_follows(monkeypatch):
    monkeypatch.setattr("statemachines.shared_subscriptions.claim.PROGRESS_PER_COMMIT", 2)
    bench = Bench(topics=5).start()
    for grant in only(Grant, bench.join("c1")):
        bench.progress(grant, 3)
    bench.at(1_000)
    assert [len(commit.put) - 2 for commit in bench.commits[1:4]] == [2, 2, 1]


def test_SS_132_a_leader_that_wakes_late_resigns_before_it_does_anything_else():
    bench = Bench().start()
    bench.feed(bench.join("c1")[0] and LeaderWanted("c2~1/1", "g", "#"))
    armed = {name for name, _ in bench.node.armed_timers()}
    assert {"heartbeat", "renew", "expiry", "resend", "claim_end"} <= armed, "as the test supposes"
    steps = len(bench.clauses)
    effects = bench.node.fire(20_000 * MS)
    assert bench.clauses[steps:] == ["SS-132"]
    assert [type(one) for one in effects] == [Send, Send, Tell, Stop]
    assert bench.status is LeaderStatus.RESIGNED


def test_SS_151_no_room_and_last_words_of_strangers(monkeypatch):
    monkeypatch.setattr("statemachines.shared_subscriptions.membership.MEMBERS_MAX", 1)
    bench = Bench().start()
    bench.join("c1")
    assert bench.join("c2") == []
    assert bench.feed(Disconnect("x~1/1", 1, 1)) == []
    assert bench.feed(RevokeFinished("x~1/1", 1, 1, "s", 1)) == []


def test_SS_153_no_two_requests_have_one_number(monkeypatch):
    """Whichever of them fails, and whether or not it was carried out: so no answer is taken for that to another."""
    monkeypatch.setattr("statemachines.shared_subscriptions.claim.PAGE", 1)
    groups = (
        declared().set("/1.1/g/#:progress:0.0/x", StoredRecord(1, 0)).set("/1.1/g/#:progress:0.0/y", StoredRecord(1, 0))
    )
    for how in ("before", "after"):
        for number in range(12):
            bench = Failing(number, how, groups=groups).start()
            bench.at(6_000)
            numbers = [one.n for one in bench.requests]
            assert len(numbers) > 12
            assert len(set(numbers)) == len(numbers), bench.requests


class Failing(Bench):
    """Of the requests of a leader one fails."""

    def __init__(self, number, how, **options):
        super().__init__(**options)
        self.number, self.how = number, how

    def answer(self, effect):
        self.down = self.how if len(self.requests) == self.number else ""
        return super().answer(effect)


def bench_of(topics, window, **times):
    return Bench(topics, configuration=replace(CONFIGURATION, grant_window=window, **times).check()).start()


def wanted(bench, name):
    """A borrower registers: what it is sent."""
    return bench.feed(LeaderWanted(f"{name}~1/1", "g", "#"))


def answer_all(bench, sent):
    """Every grant that is sent is answered, until none comes any more: the grants."""
    grants = only(Grant, sent)
    for one in grants:
        grants += only(Grant, bench.progress(one))
    return grants


def test_SS_266_the_latest_of_many_streams_are_sorted_out_once_for_many(monkeypatch):
    monkeypatch.setattr(plan, "LATEST_MAX", 4)
    bench = bench_of(12, 2)
    grants = answer_all(bench, wanted(bench, "a"))
    waiting = only(Revoke, wanted(bench, "b"))
    assert [one.stream for one in waiting] == [one.stream for one in grants[:-3:-1]]
    assert len(bench.record.members["a~1/1"].latest) == 2
    taken = []
    while waiting:
        taken.append(waiting[0].stream)
        sent = bench.finish(waiting.pop(0))
        waiting += only(Revoke, sent)
        answer_all(bench, sent)
    assert taken == [one.stream for one in grants[:-7:-1]]


def free_four_at_a_time(monkeypatch):
    for module in (member, membership):
        monkeypatch.setattr(module, "FREED_MAX", 4)


def left(bench, name, end):
    """A member with many streams goes in this way: what is sent."""
    record = bench.record
    if end == "disconnect":
        return bench.feed(Disconnect(f"{name}~1/1", record.epoch, record.members[f"{name}~1/1"].link.registration, ()))
    return bench.at(bench.now + 5_000)  # it is not heard any more


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("end", ["disconnect", "expiry"])
def test_SS_267_many_streams_become_free_a_part_at_a_time(monkeypatch, end, exclusive):
    free_four_at_a_time(monkeypatch)
    bench = bench_of(10, 10, exclusive=exclusive)
    answer_all(bench, wanted(bench, "a"))
    left(bench, "a", end)
    if end == "disconnect":
        assert (len(bench.record.free), len(bench.record.members)) == (0, 1)
        bench.at(bench.now + 1)
        assert (len(bench.record.free), len(bench.record.members)) == (4, 1)
    bench.at(bench.now + 10)
    record = bench.record
    assert (len(record.free), len(record.members), len(record.assignments)) == (10, 0, 0)
    assert len(answer_all(bench, wanted(bench, "b"))) == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_delay_ms": 500}, r"4 \* max_delay = 2000: must be less than ping_timeout = 2000"),
        ({"validity_ms": 3000}, r"clock_drift\) \+ 2 \* max_delay = 3830.0: must be less than validity"),
        ({"claim_heartbeat_ms": 1500}, r"2 \* claim_heartbeat = 3000: must be less than claim_ttl = 3000"),
        ({"commit_interval_ms": 501}, r"commit_interval - 1 = 500: must be less than claim_heartbeat = 500"),
        ({"unsubscribe_timeout_ms": 10000}, r"unsubscribe_timeout = 10000: must be less than revoke_timeout = 10000"),
        (
            {"idle_stop_ms": 1000},
            r"find_leader \* \(1 \+ clock_drift\) \+ 2 \* max_delay = 1810.0: must be less than idle_stop",
        ),
        ({"ping_interval_ms": 0}, "ping_interval_ms = 0: a time in milliseconds must lie between"),
        ({"clock_drift": 0.5}, r"clock_drift = 0.5: must lie in \[0, 0.5\)"),
    ],
)
def test_SS_210_a_broken_relation_is_named(change, message):
    with pytest.raises(ConfigurationError, match=message):
        Configuration(**change).check()


@pytest.mark.parametrize("drift", ["0.01", "0.4000004", "0.4000006", "3e-07", "0.499999"])
def test_SS_211_no_margin_is_shorter_than_the_drift_asks_however_finely_that_is_given(drift):
    d, ours = Fraction(drift), Configuration(clock_drift=float(drift))
    assert 0 <= ours.lease_by_other_clock_ns() - ours.lease_ms * MS * (1 + d) / (1 - d) < 1
    assert 0 <= ours.claim_ttl_ms * MS * (1 - d) / (1 + d) - ours.claim_by_own_clock_ns() < 1


STORE = GroupStore()


def committed(*requests):
    state = STORE.initial()
    for at, request in enumerate(requests, 1):
        state, answers = STORE.apply(state, request, at)
        assert isinstance(answers[0], Committed)
    return state


def test_SS_215_a_batch_is_all_or_nothing():
    state = committed(Commit(1, (), (("a", 1),)))
    after, answers = STORE.apply(
        state, Commit(2, (("a", StoredRecord(1, 1)), ("b", StoredRecord(2, 1))), (("a", 5), ("b", 6))), 2
    )
    assert (after, answers) == (state, (Refused(2, "b"),))


def test_SS_216_a_read_comes_with_the_stores_time():
    state = committed(Commit(1, (), (("a", 1),)))
    assert STORE.apply(state, Read(2, ("a", "b")), 77)[1] == (ReadDone(2, (StoredRecord(1, 1), None), 77),)


def test_an_unknown_request_is_an_error():
    with pytest.raises(TypeError, match="group_store does not take"):
        STORE.apply(Map(), object(), 0)


STREAM_STORE_STORE = StreamStore(shards=4)


def filled(*topics):
    state = STREAM_STORE_STORE.initial()
    for number, topic in enumerate(topics):
        state, _ = STREAM_STORE_STORE.apply(state, Append(number, topic, 3), number + 1)
    return state


def test_SS_217_offsets_of_a_stream_have_no_holes():
    state = filled("a")
    state, (answer,) = STREAM_STORE_STORE.apply(state, Append(9, "a", 2), 5)
    assert answer == Appended(9, stream_id("a", 4, 0), 3, 4)


def test_SS_218_a_listing_comes_in_pages_by_id_and_from_the_start_time():
    state = filled("a", "b", "c")
    ids = sorted(stream_id(topic, 4, 0) for topic in "abc")
    _, (first,) = STREAM_STORE_STORE.apply(state, ListStreams(1, "#", 0, "", 2), 9)
    _, (second,) = STREAM_STORE_STORE.apply(state, ListStreams(2, "#", 0, first.streams[-1].stream, 2), 9)
    assert [info.stream for info in (*first.streams, *second.streams)] == ids
    assert (first.more, second.more) == (True, False)
    _, (late,) = STREAM_STORE_STORE.apply(state, ListStreams(3, "a", 2, "", 9), 9)
    assert late.streams == (StreamInfo(stream_id("a", 4, 0), shard_of("a", 4), 0, 3, 3),)


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("#", "a/b", True),
        ("a/#", "a", True),
        ("a/+", "a/b", True),
        ("a/+", "a/b/c", False),
        ("a/+/c", "a//c", True),
        ("+", "$SYS", False),
        ("#", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
        ("a/b", "a", False),
    ],
)
def test_filters_match_as_in_mqtt(topic_filter, topic, expected):
    assert matches(topic_filter, topic) is expected


@pytest.mark.parametrize(
    "subscription",
    [
        "a/b",
        "$shared/",
        "$shared//a",
        "$shared/g",
        "$shared/g/",
        "$shared/g+/a",
        "$queue/a",
        "$queue/q/",
        "$share/g/$queue/a",
        "$share/g/a#",
        "$share/g/#/b",
        "$share/g/a+",
    ],
)
def test_SS_212_a_malformed_subscription_is_refused_with_the_rule(subscription):
    with pytest.raises(ConfigurationError, match="must "):
        parse_filter(subscription)
