"""How much may wait for a session, and for how long: nothing goes while a session wants it, unless it has too much.

What is stored together is answered together: each message once, and a client that cannot be told is given up.
"""

import asyncio
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from session_databases import SECOND, Clock, change_to, connect
from session_nodes import node_of
from waiting import run_async

from statemachines.drivers.persistent_sessions import (
    collector_requests,
    operator_requests,
)
from statemachines.drivers.persistent_sessions.collector_requests import (
    Backlog,
    BacklogTally,
    SessionBounds,
    WaitingRow,
)
from statemachines.drivers.persistent_sessions.host_requests import DropRows
from statemachines.drivers.persistent_sessions.operator_requests import DescribeSession
from statemachines.drivers.persistent_sessions.route_rows import PutMessage, Subscribe
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.drivers.persistent_sessions.upkeep import (
    drop_rows,
    run_collector,
)
from statemachines.kernel import Map
from statemachines.persistent_sessions import message, request
from statemachines.persistent_sessions.collector import GRACES, Graces, MessageLost, RoundEnded
from statemachines.persistent_sessions.life_request import NEVER
from statemachines.persistent_sessions.message import Queued


@given(
    st.lists(
        st.tuples(st.sampled_from(["s1", "s2"]), st.sampled_from(["a", "b"]), st.integers(0, 9), st.integers(0, 50)),
        max_size=60,
    ),
    st.integers(1, 20),
    st.integers(1, 300),
)
def test_PS_461_the_oldest_of_a_session_are_dropped_and_no_more_than_must_be(given_rows, messages, size_bytes):
    clocks, rows = {}, []
    for number, (session, writer, passed, size) in enumerate(given_rows, 1):
        clocks[session, writer] = clocks.get((session, writer), 0) + passed
        rows.append(WaitingRow(session.encode(), writer.encode(), 1, number, clocks[session, writer], size))
    tally = BacklogTally(SessionBounds(messages, size_bytes))
    tally.begin()
    for row in sorted(rows):
        tally.add(row)
    tally.finish()
    drops = tally.take_drops()
    assert tally.take_drops() == []

    def is_dropped(row):
        its = [one for one in drops if (one.session.encode(), one.writer.encode()) == (row.session, row.writer)]
        return any(one.first <= row.number <= one.last for one in its)

    for session in (b"s1", b"s2"):
        its = [row for row in rows if row.session == session]
        gone, left = [one for one in its if is_dropped(one)], [one for one in its if not is_dropped(one)]
        fits = len(its) <= messages and sum(one.size_bytes for one in its) <= size_bytes
        assert fits == (not gone)
        if gone:
            assert 10 * len(left) <= 9 * messages
            assert 10 * sum(one.size_bytes for one in left) <= 9 * size_bytes
            last = max(gone, key=lambda one: one.time_ns)  # the piece that was dropped last was needed
            assert all(one.time_ns >= last.time_ns or one.writer == last.writer for one in left)


@given(
    st.lists(
        st.tuples(st.integers(0, 120), st.integers(0, 300), st.integers(1, 9), st.booleans()), min_size=2, max_size=6
    ),
    st.integers(200, 600),
    st.integers(200, 3_000),
)
def test_PS_461_rows_that_were_counted_are_not_counted_again_and_the_same_is_dropped(walks, messages, size_bytes):
    """At the latest by the walk after that which finds too much: it counts everything anew.  Meanwhile messages of rows
    may have gone, so that what was counted has grown less."""
    tally, exact = BacklogTally(SessionBounds(messages, size_bytes)), BacklogTally(SessionBounds(messages, size_bytes))
    taken = last = 0
    rows = []
    for takes, comes, size, shrinks in walks:
        if shrinks:
            rows = [one._replace(size_bytes=0) for one in rows]
        rows += [WaitingRow(b"s", b"w", 1, number, number, size) for number in range(last + 1, last + comes + 1)]
        last, taken = last + comes, min(taken + takes, last)
        rows = [row for row in rows if row.number > taken]
        wanted = walk(exact, rows, is_known=False)
        with patch.object(collector_requests, "KNOWN_MIN", 2):
            found = walk(tally, rows)
        assert found in (wanted, [])
        if wanted and not found:
            assert walk(tally, rows) == wanted, "counted anew"


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60), st.integers(1, 9)), min_size=1, max_size=5),
    st.integers(20, 200),
)
def test_PS_733_a_walk_adds_up_what_waits_whether_it_was_counted_before_or_not(walks, messages):
    """And what is dropped then does not wait; a walk that did not come to its end says nothing."""
    tally = BacklogTally(SessionBounds(messages, 2**30))
    taken = last = 0
    rows = []
    assert tally.backlog is None
    for takes, comes, size in walks:
        rows += [WaitingRow(b"s", b"w", 1, number, number, size) for number in range(last + 1, last + comes + 1)]
        last, taken = last + comes, min(taken + takes, last)
        rows = [row for row in rows if row.number > taken]
        with patch.object(collector_requests, "KNOWN_MIN", 2):
            drops = walk(tally, rows)
        rows = [row for row in rows if not any(one.first <= row.number <= one.last for one in drops)]
        assert tally.backlog == Backlog(len(rows), sum(row.size_bytes for row in rows), len(rows))
        tally.begin()
        tally.add(WaitingRow(b"s", b"w", 1, 10**6, 1, 1))
        assert tally.backlog.messages == len(rows)


