"""Several connections of one client, one after the other (spec/persistent_sessions/clauses.md)."""

from statemachines.kernel import Ask, Node
from statemachines.persistent_sessions.life_record import Attach, Connect, Disconnect, LifeRecord
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.session_life import SESSION_LIFE
from statemachines.testing.persistent_sessions.garbage import ClientTables, OneClient

EMPTY = ClientTables(lock="", session="", live="")


def connect(tables, number, *, clean=False):
    """A connection that finds these tables; the tables after it has its session, and the record of it."""
    record = LifeRecord(f"owner-{number}~1/{number}", "c", LifeTimes())
    return feed(tables, record, Connect(clean, 60_000), Attach())


def feed(tables, record, *events):
    """The tables and the record after these events, and all that is asked then and answered."""
    node, store, todo = Node(SESSION_LIFE, record, name="life", now_ns=0, check=True), OneClient(tables), list(events)
    while todo:
        for asked in [one.request for one in node.feed(todo.pop(0), 0) if isinstance(one, Ask)]:
            tables, answers = store.apply(tables, asked, 0)
            todo = [*answers, *todo]
    return tables, node.record


def test_OLD_REUSED_a_clean_start_never_has_the_old_session_nor_a_third_connect():
    tables, first = connect(EMPTY, 1)
    tables, second = connect(tables, 2, clean=True)
    tables, third = connect(tables, 3)
    assert first.session != second.session == third.session
    assert tables.abandoned == (first.session,)
    assert [one.present for one in (first, second, third)] == [False, False, True]


def test_FORGOTTEN_LITTER_PRESENT_a_session_is_there_again_until_it_has_expired():
    tables, first = connect(EMPTY, 1)
    tables, _ = feed(tables, first, Disconnect())
    again, second = connect(tables, 2)
    assert (second.session, second.present) == (first.session, True)
    expired, third = connect(ClientTables(again.token, "", again.session, expired=True, live=""), 3)
    assert (third.present, expired.abandoned) == (False, (first.session,))


def test_EXPIRED_RAISED_STOLEN_expiry_0_ends_the_session_for_whoever_has_it():
    tables, first = connect(EMPTY, 1)
    tables, second = connect(tables, 2)
    assert feed(tables, first, Disconnect(0))[0] == tables
    tables, _ = feed(tables, second, Disconnect(0))
    assert (tables.session, tables.abandoned) == ("", (first.session,))
