"""A connection and its session, clause by clause (spec/persistent_sessions/clauses.md), and scenarios of several."""

from __future__ import annotations

import pytest
from session_world import Hand

from statemachines.kernel import Ask, ConfigurationError, InvariantViolated, LocalProtocolError, Node, SetTimer
from statemachines.persistent_sessions.life_record import (
    CONNECTED,
    Accepted,
    AliveDue,
    Attach,
    Connect,
    ConnectTimeout,
    Disconnect,
    LifeRecord,
    LockDue,
    SessionClosed,
    SessionOpened,
)
from statemachines.persistent_sessions.life_request import (
    ClientBusy,
    ClientFound,
    ClientLocked,
    KeepAlive,
    LeaveSession,
    LifeFailed,
    LockClient,
    LookUp,
    OpenSession,
    SessionLeft,
    SessionOpen,
    StoreFull,
    UnlockClient,
)
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.request import NotOwner
from statemachines.persistent_sessions.resume_record import ConnectionLost, Discarded
from statemachines.persistent_sessions.session_life import SESSION_LIFE
from statemachines.testing.persistent_sessions.one_client import ClientTables, OneClient

MS = 1_000_000
ID = "owner-1~1/1"
FRESH = f"c@{ID}"
NOBODY = ClientFound("", False, "")
OURS = ClientFound("s0", False, "owner-2~1/1")


def life(*events, id=ID):
    return Hand(SESSION_LIFE, LifeRecord(id, "c", LifeTimes()), *events)


def looking(clean=False, expiry_ms=60_000):
    return life(Connect(clean, expiry_ms), ClientLocked(7))


def settling(found=OURS, clean=False, expiry_ms=60_000):
    one = looking(clean, expiry_ms)
    one.feed(found)
    one.feed(SessionOpen())
    return one


def connected(expiry_ms=60_000):
    one = settling(expiry_ms=expiry_ms)
    one.feed(Attach())
    return one


def timers(one):
    return [(effect.timer, effect.deadline_ns) for effect in one.effects if isinstance(effect, SetTimer)]


def test_PS_100_PS_102_the_client_id_is_locked_and_its_session_looked_up_under_the_token():
    one = life()
    assert one.feed(Connect(False, 60_000)) == [LockClient("c", ID, 15_000)]
    assert timers(one) == [("deadline", 15_000 * MS)]
    with pytest.raises(LocalProtocolError):
        one.feed(Connect(False, 60_000))
    assert one.feed(ClientLocked(7)) == [LookUp("c", 7, 5_000)]
    with pytest.raises(LocalProtocolError):
        life(Disconnect())


def test_PS_101_a_client_id_that_another_has_locked_is_asked_for_again():
    one = life(Connect(False, 0))
    assert one.feed(ClientBusy(3)) == []
    assert timers(one) == [("lock", 100 * MS)]
    assert one.feed(LockDue()) == [LockClient("c", ID, 15_000)]
    assert one.status == "locking"


def test_PS_116_a_lock_that_was_met_unchanged_for_as_long_as_a_lease_lasts_has_ended():
    one = life(Connect(False, 0))
    for token, now_ms, aged in (
        (3, 0, 0), (3, 14_999, 0), (4, 15_000, 0), (4, 29_999, 0), (4, 30_000, 4), (5, 30_100, 0), (5, 45_100, 5)
    ):  # fmt: skip
        one.feed(ClientBusy(token), now_ms * MS)
        assert one.feed(LockDue(), now_ms * MS) == [LockClient("c", ID, 15_000, aged)], now_ms
        assert timers(one) == [("deadline", (now_ms + 15_000) * MS)]


@pytest.mark.parametrize(
    ("clean", "found", "replaces"),
    [(True, OURS, "s0"), (True, NOBODY, ""), (False, NOBODY, ""), (False, ClientFound("s0", True, ""), "s0")],
)
def test_PS_103_a_clean_start_and_what_has_expired_give_a_session_that_nobody_ever_had(clean, found, replaces):
    one = looking(clean)
    assert one.feed(found) == [OpenSession("c", ID, 7, FRESH, replaces, 60_000)]
    assert one.feed(SessionOpen()) == [SessionOpened(FRESH, 7, False, found.live)]


def test_PS_104_PS_105_PS_106_a_session_that_is_there_is_opened_again_and_the_client_told():
    one = looking()
    assert one.feed(OURS) == [OpenSession("c", ID, 7, "s0", "", 60_000)]
    with pytest.raises(LocalProtocolError):
        one.feed(Attach())
    assert one.feed(SessionOpen()) == [SessionOpened("s0", 7, True, "owner-2~1/1", False)]
    assert one.feed(Attach()) == [UnlockClient("c", ID), Accepted("s0", True)]
    assert one.status == "connected"


