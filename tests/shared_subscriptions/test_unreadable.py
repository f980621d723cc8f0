"""A session whose reads fail gives its streams back, and takes part again when it can read: SS-290 to SS-295."""

from __future__ import annotations

import pytest
import test_handler as bench
from test_handler import C
from test_session import B, Bench

from statemachines.kernel import Node, Send, Tell
from statemachines.shared_subscriptions.agent_record import SharedFilter
from statemachines.shared_subscriptions.borrower import (
    BORROWER,
    UNSUBSCRIBING,
    BorrowerRecord,
    Destroyed,
    GiveBack,
    LeaseBegan,
)
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.message import Disconnect, Grant, LeaderWanted, Ping, PingResponse, Report
from statemachines.shared_subscriptions.session import Ended, ReadsFailed, ReadsSucceed, Take
from statemachines.shared_subscriptions.session_record import FETCHING, UnreadableTimer
from statemachines.shared_subscriptions.standby import STANDBY, Resumed, Suspended
from statemachines.shared_subscriptions.stream import Install, Uninstall
from statemachines.shared_subscriptions.stream_store import Fetch, FetchFailed

VALIDITY = Configuration().validity_ms * MS
RETRY = Configuration().find_leader_ms * MS


class Reads(Bench):
    """A session that reads stream a, and whose store may fail."""

    def __init__(self, **lengths):
        super().__init__(buffer=16, **{"a": 5} | lengths)
        self.feed(LeaseBegan(B))
        self.feed(Install(B, "a", 1, 0))
        self.tick()

    def fail(self):
        """The open fetch fails."""
        return self.feed(FetchFailed(self.asks.pop().n))

    def fail_until(self, at_ns):
        """So do all that follow, until this moment."""
        while self.node.deadline() < at_ns:
            self.tick()
            if self.asks:
                self.fail()

    def given_back(self):
        """The streams were given back."""
        self.fail()
        self.fail_until(VALIDITY)
        assert self.tick() == [ReadsFailed("a")]
        self.feed(Uninstall(B, "a", 1))
        if self.asks:
            self.fail()


def test_SS_290_reads_that_fail_for_a_validity_are_told_of_once():
    bench = Reads()
    first_ns = bench.now
    bench.fail()
    bench.fail_until(first_ns + VALIDITY)
    assert bench.told == []
    assert bench.tick() == [ReadsFailed("a")]
    assert bench.now == first_ns + VALIDITY
    for _ in range(20):
        bench.tick()
        if bench.asks:
            bench.fail()
    assert bench.told == [ReadsFailed("a")]


def test_SS_290_a_read_that_succeeds_in_between_begins_the_time_anew():
    bench = Reads()
    bench.fail()
    bench.fail_until(VALIDITY - 100 * MS)
    while not bench.asks:
        bench.tick()
    bench.serve()
    again_ns = bench.now
    while not bench.asks:
        bench.tick()
    bench.fail()
    bench.fail_until(again_ns + VALIDITY)
    assert ReadsFailed("a") not in bench.told
    assert bench.tick() == [ReadsFailed("a")]


def test_SS_290_a_read_that_is_open_when_the_time_is_over_changes_nothing():
    bench = Reads()
    bench.fail()
    bench.tick()
    assert bench.node.record.status is FETCHING
    bench.now = VALIDITY
    assert bench.perform(bench.node.fire(bench.now)) == [ReadsFailed("a")]
    assert bench.node.record.status is FETCHING


def test_SS_290_a_timer_that_fires_late_gives_nothing_back():
    bench = Reads()
    assert bench.feed(UnreadableTimer()) == []
    bench.fail()
    bench.tick()
    bench.serve()
    assert bench.feed(UnreadableTimer()) == []


def test_SS_290_a_failure_is_not_forgotten_with_the_stream():
    bench = Reads()
    bench.fail()
    bench.feed(Uninstall(B, "a", 1))
    bench.fail_until(VALIDITY)
    assert bench.tick() == [ReadsFailed("a")]


def test_SS_291_what_failed_is_read_again_once_in_a_while_until_it_succeeds():
    bench = Reads()
    asked = bench.asks[-1].slices
    bench.given_back()
    began_ns = bench.now
    for number in range(1, 4):
        bench.tick()
        assert bench.now == began_ns + number * RETRY
        assert bench.asks[-1].slices == asked
        bench.fail()
    bench.tick()
    assert bench.serve() == [ReadsSucceed()]
    assert bench.feed(Take(5)) == []
    assert bench.node.deadline() is None


def test_SS_291_what_is_read_alone_tries_too():
    bench = Reads(p=3)
    bench.given_back()
    bench.feed(Install(B, "p", 2, 0))
    bench.tick()
    assert [one.stream for one in bench.asks[-1].slices] == ["p"]
    assert ReadsSucceed() in bench.serve()


