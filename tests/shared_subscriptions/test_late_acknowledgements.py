"""An application that keeps a message for too long: the session and its host (SS-351 to SS-353)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from test_unreadable import C, Member

from statemachines.shared_subscriptions import session
from statemachines.shared_subscriptions.message import Disconnect, Report
from statemachines.shared_subscriptions.standby import STANDBY, DeliveriesRevoked, Resumed, Suspended

WAIT_MS = 1_000


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