def test_PS_212_who_would_make_one_session_too_many_is_refused_and_the_host_told():
    one = Hand(SESSION_LIFE, LifeRecord(ID, "c", LifeTimes(), most=5), Connect(False, 0), ClientLocked(7))
    assert one.feed(NOBODY) == [OpenSession("c", ID, 7, FRESH, "", 0, 5)]
    assert one.feed(StoreFull(5)) == [UnlockClient("c", ID), SessionClosed(FRESH, "full")]
    assert one.status == "closed"
    gone = looking()
    gone.feed(NOBODY)
    gone.feed(ConnectionLost())
    assert gone.feed(StoreFull(5)) == [UnlockClient("c", ID), SessionClosed(FRESH, "full")]
    assert connected().feed(StoreFull(5)) == []


def test_PS_107_an_owner_says_again_and_again_that_the_session_lives():
    for one in (settling(), connected()):
        assert one.feed(AliveDue()) == [KeepAlive("c", "s0", 7)]
        assert timers(one) == [("alive", 1_000 * MS)]


@pytest.mark.parametrize(
    ("first", "last", "expiry_ms", "why"),
    [
        (60_000, -1, 60_000, "left"),
        (60_000, 0, 0, "left"),
        (60_000, 90_000, 90_000, "left"),
        (0, -1, 0, "left"),
        (0, 0, 0, "left"),
        (0, 1, 0, "refused"),
    ],
)
def test_PS_108_a_session_expires_as_the_client_says_and_not_from_0_to_more(first, last, expiry_ms, why):
    one = connected(first)
    assert one.feed(Disconnect(last)) == [LeaveSession("c", "s0", 7, expiry_ms)]
    assert one.feed(SessionLeft()) == [UnlockClient("c", ID), SessionClosed("s0", why)]
    assert one.status == "closed"


def test_PS_109_a_client_that_is_gone_is_gone_wherever_its_connect_was():
    for one in (settling(), connected()):
        assert one.feed(ConnectionLost()) == [LeaveSession("c", "s0", 7, 60_000)]
        assert one.feed(ConnectionLost()) == []
        assert one.feed(Disconnect()) == []
    assert life().feed(ConnectionLost()) == [SessionClosed("", "lost")]
    for gone in (ConnectionLost(), Disconnect()):
        assert looking().feed(gone) == [UnlockClient("c", ID), SessionClosed("", "lost")]
    for gone, expiry_ms, why in ((ConnectionLost(), 60_000, "lost"), (Disconnect(0), 0, "left")):
        opening = looking()
        opening.feed(OURS)
        assert opening.feed(gone) == []
        assert opening.feed(SessionOpen()) == [LeaveSession("c", "s0", 7, expiry_ms)]
        assert opening.feed(SessionLeft())[-1] == SessionClosed("s0", why)


def test_PS_110_a_connect_that_takes_longer_than_the_lock_ends():
    assert life(Connect(False, 0)).feed(ConnectTimeout())[-1] == SessionClosed("", "timeout")
    assert looking().feed(ConnectTimeout()) == [UnlockClient("c", ID), SessionClosed("", "timeout")]
    opening = looking()
    opening.feed(OURS)
    assert opening.feed(ConnectTimeout())[-1] == SessionClosed("s0", "timeout")
    late = settling()
    assert late.feed(ConnectTimeout()) == [LeaveSession("c", "s0", 7, 60_000)]
    assert late.feed(Attach()) == []
    assert late.feed(SessionLeft())[-1] == SessionClosed("s0", "timeout")


def test_PS_111_whoever_is_superseded_or_discarded_ends_and_touches_nothing():
    for event, why in ((NotOwner(), "superseded"), (Discarded(), "discarded")):
        assert connected().feed(event) == [UnlockClient("c", ID), SessionClosed("s0", why)]
        assert life(Connect(True, 0)).feed(event)[-1] == SessionClosed("", why)


def test_PS_202_a_connection_that_ends_gives_back_a_lock_of_which_it_has_not_heard():
    for event in (ConnectionLost(), Disconnect(), ConnectTimeout(), NotOwner(), Discarded(), LifeFailed()):
        one = life(Connect(False, 0))
        assert one.feed(event)[0] == UnlockClient("c", ID)
    assert [type(one) for one in life().feed(NotOwner())] == [SessionClosed], "it has asked for nothing"


def test_PS_112_a_request_that_fails_ends_the_connection():
    opening = looking()
    opening.feed(OURS)
    leaving = connected()
    leaving.feed(Disconnect())
    for one in (life(Connect(False, 0)), looking(), opening, leaving):
        assert one.feed(LifeFailed())[-1].why == "failed"


