"""Agent and Handler, clause by clause (spec/shared_subscriptions/clauses.md SS-170 to SS-182)."""

from __future__ import annotations

import pytest

from statemachines.kernel import Ask, ConfigurationError, LocalProtocolError, Map, Send, Tell
from statemachines.shared_subscriptions import agent_process, agent_record, stream_store
from statemachines.shared_subscriptions.agent import Agent
from statemachines.shared_subscriptions.agent_record import Private, SharedFilter
from statemachines.shared_subscriptions.borrower import LeaseBegan
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import Claim, GroupStore, Properties, StoredRecord, record_key
from statemachines.shared_subscriptions.handler import Handler
from statemachines.shared_subscriptions.message import (
    Disconnect,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    PingResponse,
    Report,
    Revoked,
)
from statemachines.shared_subscriptions.private_subscription import BEGINNING, ReadTo
from statemachines.shared_subscriptions.session import Acknowledged, Deliver, Ended
from statemachines.shared_subscriptions.stream import Install

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

    def pass_time(self, ms=C.find_leader_ms):
        """And the claim may be read again."""
        self.now += ms * MS
        self.do(self.host.fire(self.now))

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

    def take(self, limit=9):
        before = len(self.told)
        self.do(self.host.take_messages(limit, self.now))
        return self.told[before:]

    def ack(self, deliver):
        fields = (deliver.owner, deliver.stream, deliver.grant, deliver.first, deliver.last)
        self.do(self.host.acknowledge(*fields, self.now))

    def record(self, party):
        return self.host.nodes[party].record

    @property
    def session(self):
        return self.record(self.host.session)


def test_SS_170_a_subscribe_declares_the_group_and_then_makes_a_borrower_that_begins():
    bench = Bench()
    name = bench.subscribe()
    assert dict(bench.host.parties) == {"c1~1/1": name}
    assert bench.sent == [("leader-1", LeaderWanted("c1~1/1", "g", "jobs/#"))]
    assert bench.groups[record_key("g", "jobs/#", "properties")].value == Properties(1, 1000, 2000, 3000)
    with pytest.raises(ConfigurationError, match="whole last level"):
        bench.subscribe(SharedFilter("g", "x#"))
    assert len(bench.host.parties) == 1


def test_SS_170_nothing_is_sent_before_the_group_is_declared():
    bench = Bench()
    name, out = bench.host.subscribe(JOBS, 0)
    assert [type(effect) for _, effect in out] == [Ask]
    assert (bench.host.borrower_of(name), bench.host.has_subscription(name)) == ("", True)
    assert bench.host.unsubscribe(name, 0) == []
    assert (dict(bench.host.parties), bench.host.has_subscription(name)) == ({}, False)
    assert bench.host.feed(out[0][0], bench.answer(out[0][1].request), 0) == [], "nobody is there any more"


def test_SS_170_groups_that_are_declared_at_the_same_time_are_both_subscribed_to():
    bench = Bench()
    names, asked = zip(*(bench.host.subscribe(wanted, 0) for wanted in (JOBS, SharedFilter("h", "#"))), strict=True)
    for out in asked:
        bench.do(out)
    assert [bench.host.borrower_of(name) != "" for name in names] == [True, True]
    assert [message.group for _, message in bench.sent] == ["g", "h"]


def test_SS_170_a_group_that_lives_by_other_times_is_not_subscribed_to():
    bench = Bench()
    theirs = Properties(0, 1000, 2000, 99_000)
    bench.groups = bench.groups.set(record_key("g", "jobs/#", "properties"), StoredRecord(theirs, 1))
    name = bench.subscribe()
    assert [one.properties for one in bench.told] == [theirs]
    assert (dict(bench.host.parties), bench.host.has_subscription(name), bench.sent) == ({}, False, [])


def test_SS_171_unsubscribing_reaches_the_borrower_of_the_moment_and_nobody_twice():
    bench = Bench()
    name = bench.subscribe()
    bench.connect("c1~1/1")
    bench.receive(Invalidate("c1~1/1", 3, 1))
    assert bench.host.party_of(name) == "c1~1/2"
    bench.do(bench.host.unsubscribe(name, bench.now))
    assert bench.told[-1] == Ended(name)
    assert bench.host.unsubscribe(name, bench.now) == []
    assert dict(bench.host.parties) == {}


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


