"""Subscription and Registry: what the hosts themselves decide, between the machines."""

from __future__ import annotations

import pytest

from statemachines.kernel import Ask, RemoteProtocolError, Send, Tell
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import (
    Claim,
    GroupStore,
    ReadDone,
    StoredRecord,
    StoreFailed,
)
from statemachines.shared_subscriptions.message import (
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    RevokeFinished,
    UpdateProgress,
)
from statemachines.shared_subscriptions.registry import Registry
from statemachines.shared_subscriptions.session import Ended
from statemachines.shared_subscriptions.session_record import FETCHING
from statemachines.shared_subscriptions.stream_store import Fetch
from statemachines.shared_subscriptions.subscription import Subscription

C = Configuration().check()
L = "leader-1~1/1"


def connected():
    host = Subscription("c1~1", "g", "#", "leader-1", C, check=True)
    declare(host)
    ((witness, asked),) = host.receive(L, "c1~1/1", LeaderConnectResponse("c1~1/1", L, 3, 1), 0)
    host.feed(witness, ReadDone(asked.request.n, (StoredRecord(Claim(L, 3), 1),), 1), 0)
    host.receive(L, "c1~1/1", PingResponse("c1~1/1", 3, 1, 1), MS)
    host.receive(L, "c1~1/1", Grant("c1~1/1", 3, 1, "s", 1, 0), 2 * MS)
    return host


def declare(host):
    """The group store does what the subscription asks of it."""
    store, out = GroupStore(), host.start(0)
    state = store.initial()
    while requests := [(party, effect.request) for party, effect in out if isinstance(effect, Ask)]:
        ((party, request),) = requests
        state, (answer,) = store.apply(state, request, 1)
        out = host.feed(party, answer, 0)
    return out


def sends(out):
    return [(effect.to, effect.message) for _, effect in out if isinstance(effect, Send)]


def test_the_end_of_a_subscription_is_told_to_the_application():
    host = connected()
    out = host.leave_all(5 * MS)
    assert host.is_ended
    assert (host.session, Tell(Ended("c1~1/1"))) in out
    assert host.take_messages(10, 6 * MS) == []
    assert host.leave_all(7 * MS) == []


def asked(out):
    return [effect.request for _, effect in out if isinstance(effect, Ask)]


def test_SS_220_a_registry_starts_one_leader_a_group_and_filter():
    host = Registry("leader-1~1", C)
    first = host.receive("a~1/1", "leader-1", LeaderWanted("a~1/1", "g", "#"), 0)
    assert len(asked(first)) == 1
    assert asked(host.receive("b~1/1", "leader-1", LeaderWanted("b~1/1", "g", "#"), 0)) == []
    host.receive("c~1/1", "leader-1", LeaderWanted("c~1/1", "h", "#"), 0)
    assert sorted(host.nodes) == ["leader-1~1/1", "leader-1~1/2"]
    host.feed("leader-1~1/1", StoreFailed(asked(first)[0].n), MS)
    host.halt(2 * MS)
    assert host.nodes == {}
    assert dict(host.leaders) == {}
    host.receive("a~1/1", "leader-1", LeaderWanted("a~1/1", "g", "#"), 0)
    assert sorted(host.nodes) == ["leader-1~1/3"], "a leader that resigned is followed by one with another id"


def test_SS_224_a_host_that_ends_starts_no_leader():
    """It would take the claim that was just given up, and keep it when the host is gone."""
    host = Registry("leader-1~1", C)
    first = host.receive("a~1/1", "leader-1", LeaderWanted("a~1/1", "g", "#"), 0)
    host.feed("leader-1~1/1", StoreFailed(asked(first)[0].n), MS)
    host.close(2 * MS)
    assert host.receive("a~1/1", "leader-1", LeaderWanted("a~1/1", "g", "#"), 3 * MS) == []
    assert (host.nodes, dict(host.leaders)) == ({}, {})


def test_SS_221_whoever_talks_to_a_leader_that_is_gone_is_told():
    host = Registry("leader-1~2", C)
    out = host.receive("a~1/1", "leader-1~1/1", Ping("a~1/1", 4, 2, 7), 0)
    assert sends(out) == [("a~1/1", Invalidate("a~1/1", 4, 2))]
    out = host.receive("a~1/1", "leader-1~1/1", UpdateProgress("a~1/1", 4, 2, "s", 1, 0, False), 0)
    assert sends(out) == [("a~1/1", Invalidate("a~1/1", 4, 2))]
    assert host.receive("a~1/1", "leader-1~1/1", RevokeFinished("a~1/1", 4, 2, "s", 1), 0) == []


def test_SS_222_who_was_passed_on_to_a_leader_that_is_gone_is_not_passed_on_again():
    host = Registry("leader-1~2", C)
    assert host.receive("a~1/1", "leader-1~1/1", LeaderWanted("a~1/1", "g", "#"), 0) == []
    assert host.nodes == {}


@pytest.mark.parametrize("gone", ["leader-1~1/1", "leader-1~2/1", "leader-1~2/7", "leader-2~2/1"])
def test_SS_256_a_leader_that_is_gone_is_started_anew_for_nobody(gone):
    """Of this life or another, of this host or another, and whoever leads the group by now."""
    host = Registry("leader-1~2", C)
    out = host.receive("a~1/1", "leader-1", LeaderWanted("a~1/1", "g", "#"), 0)
    assert list(host.nodes) == ["leader-1~2/1"]
    host.feed("leader-1~2/1", StoreFailed(asked(out)[0].n), 0)
    host.halt(0)
    assert host.receive("a~1/1", gone, LeaderWanted("a~1/1", "g", "#"), 0) == []
    assert host.nodes == {}
    assert dict(host.leaders) == {}
    host.receive("a~1/1", "leader-1", LeaderWanted("a~1/1", "g", "#"), 0)
    assert list(host.nodes) == ["leader-1~2/2"], "under an id of its own"


def test_SS_223_a_malformed_filter_is_the_peer_s_error_and_creates_nothing():
    host = Registry("leader-1~1", C)
    with pytest.raises(RemoteProtocolError, match="whole last level"):
        host.receive("a~1/1", "leader-1", LeaderWanted("a~1/1", "g", "x#"), 0)
    assert host.nodes == {}


@pytest.mark.parametrize("leave", [Subscription.end, Subscription.leave_all])
def test_SS_259_who_leaves_is_not_made_to_begin_anew_by_what_was_due(leave):
    host = connected()
    host.fire(1_100 * MS)  # a ping, which nobody answers
    leave(host, 3_500 * MS)
    host.fire(3_500 * MS)
    assert (host.record.recreated, host.is_ended) == (0, True)


def test_SS_260_the_next_fetch_goes_out_before_anything_else_is_heard():
    host = connected()
    assert not asked_for(host.nodes[host.session].record)
    out = host.take_messages(1, 2 * MS)
    assert [type(effect.request) for _, effect in out if isinstance(effect, Ask)] == [Fetch]
    assert asked_for(host.nodes[host.session].record)


def asked_for(session):
    return session.status is FETCHING
