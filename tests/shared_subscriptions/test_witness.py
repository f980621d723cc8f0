"""Witness, and what the Agent does with it, clause by clause (SS-240 to SS-246, SS-250)."""

from __future__ import annotations

import pytest
from test_handler import Bench, C, L

from statemachines.kernel import Ask, LocalProtocolError, Node, Tell, in_order
from statemachines.shared_subscriptions.agent_record import DOUBTED_MAX, SharedFilter
from statemachines.shared_subscriptions.borrower import CONNECTED, CONNECTING
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.group_store import Claim, Read, ReadDone, StoredRecord, StoreFailed, record_key
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
from statemachines.shared_subscriptions.witness import (
    WITNESS,
    ClaimRead,
    Doubt,
    RestTimer,
    WitnessRecord,
    is_believed,
)

KEY = record_key("g", "#", "claim")
REST = C.find_leader_ms * MS
OTHER = "leader-2~1/1"
HIGH = 2**62


def witness(**fields):
    return Node(WITNESS, WitnessRecord("c1~1/witness-1", "g", "#", C, **fields), name="w", now_ns=0)


def found(n, leader=L, epoch=3):
    return ReadDone(n, (StoredRecord(Claim(leader, epoch), 1),), 1)


# -- the machine ----------------------------------------------------------------------------------------------------


def test_SS_240_whom_the_claim_does_not_name_makes_it_be_read():
    node = witness()
    assert node.feed(Doubt(), 0) == [Ask("group_store", Read(1, (KEY,)))]


def test_SS_241_however_much_is_said_it_is_read_once_in_a_period():
    node = witness()
    node.feed(Doubt(), 0)
    assert node.feed(Doubt(), 0) == []
    node.feed(found(1), 5)
    assert [node.feed(Doubt(), now) for now in range(5, 50)] == [[]] * 45
    assert node.deadline() == 5 + REST
    assert node.fire(5 + REST) == [Ask("group_store", Read(2, (KEY,)))]
    node.feed(found(2), 6 + REST)
    assert node.fire(6 + 2 * REST) == [], "nobody has said more since"


@pytest.mark.parametrize("answered_first", [False, True])
def test_SS_241_what_is_doubted_while_it_reads_or_rests_makes_it_read_again(answered_first):
    node = witness()
    node.feed(Doubt(), 0)
    steps = [lambda: node.feed(Doubt(), 0), lambda: node.feed(found(1), 0)]
    for step in reversed(steps) if answered_first else steps:
        step()
    assert node.fire(REST) == [Ask("group_store", Read(2, (KEY,)))]


def test_SS_241_where_nobody_has_said_more_it_is_not_read_again():
    node = witness()
    node.feed(Doubt(), 0)
    node.feed(found(1), 5)
    assert node.fire(5 + REST) == []
    assert node.feed(Doubt(), 6 + REST) == [Ask("group_store", Read(2, (KEY,)))]


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ((StoredRecord(Claim(L, 3), 1),), ClaimRead(L, 3)),
        ((StoredRecord(Claim("", 3, clean=True), 1),), ClaimRead("", 3)),
        ((None,), ClaimRead("", 0)),
        ((StoredRecord(7, 1),), ClaimRead("", 0)),
    ],
)
def test_SS_242_what_the_claim_says_is_kept_and_told(records, told):
    node = witness(leader=OTHER, epoch=HIGH)
    node.feed(Doubt(), 0)
    assert node.feed(ReadDone(1, records, 1), 0) == [Tell(told)]
    assert (node.record.leader, node.record.epoch) == (told.leader, told.epoch)


def test_SS_243_a_store_that_does_not_answer_changes_nothing_and_is_asked_again():
    node = witness(leader=L, epoch=3)
    node.feed(Doubt(), 0)
    assert node.feed(StoreFailed(1), 0) == []
    assert (node.record.leader, node.record.epoch) == (L, 3)
    assert node.fire(REST) == [Ask("group_store", Read(2, (KEY,)))]


def test_SS_243_answers_and_firings_that_nobody_waits_for_change_nothing():
    node = witness(leader=L, epoch=3)
    for event in (found(0, OTHER), StoreFailed(0), RestTimer()):
        before = node.record
        assert node.feed(event, 0) == []
        assert node.record == before
    node.feed(Doubt(), 0)
    for event in (found(7, OTHER), StoreFailed(7), RestTimer()):
        assert node.feed(event, 0) == []
        assert (node.record.leader, node.record.epoch) == (L, 3)


# -- whom to believe ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sender", "message", "believed"),
    [
        (L, PingResponse("b", 3, 1, 1), True),
        (L, PingResponse("b", 4, 1, 1), False),
        (L, PingResponse("b", 2, 1, 1), False),
        (OTHER, PingResponse("b", 3, 1, 1), False),
        ("leader-1~2/1", PingResponse("b", 3, 1, 1), False),
        ("leader-1~1/2", PingResponse("b", 3, 1, 1), False),
        ("leader-1~1", PingResponse("b", 3, 1, 1), False),
        ("leader-1~1", Invalidate("b", 3, 1), True),
        ("leader-1~2", Invalidate("b", 3, 1), True),
        ("leader-1~2", Invalidate("b", HIGH, 1), False),
        ("leader-2~1", Invalidate("b", 3, 1), False),
        (OTHER, Invalidate("b", 3, 1), False),
        ("leader-1~1/2", Invalidate("b", 3, 1), False),
        ("", PingResponse("b", 3, 1, 1), False),
        (OTHER, Undeclared("b"), False),
        (L, Undeclared("b"), False),
    ],
)
def test_SS_244_only_whom_the_claim_names_is_believed(sender, message, believed):
    """The leader by its id, which has its life; its host, in whatever life, says that it is gone."""
    named = WitnessRecord("w", "g", "#", C, leader=L, epoch=3)
    assert is_believed(named, sender, message) is believed
    nobody = WitnessRecord("w", "g", "#", C, epoch=3)
    assert is_believed(nobody, sender, message) is isinstance(message, Undeclared)


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


def test_a_witness_takes_nothing_else():
    with pytest.raises(LocalProtocolError):
        witness().feed(ClaimRead(L, 3), 0)
