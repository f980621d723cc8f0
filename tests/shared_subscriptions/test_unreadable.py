"""A session whose reads fail gives its streams back, and takes part again when it can read: SS-290 to SS-295."""

from __future__ import annotations

import pytest
import test_handler as bench
from test_handler import C

from statemachines.shared_subscriptions.agent_record import SharedFilter
from statemachines.shared_subscriptions.borrower import (
    UNSUBSCRIBING,
    GiveBack,
)
from statemachines.shared_subscriptions.message import Disconnect, Grant, LeaderWanted, Ping, PingResponse, Report
from statemachines.shared_subscriptions.session import Ended
from statemachines.shared_subscriptions.standby import STANDBY, Resumed, Suspended
from statemachines.shared_subscriptions.stream_store import Fetch, FetchFailed


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
