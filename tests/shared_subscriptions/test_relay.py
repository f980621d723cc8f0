"""Relay, clause by clause (SS-274 to SS-278), and leaders that cannot serve (SS-279 to SS-281)."""

from __future__ import annotations

import pytest
from test_handler import Bench as MemberBench
from test_handler import C, L
from test_leader import Bench, declared, follower

from statemachines.kernel import Ask, Node, RemoteProtocolError, Send
from statemachines.shared_subscriptions import relay
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.detours import Detours
from statemachines.shared_subscriptions.group_store import GroupStore
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.leader_record import LeaderRecord, LeaderStatus
from statemachines.shared_subscriptions.message import (
    Disconnect,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    RelayedToBorrower,
    RelayedToLeader,
    UpdateProgress,
)
from statemachines.shared_subscriptions.registry import Registry
from statemachines.shared_subscriptions.relay import check_sender
from statemachines.shared_subscriptions.stream_store import FetchFailed, StreamStore

B, F, OTHER = "c1~1/1", "leader-2~1/1", "leader-3~1/1"
WANTED = LeaderWanted(B, "g", "#")
PING = Ping(B, 1, 1, 1)
RESPONSE = LeaderConnectResponse(B, L, 3, 1)


# -- the follower ---------------------------------------------------------------------------------------------------


def test_SS_274_a_follower_relays_between_a_borrower_and_the_leader_that_it_follows():
    second = follower(Bench().start())
    up, down = RelayedToLeader(L, F, PING), RelayedToBorrower(L, F, PingResponse(B, 1, 1, 1))
    assert second.node.feed(up, MS) == [Send(L, up)]
    assert second.node.feed(down, MS) == [Send(B, down)]
    gone = RelayedToBorrower("leader-1~2", F, Invalidate(B, 1, 1))
    assert second.node.feed(gone, MS) == [Send(B, gone)], "the host of that leader, in whatever life"
    assert second.clauses[-3:] == ["SS-274"] * 3


def test_SS_274_it_relays_nothing_of_another_leader_and_nothing_when_it_leads():
    first = Bench().start()
    second = follower(first)
    assert second.node.feed(RelayedToLeader(OTHER, F, PING), 0) == []
    assert second.node.feed(RelayedToBorrower(OTHER, F, PingResponse(B, 1, 1, 1)), 0) == []
    assert first.node.feed(RelayedToLeader(L, L, PING), 0) == []
    assert {*first.clauses[-1:], *second.clauses[-2:]} == {"SS-274"}


def test_SS_274_it_stays_while_it_relays():
    second = follower(Bench().start())
    second.node.feed(RelayedToLeader(L, F, PING), 20_000 * MS)
    second.groups = second.groups.set("/1.1/g/#:claim", second.groups["/1.1/g/#:claim"])
    assert second.node.armed_timers()["idle", ""] == 50_000 * MS


# -- the leader's host ----------------------------------------------------------------------------------------------


class Host:
    """A leader host over pure stores, whose leader leads."""

    def __init__(self, **fields):
        self.services = {"group_store": GroupStore(), "stream_store": StreamStore()}
        self.states = {"group_store": declared(C), "stream_store": StreamStore().initial()}
        self.registry = Registry("leader-1~1", C, check=True, **fields)
        self.hear(LeaderWanted("c0~1/1", "g", "#"), to="leader-1")  # it is remembered, and asks again
        assert [node.record.status for node in self.registry.nodes.values()] == [LeaderStatus.LEADING]

    def hear(self, message, to=L, at_ms=0):
        sender = getattr(message, "via", "") or message.borrower
        return self.perform(self.registry.receive(sender, to, message, at_ms * MS), at_ms)

    def fire(self, at_ms):
        return self.perform(self.registry.fire(at_ms * MS), at_ms)

    def perform(self, out, at_ms):
        """(to, message) of all that is sent."""
        sent = []
        for party, effect in out:
            if isinstance(effect, Send):
                sent.append((effect.to, effect.message))
            elif isinstance(effect, Ask):
                service = self.services[effect.service]
                self.states[effect.service], answers = service.apply(
                    self.states[effect.service], effect.request, at_ms * MS
                )
                for answer in answers:
                    sent += self.perform(self.registry.feed(party, answer, at_ms * MS), at_ms)
        return sent

    def until(self, holds, from_ms=0):
        """When it holds first, in milliseconds; nobody says anything meanwhile."""
        for at_ms in range(from_ms, from_ms + 20_000, 100):
            self.fire(at_ms)
            if holds():
                return at_ms
        raise AssertionError

    @property
    def claim(self):
        return self.states["group_store"]["/1.1/g/#:claim"].value


def test_SS_275_an_answer_goes_back_the_way_its_question_came():
    host = Host()
    response = LeaderConnectResponse(B, L, 1, 1)
    assert host.hear(RelayedToLeader(L, F, WANTED)) == [(F, RelayedToBorrower(L, F, response))]
    ping = Ping(B, 1, 1, 1)
    answer = PingResponse(B, 1, 1, 1)
    assert host.hear(RelayedToLeader(L, F, ping)) == [(F, RelayedToBorrower(L, F, answer))]
    assert host.hear(ping) == [(B, answer)]