def test_SS_171_when_the_session_goes_every_subscription_says_what_is_known():
    bench = Bench()
    names = [bench.subscribe(), bench.subscribe(SharedFilter("h", "#"))]
    for borrower in ("c1~1/1", "c1~1/2"):
        bench.connect(borrower)
        bench.grant(borrower, "s", 1)
    bench.sent.clear()
    bench.do(bench.host.leave_all(bench.now))
    words = [Disconnect(one, 3, 1, (Report("s", 1, 0, True),)) for one in ("c1~1/1", "c1~1/2")]
    assert [said for said in bench.sent if isinstance(said[1], Disconnect)] == [(L, word) for word in words]
    assert bench.told[-2:] == [Ended(name) for name in names]


def test_SS_172_an_old_borrower_finishes_while_a_new_one_of_the_same_filter_connects():
    bench = Bench()
    old = bench.subscribe()
    bench.connect("c1~1/1")
    bench.grant("c1~1/1", "s", 1)
    bench.run()
    (taken,) = bench.take()
    bench.do(bench.host.unsubscribe(old, bench.now))
    new = bench.subscribe()
    assert dict(bench.host.parties) == {"c1~1/1": old, "c1~1/2": new}
    bench.connect("c1~1/2", registration=2)
    bench.grant("c1~1/2", "t", 2, registration=2)
    bench.run()
    assert [event.owner for event in bench.take()] == ["c1~1/2"], "the new one delivers"
    bench.sent.clear()
    bench.ack(taken)
    assert bench.sent[-1] == (L, Disconnect("c1~1/1", 3, 1, (Report("s", 1, 5, True),))), "the old one's last word"
    assert bench.told[-1] == Ended(old)
    assert set(bench.session.leases) == {"c1~1/2"}


def test_SS_172_one_that_is_reset_leaves_the_others_alone():
    bench = Bench()
    bench.subscribe()
    bench.subscribe()
    for number, borrower in enumerate(("c1~1/1", "c1~1/2"), 1):
        bench.connect(borrower, registration=number)
        bench.grant(borrower, f"s{number}", number, registration=number)
    bench.receive(Invalidate("c1~1/1", 3, 1))
    assert [reading.stream for reading in bench.session.readings.values()] == ["s2"]
    assert bench.session.leases["c1~1/2"].held
    assert sorted(bench.host.parties) == ["c1~1/2", "c1~1/3"]


def test_SS_173_who_had_to_end_itself_is_followed_by_one_that_knows_the_highest_epoch():
    bench = Bench()
    name = bench.subscribe()
    bench.connect("c1~1/1", epoch=7)
    bench.receive(Invalidate("c1~1/1", 7, 1))
    assert bench.record("c1~1/2").epoch == 7
    assert (bench.host.party_of(name), bench.host.record.recreated) == ("c1~1/2", 1)
    assert Ended(name) not in bench.told
    bench.receive(LeaderConnectResponse("c1~1/2", L, 6, 9))
    assert bench.record("c1~1/2").link is None, "a leader of the past is not adopted"


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


def test_SS_175_a_leader_that_talks_to_one_that_is_gone_hears_its_last_word_again():
    bench = Bench()
    name = bench.subscribe()
    bench.connect("c1~1/1")
    bench.grant("c1~1/1", "s", 1)
    bench.run()
    (taken,) = bench.take(2)
    bench.do(bench.host.unsubscribe(name, bench.now))
    bench.ack(taken)
    bench.sent.clear()
    bench.receive(Revoked("c1~1/1", 3, 1, "s", 1))
    assert bench.sent == [(L, Disconnect("c1~1/1", 3, 1, (Report("s", 1, 2, True),)))]
    bench.receive(Revoked("c1~1/9", 3, 1, "s", 1))
    assert bench.sent[-1] == (L, Disconnect("c1~1/9", 3, 1)), "of one that it never knew there is none"


@pytest.mark.parametrize("borrower", ["c1~0/1", "c1~2/1", "c1~1.00000000000000ff/1", "c1~11/1"])
def test_SS_177_nobody_gives_the_last_word_of_another_life(borrower):
    bench = Bench()
    bench.subscribe()
    bench.connect("c1~1/1")
    bench.sent.clear()
    bench.receive(Revoked(borrower, 3, 1, "s", 1))
    assert bench.sent == []