def test_PS_113_what_nobody_waits_for_is_dropped():
    leaving = connected()
    leaving.feed(Disconnect())
    late = (
        ClientLocked(9),
        ClientBusy(3),
        OURS,
        SessionOpen(),
        LifeFailed(),
        SessionLeft(),
        ConnectTimeout(),
        LockDue(),
    )
    expected = {"connected": late, "leaving": (*late[:4], *late[6:], AliveDue()), "new": (*late, AliveDue())}
    for one in (connected(), leaving, life()):
        before = one.record
        for event in expected[one.status]:
            assert one.feed(event) == []
            assert one.record == before
    opening = looking()
    opening.feed(OURS)
    for one, event in ((looking(), LockDue()), (opening, LockDue()), (looking(), AliveDue()), (opening, AliveDue())):
        assert one.feed(event) == []


def test_PS_114_whoever_has_a_session_has_it_under_a_token():
    broken = LifeRecord(ID, "c", LifeTimes(), CONNECTED, session="s0")
    with pytest.raises(InvariantViolated):
        Node(SESSION_LIFE, broken, name="l~1", now_ns=0, check=True).feed(LockDue(), 0)


@pytest.mark.parametrize(
    ("given", "key"),
    [({"lock_ms": 0}, "lock_ms"), ({"retry_ms": 15_000}, "retry_ms"), ({"alive_ms": 5_000}, "alive_ms")],
)
def test_PS_115_times_that_cannot_be_are_told(given, key):
    with pytest.raises(ConfigurationError, match=key):
        LifeTimes(**given)


# -- several connections of one client ------------------------------------------------------------------------------


def connects(tables, number, *, clean=False, expiry_ms=60_000, attach=True):
    """A connection over these tables, up to its session; the tables, and the connection."""
    one, store = life(id=f"owner-{number}~1/{number}"), OneClient(tables)
    one.feed(Connect(clean, expiry_ms))
    tables = answered(store, tables, one)
    if attach:
        one.feed(Attach())
        tables = answered(store, tables, one)
    return tables, one


def answered(store, tables, one):
    """Everything that it asks, and asks then, is answered."""
    while asked := [effect.request for effect in one.effects if isinstance(effect, Ask)]:
        one.effects = ()
        for request in asked:
            tables, answers = store.apply(tables, request, 0)
            for answer in answers:
                one.feed(answer)
    return tables


EMPTY = ClientTables(lock="", session="", live="")


def test_OLD_REUSED_a_clean_start_never_has_the_old_session_nor_a_third_connect():
    tables, first = connects(EMPTY, 1)
    tables, second = connects(tables, 2, clean=True)
    tables, third = connects(tables, 3)
    sessions = [one.record.session for one in (first, second, third)]
    assert sessions[0] != sessions[1] == sessions[2]
    assert tables.abandoned == (sessions[0],)
    assert [one.record.present for one in (first, second, third)] == [False, False, True]


def test_2000_clean_starts_leave_one():
    """Each of them ends or is superseded; of all sessions but the last a row says that it is abandoned."""
    tables, lives = EMPTY, []
    for number in range(1, 2001):
        tables, one = connects(tables, number, clean=True)
        lives.append(one)
    assert len({one.record.session for one in lives}) == 2000
    assert tables.session == lives[-1].record.session
    assert len(tables.abandoned) == 1999
    store = OneClient(tables)
    for one in lives[:-1]:
        one.feed(Disconnect(0))
        assert answered(store, tables, one) == tables
        assert (one.status, one.record.why) == ("closed", "superseded")


def test_FORGOTTEN_LITTER_PRESENT_a_session_is_there_again_until_it_has_expired():
    tables, first = connects(EMPTY, 1)
    first.feed(Disconnect())
    tables = answered(OneClient(tables), tables, first)
    again, second = connects(tables, 2)
    assert (second.record.session, second.record.present) == (first.record.session, True)
    expired = ClientTables(again.token, "", again.session, expired=True, live="")
    expired, third = connects(expired, 3)
    assert (third.record.present, expired.abandoned) == (False, (first.record.session,))


def test_EXPIRED_RAISED_STOLEN_expiry_0_ends_the_session_for_whoever_has_it():
    tables, first = connects(EMPTY, 1)
    tables, second = connects(tables, 2)
    first.feed(Disconnect(0))
    assert answered(OneClient(tables), tables, first) == tables
    second.feed(Disconnect(0))
    tables = answered(OneClient(tables), tables, second)
    assert (tables.session, tables.abandoned) == ("", (first.record.session,))


def test_PS_280_the_lock_says_which_of_the_connections_of_its_client_it_is():
    one = life()
    (asked,) = one.feed(Connect(False, 60_000, "me", 3))
    assert (asked.instance, asked.attempt) == ("me", 3)
    one.feed(ClientBusy(1))
    (again,) = one.feed(LockDue())
    assert (again.instance, again.attempt) == ("me", 3)


def test_PS_422_the_host_is_told_that_the_client_has_left_the_owner_of_before():
    one = life(Connect(False, 60_000, "me", 3), ClientLocked(7, again=True), OURS)
    assert one.feed(SessionOpen()) == [SessionOpened("s0", 7, True, "owner-2~1/1", left=True)]
