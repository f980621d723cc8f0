"""Witness, and what the Agent does with it, clause by clause (SS-240 to SS-246, SS-250)."""

from __future__ import annotations

import pytest
from test_handler import Bench, C, L

from statemachines.kernel import in_order
from statemachines.shared_subscriptions.agent_record import DOUBTED_MAX, SharedFilter
from statemachines.shared_subscriptions.borrower import CONNECTED, CONNECTING
from statemachines.shared_subscriptions.group_store import Claim, StoredRecord, StoreFailed, record_key
from statemachines.shared_subscriptions.handler import Handler
from statemachines.shared_subscriptions.message import (
    Disconnect,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    PingResponse,
    Undeclared,
)
from statemachines.shared_subscriptions.stream import Install

OTHER = "leader-2~1/1"
HIGH = 2**62


# -- the machine ----------------------------------------------------------------------------------------------------


# -- whom to believe ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False])
def test_SS_250_that_a_group_is_not_declared_is_heard_only_where_nobody_has_the_claim(named):
    """Whoever says so while somebody leads makes the claim be read, and is not heard."""
    heard = []
    bench = Bench(Handler("c1~1", "leader-1", C, observe=lambda node, event, *_: heard.append(event)))
    bench.subscribe()
    bench.claim(L if named else "", 3)
    bench.receive(LeaderConnectResponse("c1~1/1", OTHER, HIGH, 1), sender=OTHER)  # the claim has been read
    undeclared = Undeclared("c1~1/1")
    bench.receive(undeclared, sender=OTHER)
    assert (undeclared in heard) is not named
    bench.pass_time()
    assert heard.count(undeclared) == (not named)
    bench.claim("", 3)
    bench.receive(undeclared, sender=OTHER)
    bench.pass_time()
    assert heard.count(undeclared) == 1 + (not named), "it waits as everything does"


def connected(**options):
    bench = Bench()
    bench.subscribe()
    bench.connect("c1~1/1", **options)
    bench.pass_time()
    return bench


def test_SS_244_a_connecting_borrower_adopts_only_whom_the_claim_names():
    bench = Bench()
    bench.subscribe()
    bench.claim(L, 3)
    bench.receive(LeaderConnectResponse("c1~1/1", OTHER, HIGH, 1), sender=OTHER)
    assert bench.record("c1~1/1").status is CONNECTING
    bench.receive(LeaderConnectResponse("c1~1/1", L, 3, 1))
    assert bench.record("c1~1/1").link.leader == L


def test_SS_244_what_a_leader_said_meanwhile_is_heard_when_the_claim_names_it():
    """In its order: the grant that comes with the connect response is not lost."""
    bench = Bench()
    bench.subscribe()
    asked = []
    answer, bench.answer = bench.answer, lambda request: asked.append(request) or StoreFailed(request.n)
    bench.receive(LeaderConnectResponse("c1~1/1", L, 3, 1))
    bench.receive(Grant("c1~1/1", 3, 1, "s", 1, 0))
    bench.receive(Grant("c1~1/1", 9, 1, "t", 1, 0), sender=OTHER)
    assert (bench.record("c1~1/1").status, len(asked)) == (CONNECTING, 1)
    bench.answer = answer
    bench.claim(L, 3)
    bench.pass_time()
    assert bench.record("c1~1/1").status is CONNECTED
    assert list(bench.record("c1~1/1").streams) == ["s"]
    assert [len(claim.doubted) for _, claim in in_order(bench.host.record.claims)] == [0], "once"


def test_SS_244_what_waits_is_bounded():
    bench = Bench()
    bench.subscribe()
    bench.answer = lambda request: StoreFailed(request.n)
    for number in range(2 * DOUBTED_MAX):
        bench.receive(Grant("c1~1/1", 3, 1, f"s{number}", 1, 0), sender=OTHER)
    assert [len(claim.doubted) for _, claim in in_order(bench.host.record.claims)] == [DOUBTED_MAX]


@pytest.mark.parametrize("sender", [OTHER, "leader-2~1"])
@pytest.mark.parametrize(
    "lie",
    [
        LeaderConnectResponse("c1~1/1", OTHER, HIGH, 1),
        Invalidate("c1~1/1", HIGH, 1),
        Invalidate("c1~1/1", 3, 1),
        Grant("c1~1/1", HIGH, 1, "s", 1, 0),
        PingResponse("c1~1/1", HIGH, 1, 1),
    ],
)
def test_SS_244_a_liar_changes_nothing_and_the_leader_is_heard_all_the_while(sender, lie):
    bench = connected()
    before = bench.record("c1~1/1")
    for _ in range(3):
        bench.receive(lie, sender=sender)
    assert bench.record("c1~1/1") == before
    bench.receive(Grant("c1~1/1", 3, 1, "s", 1, 0))
    assert any(isinstance(told, Install) for told in bench.told) or "s" in bench.record("c1~1/1").streams