def test_SS_175_last_words_are_bounded(monkeypatch):
    monkeypatch.setattr(agent_record, "LAST_WORDS_MAX", 3)
    bench = Bench()
    for number in range(1, 8):
        name = bench.subscribe()
        bench.connect(f"c1~1/{number}", registration=number)
        bench.grant(f"c1~1/{number}", "s", number, registration=number)
        bench.do(bench.host.unsubscribe(name, bench.now))
    bench.run(10_000)
    assert dict(bench.host.parties) == {}
    assert [one.borrower for one in bench.host.record.words] == ["c1~1/5", "c1~1/6", "c1~1/7"]


def test_SS_176_registries_are_asked_in_turn_until_one_answers():
    bench = Bench(Handler("c1~1", ("one", "two"), C, check=True))
    bench.subscribe()
    bench.run(1_000)
    bench.run(1_000)
    assert [to for to, _ in bench.sent] == ["one", "two", "one"]
    bench.connect("c1~1/1")
    assert bench.record("c1~1/1").link is not None
    with pytest.raises(ConfigurationError, match="at least one leader host"):
        Handler("c1~1", (), C)


def test_an_agent_alone_tells_whoever_has_a_session_of_its_own():
    bench = Bench(Agent("c1~1", "leader-1", C, check=True))
    bench.subscribe()
    bench.connect("c1~1/1")
    bench.grant("c1~1/1", "s", 1, progress=4)
    assert bench.told[-2:] == [LeaseBegan("c1~1/1"), Install("c1~1/1", "s", 1, 4)]


def test_SS_180_streams_go_to_the_session_and_progress_to_the_owner():
    bench = Bench()
    bench.subscribe()
    bench.connect("c1~1/1")
    bench.grant("c1~1/1", "s", 1)
    bench.run()
    (taken,) = bench.take(3)
    assert taken == Deliver("c1~1/1", "s", 1, 0, 2)
    bench.ack(taken)
    assert bench.record("c1~1/1").streams["s"].progress == 3
    assert bench.host.subscription_of("c1~1/1") == "c1~1/1"


def test_SS_181_owners_come_before_their_machines_and_go_with_them():
    bench = Bench()
    name = bench.subscribe(SharedFilter("g", "#", at_delivery=True))
    lease = bench.session.leases["c1~1/1"]
    assert (lease.held, lease.at_delivery) == (False, True)
    bench.connect("c1~1/1")
    bench.receive(Invalidate("c1~1/1", 3, 1))
    assert list(bench.session.leases) == ["c1~1/2"]
    assert bench.session.leases["c1~1/2"].at_delivery
    bench.do(bench.host.unsubscribe(name, bench.now))
    assert bench.session.leases == Map()


def test_SS_182_private_and_shared_streams_take_turns_through_one_scheduler():
    bench = Bench()
    bench.subscribe()
    private = bench.subscribe(Private("#", BEGINNING))
    bench.connect("c1~1/1")
    bench.grant("c1~1/1", "p", 1, progress=2)
    bench.run()
    asked = [bench.take(2)[0] for _ in range(4)]
    assert [(one.owner, one.grant, one.first, one.last) for one in asked] == [
        (private, 0, 0, 1),
        ("c1~1/1", 1, 2, 3),
        (private, 0, 2, 3),
        ("c1~1/1", 1, 4, 4),
    ]
    bench.ack(asked[0])
    assert bench.told[-2:] == [Acknowledged(private, "p", 0, 0, 1), ReadTo(private, "p", 2)]
    assert bench.record("c1~1/1").streams["p"].progress == 2, "the same stream, and no business of the other"


def test_what_is_wrong_with_a_private_subscription_is_named():
    bench = Bench()
    for wanted, words in (
        (Private("x#"), "whole last level"),
        (Private(""), "1 to 1024 bytes in UTF-8, and has 0"),
        (Private("", 0, Map({"s": -1})), "none below 0"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            bench.subscribe(wanted)
    with pytest.raises(ConfigurationError, match="at least 1 message"):
        Handler("c1~1", "leader-1", C, buffer=0)
    assert dict(bench.host.parties) == {}
    assert Handler("c1~1", "leader-1", C, buffer=1).reads.buffer == 1
    first = bench.subscribe(Private("", 0, Map({"s": 0})))
    assert list(bench.host.parties) == [first], "it may begin at the first message"
