"""Messages that match several filters of a session: one row, and a copy for each (PS-550, PS-551)."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from session_databases import connect
from session_databases import run as run_store
from session_nodes import node_of, until

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.drivers.persistent_sessions.host_request import PutMessage, Subscribe
from statemachines.persistent_sessions import request
from statemachines.persistent_sessions.message import Queued

FILTERS = ("a/b", "a/+", "a/#", "+/b", "+/+", "#")


def with_filters(number, copies):
    return Queued(number, f"m{number}", "a/b", 1, more=FILTERS[1:copies])


async def store_rows(store, *copies):
    """The session `s1`, and a row of `n1` with so many copies each."""
    one = await connect(store, "s1")
    await store.do(Subscribe("s1", one.token, "a/+", 1))
    await store.ask(request.BeginEpoch("s1", "n1"))
    rows = tuple(with_filters(number, count) for number, count in enumerate(copies, 1))
    for row in rows:
        await store.do(PutMessage(row.message, "a/b", b"payload", 1))
    await store.ask(request.PutRows("s1", "n1", 1, rows))
    return one


def shown(answers):
    return [(row.number, (row.filter, *row.more)) for answer in answers for one in answer.found for row in one.rows]


def test_PS_550_a_row_is_read_and_confirmed_with_all_its_filters(url):
    async def play(store, clock):
        one = await store_rows(store, 1, 3, 6)
        pending = await store.ask(request.ReadPending("s1", "n1"))
        fenced = await store.ask(request.Fence("s1", "n1", (1, 1), 2, one.token, 1))
        wrong = request.EpochRows("n1", 1, (with_filters(2, 3), with_filters(3, 5)))
        return pending, fenced, await store.ask(request.ConfirmRows("s1", one.token, (wrong,)))

    pending, fenced, confirmed = run_store(url, play)
    assert shown(pending) == [(number, FILTERS[:count]) for number, count in ((1, 1), (2, 3), (3, 6))]
    assert shown(fenced) == [(number, FILTERS[:count]) for number, count in ((2, 3), (3, 6))]
    assert confirmed == (request.RowsConfirmed((request.EpochRows("n1", 1, (with_filters(2, 3),)),)),)


def test_PS_551_a_page_has_as_many_copies_as_rows_are_asked_for_or_one_row(url):
    async def play(store, clock):
        one = await store_rows(store, 1, 3, 2, 6, 1)
        places = ((0, 4), (0, 5), (1, 2), (2, 4), (3, 9), (4, 9))
        pages = [await store.ask(request.ReadPending("s1", "n1", rows, (1, behind))) for behind, rows in places]
        fenced = [
            await store.ask(request.Fence("s1", "n1", (1, behind), 2, one.token, 1, rows)) for behind, rows in places
        ]
        return pages, fenced

    pages, fenced = run_store(url, play)
    numbers = [[1, 2], [1, 2], [2], [3], [4, 5], [5]]
    assert [[number for number, _ in shown(one)] for one in pages] == numbers
    assert [[number for number, _ in shown(one)] for one in fenced] == numbers
    assert [one.more for (one,) in fenced] == [True, True, True, True, False, False]


@pytest.mark.parametrize("filters", [1, 6])
async def test_PS_550_a_message_for_an_absent_session_is_one_row_and_comes_by_each_filter(url, filters):
    wanted = FILTERS[:filters]
    async with node_of(url) as node, SessionPublisher(node=node) as publisher:
        async with PersistentSession("tablet", node=node) as session:
            for one in wanted:
                await session.subscribe(one)
        for number in range(3):
            await publisher.publish("a/b", b"%d" % number)
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
                assert connection.execute("SELECT count(*) FROM session_rows WHERE tag = 0").fetchone() == (3,)
        async with PersistentSession("tablet", node=node) as session:
            found = [await anext(session) for _ in range(3 * filters)]
            for one in found:
                one.acknowledge()
        by_number = [found[place * filters : (place + 1) * filters] for place in range(3)]
        assert [{one.payload for one in its} for its in by_number] == [{b"0"}, {b"1"}, {b"2"}]
        assert all(sorted(one.filter for one in its) == sorted(wanted) for its in by_number)
        packets = [one.packet for one in found]
        assert packets == list(range(packets[0], packets[0] + len(found)))


async def test_PS_550_a_node_dies_behind_the_first_acknowledgement_and_the_other_copies_come_again(url):
    async with node_of(url) as node, SessionPublisher(node=node) as publisher:
        session = PersistentSession("tablet", node=node)
        async with session:
            for one in FILTERS[:3]:
                await session.subscribe(one)
            await publisher.publish("a/b", b"1")
            first = [await anext(session) for _ in range(3)]
            first[0].acknowledge()
            owner = next(iter(node.machines.record.resumes))
            await until(lambda: len(node.machines.resume_of(owner).delivery.state.packets) == 2)
            await until(lambda: not node.machines.record.acknowledged)
            await node.request_queue.ask(request.ReadPending("s1"))  # behind the commit
            await node.abort()
    async with node_of(url, "b") as node, PersistentSession("tablet", node=node) as session:
        again = [await anext(session) for _ in range(2)]
        assert [(one.packet, one.filter, one.dup) for one in again] == [
            (one.packet, one.filter, True) for one in first[1:]
        ]
