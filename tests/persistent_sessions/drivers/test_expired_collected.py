"""What has expired does not stay stored: in the tables, and over real nodes (clauses PS-240 to PS-242)."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from msgspec.structs import replace
from session_databases import connect, run
from session_nodes import node_of, take, where
from session_nodes import run as run_nodes

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.drivers.persistent_sessions.host_requests import ReadPayloads as ReadPayloads
from statemachines.drivers.persistent_sessions.payloads import Payloads
from statemachines.drivers.persistent_sessions.request_queue import RequestQueue
from statemachines.drivers.persistent_sessions.route_rows import PutMessage, Subscribe
from statemachines.persistent_sessions.collector_request import (
    DeletePage,
    MessageDeletion,
    Only,
    PageDeleted,
    ReadMessages,
)
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    Fence,
    PutRows,
    ReadPending,
)

EXPIRY_MS = 100_000
"""Longer than the grace of messages."""
OVER = DeletePage(messages=(MessageDeletion("m1", Only.OVER),))
DONE, NOT_DONE = (PageDeleted(messages=(("m1", 0),)),), (PageDeleted(),)

# -- in the tables ----------------------------------------------------------------------------------------------------


async def stored(store, *sessions):
    """Two messages, the first of which expires, and the rows of both for each of these sessions, which are given."""
    given = [await connect(store, session, f"of-{session}") for session in sessions]
    for one in given:
        await store.do(Subscribe(one.session, one.token, "a", 1))
        await store.ask(BeginEpoch(one.session, "n1"))
    rows = []
    for number, expiry_ms in ((1, EXPIRY_MS), (2, None)):
        routes = await store.do(PutMessage(f"m{number}", "a", b"x", 1, expiry_ms))
        rows.append(Queued(number, f"m{number}", "a", 1, routes[0].until_ns))
        for one in given:
            await store.ask(PutRows(one.session, "n1", 1, (rows[-1],)))
    return given, rows


async def pending(store, session="s1"):
    (read,) = await store.ask(ReadPending(session, "n1"))
    return [row for one in read.found for row in one.rows]


async def messages(store):
    (read,) = await store.ask(ReadMessages("", 99))
    return [one.message for one in read.messages]


def test_PS_241_a_row_whose_message_went_before_it_was_over_is_read_without_its_name(url):
    """Retention has removed it: it counts as lost."""

    async def play(store, clock):
        (one,), rows = await stored(store, "s1")
        gone = await store.ask(DeletePage(messages=(MessageDeletion("m1", Only.UNHELD),)))
        read = await pending(store)
        (fenced,) = await store.ask(Fence("s1", "n1", (0, 0), 2, one.token, 1))
        return rows, gone, read, list(fenced.found[0].rows)

    rows, gone, read, fenced = run(url, play)
    assert gone == (PageDeleted(messages=(("m1", 1),)),)
    assert read == fenced == [replace(rows[0], message=""), rows[1]]


# -- over nodes -------------------------------------------------------------------------------------------------------


async def publish_all(nodes, *given):
    async with SessionPublisher(nodes=nodes) as publisher:
        for payload, expiry in given:
            await publisher.publish("t", payload, expiry=expiry)


@pytest.mark.parametrize(("qos", "expired"), [(0, 1), (1, 0)])
def test_PS_242_a_message_of_QoS_0_that_is_gone_at_its_node_counts_as_expired(store, monkeypatch, qos, expired):
    """It was deleted between its commit and its client; one that does not expire was not deleted for its age.  Of QoS 1
    a state holds it: it is missed, and makes room for the next."""
    give = RequestQueue.give

    def delete_and_give(self, request, take):
        if isinstance(request, ReadPayloads):
            with closing(sqlite3.connect(store)) as connection, connection:
                connection.execute("DELETE FROM messages WHERE payload IN (?, ?)", (b"1", b"2"))
        give(self, request, take)

    monkeypatch.setattr(RequestQueue, "give", delete_and_give)

    async def body():
        async with node_of(store) as node:
            node.reception.messages.payloads = Payloads(bytes_max=0)
            nodes = where(node)
            async with PersistentSession("c", nodes=nodes, receive_maximum=1) as session:
                await session.subscribe("t", qos=qos)
                await publish_all(nodes, (b"1", 3_600), (b"2", None), (b"3", None))
                assert await take(session, 1) == ["3"]
            assert node.reception.expired == expired

    run_nodes(body())