def test_SS_275_everything_else_goes_both_ways_for_a_validity():
    host = Host()
    host.hear(RelayedToLeader(L, F, WANTED))
    host.hear(LeaderWanted("c0~1/1", "g", "#"))
    unknown = UpdateProgress(B, 1, 9, "s", 1, 0, False)
    told = Invalidate(B, 1, 9)
    for at_ms in range(0, 4_999, 500):  # its claim is renewed, and c0 keeps it
        host.fire(at_ms)
        host.hear(Ping("c0~1/1", 1, 2, 1), at_ms=at_ms)
    assert host.hear(unknown, at_ms=4_999) == [(B, told), (F, RelayedToBorrower(L, F, told))]
    assert host.hear(unknown, at_ms=5_001) == [(B, told)]


def test_SS_275_of_a_leader_that_is_gone_the_host_says_so_through_the_follower():
    host = Registry("leader-1~2", C)
    told = RelayedToBorrower("leader-1~2", F, Invalidate(B, 1, 1))
    assert host.receive(F, L, RelayedToLeader(L, F, PING), 0) == [("leader-1~2", Send(F, told))]
    assert host.receive(F, L, RelayedToLeader(L, F, WANTED), 0) == []
    assert host.receive(B, F, RelayedToLeader(L, F, PING), 0) == [], "nobody here relays"


# -- the member -----------------------------------------------------------------------------------------------------


def connected_around():
    bench = MemberBench()
    bench.subscribe()
    bench.claim()
    bench.sent.clear()
    bench.receive(RelayedToBorrower(L, F, RESPONSE), sender=F)
    return bench


def test_SS_276_who_is_answered_through_a_follower_says_everything_both_ways():
    ping = Ping(B, 3, 1, 1)
    bench = connected_around()
    assert bench.sent == [(L, ping), (F, RelayedToLeader(L, F, ping))]
    bench.receive(RelayedToBorrower(L, F, PingResponse(B, 3, 1, 1)), sender=F)
    bench.sent.clear()
    bench.receive(RelayedToBorrower(L, F, Grant(B, 3, 1, "s", 7, 0)), sender=F)
    update = UpdateProgress(B, 3, 1, "s", 7, 0, False)
    assert bench.sent == [(L, update), (F, RelayedToLeader(L, F, update))]


def test_SS_276_it_stops_when_the_leader_itself_has_answered_a_ping():
    bench = connected_around()
    bench.receive(PingResponse(B, 3, 1, 1))
    bench.receive(RelayedToBorrower(L, F, PingResponse(B, 3, 1, 1)), sender=F)
    bench.sent.clear()
    bench.pass_time(C.ping_interval_ms)
    assert bench.sent == [(L, Ping(B, 3, 1, 2))]


def test_SS_276_the_last_word_of_one_that_is_gone_goes_back_through_the_follower():
    bench = MemberBench()
    bench.receive(RelayedToBorrower(L, F, Grant("c1~1/9", 3, 1, "s", 7, 0)), sender=F)
    farewell = Disconnect("c1~1/9", 3, 1, ())
    assert bench.sent == [(F, RelayedToLeader(L, F, farewell))]