class Member(bench.Bench):
    """A member of a group, whose leader answers its pings, and whose store may fail."""

    def __init__(self):
        super().__init__()
        self.failing = False
        self.reads = 0
        self.name = self.subscribe()

    def do(self, out):
        super().do(out)
        while self.sent and isinstance(self.sent[-1][1], Ping):
            _, ping = self.sent.pop()
            self.receive(PingResponse(ping.borrower, ping.epoch, ping.registration, ping.n))

    def answer(self, request):
        if isinstance(request, Fetch):
            self.reads += 1
            if self.failing:
                return FetchFailed(request.n)
        return super().answer(request)

    @property
    def borrower(self):
        return self.host.borrower_of(self.name)

    @property
    def party(self):
        return self.host.nodes[self.host.party_of(self.name)]

    def join(self):
        """Member, with a stream of which two of five messages are acknowledged."""
        self.connect(self.borrower)
        self.grant(self.borrower, "0.0/jobs/a", 1)
        self.run()
        (first,) = self.take(2)
        self.ack(first)

    def spend(self, ms):
        for _ in range(0, ms, 20):
            self.run(20)

    def say(self, kind):
        return [message for _, message in self.sent if isinstance(message, kind)]


@pytest.fixture
def member():
    one = Member()
    one.join()
    one.failing = True
    return one


def test_SS_292_a_member_that_cannot_read_says_how_far_it_has_read_and_goes(member):
    borrower = member.borrower
    member.spend(C.validity_ms - 100)
    assert member.borrower == borrower
    assert not member.say(Disconnect)
    member.spend(200)
    (farewell,) = member.say(Disconnect)
    assert farewell == Disconnect(borrower, 3, 1, (Report("0.0/jobs/a", 1, 2, False),))
    assert (member.borrower, member.take()) == ("", [])
    member.receive(Grant(borrower, 3, 1, "0.0/jobs/b", 2, 0))
    assert member.say(Disconnect) == [farewell, farewell]


def test_SS_292_one_that_is_connecting_asks_no_leader_any_more():
    node = Node(BORROWER, BorrowerRecord("b", "g", "#", ("leader-1",), C, epoch=7), name="b", now_ns=0)
    effects = node.feed(GiveBack(), 0)
    assert [effect.event for effect in effects if isinstance(effect, Tell)] == [Destroyed("b", True, 7)]
    assert not [effect for effect in effects if isinstance(effect, Send)]


def test_SS_292_one_that_is_unsubscribing_finishes_what_it_has(member):
    borrower = member.borrower
    member.take(1)
    member.do(member.host.unsubscribe(member.name, member.now))
    before = member.record(borrower)
    assert before.status is UNSUBSCRIBING
    assert member.host.feed(borrower, GiveBack(), member.now) == []
    assert member.record(borrower) is before


def test_SS_293_nobody_is_asked_for_streams_until_a_read_succeeds(member):
    member.spend(C.validity_ms + 100)
    assert member.party.fsm is STANDBY
    assert [one for one in member.told if isinstance(one, Suspended)] == [Suspended(member.name, "0.0/jobs/a")]
    asked, reads = len(member.say(LeaderWanted)), member.reads
    member.spend(10 * C.find_leader_ms)
    assert len(member.say(LeaderWanted)) == asked
    assert member.reads - reads in (10, 11)


def test_SS_293_a_subscription_of_that_time_stands_by_too(member):
    member.spend(C.validity_ms + 100)
    other = member.subscribe(SharedFilter("g", "more/#"))
    assert not member.host.is_being_declared(other)
    assert member.host.nodes[member.host.party_of(other)].fsm is STANDBY


def test_SS_294_it_begins_anew_when_a_read_succeeds(member):
    member.spend(C.validity_ms + 100)
    member.failing = False
    asked = len(member.say(LeaderWanted))
    member.spend(C.find_leader_ms + 100)
    assert [one for one in member.told if isinstance(one, Resumed)] == [Resumed(member.name, "0.0/jobs/a")]
    assert len(member.say(LeaderWanted)) == asked + 1
    member.connect(member.borrower, registration=2)
    member.grant(member.borrower, "0.0/jobs/a", 5, registration=2, progress=2)
    member.run()
    (again,) = member.take(9)
    assert (again.first, again.last) == (2, 4)


@pytest.mark.parametrize("leave", ["unsubscribe", "leave"])
def test_SS_295_who_stands_by_may_leave(member, leave):
    member.spend(C.validity_ms + 100)
    member.do(getattr(member.host, leave)(member.name, member.now))
    assert member.told[-1] == Ended(member.name)
    assert not member.host.parties
    member.failing = False
    member.spend(2 * C.find_leader_ms)
    assert not member.host.parties
