"""The machines of a node together, clause by clause, over a store and without a network."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_cluster import MS, Cluster

from statemachines.drivers.persistent_sessions.host_request import PutMessage, ReadPayloads
from statemachines.kernel import Map, RemoteProtocolError
from statemachines.persistent_sessions.claims import Claims, SessionClaim
from statemachines.persistent_sessions.collector_record import RoundEnded
from statemachines.persistent_sessions.graces import Graces
from statemachines.persistent_sessions.life_record import CONNECTED, Accepted, SessionClosed
from statemachines.persistent_sessions.life_request import LeaveSession, LockClient
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.message import (
    Live,
    LiveMarker,
    MarkerWanted,
    Puback,
    Pubrec,
    Pubrel,
    Queued,
    Written,
)
from statemachines.persistent_sessions.owner_request import FindOwner, OwnerFound
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    CommitState,
    Fence,
    LoadSession,
    PutRows,
    SessionAbsent,
    StateChange,
    StateCommitted,
    SubscribeLive,
)
from statemachines.persistent_sessions.resume_record import NORMAL, TAKING, YIELDING
from statemachines.persistent_sessions.session_host import SessionHost
from statemachines.persistent_sessions.session_host_parties import life_of_owner
from statemachines.persistent_sessions.session_host_record import MatchedMessage, RoutedMessage, RowsSeen
from statemachines.persistent_sessions.session_host_writers import FILTER_BYTES_MAX, fold_routes
from statemachines.persistent_sessions.takeover_message import (
    BeginTakeover,
    EndTakeover,
    OwnerReplaced,
    TakeoverBegun,
    TakeoverEnded,
    TakeoverRefused,
)
from statemachines.persistent_sessions.times import Times


@pytest.fixture(autouse=True)
def close_stores():
    """Whoever opens a store closes it."""
    yield
    Cluster.close_all()


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path / "s.db", "a", "b")


def test_PS_140_a_client_has_its_session_once_its_resume_is_in_normal_operation(cluster):
    owner = cluster.connect("a", receive_maximum=7)
    assert owner == "a~1/1"
    life = cluster.life("a", owner)
    assert cluster.told == [(f"{owner}/life", Accepted(f"tablet@{owner}", False))]
    resume = cluster.hosts["a"].resume_of(owner)
    assert (resume.id, resume.session, resume.token) == (owner, life.session, life.token)
    assert resume.times.receive_maximum == 7
    assert cluster.asked_of(LoadSession) == [LoadSession("tablet", owner, life.token)]


def test_PS_140_no_client_receives_more_than_its_node_allows(tmp_path):
    cluster = Cluster(tmp_path / "s.db", "a", times=Times(receive_maximum=3))
    owner = cluster.connect("a", receive_maximum=9)
    assert cluster.hosts["a"].resume_of(owner).times.receive_maximum == 3


def test_PS_202_PS_203_of_many_that_wait_for_one_client_id_a_node_asks_for_the_newest(cluster):
    """Whoever has the lock is asked for nothing but what it has to do; nobody is left without an answer."""
    hosts = cluster.hosts
    held, given = hosts["a"].next_owner, {"clean": True, "expiry_ms": 0, "now_ns": 0}
    holds = hosts["a"].connect("tablet", 1, **given)
    ((party, effect),) = holds
    answers = asyncio.run(cluster.store.ask(effect.request))
    owners = []
    for _ in range(20):
        owners.append(hosts["b"].next_owner)
        cluster.act("b", hosts["b"].connect("tablet", 1, **given))
    closed = [party for party, event in cluster.told if event == SessionClosed("", "superseded")]
    assert closed == [life_of_owner(owner) for owner in owners[:-1]]
    assert list(hosts["b"].owners) == owners[-1:]
    cluster.act("a", [one for answer in answers for one in hosts["a"].feed(party, answer, 0)])
    cluster.pass_ms(200)
    assert [party for party, event in cluster.told if isinstance(event, Accepted)] == [
        life_of_owner(held), life_of_owner(owners[-1])
    ]  # fmt: skip
    last = cluster.life("b", owners[-1])
    assert (last.status, last.session) == (CONNECTED, f"tablet@{owners[-1]}")


def test_PS_203_a_client_that_is_connected_is_taken_over_and_not_superseded_unasked(cluster):
    first = cluster.connect("a")
    cluster.unanswered.add(LockClient)
    waits = cluster.connect("a")
    assert cluster.life("a", first).status is CONNECTED, "it is, until another has the lock"
    cluster.unanswered.clear()
    cluster.act("a", cluster.hosts["a"].lose(waits, cluster.now_ns))
    second = cluster.connect("a")
    assert [one for one in cluster.told if isinstance(one[1], SessionClosed)] == [
        (life_of_owner(waits), SessionClosed("", "lost")),
        (life_of_owner(first), SessionClosed(f"tablet@{first}", "superseded")),
    ]
    assert cluster.told_of(Accepted)[-1] == Accepted(f"tablet@{first}", True)
    cluster.act("a", cluster.hosts["a"].leave(second, cluster.now_ns))
    assert cluster.hosts["a"].record.newest == Map()


def test_PS_141_a_message_is_told_to_be_stored_when_its_last_row_is(cluster):
    one, two = cluster.connect("a", "one"), cluster.connect("b", "two")
    cluster.subscribe("a", one, "t/#")
    cluster.subscribe("a", one, "t/+")
    cluster.subscribe("b", two, "t/1")
    cluster.publish("a", "m1")
    assert len(cluster.told_of(Written)) == 1
    assert cluster.told_of(Written)[0].message == "m1"
    assert (cluster.got(one), cluster.got(two)) == (["m1", "m1"], ["m1"])
    assert cluster.hosts["a"].record.unwritten == Map()


def test_PS_141_of_messages_that_are_handed_over_together_each_is_told_when_its_last_row_is_stored(cluster):
    owners = [cluster.connect("a", name) for name in ("one", "two", "three")]
    for owner in owners:
        cluster.subscribe("a", owner)
    cluster.subscribe("a", owners[0], "t/+")
    sessions = [cluster.life("a", owner).session for owner in owners]
    handed = tuple(MatchedMessage(one, "t/#", 1) for one in sessions)
    more = (MatchedMessage(sessions[0], "t/+", 1), *handed[1:])
    for message in ("m1", "m2", "m3", "m4"):
        cluster.do(PutMessage(message, "t/1", b"", 1))
    together = [RoutedMessage("m1", handed), RoutedMessage("m2", handed), RoutedMessage("m3", (*more, *handed[:1]))]
    cluster.act("a", cluster.hosts["a"].publish([*together, RoutedMessage("m4", handed[:1])], cluster.now_ns))
    assert sorted(one.message for one in cluster.told_of(Written)) == ["m1", "m2", "m3", "m4"]
    assert [cluster.got(owner) for owner in owners] == [["m1", "m2", "m3", "m3", "m4"], *[["m1", "m2", "m3"]] * 2]
    assert [len(one.rows) for one in cluster.asked_of(PutRows)] == [4, 3, 3]
    assert cluster.hosts["a"].record.unwritten == Map()


def test_PS_142_a_writer_begins_when_it_is_needed_and_learns_where_its_session_is_live(cluster):
    owner = cluster.connect("a")
    cluster.subscribe("a", owner)
    session = cluster.life("a", owner).session
    assert cluster.hosts["b"].writers == Map()
    cluster.publish("b", "m1")
    assert list(cluster.hosts["b"].writers) == [session]
    assert cluster.asked.index(BeginEpoch(session, "b")) < cluster.asked.index(FindOwner(session))
    assert any(isinstance(one, Live) and one.writer == "b" for one in cluster.sent)
    assert cluster.got(owner) == ["m1"]
    cluster.publish("b", "m2")
    assert len(cluster.asked_of(BeginEpoch)) == 1


def test_PS_142_a_writer_of_a_session_that_is_live_nowhere_sends_nothing(cluster):
    owner = cluster.connect("a")
    cluster.subscribe("a", owner)
    cluster.act("a", cluster.hosts["a"].leave(owner, cluster.now_ns))
    cluster.publish("b", "m1")
    assert cluster.told_of(Written)
    assert [one for one in cluster.sent if isinstance(one, Live)] == []


def test_PS_143_a_request_for_a_marker_says_where_the_session_is_live(cluster):
    owner = cluster.connect("a")
    cluster.subscribe("a", owner)
    cluster.publish("b", "m1")
    record = cluster.hosts["b"].nodes[cluster.hosts["b"].writers[cluster.life("a", owner).session]].record
    assert (record.to, record.token) == (owner, cluster.life("a", owner).token)
    cluster.act("a", cluster.hosts["a"].lose(owner, cluster.now_ns))
    again = cluster.connect("a")
    record = cluster.hosts["b"].nodes[cluster.hosts["b"].writers[cluster.life("a", again).session]].record
    assert (record.to, record.token) == (again, cluster.life("a", again).token)


def wanted(host, session, owner, token):
    """Its owner wants a marker, and the database says that it is its owner."""
    ((party, effect),) = host.receive(owner, host.node, MarkerWanted(session, owner, token, 1), 0)
    assert effect.request == FindOwner(session, 1)
    host.feed(party, OwnerFound(owner, token, session, 1), 0)


def test_PS_143_an_owner_that_was_not_found_takes_nothing_from_one_that_has_spoken_since():
    host = SessionHost("b~1")
    wanted(host, "s", "a~1/1", 7)
    writer = host.writers["s"]
    host.feed(host.id, OwnerFound("", 7, "s"), 0)
    assert host.nodes[writer].record.to == "a~1/1"
    host.feed(host.id, OwnerFound("c~1/1", 8, "s"), 0)
    assert host.nodes[writer].record.to == "c~1/1"


def test_PS_143_a_marker_makes_a_writer_begin(cluster):
    owner = cluster.connect("a")
    cluster.subscribe("a", owner)
    cluster.publish("b", "m1")
    cluster.act("a", cluster.hosts["a"].lose(owner, cluster.now_ns))
    cluster.publish("b", "m2")
    cluster.start("b", 2)
    again = cluster.connect("a")
    cluster.pass_ms(100)
    assert len(cluster.told_of(Accepted)) == 2
    assert cluster.got(again) == ["m1", "m2"]


def test_PS_144_what_comes_live_goes_to_the_owner_of_that_session_alone(cluster):
    one, two = cluster.connect("a", "one"), cluster.connect("a", "two")
    session = cluster.life("a", one).session
    row = Live(session, "b", 1, Queued(1, "m1"))
    before = cluster.hosts["a"].resume_of(one)
    for to in (two, "a~1/99", f"{one}/life"):
        assert cluster.hosts["a"].receive("b~1/4", to, row, 0) == []
    assert cluster.hosts["a"].resume_of(one) == before
    assert cluster.hosts["a"].receive("b~1/4", one, row, 0) != []
    assert "b" in cluster.hosts["a"].resume_of(one).flows


@pytest.mark.parametrize(
    ("sender", "message"),
    [
        ("b~1/4", Live("s", "c", 1, Queued(1, "m1"))),
        ("b~1/4", LiveMarker("s", "c", 1, 1, 1, 1)),
        ("b~1/4", MarkerWanted("s", "b~1/5", 1, 1)),
        ("b~1/4", Puback(1)),
    ],
)
def test_PS_144_nobody_speaks_for_another(cluster, sender, message):
    with pytest.raises(RemoteProtocolError):
        cluster.hosts["a"].receive(sender, "a~1/1", message, 0)
    assert cluster.hosts["a"].writers == Map()


def test_PS_145_where_another_connection_has_the_session_everything_of_this_one_ends(cluster):
    first = cluster.connect("a")
    second = cluster.connect("b")
    cluster.pass_ms(2_000, 100)  # the first says that it lives, and hears that it does not
    assert [(party, event.why) for party, event in cluster.told if isinstance(event, SessionClosed)] == [
        (f"{first}/life", "superseded")
    ]
    assert cluster.hosts["a"].nodes == {}
    assert cluster.hosts["a"].owners == Map()
    assert cluster.life("b", second).status.value == "connected"


def test_PS_145_where_a_session_is_taken_over_its_connection_before_ends(cluster):
    cluster.connect("a")
    cluster.connect("b")
    assert [event.why for event in cluster.told_of(SessionClosed)] == ["superseded"]
    assert cluster.asked_of(LeaveSession) == []  # it touches nothing
    assert cluster.hosts["a"].nodes == {}


def test_PS_618_an_owner_whose_session_the_database_shows_superseded_ends(cluster):
    owner = cluster.connect("a")
    host = cluster.hosts["a"]
    cluster.act("a", host.take_look(RowsSeen(owner), cluster.now_ns))
    assert list(host.owners) == [owner]
    cluster.act("a", host.take_look(RowsSeen(owner, superseded=True), cluster.now_ns))
    assert [event.why for event in cluster.told_of(SessionClosed)] == ["superseded"]
    assert not host.owners
    assert host.resume_of(owner).status is YIELDING
    assert cluster.asked_of(LeaveSession) == []


def test_PS_145_a_resume_that_takes_too_long_ends_its_connection(tmp_path):
    cluster = Cluster(tmp_path / "s.db", "a", times=Times(resume_ms=500, marker_ms=400, begin_ms=300, repeat_ms=100))
    cluster.unanswered |= {SubscribeLive}
    owner = cluster.connect("a")
    cluster.pass_ms(400)
    assert cluster.told == []
    cluster.pass_ms(100)
    assert cluster.told[-1] == (f"{owner}/life", SessionClosed(f"tablet@{owner}", "lost"))
    assert cluster.hosts["a"].nodes == {}


def test_PS_145_a_session_that_is_discarded_while_it_resumes_ends_its_connection(cluster):
    cluster.unanswered |= {LoadSession}
    owner = cluster.connect("a")
    cluster.feed("a", owner, SessionAbsent())
    assert cluster.told == [(f"{owner}/life", SessionClosed(f"tablet@{owner}", "discarded"))]
    assert cluster.hosts["a"].nodes == {}


def test_PS_147_a_writer_that_does_not_answer_is_fenced_and_the_client_connected(cluster):
    first = cluster.connect("b")
    cluster.subscribe("b", first)
    cluster.act("b", cluster.hosts["b"].lose(first, cluster.now_ns))
    cluster.publish("b", "m1")
    cluster.hosts.pop("b")
    late = cluster.connect("a")
    cluster.pass_ms(cluster.hosts["a"].record.times.marker_ms - 50, 50)
    assert cluster.asked_of(Fence) == []
    cluster.pass_ms(100, 50)
    assert len(cluster.asked_of(Fence)) == 1
    assert cluster.got(late) == ["m1"]


def test_PS_423_a_node_that_has_died_with_the_session_is_fenced_at_once(cluster):
    first = cluster.connect("b")
    cluster.subscribe("b", first)
    cluster.publish("b", "m1")
    cluster.hosts.pop("b")
    late = cluster.connect("a")
    assert len(cluster.asked_of(Fence)) == 1
    assert cluster.got(late) == ["m1"]


def test_PS_145_the_writer_here_sends_nothing_live_to_an_owner_that_has_ended(cluster):
    owner = cluster.connect("a")
    cluster.subscribe("a", owner)
    cluster.publish("a", "m1")
    session = cluster.life("a", owner).session
    cluster.act("a", cluster.hosts["a"].lose(owner, cluster.now_ns))
    host = cluster.hosts["a"]
    assert host.nodes[host.writers[session]].record.to == ""
    assert list(host.nodes) == [host.writers[session]]
    assert host.deadline() is None


@pytest.mark.parametrize("goes", [SessionHost.leave, SessionHost.lose], ids=["leaves", "is lost"])
def test_PS_146_what_a_client_has_acknowledged_when_it_goes_does_not_come_again(cluster, goes):
    owner = cluster.connect("a")
    cluster.subscribe("a", owner)
    for number in (1, 2, 3):
        cluster.publish("a", f"m{number}")
    host = cluster.hosts["a"]
    for one in cluster.heard[owner][:2]:
        cluster.act("a", host.acknowledge(owner, [Puback(one.packet)], cluster.now_ns))
    commits = len(cluster.asked_of(CommitState))
    cluster.act("a", goes(host, owner, cluster.now_ns))
    assert len(cluster.asked_of(CommitState)) == commits + 1
    again = cluster.connect("b")
    assert [(one.message, one.dup) for one in cluster.heard[again]] == [("m3", True)]


@pytest.mark.parametrize("goes", [SessionHost.leave, SessionHost.lose], ids=["leaves", "is lost"])
def test_PS_146_what_a_client_has_received_while_a_commit_was_open_does_not_come_again(cluster, goes):
    """Of QoS 2: the receipt waits for the next commit, and there is none."""
    owner = cluster.connect("a")
    cluster.subscribe("a", owner, qos=2)
    for number in (1, 2):
        cluster.publish("a", f"m{number}", qos=2)
    host = cluster.hosts["a"]
    cluster.unanswered |= {CommitState}
    cluster.publish("a", "m3", qos=2)
    cluster.act("a", host.acknowledge(owner, [Pubrec(1)], cluster.now_ns))
    assert [one.received for one in host.resume_of(owner).delivery.inbox] == [Pubrec(1)]
    cluster.unanswered.clear()
    cluster.act("a", goes(host, owner, cluster.now_ns))
    again = cluster.connect("b")
    assert cluster.heard[again][0] == Pubrel(1)
    assert [(one.message, one.dup) for one in cluster.heard[again][1:]] == [("m2", True), ("m3", True)]


def test_PS_146_what_a_client_has_acknowledged_is_committed_without_the_next_message(cluster):
    owner = cluster.connect("a")
    cluster.subscribe("a", owner)
    for number in (1, 2, 3):
        cluster.publish("a", f"m{number}")
    host = cluster.hosts["a"]
    assert host.commit_acknowledged(cluster.now_ns) == []
    for one in cluster.heard[owner][:2]:
        cluster.act("a", host.acknowledge(owner, [Puback(one.packet)], cluster.now_ns))
    out = host.commit_acknowledged(cluster.now_ns)
    assert [effect.request for _, effect in out] == [
        CommitState(host.resume_of(owner).session, host.resume_of(owner).token, StateChange(ended=(1, 2), places=3))
    ]
    cluster.act("a", out)
    assert host.commit_acknowledged(cluster.now_ns) == []
    again = cluster.connect("b")  # the first is dead for all that we know
    assert [(one.message, one.dup) for one in cluster.heard[again]] == [("m3", True)]


def test_PS_146_that_commit_is_not_taken_for_another(cluster):
    """A message that is taken while it is under way waits for its own."""
    owner = cluster.connect("a")
    cluster.subscribe("a", owner)
    cluster.publish("a", "m1")
    host = cluster.hosts["a"]
    cluster.act("a", host.acknowledge(owner, [Puback(1)], cluster.now_ns))
    waiting = host.commit_acknowledged(cluster.now_ns)
    cluster.unanswered |= {CommitState}
    cluster.publish("a", "m2")
    cluster.unanswered.clear()
    cluster.act("a", waiting)
    assert cluster.got(owner) == ["m1"]
    cluster.feed("a", owner, StateCommitted())
    assert cluster.got(owner) == ["m1", "m2"]


def test_PS_146_a_client_may_say_anew_how_long_its_session_outlives_it(cluster):
    owner = cluster.connect("a")
    cluster.act("a", cluster.hosts["a"].leave(owner, cluster.now_ns, 0))
    assert [event.why for event in cluster.told_of(SessionClosed)] == ["left"]
    again = cluster.connect("b")
    assert cluster.life("b", again).present is False


def test_PS_147_a_lost_link_and_a_dead_node_concern_those_who_follow_it(cluster):
    owner, other = cluster.connect("a", "one"), cluster.connect("a", "two")
    cluster.subscribe("a", owner)
    cluster.publish("b", "m1")
    wanted = len([one for one in cluster.sent if isinstance(one, MarkerWanted)])
    cluster.act("a", cluster.hosts["a"].lose_link("b", cluster.now_ns))
    assert len([one for one in cluster.sent if isinstance(one, MarkerWanted)]) == wanted + 1
    cluster.lost |= {Live, LiveMarker}
    cluster.publish("b", "m2")
    assert cluster.got(owner) == ["m1"]
    cluster.hosts.pop("b")
    cluster.act("a", cluster.hosts["a"].lose_writer("b", cluster.now_ns))
    assert cluster.got(owner) == ["m1", "m2"]
    assert len(cluster.asked_of(Fence)) == 1
    cluster.act("a", cluster.hosts["a"].lose_writer("b", cluster.now_ns))
    assert len(cluster.asked_of(Fence)) == 1  # everything of it is read
    assert cluster.hosts["a"].resume_of(other).flows.get("b") is None


def test_PS_147_a_writer_that_was_not_heard_of_is_met_once(cluster):
    owner = cluster.connect("a")
    cluster.subscribe("a", owner)
    cluster.lost |= {Live}
    cluster.publish("b", "m1")
    assert cluster.got(owner) == []
    seen = RowsSeen(owner, writers=("b",))
    cluster.act("a", cluster.hosts["a"].take_look(seen, cluster.now_ns))
    cluster.pass_ms(50)
    assert cluster.got(owner) == ["m1"]
    assert cluster.hosts["a"].take_look(seen, cluster.now_ns) == []


def test_PS_153_a_row_that_two_looks_have_found_was_lost_on_its_way(cluster):
    owner = cluster.connect("a")
    cluster.subscribe("a", owner)
    cluster.publish("b", "m1")
    cluster.act("a", cluster.hosts["a"].take_look(RowsSeen(owner, writers=("b",)), cluster.now_ns))
    cluster.pass_ms(50)
    assert cluster.got(owner) == ["m1"]
    cluster.lost |= {Live}
    cluster.publish("b", "m2")
    seen = RowsSeen(owner, rows=Map({"b": (1, 2), "c": (1, 1)}))
    assert cluster.hosts["a"].take_look(seen, cluster.now_ns) == [], "it may be on its way"
    cluster.act("a", cluster.hosts["a"].take_look(seen, cluster.now_ns))
    cluster.pass_ms(50)
    assert cluster.got(owner) == ["m1", "m2"]
    assert cluster.hosts["a"].take_look(RowsSeen(owner), cluster.now_ns) == [], "that row is taken"
    assert not cluster.hosts["a"].record.behind


@pytest.mark.parametrize("name", ["a", "b"])
def test_PS_615_PS_616_a_fresh_session_ends_the_connection_that_had_the_one_before(cluster, name):
    """At its node, or at another one, before that one looks at its lease."""
    first = cluster.connect("a")
    cluster.connect(name, clean=True)
    assert [event.why for event in cluster.told_of(SessionClosed)] == ["discarded"]
    assert [event.present for event in cluster.told_of(Accepted)] == [False, False]
    assert first not in cluster.hosts["a"].nodes
    assert cluster.asked_of(LeaveSession) == [], "nothing of it is touched"


def test_PS_164_who_says_that_an_owner_is_replaced_is_believed_when_the_database_says_the_same(cluster):
    first = cluster.connect("a")
    host = cluster.hosts["a"]
    cluster.act("a", host.receive("c~1/1", first, OwnerReplaced("tablet", "c~1/1", 9), 0))
    assert first in host.owners
    assert [one.session for one in cluster.asked_of(FindOwner)] == [host.resume_of(first).session]
    with pytest.raises(RemoteProtocolError, match="speaks for another"):
        host.receive("c~1/1", first, OwnerReplaced("tablet", "b~1/1", 9), 0)
    assert host.receive("c~1/1", "a~1/7", OwnerReplaced("tablet", "c~1/1", 9), 0) == []


def test_PS_617_what_waits_for_an_answer_and_does_not_go_is_answered_here(cluster):
    takes_over(cluster)
    cluster.lost |= {BeginTakeover}
    second = cluster.connect("b")
    host = cluster.hosts["b"]
    resume = host.resume_of(second)
    assert host.fail_to_send(second, resume.old, MarkerWanted(resume.session, second, resume.token, 1), 0) == []
    out = host.fail_to_send(second, resume.old, BeginTakeover("tablet", second, resume.token), 0)
    cluster.act("b", out)
    assert host.resume_of(second).old == ""


def test_PS_148_a_node_has_so_many_writers_and_one_that_is_idle_goes(tmp_path):
    cluster = Cluster(tmp_path / "s.db", "a", writers_max=2)
    owners = {name: cluster.connect("a", name) for name in ("one", "two", "three")}
    for name, owner in owners.items():
        cluster.subscribe("a", owner, name)
    for name in ("one", "two", "three", "one"):
        cluster.publish("a", f"m{name}{cluster.now_ns}", name)
        cluster.now_ns += MS
    cluster.pass_ms(100)
    host = cluster.hosts["a"]
    assert len(host.writers) == 2
    assert len([one for one in host.nodes if one in host.writers.values()]) == 2
    assert cluster.got(owners["one"]) == ["mone0", f"mone{3 * MS}"]
    assert cluster.hosts["a"].nodes[host.writers[cluster.life("a", owners["one"]).session]].record.epoch == 2


def test_PS_148_no_writer_goes_while_a_message_is_being_handed_to_it(tmp_path):
    """A message is for a session whose writer is idle, and for another that has none: room is made behind it."""
    cluster = Cluster(tmp_path / "s.db", "a", writers_max=1)
    owners = {name: cluster.connect("a", name) for name in ("one", "two")}
    cluster.subscribe("a", owners["one"], "t/#")
    cluster.publish("a", "m1")
    cluster.subscribe("a", owners["two"], "t/#")
    cluster.publish("a", "m2")
    assert [one.message for one in cluster.told_of(Written)] == ["m1", "m2"]
    assert [cluster.got(owner) for owner in owners.values()] == [["m1", "m2"], ["m2"]]


def test_PS_148_a_writer_that_is_busy_stays():
    host = SessionHost("a~1", writers_max=1)
    wanted(host, "s1", "b~1/1", 1)
    wanted(host, "s2", "b~1/1", 1)
    assert sorted(host.writers) == ["s1", "s2"]


def test_PS_149_a_node_collects_what_nobody_needs(tmp_path):
    graces = Graces(message_ms=1, round_ms=100)
    cluster = Cluster(tmp_path / "s.db", "a", graces=graces)
    owner = cluster.connect("a")
    cluster.subscribe("a", owner)
    cluster.publish("a", "m1")
    cluster.publish("a", "m2")
    (first, _) = cluster.heard[owner]
    cluster.feed("a", owner, Puback(first.packet))
    cluster.publish("a", "m3")  # its commit has the acknowledgement with it
    time.sleep(0.01)  # the database has a clock of its own
    cluster.pass_ms(250, 50)
    ended = cluster.told_of(RoundEnded)[0]
    assert (ended.messages, ended.whole) == (1, True)
    found = cluster.do(ReadPayloads(("m1", "m2", "m3"), 2**20))
    assert {message for message, payload in found.items() if payload is not None} == {"m2", "m3"}
    without = Cluster(tmp_path / "other.db", "a")
    without.pass_ms(20_000, 5_000)
    assert without.asked == []


def test_a_host_says_how_long_its_parties_wait():
    host = SessionHost("a~1", Times(marker_ms=1_000), LifeTimes(alive_ms=7))
    assert (host.record.times.marker_ms, host.record.life_times.alive_ms) == (1_000, 7)


def takes_over(cluster):
    """`tablet` on node a, with a message in flight, and one that waits for room."""
    first = cluster.connect("a", receive_maximum=1)
    cluster.subscribe("a", first)
    cluster.publish("a", "m1")
    cluster.publish("b", "m2")
    assert cluster.got(first) == ["m1"]
    return first


def test_PS_160_a_session_that_is_live_elsewhere_is_taken_over(cluster):
    first = takes_over(cluster)
    second = cluster.connect("b")
    cluster.pass_ms(1_000)
    assert cluster.hosts["b"].resume_of(second).old == first
    assert [type(one) for one in cluster.sent if isinstance(one, BeginTakeover | TakeoverBegun | TakeoverEnded)] == [
        BeginTakeover,
        TakeoverBegun,
        TakeoverEnded,
    ]
    assert [(one.message, one.dup) for one in cluster.heard[second]] == [("m1", True), ("m2", False)]
    cluster.publish("a", "m3")
    assert cluster.got(second)[-1] == "m3"
    assert cluster.got(first) == ["m1"]


def test_PS_160_a_clean_start_takes_nothing_over(cluster):
    takes_over(cluster)
    second = cluster.connect("b", clean=True)
    assert cluster.hosts["b"].resume_of(second).old == ""
    assert cluster.got(second) == []


@pytest.mark.parametrize("kind", [BeginTakeover, EndTakeover])
def test_PS_160_for_an_owner_that_is_not_here_the_host_refuses(cluster, kind):
    owner = cluster.connect("a")
    for to, client in (("a~1/99", "tablet"), ("a~0/1", "tablet"), (owner, "somebody")):
        ((_, effect),) = cluster.hosts["a"].receive("b~1/5", to, kind(client, "b~1/5", 9), 0)
        assert (effect.to, effect.message) == ("b~1/5", TakeoverRefused(client, 9))
    assert cluster.hosts["a"].resume_of(owner).status is NORMAL


def test_PS_160_only_the_node_of_the_owner_of_before_speaks_for_it(cluster):
    takes_over(cluster)
    cluster.lost |= {BeginTakeover}
    second = cluster.connect("b")
    resume = cluster.hosts["b"].resume_of(second)
    assert resume.status is TAKING
    for message in (TakeoverBegun, TakeoverRefused, TakeoverEnded):
        with pytest.raises(RemoteProtocolError):
            cluster.hosts["b"].receive("c~1/1", second, message("tablet", resume.token), 0)
    with pytest.raises(RemoteProtocolError):
        cluster.hosts["b"].receive("c~1/1", second, BeginTakeover("tablet", "b~1/7", 99), 0)
    assert cluster.hosts["b"].resume_of(second) == resume


def test_PS_160_an_owner_that_has_asked_twice_is_refused_twice(cluster):
    """The second refusal comes when it takes over from nobody any more, and its sender is no liar."""
    first = takes_over(cluster)
    cluster.lost |= {BeginTakeover}
    second = cluster.connect("b")
    host = cluster.hosts["b"]
    refused = TakeoverRefused("tablet", host.resume_of(second).token)
    host.receive(first.partition("/")[0], second, refused, 0)
    assert host.resume_of(second).old == ""
    host.receive(first.partition("/")[0], second, refused, 0)


def test_PS_161_who_yields_is_superseded_and_is_there_until_it_has_handed_over(cluster):
    first = takes_over(cluster)
    cluster.lost |= {EndTakeover}
    second = cluster.connect("b", receive_maximum=100)
    cluster.pass_ms(100)
    assert [(party, event.why) for party, event in cluster.told if isinstance(event, SessionClosed)] == [
        (f"{first}/life", "superseded")
    ]
    assert cluster.hosts["a"].owners == Map()
    assert cluster.hosts["a"].resume_of(first).status is YIELDING
    commits = len(cluster.asked_of(CommitState))
    cluster.act("a", cluster.hosts["a"].acknowledge(first, [Puback(1)], cluster.now_ns))
    cluster.act("a", cluster.hosts["a"].commit_acknowledged(cluster.now_ns))
    assert len(cluster.asked_of(CommitState)) == commits
    cluster.lost.clear()
    cluster.pass_ms(1_000)
    assert cluster.hosts["a"].resume_of(first) is None
    assert [one for one in cluster.hosts["a"].nodes if one.startswith(first)] == []
    assert cluster.got(second) == ["m1", "m2"]


def test_PS_161_who_yields_and_is_never_asked_to_end_ends_by_itself(tmp_path):
    times = Times(
        lock_ms=3_000, resume_ms=1_000, marker_ms=500, begin_ms=400, end_ms=400, orphan_ms=3_000, repeat_ms=100
    )
    cluster = Cluster(tmp_path / "s.db", "a", "b", times=times)
    first = takes_over(cluster)
    cluster.lost |= {EndTakeover}
    second = cluster.connect("b", receive_maximum=100)
    cluster.pass_ms(2_900, 50)
    assert cluster.hosts["a"].resume_of(first).status is YIELDING
    cluster.pass_ms(200, 50)
    assert cluster.hosts["a"].resume_of(first) is None
    assert cluster.got(second) == ["m1", "m2"]


@pytest.mark.parametrize("token", [0, 1, 2, 2**61])
def test_PS_164_whoever_claims_a_session_that_is_not_its_own_changes_nothing(cluster, token):
    owner = cluster.connect("a")
    cluster.subscribe("a", owner)
    cluster.publish("a", "m1")
    host, session = cluster.hosts["a"], cluster.life("a", owner).session
    writer = host.nodes[host.writers[session]].record
    for message in (MarkerWanted(session, "evil~1/1", token, 1), BeginTakeover("tablet", "evil~1/1", token)):
        cluster.act("a", host.receive("evil~1/1", owner, message, cluster.now_ns))
    assert host.nodes[host.writers[session]].record == writer
    assert host.resume_of(owner).status is NORMAL
    cluster.publish("a", "m2")
    assert cluster.got(owner) == ["m1", "m2"]


def test_PS_164_a_session_that_is_none_gets_no_writer(cluster):
    host = cluster.hosts["a"]
    cluster.act("a", host.receive("evil~1/1", "a", MarkerWanted("none", "evil~1/1", 1, 1), 0))
    assert cluster.asked_of(FindOwner) == [FindOwner("none", 1)]
    assert host.writers == Map()


def held(claims, *words, session="s"):
    """With these words of other nodes, in turn."""
    for message in words:
        claims = claims.hold(session, SessionClaim("a", message))
    return claims


def test_PS_164_of_a_session_a_bounded_number_of_claims_waits():
    owners = [f"n{number}~1/1" for number in range(40)]
    words = [MarkerWanted("s", owner, 7, 1) for owner in owners]
    claims = held(Claims(), *words)
    assert claims.look_of("s") == 1
    assert len(claims.of["s"].waiting) == 32
    for owner, heard in ((owners[31], True), (owners[32], False)):
        assert bool(claims.proved_by(OwnerFound(owner, 7, "s", 2))) is heard
    again = MarkerWanted("s", owners[0], 7, 2)
    proved = held(claims, again).proved_by(OwnerFound(owners[0], 7, "s", 1))
    assert proved == (SessionClaim("a", again, 1),), "the last of each, and what is said again keeps its look"
    first = claims.without(OwnerFound("", 0, "s", 1))
    assert (first.look_of("s"), len(first.of["s"].waiting)) == (2, 31)
    assert first.without(OwnerFound("", 0, "s", 2)) == Claims(), "they were all judged"


def test_PS_164_one_look_is_open_for_a_session():
    host = SessionHost("b~1")
    asks = [host.receive(f"n{n}~1/1", "b", MarkerWanted("s", f"n{n}~1/1", 7, 1), 0) for n in (1, 2)]
    assert [len(one) for one in asks] == [1, 0]
    ((_, second),) = host.feed(host.id, OwnerFound("n2~1/1", 7, "s", 1), 0)
    assert second.request == FindOwner("s", 2)
    assert not host.writers
    host.feed(host.id, OwnerFound("n2~1/1", 7, "s", 2), 0)
    assert host.nodes[host.writers["s"]].record.to == "n2~1/1"
    assert host.record.claims == Claims()


def test_PS_630_what_a_writer_has_asked_drops_no_claim():
    """The writer asks when it begins; the owner subscribes, and asks for a marker before the old answer comes."""
    host = SessionHost("b~1")
    asked = host.publish([RoutedMessage("m1", (MatchedMessage("s", "t", 1),))], 0)
    assert [effect.request for _, effect in asked if isinstance(getattr(effect, "request", None), FindOwner)] == [
        FindOwner("s")
    ]
    ((_, look),) = host.receive("a~1/1", "b", MarkerWanted("s", "a~1/1", 7, 1), 0)
    assert look.request == FindOwner("s", 1)
    host.feed(host.id, OwnerFound("", 6, "s"), 0)
    writer = host.writers["s"]
    assert (host.nodes[writer].record.to, host.nodes[writer].record.waiting) == ("", None)
    host.feed(host.id, OwnerFound("a~1/1", 7, "s", 1), 0)
    record = host.nodes[writer].record
    assert (record.to, record.waiting) == ("a~1/1", MarkerWanted("s", "a~1/1", 7, 1))
    assert host.record.claims == Claims()


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (MarkerWanted("s", "n~1/1", 7, 2), MarkerWanted("s", "n~1/2", 8, 1)),
        (MarkerWanted("s", "n~1/1", 7, 1), MarkerWanted("s", "n~1/1", 7, 2)),
        (BeginTakeover("c", "n~1/1", 7), BeginTakeover("c", "n~2/1", 8)),
        (OwnerReplaced("c", "n~1/1", 7), OwnerReplaced("c", "n~1/2", 8)),
    ],
)
def test_PS_680_of_the_claims_of_a_node_the_latest_waits_in_whatever_order_they_come(earlier, later):
    waiting = [held(Claims(), *words).of["s"].waiting for words in ((earlier, later), (later, earlier))]
    assert [[one.message for one in some] for some in waiting] == [[later], [later]]


def test_PS_164_a_node_that_claims_much_takes_nobody_elses_place():
    claims = Claims()
    for number in range(1_000):
        claims = held(claims, MarkerWanted("s", f"evil~1/{number}", 7, 1), BeginTakeover("c", f"evil~1/{number}", 7))
    true = MarkerWanted("s", "n~1/1", 7, 1)
    proved = held(claims, true).proved_by(OwnerFound("n~1/1", 7, "s", 2))
    assert [one.message for one in proved] == [BeginTakeover("c", "evil~1/999", 7), true]


@pytest.mark.parametrize(
    ("found", "heard"),
    [(("", 7), ["begin"]), (("n~1/1", 7), ["marker", "begin"]), (("n~1/1", 8), []), (("n~1/1", 6), []), (("", 0), [])],
)
def test_PS_164_what_the_database_bears_out_is_heard(found, heard):
    said = {"marker": MarkerWanted("s", "n~1/1", 7, 1), "begin": BeginTakeover("c", "n~1/2", 7)}
    proved = held(Claims(), *said.values()).proved_by(OwnerFound(*found, "s", 2))
    assert [one.message for one in proved] == [said[name] for name in heard]


def test_PS_164_sessions_that_are_looked_for_are_bounded(monkeypatch):
    monkeypatch.setattr("statemachines.persistent_sessions.claims.SESSIONS_MAX", 2)
    claims = Claims()
    for session in ("s1", "s2", "s3"):
        claims = held(claims, MarkerWanted(session, "n~1/1", 1, 1), session=session)
    assert [claims.look_of(session) for session in ("s1", "s2", "s3")] == [1, 1, 0]
    claims = held(claims.without(OwnerFound("", 0, "s1", 1)), MarkerWanted("s3", "n~1/1", 1, 1), session="s3")
    assert claims.look_of("s3") == 1


def test_PS_550_a_message_is_one_row_of_a_session_for_all_filters_of_one_quality(cluster):
    owner, other = cluster.connect("a", "one"), cluster.connect("a", "two")
    for topic_filter in ("t/#", "t/+"):
        cluster.subscribe("a", owner, topic_filter)
    cluster.subscribe("a", other)
    first, second = (cluster.life("a", one).session for one in (owner, other))
    handed = [
        MatchedMessage(first, "t/#", 1),
        MatchedMessage(second, "t/#", 1),
        MatchedMessage(first, "t/+", 1),
        MatchedMessage(first, "t/1", 0),
    ]
    cluster.do(PutMessage("m1", "t/1", b"", 1))
    cluster.act("a", cluster.hosts["a"].publish([RoutedMessage("m1", tuple(handed))], cluster.now_ns))
    rows = {one.session: [(row.filter, row.more, row.qos) for row in one.rows] for one in cluster.asked_of(PutRows)}
    assert rows == {first: [("t/1", (), 0), ("t/#", ("t/+",), 1)], second: [("t/#", (), 1)]}
    assert [one.message for one in cluster.told_of(Written)] == ["m1"]
    assert cluster.got(owner) == ["m1"] * 3
    assert cluster.hosts["a"].record.unwritten == Map()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 30_000)), min_size=1, max_size=20))
def test_PS_550_a_row_lists_no_more_filters_than_have_room_in_a_frame(subscribed):
    routes = [MatchedMessage("s", f"{place}/" + "x" * size, qos, 7) for place, (qos, size) in enumerate(subscribed)]
    rows = fold_routes(routes)
    listed = [(one, qos) for first, qos, _, more in rows for one in (first, *more)]
    assert sorted(listed) == sorted((one.filter, one.qos) for one in routes)
    assert all(sum(map(len, (first, *more))) <= FILTER_BYTES_MAX or not more for first, _, _, more in rows)
    needed = {qos: sum(len(one.filter) for one in routes if one.qos == qos) for qos in range(3)}
    assert len(rows) <= sum(-(-2 * size // FILTER_BYTES_MAX) for size in needed.values())
