"""The Leader, clause by clause (spec/shared_subscriptions/clauses.md SS-120 to SS-162), over the pure stores."""

from __future__ import annotations

from statemachines.kernel import Ask, Map, Node, Send, Stop, Tell
from statemachines.shared_subscriptions import group_store, stream_store
from statemachines.shared_subscriptions.claim import StartLeader
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import (
    Commit,
    GroupStore,
    Properties,
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
    Revoked,
    RevokeFinished,
    UpdateProgress,
)
from statemachines.shared_subscriptions.stream_store import Append, FetchFailed, StreamStore

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
