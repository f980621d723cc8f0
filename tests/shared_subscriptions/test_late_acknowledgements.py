"""An application that keeps a message for too long: the session and its host (SS-351 to SS-353)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from test_session import A, B, Bench
from test_unreadable import C, Member

from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions import session
from statemachines.shared_subscriptions.borrower import LeaseBegan
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.message import Disconnect, Report
from statemachines.shared_subscriptions.standby import STANDBY, DeliveriesRevoked, Resumed, Suspended
from statemachines.shared_subscriptions.stream import Install

WAIT_MS = 1_000


def waiting(**lengths):
    """A session that waits, reading from a stream."""
    bench = Bench(**lengths)
    bench.node.record = replace(bench.node.record, ack_wait_ns=WAIT_MS * MS)
    return bench.reading()


def run_to(bench, ms):
    """Fire what is due until then; what was told."""
    told = []
    while (deadline := bench.node.deadline()) is not None and deadline <= ms * MS:
        told += bench.tick()
        if bench.asks:
            bench.serve()
    bench.now = ms * MS
    return [one for one in told if not isinstance(one, session.Ready)]


def test_SS_351_a_message_that_is_kept_for_too_long_counts_as_given_back():
    bench = waiting(a=5)
    bench.feed(session.Take(3))
    assert run_to(bench, 900) == []
    bench.feed(session.Ack(B, "a", 1, 0, 0))
    assert run_to(bench, 1_800) == [], "progress sets the timer anew"
    assert run_to(bench, 1_950) == [
        session.Progressed(B, "a", 1, 1, False, 1),
        session.AcknowledgementLate(B, "a", 1, 1),
    ]
    assert bench.told[-1] == session.Ready()
    assert bench.node.record.readings[A].delivered == 1


def test_SS_351_what_is_acknowledged_or_given_back_in_time_is_not_late():
    bench = waiting(a=5)
    bench.feed(session.Take(2))
    bench.feed(session.Ack(B, "a", 1, 0, 0))
    bench.feed(session.Nack(B, "a", 1, 1))
    assert run_to(bench, 5_000) == []
    bench.feed(session.Take(2))
    assert run_to(bench, 5_950) == [], "it is handed over again, and waits anew"


def test_SS_351_without_a_wait_nothing_is_late():
    bench = Bench(a=5).reading()
    bench.feed(session.Take(2))
    assert run_to(bench, 100_000) == []


@pytest.mark.parametrize(("most", "others", "count"), [(0, True, 1), (2, True, 1), (1, True, 0), (1, False, 1)])
def test_SS_351_what_was_not_alone_in_hand_is_never_spent_by_it(most, others, count):
    bench = Bench(a=5, b=5)
    bench.node.record = replace(bench.node.record, ack_wait_ns=WAIT_MS * MS)
    bench.feed(LeaseBegan(B))
    for stream in "ab" if others else "a":
        bench.feed(Install(B, stream, 1, 0, 0, most))
    bench.settle()
    bench.feed(session.Take(1))
    if others:
        bench.feed(session.Take(1))
    late = next(one for one in run_to(bench, 1_100) if isinstance(one, session.Progressed))
    assert (late.progress, late.failed) == (0, count)
    reading = bench.node.record.readings[f"{B} {late.stream}"]
    assert (reading.failed, reading.delayed) == (count, most == count == 1)


def test_SS_353_the_first_that_an_application_takes_is_nothing():
    bench = waiting(a=5)
    bench.feed(session.Take(2))
    run_to(bench, 1_100)
    assert bench.feed(session.Take(2)) == [session.ApplicationReturned(), session.Ready()]
    bench.settle()
    assert session.Deliver(B, "a", 1, 0, 1, 1, 2) in bench.feed(session.Take(2))


@pytest.fixture
def member(monkeypatch):
    monkeypatch.setattr("test_handler.C", replace(C, ack_wait_ms=WAIT_MS))
    one = Member()
    one.join()
    return one


def test_SS_352_a_member_that_keeps_a_message_gives_all_its_streams_back(member):
    borrower = member.borrower
    member.take(1)
    member.spend(WAIT_MS + 100)
    (farewell,) = member.say(Disconnect)
    assert farewell == Disconnect(borrower, 3, 1, (Report("0.0/jobs/a", 1, 2, False, 1),))
    assert member.party.fsm is STANDBY
    assert DeliveriesRevoked(borrower) in member.told
    assert [one for one in member.told if isinstance(one, Suspended)] == [Suspended(member.name, "0.0/jobs/a", True)]


def test_SS_353_it_takes_part_again_when_its_application_asks(member):
    member.take(1)
    member.spend(WAIT_MS + 100)
    assert not any(isinstance(one, session.Deliver) for one in member.take(1))
    assert [one for one in member.told if isinstance(one, Resumed)] == [Resumed(member.name, "0.0/jobs/a", True)]
    assert member.borrower


@pytest.mark.parametrize("first", ["reads", "application"])
def test_SS_353_not_before_it_can_read_as_well(member, first):
    member.take(1)
    member.failing = True
    member.spend(max(WAIT_MS, C.validity_ms) + 200)
    for what in (first, "application" if first == "reads" else "reads"):
        assert member.party.fsm is STANDBY
        if what == "application":
            member.take(1)
        else:
            member.failing = False
            member.spend(C.find_leader_ms + 100)
    assert member.borrower


def test_SS_355_a_wait_that_is_no_time_is_refused():
    assert Configuration(ack_wait_ms=0).check().ack_wait_ms == 0
    with pytest.raises(ConfigurationError, match="ack_wait_ms = -1"):
        Configuration(ack_wait_ms=-1).check()
