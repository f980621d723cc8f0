"""Agent and Handler, clause by clause (spec/shared_subscriptions/clauses.md SS-170 to SS-182)."""

from __future__ import annotations

import pytest

from statemachines.kernel import Ask, LocalProtocolError, Send, Tell
from statemachines.shared_subscriptions import agent_process, agent_record, stream_store
from statemachines.shared_subscriptions.agent_record import Private, SharedFilter
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import Claim, GroupStore, StoredRecord, record_key
from statemachines.shared_subscriptions.handler import Handler
from statemachines.shared_subscriptions.message import (
    Grant,
    Invalidate,
    LeaderConnectResponse,
    PingResponse,
)
from statemachines.shared_subscriptions.session import Ended

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
