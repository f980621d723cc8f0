"""The Leader, clause by clause (spec/shared_subscriptions/clauses.md SS-120 to SS-162), over the pure stores."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from statemachines.kernel import Ask, Map, Node, Send, Stop, Tell
from statemachines.shared_subscriptions import group_store, stream_store
from statemachines.shared_subscriptions.claim import Halt, StartLeader
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import (
    Claim,
    Commit,
    Committed,
    GroupStore,
    Properties,
    Refused,
    StoredRecord,
    StoreFailed,
)
from statemachines.shared_subscriptions.leader import LEADER, Resigned
from statemachines.shared_subscriptions.leader_record import LeaderRecord, LeaderStatus
from statemachines.shared_subscriptions.message import (
    END_OF_STREAM,
    Disconnect,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    RelayedToLeader,
    Report,
    Revoke,
    Revoked,
    RevokeFinished,
    Undeclared,
    UpdateProgress,
)
from statemachines.shared_subscriptions.plan import split_shares
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
        self.told = []
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

    def end(self, *streams):
        """Nothing follows in these streams any more."""
        for stream in streams:
            ended = replace(self.streams.by_id[stream], ended=True)
            self.streams = replace(self.streams, by_id=self.streams.by_id.set(stream, ended))

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
            elif isinstance(effect, Tell):
                self.told.append(effect.event)
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

    def owners(self):
        return {stream: a.link.borrower for stream, a in sorted(self.record.assignments.items())}

    def stored(self, name):
        found = self.groups.get(f"/1.1/g/#:{name}")
        return None if found is None else found.value


def only(kind, sent):
    return [one for one in sent if isinstance(one, kind)]


def test_SS_120_an_unclaimed_group_is_claimed_declared_and_led():
    bench = Bench().start()
    assert bench.status is LeaderStatus.LEADING
    assert bench.stored("claim") == Claim("leader-1~1/1", 1)
    assert bench.stored("properties") == Properties(0, 1000, 2000, 15000)
    bench.feed(StartLeader())
    assert bench.clauses[-1] == "SS-120"


def test_SS_125_what_was_stored_before_the_start_of_a_group_is_not_part_of_it():
    bench = Bench(groups=declared(start_ns=77 * MS)).start()
    assert {known.progress for known in bench.record.streams.values()} == {10}


def follower(first):
    """A second leader of the group that `first` leads."""
    second = Bench(groups=first.groups, node="leader-2").start()
    assert second.status is LeaderStatus.FOLLOWER
    return second


def test_SS_135_a_leader_follows_while_somebody_else_holds_the_claim():
    second = follower(Bench().start())
    assert second.clauses[-1] == "SS-135"
    second.at(14_999)
    assert second.status is LeaderStatus.FOLLOWER
    assert second.clauses[-1] == "SS-135"


def test_SS_135_only_the_clock_of_who_watches_counts_and_the_stamp_tells_renewals():
    first = Bench().start()
    second = Bench(groups=first.groups, node="leader-2", now_ms=10**9).start()
    assert second.record.found == first.groups["/1.1/g/#:claim"]
    second.at(10**9 + 14_000)
    assert second.status is LeaderStatus.FOLLOWER
    first.at(5_000)
    second.groups = first.groups
    second.feed(LeaderWanted("c1~1/1", "g", "#"))
    second.at(10**9 + 29_000)
    assert second.status is LeaderStatus.FOLLOWER, "watched anew from the first read that found the renewal"
    second.at(10**9 + 30_000)
    assert second.status is LeaderStatus.WAITING


def test_SS_135_a_claim_is_old_by_the_sending_of_the_read_that_finds_it_so():
    second = follower(Bench().start())
    for second_ms in range(1_000, 14_000, 1_000):
        second.at(second_ms)
    (early,) = second.node.fire(14_000 * MS)
    second.now = 16_500
    second.perform([early])
    assert second.status is LeaderStatus.FOLLOWER, "the read was sent before the claim was old"
    second.at(17_500)
    assert second.status is LeaderStatus.WAITING


def test_SS_135_a_claim_of_the_same_number_and_another_leader_is_another_claim():
    second = follower(Bench().start())
    second.at(14_000)
    other = StoredRecord(Claim("leader-3~1/1", 1), second.groups["/1.1/g/#:claim"].stamp)
    second.groups = second.groups.set("/1.1/g/#:claim", other)
    second.at(28_000)
    assert second.status is LeaderStatus.FOLLOWER


def test_SS_120_the_claim_of_an_earlier_leader_of_this_process_is_taken_at_once():
    groups = declared().set("/1.1/g/#:claim", StoredRecord(Claim("leader-1~1/7", 4), 9))
    bench = Bench(groups=groups).start()
    assert bench.stored("claim") == Claim("leader-1~1/1", 5)
    assert bench.status is LeaderStatus.WAITING, "its members may still hold leases"


@pytest.mark.parametrize("holder", ["leader-1~2/1", "leader-1~1.00000000000000aa/1", "leader-11~1/1", "leader-2~1/1"])
def test_SS_120_the_claim_of_any_other_life_is_watched(holder):
    bench = Bench(groups=declared().set("/1.1/g/#:claim", StoredRecord(Claim(holder, 4), 9))).start()
    assert bench.status is LeaderStatus.FOLLOWER
    bench.at(15_000)
    assert bench.stored("claim") == Claim("leader-1~1/1", 5)


def test_SS_135_a_follower_passes_leader_wanted_on_to_the_holder():
    second = follower(Bench().start())
    wanted = LeaderWanted("c1~1/1", "g", "#")
    relayed = RelayedToLeader("leader-1~1/1", "leader-2~1/1", wanted)
    assert [(one.to, one.message) for one in second.node.feed(wanted, 0)] == [("leader-1~1/1", relayed)]
    assert second.clauses[-1] == "SS-135"


def test_SS_136_a_follower_takes_a_claim_that_is_free():
    second = follower(Bench().start())
    second.at(17_000)
    assert second.status is LeaderStatus.WAITING
    assert "SS-136" in second.clauses
    assert second.stored("claim") == Claim("leader-2~1/1", 2)


def test_SS_136_of_two_followers_one_leads():
    first = Bench().start()
    second, third = follower(first), Bench(groups=first.groups, node="leader-3").start()
    third.at(10_000)
    second.at(17_000)
    third.groups = second.groups
    third.at(17_000)
    assert second.status is LeaderStatus.WAITING
    assert third.status is LeaderStatus.FOLLOWER
    assert third.record.holder == "leader-2~1/1"


def test_SS_137_a_follower_that_nobody_asks_ends():
    first = Bench().start()
    second = follower(first)
    second.at(9_000)
    second.feed(LeaderWanted("c1~1/1", "g", "#"))
    for second_ms in range(10_000, 40_000, 1_000):
        first.join("c1")
        first.ping("c1", at_ms=second_ms)
        first.at(second_ms)
        second.groups = first.groups
        second.at(second_ms)
        assert second.status is (LeaderStatus.FOLLOWER if second_ms < 39_000 else LeaderStatus.RESIGNED)
    assert second.clauses[-1] == "SS-137"


def test_SS_138_a_group_that_is_not_declared_is_not_led():
    for groups in (
        Map(),
        Map({"/1.1/g/#:properties": StoredRecord(Properties(0, 1000, 2000, 15000, destroyed=True), 0)}),
    ):
        bench = Bench(groups=groups)
        ask = bench.node.feed(StartLeader(), 0)
        assert bench.feed(LeaderWanted("c1~1/1", "g", "#")) == []
        assert bench.clauses[-1] == "SS-138"
        assert bench.perform(ask) == [Undeclared("c1~1/1")]
        assert bench.clauses[-1] == "SS-138"
        assert bench.told == [Resigned("leader-1~1/1", "g", "#", "the group is not declared")]


def test_SS_138_no_more_borrowers_are_remembered_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr("statemachines.shared_subscriptions.leader.ASKERS_MAX", 1)
    bench = Bench(groups=Map())
    bench.node.feed(StartLeader(), 0)
    bench.feed(LeaderWanted("c1~1/1", "g", "#"))
    bench.feed(LeaderWanted("c2~1/1", "g", "#"))
    assert bench.clauses[-1] == "SS-150"
    assert list(bench.record.askers) == ["c1~1/1"]


def destroy(bench):
    """Somebody marks the group."""
    mark = replace(bench.stored("properties"), destroyed=True)
    bench.groups = bench.groups.set("/1.1/g/#:properties", StoredRecord(mark, bench.now * MS))


def test_SS_139_the_leader_of_a_destroyed_group_tells_everybody_and_gives_its_claim_up():
    bench = Bench().start()
    one, _ = only(Grant, bench.join("c1"))
    bench.progress(one, 5)
    destroy(bench)
    sent = bench.at(1_000)
    assert sent == [Invalidate("c1~1/1", 1, 1)]
    assert "SS-139" in bench.clauses
    assert bench.status is LeaderStatus.RESIGNED
    assert bench.stored("claim") == Claim("", 1, clean=False)
    assert bench.stored(f"progress:{one.stream}") is None, "nothing is written for a destroyed group"


def test_SS_139_a_leader_that_is_giving_its_claim_up_does_so_without_its_progress():
    bench = Bench().start()
    one, _ = only(Grant, bench.join("c1"))
    bench.progress(one, 5)
    destroy(bench)
    bench.feed(Halt())
    assert "SS-139" in bench.clauses
    assert bench.status is LeaderStatus.RESIGNED
    assert bench.stored("claim") == Claim("", 1, clean=False)
    assert bench.stored(f"progress:{one.stream}") is None


def test_SS_121_a_store_that_does_not_answer_is_asked_again():
    bench = Bench()
    bench.down = "before"
    bench.start()
    assert bench.status is LeaderStatus.CANDIDATE
    bench.down = ""
    bench.at(1_000)
    assert bench.status is LeaderStatus.LEADING


def test_SS_255_a_candidate_waits_for_the_answer_however_long_that_takes():
    """It has no timeout on its request, and asks nothing else: the answer, when it comes, is taken."""
    bench = Bench()
    (ask,) = bench.node.feed(StartLeader(), 0)
    assert bench.node.deadline() is None
    assert bench.node.fire(10**15) == []
    assert bench.node.feed(LeaderWanted("c1~1/1", "g", "#"), 10**15) == []
    assert bench.node.deadline() is None
    (read,) = bench.apply(ask)
    (commit,) = bench.node.feed(read, 10**15)
    assert isinstance(commit, Ask)
    assert bench.node.deadline() is None


def test_SS_121_loading_is_begun_again_when_a_store_fails():
    bench = Bench()
    ask = bench.node.feed(StartLeader(), 0)[0]
    (read,) = bench.apply(ask)
    (commit,) = bench.node.feed(read, 0)
    (committed,) = bench.apply(commit)
    bench.down = "before"
    bench.perform(bench.node.feed(committed, 0))
    assert bench.status is LeaderStatus.LOADING
    bench.down = ""
    bench.at(1_000)
    assert bench.status is LeaderStatus.LEADING


def test_SS_124_a_root_that_is_known_is_not_taken_for_an_older_one_that_was_read_before():
    bench = Bench()
    (answer,) = bench.apply(bench.node.feed(StartLeader(), 0)[0])
    (committed,) = bench.apply(bench.node.feed(answer, 0)[0])
    (root,) = bench.apply(next(one for one in bench.node.feed(committed, 0) if isinstance(one, Ask)))
    (scan,) = bench.node.feed(root, 0)
    bench.node.feed(StoreFailed(scan.request.n), 0)
    (again,) = bench.node.fire(1_000 * MS)
    (older,) = bench.apply(again)  # read, and answered late
    (batch,) = bench.node.fire(5_000 * MS)
    bench.perform(bench.node.feed(bench.apply(batch)[0], 5_000 * MS))
    assert bench.record.root == bench.groups["/1.1/g/#:root"] != older.records[0]
    bench.perform(bench.node.feed(older, 5_000 * MS))
    assert bench.status is LeaderStatus.LEADING
    assert bench.record.root == bench.groups["/1.1/g/#:root"]


def test_SS_122_other_times_are_refused():
    first = Bench().start()
    first.feed(Halt())
    other = Bench(groups=first.groups, configuration=Configuration(claim_ttl_ms=20_000).check()).start()
    assert other.status is LeaderStatus.RESIGNED
    assert other.told == [Resigned("leader-1~1/1", "g", "#", "the group lives by other ping or claim times")]


def test_SS_123_a_claim_whose_outcome_was_open_is_found_and_counts_from_the_first_try():
    bench = Bench()
    bench.feed(StartLeader())
    bench = Bench()
    ask = bench.node.feed(StartLeader(), 0)[0]
    (read,) = bench.apply(ask)
    (commit,) = bench.node.feed(read, 0)
    bench.apply(commit)
    bench.perform(bench.node.feed(StoreFailed(commit.request.n), 0))
    bench.at(1_000)
    assert "SS-123" in bench.clauses
    assert bench.status is LeaderStatus.LEADING
    assert bench.node.armed_timers()["claim_end", ""] == CONFIGURATION.claim_by_own_clock_ns()


def test_SS_124_progress_is_loaded_after_the_claim_in_pages(monkeypatch):
    monkeypatch.setattr("statemachines.shared_subscriptions.claim.PAGE", 2)
    first = Bench(topics=5).start()
    for grant in only(Grant, first.join("c1")):
        first.progress(grant, 7)
    first.feed(Halt())
    second = Bench(topics=5, groups=first.groups, node="leader-2", now_ms=10).start()
    second.at(10 + GRACE_MS)
    assert second.status is LeaderStatus.LEADING
    assert {grant.progress for grant in only(Grant, second.join("c1"))} == {7}
    scans = [one.after for one in second.requests if isinstance(one, group_store.Scan)]
    assert len(scans) == 3, "two of five are on a page"
    assert scans == sorted(set(scans)), "each page goes on where the one before ended"


def test_SS_125_a_stream_that_appears_later_is_shared_out(monkeypatch):
    monkeypatch.setattr("statemachines.shared_subscriptions.listing.PAGE", 2)
    bench = Bench(topics=1).start()
    assert len(only(Grant, bench.join("c1"))) == 1
    bench.topics(6)
    assert len(only(Grant, bench.at(1_000))) == 5
    assert len(bench.owners()) == 6
    later = Bench(topics=6).start()
    for one, pages in ((bench, 4), (later, 3)):
        asked = [request.after for request in one.requests if isinstance(request, stream_store.ListStreams)]
        assert len(asked) == len(set(asked)) + (one is bench) == pages, "each page goes on where the one before ended"


def test_SS_125_a_listing_that_failed_changes_nothing():
    bench = Bench(topics=1).start()
    bench.topics(2)
    bench.down = "before"
    bench.at(1_000)
    assert bench.record.live == 1
    bench.down = ""
    bench.at(2_000)
    assert bench.record.live == 2


def test_SS_126_after_a_claim_that_was_not_left_clean_nothing_is_granted_for_a_lease():
    first = Bench().start()
    first.join("c1")
    first.feed(Halt())
    assert not first.stored("claim").clean
    second = Bench(groups=first.groups, node="leader-2", now_ms=1).start()
    assert second.status is LeaderStatus.WAITING
    assert only(Grant, second.join("c2")) == []
    assert only(PingResponse, second.ping("c2"))
    end = CONFIGURATION.lease_by_other_clock_ns() // MS
    assert only(Grant, second.at(end)) == []
    assert len(only(Grant, second.at(end + 2))) == 2
    assert second.status is LeaderStatus.LEADING


def test_SS_126_not_where_hand_over_is_not_exclusive_nor_after_a_clean_release():
    configuration = Configuration(exclusive=False).check()
    first = Bench(configuration=configuration).start()
    first.join("c1")
    first.feed(Halt())
    assert Bench(groups=first.groups, configuration=configuration).start().status is LeaderStatus.LEADING
    clean = Bench().start()
    clean.feed(Halt())
    assert clean.stored("claim") == Claim("", 1, True)
    assert Bench(groups=clean.groups).start().status is LeaderStatus.LEADING


def test_SS_127_the_claim_is_renewed_with_the_next_root():
    bench = Bench().start()
    bench.join("c1")
    roots = []
    for second in range(1, 21):
        bench.ping("c1", second, at_ms=second * 1_000)
        bench.at(second * 1_000)
        roots.append(bench.stored("root"))
    assert bench.status is LeaderStatus.LEADING
    assert roots[-1] >= 4
    assert roots == sorted(roots, key=lambda root: root or 0)


def test_SS_127_one_batch_is_under_way_at_a_time():
    bench = Bench().start()
    bench.down = "deaf"
    bench.at(14_000)
    assert sum(isinstance(request, Commit) for request in bench.lost) == 1


@pytest.mark.parametrize(("took", "at_once"), [(0.9, False), (1, True), (1.7, True)])
def test_SS_127_a_batch_that_took_a_heartbeat_or_longer_is_followed_by_the_next_at_once(took, at_once):
    bench = Bench().start()
    every = bench.node.record.configuration.claim_heartbeat_ms
    bench.down = "deaf"
    bench.at(every)
    (slow,) = (request for request in bench.lost if isinstance(request, Commit))
    ends = round(every * (1 + took))
    bench.at(ends - 1)
    bench.down = ""
    bench.now, before = ends, len(bench.commits)
    for answer in bench.apply(Ask(group_store.SERVICE, slow)):
        bench.feed(answer)
    bench.at(ends)
    assert len(bench.commits) - before == (2 if at_once else 1)
    bench.at(2 * every + round(every * took) + 1)
    assert bench.status is LeaderStatus.LEADING


def test_SS_127_a_store_that_takes_1_3_s_for_every_batch_keeps_a_claim_of_3_s():
    """The default times; a batch that met each second heartbeat would end after the claim."""
    bench = Bench(configuration=Configuration()).start()
    bench.down = "deaf"
    for _ in range(20):
        before = len(bench.lost)
        while not any(isinstance(request, Commit) for request in bench.lost[before:]):
            bench.at(bench.now + 10)
        (slow,) = (request for request in bench.lost[before:] if isinstance(request, Commit))
        bench.at(bench.now + 1_300)
        assert bench.status is LeaderStatus.LEADING
        for answer in bench.apply(Ask(group_store.SERVICE, slow)):
            bench.feed(answer)
    assert bench.stored("root") >= 20


def test_SS_128_progress_is_committed_within_a_commit_interval():
    bench = Bench().start()
    (grant, _) = only(Grant, bench.join("c1", at_ms=10))
    bench.progress(grant, 4)
    bench.at(1_009)
    assert bench.stored(f"progress:{grant.stream}") is None
    bench.at(1_010)
    assert bench.stored(f"progress:{grant.stream}") == 4


def test_SS_128_a_batch_is_bounded_and_the_rest_follows(monkeypatch):
    monkeypatch.setattr("statemachines.shared_subscriptions.claim.PROGRESS_PER_COMMIT", 2)
    bench = Bench(topics=5).start()
    for grant in only(Grant, bench.join("c1")):
        bench.progress(grant, 3)
    bench.at(1_000)
    assert [len(commit.put) - 2 for commit in bench.commits[1:4]] == [2, 2, 1]


def test_SS_129_a_committed_batch_moves_the_end_of_the_claim():
    bench = Bench().start()
    first = bench.node.armed_timers()["claim_end", ""]
    bench.at(5_000)
    assert bench.node.armed_timers()["claim_end", ""] == first + 5_000 * MS


def test_SS_130_a_refused_batch_ends_the_leader():
    bench = Bench().start()
    bench.join("c1")
    bench.groups = bench.groups.set("/1.1/g/#:claim", StoredRecord(Claim("leader-2~1/1", 2), 5))
    sent = bench.at(5_000)
    assert bench.status is LeaderStatus.RESIGNED
    assert only(Invalidate, sent) == [Invalidate("c1~1/1", 1, 1)]


@pytest.mark.parametrize(("down", "clause"), [("before", "SS-131"), ("after", "SS-131")])
def test_SS_131_an_open_outcome_is_read_back(down, clause):
    bench = Bench().start()
    (grant, _) = only(Grant, bench.join("c1"))
    bench.progress(grant, 4)
    bench.down = down
    bench.at(1_000)
    bench.down = ""
    bench.ping("c1", at_ms=1_500)
    bench.at(3_200)
    assert clause in bench.clauses
    assert bench.status is LeaderStatus.LEADING
    assert bench.record.trial is None
    assert bench.stored(f"progress:{grant.stream}") == 4


def test_SS_131_newer_progress_is_not_overwritten_when_a_batch_is_tried_again():
    bench = Bench().start()
    (grant, _) = only(Grant, bench.join("c1"))
    bench.progress(grant, 4)
    bench.down = "before"
    bench.at(1_000)
    bench.progress(grant, 6)
    bench.down = ""
    bench.at(2_500)
    assert bench.stored(f"progress:{grant.stream}") == 6


def test_SS_131_other_values_end_the_leader():
    bench = Bench().start()
    bench.down = "before"
    bench.at(5_000)
    bench.down = ""
    bench.groups = bench.groups.set("/1.1/g/#:root", StoredRecord(9, 5))
    bench.at(7_000)
    assert bench.status is LeaderStatus.RESIGNED


def test_SS_132_at_the_end_of_its_claim_by_its_own_clock_it_handles_nothing_more():
    bench = Bench().start()
    bench.join("c1")
    bench.down = "deaf"
    end_ms = CONFIGURATION.claim_by_own_clock_ns() // MS
    bench.at(end_ms)
    assert bench.status is LeaderStatus.LEADING
    sent = bench.feed(Ping("c1~1/1", 1, 1, 1), end_ms + 1)
    assert only(PingResponse, sent) == []
    assert bench.status is LeaderStatus.RESIGNED


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


def test_SS_133_halting_commits_and_releases_under_the_same_epoch():
    bench = Bench().start()
    (grant, _) = only(Grant, bench.join("c1"))
    bench.progress(grant, 4)
    sent = bench.feed(Halt())
    assert only(Invalidate, sent) == [Invalidate("c1~1/1", 1, 1)]
    assert bench.stored(f"progress:{grant.stream}") == 4
    assert bench.stored("claim") == Claim("", 1, False)
    assert bench.status is LeaderStatus.RESIGNED


def test_SS_133_a_batch_under_way_is_awaited_first():
    bench = Bench().start()
    bench.down = "deaf"
    bench.at(5_000)
    (renewal,) = [request for request in bench.lost if isinstance(request, Commit)]
    bench.down = ""
    bench.feed(Halt())
    assert bench.status is LeaderStatus.RELEASING
    bench.feed(Halt())
    (committed,) = bench.apply(Ask(group_store.SERVICE, renewal))
    assert isinstance(committed, Committed)
    bench.feed(committed)
    assert bench.status is LeaderStatus.RESIGNED
    assert bench.stored("claim") == Claim("", 1, True)


def test_SS_133_members_are_told_at_once_though_a_batch_is_under_way():
    bench = Bench().start()
    bench.join("c1")
    bench.down = "deaf"
    bench.at(4_000)
    bench.ping("c1")
    bench.at(5_000)
    assert bench.record.trial is not None
    assert only(Invalidate, bench.feed(Halt())) == [Invalidate("c1~1/1", 1, 1)]


def test_SS_133_halting_before_it_leads():
    bench = Bench()
    bench.feed(Halt())
    assert bench.status is LeaderStatus.RESIGNED


def test_SS_134_without_members_it_stops_by_itself():
    bench = Bench().start()
    bench.join("c1")
    bench.feed(Disconnect("c1~1/1", 1, 1))
    bench.at(29_999)
    assert bench.status is LeaderStatus.LEADING
    bench.at(31_001)
    assert bench.status is LeaderStatus.RESIGNED
    assert bench.stored("claim") == Claim("", 1, True, True)


def test_SS_134_a_commit_under_way_is_awaited():
    bench = Bench().start()
    bench.at(29_000)
    bench.down = "deaf"
    bench.at(30_500)
    assert bench.status is LeaderStatus.LEADING


def test_SS_140_each_registration_has_a_number_of_its_own():
    bench = Bench().start()
    (one,) = only(LeaderConnectResponse, bench.join("c1"))
    (two,) = only(LeaderConnectResponse, bench.join("c2"))
    (again,) = only(LeaderConnectResponse, bench.join("c1"))
    assert (one.registration, two.registration, again) == (1, 2, one)


def test_SS_141_reports_in_a_ping_count_as_progress():
    bench = Bench().start()
    (grant, _) = only(Grant, bench.feed(LeaderWanted("c1~1/1", "g", "#")))
    sent = bench.ping("c1", 3, (Report(grant.stream, grant.grant, 6, False),))
    assert only(PingResponse, sent) == [PingResponse("c1~1/1", 1, 1, 3)]
    assert bench.record.assignments[grant.stream].progress == 6
    bench.ping("c1", 4, (Report(grant.stream, 99, 8, False), Report("?", 1, 8, False)))
    assert bench.record.assignments[grant.stream].progress == 6


@pytest.mark.parametrize(
    "event",
    [
        Ping("x~1/1", 1, 1, 1),
        Ping("c1~1/1", 1, 7, 1),
        UpdateProgress("x~1/1", 1, 1, "s", 1, 1, False),
        UpdateProgress("c1~1/1", 1, 2, "s", 1, 1, False),
    ],
)
def test_SS_142_whoever_is_not_registered_is_told(event):
    bench = Bench().start()
    bench.join("c1")
    assert bench.feed(event) == [Invalidate(event.borrower, event.epoch, event.registration)]


def test_SS_143_progress_of_the_owner_is_kept_and_never_decreases():
    bench = Bench().start()
    (grant, _) = only(Grant, bench.join("c1"))
    bench.progress(grant, 5)
    bench.progress(grant, 3)
    assert bench.record.assignments[grant.stream].progress == 5
    assert bench.record.staged[grant.stream] == 5


def test_SS_144_an_ended_stream_is_never_granted_again():
    bench = Bench().start()
    one, two = only(Grant, bench.join("c1"))
    bench.end(one.stream)
    (revoked,) = only(Revoked, bench.progress(one, END_OF_STREAM))
    assert bench.record.live == 1
    assert bench.record.members["c1~1/1"].share == 1, "shares are reckoned anew at once"
    bench.feed(RevokeFinished(revoked.borrower, 1, 1, one.stream, one.grant))
    assert set(bench.owners()) == {two.stream}
    bench.feed(Disconnect("c1~1/1", 1, 1, (Report(two.stream, two.grant, 3, False),)))
    assert [grant.stream for grant in only(Grant, bench.join("c2"))] == [two.stream]


def test_SS_144_also_when_a_ping_or_a_disconnect_says_so():
    bench = Bench().start()
    one, two = only(Grant, bench.join("c1"))
    bench.end(one.stream, two.stream)
    bench.ping("c1", 1, (Report(one.stream, one.grant, END_OF_STREAM, True),))
    assert bench.record.live == 1
    bench.feed(Disconnect("c1~1/1", 1, 1, (Report(two.stream, two.grant, END_OF_STREAM, True),)))
    assert bench.record.live == 0
    assert only(Grant, bench.join("c2")) == []


def test_SS_144_where_a_stream_has_ended_the_others_are_shared_anew_at_once():
    bench = Bench(topics=3).start()
    bench.join("c1")
    (revoke,) = only(Revoke, bench.join("c2"))
    (grant,) = only(Grant, bench.finish(revoke, 5))
    bench.topics(3)  # ten messages more in each
    bench.end(grant.stream)
    bench.progress(grant, 20)
    assert bench.record.streams[grant.stream].ended, "as the leader measured it"
    sent = bench.progress(grant, END_OF_STREAM)
    assert [one.stream for one in only(Revoked, sent)] == [grant.stream]
    assert [one.borrower for one in only(Revoke, sent)] == ["c1~1/1"]


def test_SS_145_what_is_said_of_an_old_grant_only_shows_life():
    bench = Bench().start()
    (grant, _) = only(Grant, bench.join("c1"))
    before = bench.record
    assert bench.feed(UpdateProgress("c1~1/1", 1, 1, grant.stream, 99, 9, False)) == []
    assert bench.feed(RevokeFinished("c1~1/1", 1, 1, grant.stream, 99)) == []
    assert bench.record == before


def test_SS_145_a_confirmation_of_an_old_grant_shows_life_too():
    bench = Bench().start()
    (grant, _) = only(Grant, bench.join("c1"))
    bench.feed(RevokeFinished("c1~1/1", 1, 1, grant.stream, 99), at_ms=3_000)
    bench.at(7_000)
    assert "c1~1/1" in bench.record.members, "its validity counts from what was heard last"


def test_SS_146_a_finished_revoke_frees_the_stream_for_who_is_below_its_share():
    bench = Bench().start()
    bench.join("c1")
    (revoke,) = only(Revoke, bench.join("c2"))
    (grant,) = only(Grant, bench.finish(revoke))
    assert (grant.borrower, grant.stream, grant.progress) == ("c2~1/1", revoke.stream, 10)
    assert grant.grant > revoke.grant


def test_SS_146_revoke_finished_of_a_granted_stream_is_believed():
    bench = Bench().start()
    (grant, _) = only(Grant, bench.join("c1"))
    (again,) = only(Grant, bench.feed(RevokeFinished("c1~1/1", 1, 1, grant.stream, grant.grant)))
    assert (again.stream, again.borrower) == (grant.stream, "c1~1/1")


def test_SS_147_a_disconnect_frees_everything_listed_or_not():
    bench = Bench().start()
    one, two = only(Grant, bench.join("c1"))
    bench.join("c2")
    sent = bench.feed(Disconnect("c1~1/1", 1, 99, (Report(one.stream, one.grant, 8, False),)))
    granted = {grant.stream: grant.progress for grant in only(Grant, sent)}
    assert granted.keys() | bench.owners().keys() == {one.stream, two.stream}
    assert set(bench.owners().values()) == {"c2~1/1"}
    assert granted.get(one.stream, 8) == 8


def test_SS_147_a_last_word_of_another_grant_does_not_count():
    bench = Bench().start()
    (one, _) = only(Grant, bench.join("c1"))
    bench.feed(Disconnect("c1~1/1", 1, 1, (Report(one.stream, 99, 8, False),)))
    assert bench.record.streams[one.stream].progress == 0


@pytest.mark.parametrize("lapsed", [False, True])
def test_SS_147_a_last_word_that_says_nothing_new_writes_nothing(lapsed):
    bench = Bench().start()
    (grant, _) = only(Grant, bench.join("c1"))
    bench.progress(grant, 3)
    bench.at(2_000)
    if lapsed:
        bench.ping("c1")
        bench.progress(grant, 2**62)  # it is kicked for that, and its lease goes on
    before = len(bench.commits)
    bench.feed(Disconnect("c1~1/1", 1, 1, (Report(grant.stream, grant.grant, 3, False),)))
    assert not bench.record.members
    bench.at(4_900)
    assert len(bench.commits) == before


def test_SS_148_who_expires_is_told_so_under_its_own_registration():
    bench = Bench().start()
    for name in ("c1", "c2", "c3"):
        bench.join(name)
    bench.ping("c1", at_ms=2_000)
    assert only(Invalidate, bench.at(5_001)) == [Invalidate("c2~1/1", 1, 2), Invalidate("c3~1/1", 1, 3)]


def test_SS_148_an_expired_member_s_streams_wait_for_the_end_of_its_lease():
    bench = Bench().start()
    bench.join("c1")
    bench.ping("c1", at_ms=2_500)
    bench.join("c2", at_ms=2_600)
    bench.ping("c2", at_ms=6_000)
    assert only(Grant, bench.at(7_499)) == []
    sent = bench.at(7_501)
    assert only(Invalidate, sent) == [Invalidate("c1~1/1", 1, 1)]
    # Its lease ended long ago (2.5 s + 3.06 s), so the hand-over follows at once.
    assert len(only(Grant, sent)) == 2


def test_SS_148_the_last_word_of_a_lapsed_member_counts_and_ends_the_wait():
    configuration = replace(CONFIGURATION, validity_ms=5_000, revoke_timeout_ms=10_000).check()
    bench = Bench(configuration=configuration).start()
    (grant, other) = only(Grant, bench.join("c1"))
    bench.join("c2")
    (revoke,) = [a for a in bench.record.assignments.values() if a.status.value == "revoking"]
    for second in range(1, 11):
        bench.ping("c1", second, at_ms=second * 900)
        bench.ping("c2", second, at_ms=second * 900)
    bench.ping("c1", 99, at_ms=9_990)
    sent = bench.at(10_001)
    assert only(Invalidate, sent) == [Invalidate("c1~1/1", 1, 1)], "the revoke timed out: kicked"
    assert only(Grant, sent) == []
    assert only(Invalidate, bench.ping("c1", 100)) == [Invalidate("c1~1/1", 1, 1)]
    held = {grant.stream: grant for grant in (grant, other)}[revoke.stream]
    sent = bench.feed(Disconnect("c1~1/1", 1, 1, (Report(held.stream, held.grant, 9, True),)))
    assert {one.stream: one.progress for one in only(Grant, sent)}[held.stream] == 9


def test_SS_149_what_is_not_answered_is_sent_again():
    bench = Bench(topics=1).start()
    (grant,) = only(Grant, bench.feed(LeaderWanted("c1~1/1", "g", "#")))
    assert only(Grant, bench.at(1_000)) == [grant]


def test_SS_149_a_revoke_that_is_never_finished_ends_its_borrower():
    bench = Bench().start()
    bench.join("c1")
    bench.join("c2")
    for second in range(1, 11):
        bench.ping("c1", second, at_ms=second * 1_000 - 1)
        bench.ping("c2", second, at_ms=second * 1_000 - 1)
    sent = bench.at(10_000)
    assert only(Invalidate, sent) == [Invalidate("c1~1/1", 1, 1)]
    bench.ping("c2", 20, at_ms=12_000)
    bench.at(14_000)
    assert set(bench.owners().values()) == {"c2~1/1"}


def test_SS_150_borrowers_are_not_heard_before_it_serves():
    bench = Bench()
    for event in (
        Ping("c1~1/1", 1, 1, 1),
        UpdateProgress("c1~1/1", 1, 1, "s", 1, 1, False),
        RevokeFinished("c1~1/1", 1, 1, "s", 1),
        Disconnect("c1~1/1", 1, 1),
    ):
        assert bench.feed(event) == []
        assert bench.clauses[-1] == "SS-150"


def test_SS_151_no_room_and_last_words_of_strangers(monkeypatch):
    monkeypatch.setattr("statemachines.shared_subscriptions.membership.MEMBERS_MAX", 1)
    bench = Bench().start()
    bench.join("c1")
    assert bench.join("c2") == []
    assert bench.feed(Disconnect("x~1/1", 1, 1)) == []
    assert bench.feed(RevokeFinished("x~1/1", 1, 1, "s", 1)) == []


def test_SS_152_late_timers_change_nothing():
    bench = Bench().start()
    before = bench.record
    for timer, event in LEADER.timer_registry().items():
        if timer not in ("renew", "heartbeat", "claim_end", "idle"):
            assert bench.feed(event()) == [], timer
    assert bench.record == before


def test_SS_153_answers_to_requests_given_up_change_nothing():
    bench = Bench().start()
    before = bench.record
    for answer in (Committed(99, 1), Refused(99, "k"), StoreFailed(99), FetchFailed(99)):
        assert bench.feed(answer) == []
    assert bench.record == before


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


@pytest.mark.parametrize(("live", "members"), [(7, 1), (7, 3), (7, 4), (7, 8), (0, 3), (6, 3)])
def test_SS_162_shares(live, members):
    given = list(split_shares(live, members))
    assert sum(given) == live
    assert max(given) - min(given) <= 1
    assert given == sorted(given, reverse=True)


@pytest.mark.parametrize(("topics", "members"), [(7, 1), (7, 3), (7, 4), (7, 8), (0, 3), (20, 6)])
def test_SS_162_members_end_up_with_their_shares_and_little_is_moved(topics, members):
    bench = Bench(topics=topics).start()
    moved = 0
    for number in range(members):
        queue = bench.join(f"c{number}")
        while queue:
            one = queue.pop(0)
            if isinstance(one, Revoke):
                queue += bench.finish(one)
            elif isinstance(one, Grant):
                moved += 1
                queue += bench.progress(one)
    counts = sorted((member.count for member in bench.record.members.values()), reverse=True)
    assert counts == list(split_shares(topics, members))
    assert moved <= topics * (1 + sum(1 / n for n in range(2, members + 1))) + members
    bench.node.check()


def test_SS_162_what_one_leaves_behind_goes_to_all_who_are_below_their_share():
    bench = Bench(topics=3).start()
    for name in ("c1", "c2", "c3"):
        bench.join(name)
    sent = bench.feed(Disconnect("c1~1/1", 1, 1))
    assert sorted(grant.borrower for grant in only(Grant, sent)) == ["c2~1/1", "c2~1/1", "c3~1/1"]


def test_SS_162_what_is_being_granted_is_taken_back_as_soon_as_it_is_granted():
    bench = Bench(topics=4).start()
    grants = only(Grant, bench.feed(LeaderWanted("c1~1/1", "g", "#")))
    assert only(Revoke, bench.join("c2")) == []
    sent = [one for grant in grants for one in bench.progress(grant)]
    assert len(only(Revoke, sent)) == 2


def test_SS_162_who_has_its_share_by_now_is_passed_by_though_it_still_stands_in_the_queue():
    bench = Bench(topics=6).start()

    def answered(sent):
        (grant,) = only(Grant, sent)
        bench.progress(grant)
        return grant

    def give_back(grant):
        """Without being asked to: who is granted it then."""
        done = RevokeFinished(grant.borrower, grant.epoch, grant.registration, grant.stream, grant.grant)
        return answered(bench.feed(done)).borrower

    first = only(Grant, bench.join("c1"))
    revokes = only(Revoke, bench.join("c2")) + only(Revoke, bench.join("c3"))
    of_second = answered(bench.finish(revokes[0]))
    answered(bench.finish(revokes[1]))
    assert give_back(of_second) == "c2~1/1", "it stood in the queue already, and comes to its end once more"
    for revoke in revokes[2:]:
        answered(bench.finish(revoke))
    assert [member.count for _, member in sorted(bench.record.members.items())] == [2, 2, 2]
    assert give_back(next(one for one in first if bench.owners()[one.stream] == "c1~1/1")) == "c1~1/1"