def test_SS_245_who_follows_somebody_else_than_the_claim_names_begins_anew():
    """Its leader may not know yet that it has lost the claim, and its epoch may be the higher one."""
    bench = connected(epoch=7)
    bench.claim(OTHER, 5)
    bench.receive(LeaderConnectResponse("c1~1/1", OTHER, 5, 1), sender=OTHER)
    assert list(bench.host.parties) == ["c1~1/2"]
    assert bench.record("c1~1/2").epoch == 5, "the highest epoch is what the store said"
    bench.receive(LeaderConnectResponse("c1~1/2", OTHER, 5, 2), sender=OTHER)
    assert bench.record("c1~1/2").link.epoch == 5


def test_SS_245_who_waits_for_an_epoch_that_was_given_out_anew_begins_anew():
    """The store was restored while the borrower was connecting: the next leader has an epoch of before."""
    bench = connected(epoch=7)
    bench.receive(Invalidate("c1~1/1", 7, 1))
    assert bench.record("c1~1/2").epoch == 7
    bench.claim(L, 6)
    bench.receive(LeaderConnectResponse("c1~1/2", L, 6, 1))
    bench.receive(LeaderConnectResponse("c1~1/3", L, 6, 2))
    assert bench.record("c1~1/3").link.epoch == 6


def test_SS_245_who_waits_for_the_epoch_of_the_claim_goes_on_waiting():
    bench = connected(epoch=7)
    bench.receive(Invalidate("c1~1/1", 7, 1))
    bench.receive(LeaderConnectResponse("c1~1/2", OTHER, HIGH, 1), sender=OTHER)
    assert list(bench.host.parties) == ["c1~1/2"]


def test_SS_245_an_epoch_that_comes_twice_is_of_another_leader():
    bench = connected(epoch=5)
    bench.claim(OTHER, 5)
    bench.receive(Grant("c1~1/1", 5, 1, "s", 9, 0), sender=OTHER)
    assert list(bench.host.parties) == ["c1~1/2"]


def test_SS_245_other_groups_are_left_alone():
    bench = Bench()
    bench.subscribe()
    bench.subscribe(SharedFilter("other", "#"))
    bench.connect("c1~1/1", epoch=7)
    bench.connect("c1~1/2", epoch=7)
    bench.pass_time()
    key = record_key("g", "jobs/#", "claim")
    bench.groups = bench.groups.set(key, StoredRecord(Claim(OTHER, 8), 1))
    bench.receive(Grant("c1~1/1", 8, 1, "s", 9, 0), sender=OTHER)
    assert sorted(bench.host.parties) == ["c1~1/2", "c1~1/3"]


def test_SS_246_what_waits_for_a_claim_goes_with_the_last_subscription_that_it_ends():
    """Who unsubscribes and follows somebody else ends when the claim was read, and with it its witness."""
    bench = connected(epoch=3)
    bench.grant("c1~1/1", "s", 1)
    bench.run()
    bench.take(1)
    (name,) = bench.host.record.subscriptions
    bench.do(bench.host.unsubscribe(name, bench.now))
    assert list(bench.host.parties) == ["c1~1/1"], "something is in hand"
    bench.claim(OTHER, 8)
    bench.receive(Grant("c1~1/1", 8, 1, "t", 9, 0), sender=OTHER)
    assert (dict(bench.host.parties), dict(bench.host.record.places)) == ({}, {})


def test_SS_246_one_witness_serves_all_borrowers_of_a_group_and_goes_with_the_last():
    bench = Bench()
    names = [bench.subscribe(), bench.subscribe(), bench.subscribe(SharedFilter("other", "#"))]
    assert sorted(bench.host.record.places) == [
        "c1~1/witness-1",
        "c1~1/witness-2",
    ]
    bench.do(bench.host.unsubscribe(names[0], 0))
    assert "c1~1/witness-1" in bench.host.nodes
    bench.do(bench.host.unsubscribe(names[1], 0))
    assert "c1~1/witness-1" not in bench.host.nodes
    bench.receive(Grant("c1~1/1", 3, 1, "s", 1, 0))
    assert isinstance(bench.sent[-1][1], Disconnect), "whoever is gone has left, whoever asks"
    bench.subscribe()
    assert sorted(bench.host.record.places) == [
        "c1~1/witness-2",
        "c1~1/witness-3",
    ]