def walk(tally, rows, is_known=True):
    """What is dropped of these rows of one writer; those of a piece that is known are added together."""
    tally.begin()
    number = rows[0].number if rows else 0
    known = tally.list_known(b"s", b"w", 1, number, rows[-1].number) if rows and is_known else []
    left = rows
    for piece in known:
        for row in [one for one in left if one.number < piece.first]:
            tally.add(row)
        tally.add_piece(b"s", piece)
        left = [one for one in left if one.number > piece.last]
    for row in left:
        tally.add(row)
    tally.finish()
    return tally.take_drops()


def on(url, body, clock=None):
    async def main():
        opened = open_session_store(url, clock=clock, steady=clock)
        try:
            await body(opened)
        finally:
            await opened.close()

    run_async(main())


async def fill(store, count, payload=b"x" * 100):
    """Two sessions that subscribe the same; one of them has taken two messages of ten."""
    tokens = []
    for session in ("s1", "s2"):
        held = await connect(store, session, session, expiry_ms=NEVER)
        tokens.append(held.token)
        await store.do(Subscribe(session, held.token, "t", 1))
        await store.ask(request.BeginEpoch(session, "n1"))
    for number in range(1, count + 1):
        await store.do(PutMessage(f"m{number:03}", "t", payload, 1))
        for session in ("s1", "s2") if number <= 5 else ("s1",):
            await store.ask(request.PutRows(session, "n1", 1, (row(number),)))
    await store.ask(request.CommitState("s1", tokens[0], change_to(request.SessionState(Map({"n1": (1, 2)})))))


def row(number):
    return Queued(number, f"m{number:03}", "t", 1)


async def collect(store, bounds=None, graces=GRACES, rounds=1, counts=None):
    """What is told until so many rounds have ended, and what that round has dropped is dropped."""
    told, ended = [], asyncio.Event()

    def hear(event):
        told.append(event)
        if sum(isinstance(one, RoundEnded) for one in told) >= rounds:
            ended.set()

    task = asyncio.create_task(run_collector(store, graces, bounds=bounds, counts=counts, told=hear))
    await ended.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return told


async def waiting(store, session):
    (found,) = await store.ask(request.ReadPending(session))
    return [(one.number, bool(one.message)) for polled in found.found for one in polled.rows]


def test_PS_460_no_message_is_deleted_for_its_age_while_a_session_wants_it(url):
    clock = Clock()

    async def body(store):
        await fill(store, 5)
        for _ in range(4):
            clock.now += 365 * 24 * 3_600 * SECOND
            told = await collect(store, graces=Graces(round_ms=5_000))  # who sets one has no other retention
            assert [one for one in told if isinstance(one, MessageLost)] == []
        assert await waiting(store, "s2") == [(number, True) for number in range(1, 6)]
        told = await collect(store, graces=Graces(retention_ms=3_600_000))
        assert {one.message for one in told if isinstance(one, MessageLost)} == {
            f"m{number:03}" for number in range(1, 6)
        }

    on(url, body, clock)


def test_PS_461_what_is_taken_is_not_dropped(url):
    async def body(store):
        await fill(store, 5)
        assert await drop_rows([DropRows("s1", "n1", 1, 1, 4)], store.do) == 2
        assert await drop_rows([DropRows("s1", "n1", 1, 1, 4)], store.do) == 0
        assert await drop_rows([DropRows("s9", "n1", 1, 1, 4)], store.do) == 0

    on(url, body)


def test_PS_731_a_description_says_where_it_has_not_looked_at_all_rows(sqlite_url, monkeypatch):
    monkeypatch.setattr(operator_requests, "WAITING_MAX", 10)

    async def body(store):
        await fill(store, 30)
        found = []
        for dropped in (12, 20):
            await drop_rows([DropRows("s1", "n1", 1, 1, dropped)], store.do)
            session = await store.do(DescribeSession("s1"))
            found.append((session.waiting, session.waiting_more, session.summary.waiting_max))
        assert found == [(10, True, 18), (10, False, 10)]

    on(sqlite_url, body)


SENT = range(1, 41)


async def test_an_answer_for_which_there_is_no_room_ends_the_connection_and_a_message_of_qos_0_is_dropped(store):
    async with node_of(store) as node:
        with patch.object(node._transport, "send_all", lambda packets: 0):
            assert not node._say_all("x~1", [message.PublishStored(1)])
            assert node._say_all("x~1", [message.Delivered(0, "t", b"x", "t", 0, False)])