@pytest.mark.parametrize(
    "message", [RelayedToBorrower(OTHER, F, RESPONSE), RelayedToBorrower(L, F, LeaderConnectResponse(B, L, 4, 1))]
)
def test_SS_277_what_is_relayed_counts_only_where_the_claim_names_who_said_it(message):
    bench = MemberBench()
    bench.subscribe()
    bench.claim()
    bench.sent.clear()
    bench.receive(message, sender=F)
    bench.pass_time(C.find_leader_ms // 2)
    assert bench.sent == []


@pytest.mark.parametrize(
    ("sender", "is_leader_host"), [(F, False), ("leader-2~1/2", True), (L, True), ("pretender~1/1", True)]
)
def test_SS_277_a_member_hears_through_nobody_but_a_leader_host_under_its_own_id(sender, is_leader_host):
    relay.check_relay(F, RelayedToBorrower(L, F, RESPONSE), True)
    relay.check_relay(sender, RESPONSE, False)
    with pytest.raises(RemoteProtocolError, match="by no leader host"):
        relay.check_relay(sender, RelayedToBorrower(L, F, RESPONSE), is_leader_host)


@pytest.mark.parametrize(
    ("sender", "to", "message", "is_leader_host"),
    [
        (B, L, RelayedToLeader(L, F, PING), False),  # it relays for itself
        (B, F, RelayedToLeader(L, F, Ping("c2~1/1", 1, 1, 1)), False),  # it speaks for another
        (B, F, RelayedToLeader(F, F, PING), False),
        (B, F, RelayedToBorrower(L, F, RESPONSE), False),  # it speaks as the leader
        (F, L, RelayedToLeader(L, OTHER, PING), True),  # another relays
        (F, OTHER, RelayedToLeader(L, F, PING), True),
        (OTHER, F, RelayedToBorrower(L, F, RESPONSE), True),  # it was relayed before
        (L, OTHER, RelayedToBorrower(L, F, RESPONSE), True),
        (F, L, PING, True),
    ],
)
def test_SS_277_a_leader_host_takes_what_is_relayed_from_its_two_ends_alone(sender, to, message, is_leader_host):
    check_sender(B, F, RelayedToLeader(L, F, PING), False)
    check_sender(F, L, RelayedToLeader(L, F, PING), True)
    check_sender(L, F, RelayedToBorrower(L, F, RESPONSE), True)
    check_sender(B, L, PING, False)
    with pytest.raises(RemoteProtocolError):
        check_sender(sender, to, message, is_leader_host)


def test_SS_278_a_host_remembers_a_way_around_for_those_who_used_it_last():
    known = Detours()
    for number in (*range(10_000), 0, 10_000):
        known = known.keep(f"c{number}~1/1", F)
    assert [f"c{number}~1/1" in known.of for number in (0, 1, 2, 10_000)] == [True, False, True, True]


# -- leaders that cannot serve --------------------------------------------------------------------------------------


def test_SS_279_a_leader_that_no_member_reaches_gives_its_claim_up():
    bench = Bench().start()
    bench.feed(WANTED)
    bench.feed(WANTED, at_ms=4_000)  # asking again is not being heard
    bench.at(4_999)
    assert bench.status is LeaderStatus.LEADING
    bench.at(6_001)  # a batch was under way
    assert bench.status is LeaderStatus.RESIGNED
    assert bench.told[-1].unfit
    assert bench.stored("claim").leader == ""


def test_SS_279_one_that_is_heard_keeps_it_and_who_only_asks_does_not():
    bench = Bench().start()
    bench.join("c1")
    bench.ping("c1")
    bench.feed(LeaderWanted("c2~1/1", "g", "#"))
    bench.at(4_900)
    bench.feed(LeaderWanted("c2~1/1", "g", "#"))
    bench.at(9_900)
    assert (bench.status, bench.record.heard) == (LeaderStatus.LEADING, 0), "c1 has expired"
    bench.at(12_000)
    assert bench.status is LeaderStatus.RESIGNED


def blind(status, alone):
    """A leader whose listings fail from when it has this status on."""
    bench = Bench()
    record = LeaderRecord(L, "g", "#", bench.record.configuration, alone=alone)
    bench.node, bench.before = Node(LEADER, record, name=L, now_ns=0, check=True, observe=bench.saw), record
    if status is LeaderStatus.LOADING:
        apply, bench.apply = bench.apply, lambda effect: () if effect.service == "stream_store" else apply(effect)
        bench.start()
        bench.apply = apply
    else:
        bench.start()
    return bench


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("status", [LeaderStatus.LOADING, LeaderStatus.LEADING])
def test_SS_280_who_does_not_reach_the_stream_store_leaves_the_group_to_another_host(status, alone):
    bench = blind(status, alone)
    assert bench.status is status
    apply = bench.apply
    bench.apply = lambda effect: (FetchFailed(effect.request.n),) if effect.service == "stream_store" else apply(effect)
    if status is LeaderStatus.LOADING:
        bench.perform(bench.node.feed(FetchFailed(bench.record.list_n), 0))
    bench.at(1_500)
    assert bench.status is status
    bench.at(3_500)
    assert bench.status is (status if alone else LeaderStatus.RESIGNED)
    if not alone:
        assert bench.told[-1].unfit
        assert bench.stored("claim").leader == ""


def test_SS_280_a_listing_that_succeeds_begins_the_count_anew():
    bench = blind(LeaderStatus.LEADING, alone=False)
    apply = bench.apply
    for turn in range(1, 9):
        bench.apply = (
            (lambda effect: (FetchFailed(effect.request.n),) if effect.service == "stream_store" else apply(effect))
            if turn % 3
            else apply
        )
        bench.at(turn * 1_000 + 1)
    assert bench.status is LeaderStatus.LEADING


@pytest.mark.parametrize("alone", [False, True])
def test_SS_281_its_host_takes_the_claim_again_after_a_claim_ttl_and_a_find_leader(alone):
    host = Host(alone=alone)
    host.hear(WANTED)
    given_up = host.until(lambda: host.claim.leader == "")
    assert 5_000 <= given_up <= 6_000
    host.hear(WANTED, to="leader-1", at_ms=given_up)
    waited = host.until(lambda: host.claim.epoch == 2, given_up) - given_up
    assert waited == 0 if alone else C.claim_ttl_ms + C.find_leader_ms <= waited <= 5_000


def test_a_follower_that_knows_no_holder_passes_nobody_on():
    host = Host()
    host.hear(WANTED)
    given_up = host.until(lambda: host.claim.leader == "")
    host.hear(WANTED, to="leader-1", at_ms=given_up)
    (node,) = host.registry.nodes.values()
    assert (node.record.status, node.record.holder) == (LeaderStatus.FOLLOWER, "")
    assert host.hear(WANTED, to="leader-1", at_ms=given_up + 1) == []
