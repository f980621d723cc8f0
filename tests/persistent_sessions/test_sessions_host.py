"""The machines of a node together, clause by clause, over a store and without a network."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_host_world import Cluster
from waiting import pause

from statemachines.drivers.persistent_sessions.host_requests import ReadPayloads
from statemachines.kernel import Map, RemoteProtocolError
from statemachines.persistent_sessions.collector import Graces, RoundEnded
from statemachines.persistent_sessions.life_record import Accepted, SessionClosed
from statemachines.persistent_sessions.life_request import LeaveSession
from statemachines.persistent_sessions.message import (
    Live,
    LiveMarker,
    MarkerWanted,
    Puback,
    Queued,
    Written,
)
from statemachines.persistent_sessions.request import (
    LoadSession,
    SessionAbsent,
)
from statemachines.persistent_sessions.resume_record import YIELDING
from statemachines.persistent_sessions.session_host_peers import FILTER_BYTES_MAX, fold_routes
from statemachines.persistent_sessions.session_host_process import SessionHost
from statemachines.persistent_sessions.session_host_record import MatchedMessage, RoutedMessage, RowsSeen
from statemachines.persistent_sessions.takeover_record import (
    BeginTakeover,
    Claims,
    EndTakeover,
    FindOwner,
    OwnerFound,
    OwnerReplaced,
    SessionClaim,
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


def test_PS_140_no_client_receives_more_than_its_node_allows(tmp_path):
    cluster = Cluster(tmp_path / "s.db", "a", times=Times(receive_maximum=3))
    owner = cluster.connect("a", receive_maximum=9)
    assert cluster.hosts["a"].resume_of(owner).times.receive_maximum == 3


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


def test_PS_142_a_writer_of_a_session_that_is_live_nowhere_sends_nothing(cluster):
    owner = cluster.connect("a")
    cluster.subscribe("a", owner)
    cluster.act("a", cluster.hosts["a"].leave(owner, cluster.now_ns))
    cluster.publish("b", "m1")
    assert cluster.told_of(Written)
    assert [one for one in cluster.sent if isinstance(one, Live)] == []


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


def test_PS_145_a_session_that_is_discarded_while_it_resumes_ends_its_connection(cluster):
    cluster.unanswered |= {LoadSession}
    owner = cluster.connect("a")
    cluster.feed("a", owner, SessionAbsent())
    assert cluster.told == [(f"{owner}/life", SessionClosed(f"tablet@{owner}", "discarded"))]
    assert cluster.hosts["a"].nodes == {}


def test_PS_146_a_client_may_say_anew_how_long_its_session_outlives_it(cluster):
    owner = cluster.connect("a")
    cluster.act("a", cluster.hosts["a"].leave(owner, cluster.now_ns, 0))
    assert [event.why for event in cluster.told_of(SessionClosed)] == ["left"]
    again = cluster.connect("b")
    assert cluster.life("b", again).present is False


@pytest.mark.parametrize("name", ["a", "b"])
def test_PS_615_PS_616_a_fresh_session_ends_the_connection_that_had_the_one_before(cluster, name):
    """At its node, or at another one, before that one looks at its lease."""
    first = cluster.connect("a")
    cluster.connect(name, clean=True)
    assert [event.why for event in cluster.told_of(SessionClosed)] == ["discarded"]
    assert [event.present for event in cluster.told_of(Accepted)] == [False, False]
    assert first not in cluster.hosts["a"].nodes
    assert cluster.asked_of(LeaveSession) == [], "nothing of it is touched"


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
    pause(0.01, "the database has a clock of its own")
    cluster.pass_ms(250, 50)
    ended = cluster.told_of(RoundEnded)[0]
    assert (ended.messages, ended.whole) == (1, True)
    found = cluster.do(ReadPayloads(("m1", "m2", "m3"), 2**20))
    assert {message for message, payload in found.items() if payload is not None} == {"m2", "m3"}
    without = Cluster(tmp_path / "other.db", "a")
    without.pass_ms(20_000, 5_000)
    assert without.asked == []


def takes_over(cluster):
    """`tablet` on node a, with a message in flight, and one that waits for room."""
    first = cluster.connect("a", receive_maximum=1)
    cluster.subscribe("a", first)
    cluster.publish("a", "m1")
    cluster.publish("b", "m2")
    assert cluster.got(first) == ["m1"]
    return first


def test_PS_160_a_clean_start_takes_nothing_over(cluster):
    takes_over(cluster)
    second = cluster.connect("b", clean=True)
    assert cluster.hosts["b"].resume_of(second).old == ""
    assert cluster.got(second) == []


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


def held(claims, *words, session="s"):
    """With these words of other nodes, in turn."""
    for message in words:
        claims = claims.hold(session, SessionClaim("a", message))
    return claims


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


def test_PS_164_sessions_that_are_looked_for_are_bounded(monkeypatch):
    monkeypatch.setattr("statemachines.persistent_sessions.takeover_record.SESSIONS_MAX", 2)
    claims = Claims()
    for session in ("s1", "s2", "s3"):
        claims = held(claims, MarkerWanted(session, "n~1/1", 1, 1), session=session)
    assert [claims.look_of(session) for session in ("s1", "s2", "s3")] == [1, 1, 0]
    claims = held(claims.without(OwnerFound("", 0, "s1", 1)), MarkerWanted("s3", "n~1/1", 1, 1), session="s3")
    assert claims.look_of("s3") == 1


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 30_000)), min_size=1, max_size=20))
def test_PS_550_a_row_lists_no_more_filters_than_have_room_in_a_frame(subscribed):
    routes = [MatchedMessage("s", f"{place}/" + "x" * size, qos, 7) for place, (qos, size) in enumerate(subscribed)]
    rows = fold_routes(routes)
    listed = [(one, qos) for first, qos, _, more in rows for one in (first, *more)]
    assert sorted(listed) == sorted((one.filter, one.qos) for one in routes)
    assert all(sum(map(len, (first, *more))) <= FILTER_BYTES_MAX or not more for first, _, _, more in rows)
    needed = {qos: sum(len(one.filter) for one in routes if one.qos == qos) for qos in range(3)}
    assert len(rows) <= sum(-(-2 * size // FILTER_BYTES_MAX) for size in needed.values())
