"""What has expired does not stay stored: in the tables, and over real nodes (clauses PS-240 to PS-242)."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing

import pytest
from msgspec.structs import replace
from session_databases import MS, SECOND, connect, new_url, run
from session_nodes import node_of, take, until, where
from session_nodes import run as run_nodes
from state_changes import change_to

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.drivers.persistent_sessions.collect import run_collector
from statemachines.drivers.persistent_sessions.host_request import PutMessage, Subscribe
from statemachines.drivers.persistent_sessions.host_request import ReadPayloads as ReadPayloads
from statemachines.drivers.persistent_sessions.payloads import Payloads
from statemachines.drivers.persistent_sessions.request_queue import RequestQueue
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.kernel import Map
from statemachines.persistent_sessions.collector_record import MessageLost, RoundEnded
from statemachines.persistent_sessions.collector_request import (
    DeletePage,
    MessageDeletion,
    Only,
    PageDeleted,
    ReadMessages,
)
from statemachines.persistent_sessions.graces import Graces
from statemachines.persistent_sessions.in_flight_record import TAKEN, InFlightRecord
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    CommitState,
    ConfirmRows,
    Fence,
    LoadSession,
    PutRows,
    ReadPending,
    SessionState,
)

EXPIRY_MS = 100_000
"""Longer than the grace of messages."""
MINUTE_S = 60
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


def test_PS_240_PS_241_a_message_goes_at_its_moment_and_its_row_is_read_with_its_name(url):
    """Whoever reads it: a resume, a fence, and an owner that has been handed it over."""

    async def play(store, clock):
        (one,), rows = await stored(store, "s1")
        clock.now = rows[0].until_ns - 2
        early = await store.ask(OVER)  # its transaction is the very last before that moment
        clock.now = rows[0].until_ns
        gone, again = await store.ask(OVER), await store.ask(OVER)
        (fenced,) = await store.ask(Fence("s1", "n1", (0, 0), 2, one.token, 1))
        (same,) = await store.ask(ConfirmRows("s1", one.token, fenced.found))
        taken = SessionState(Map({"n1": (1, 2)}), Map({1: InFlightRecord(1, "of-s1", rows[0], 0, TAKEN)}), (), 1)
        read = await pending(store)
        await store.ask(CommitState("s1", one.token, change_to(taken)))
        (loaded,) = await store.ask(LoadSession("of-s1", "o", one.token))
        return rows, early, gone, again, read, fenced.found, same.found, loaded.state, await messages(store)

    rows, early, gone, again, read, fenced, same, state, left = run(url, play)
    assert (early, gone, again) == (NOT_DONE, DONE, NOT_DONE)
    assert read == rows
    assert fenced[0].rows == tuple(rows)
    assert same == fenced
    assert (state.packets, state.taken) == (Map(), Map({"n1": (1, 2)}))
    assert left == ["m2"]


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


def test_PS_240_what_was_over_by_a_clock_that_was_set_back_since_is_not_deleted(url):
    """A read commits nothing, so its time may come again; what has deleted something keeps it."""

    async def play(store, clock):
        _, rows = await stored(store, "s1")
        clock.now = rows[0].until_ns + SECOND
        (read,) = await store.ask(ReadMessages("", 9))
        clock.now = SECOND
        back, kept = await store.ask(OVER), await messages(store)
        clock.now = rows[0].until_ns + SECOND
        ahead = await store.ask(OVER)
        clock.now = SECOND
        return rows, [one.over for one in read.messages], back, kept, ahead, await pending(store)

    rows, over, back, kept, ahead, read = run(url, play)
    assert over == [True, False]
    assert (back, kept, ahead) == (NOT_DONE, ["m1", "m2"], DONE)
    assert read == rows, "it counts as expired still"


@pytest.mark.parametrize("queued", [False, True])
def test_PS_240_a_session_that_holds_a_message_keeps_it_for_itself(url, queued):
    async def play(store, clock):
        (_, other), rows = await stored(store, "s1", "s2")
        packets = Map() if queued else Map({1: InFlightRecord(1, "of-s2", rows[0], 0, TAKEN)})
        held = SessionState(Map({"n1": (1, 1)}), packets, (rows[0],) if queued else (), 1)
        await store.ask(CommitState("s2", other.token, change_to(held)))
        clock.now = rows[0].until_ns + SECOND
        found = [await store.ask(OVER)]
        await store.ask(CommitState("s2", other.token, change_to(SessionState(held.taken, places=1), held)))
        return rows, [*found, await store.ask(OVER)], await pending(store)

    rows, found, read = run(url, play)
    assert found == [NOT_DONE, DONE]
    assert read == rows


def test_PS_240_a_collector_deletes_what_is_over_and_counts_no_loss(url):
    async def collected(store):
        told, ended = [], asyncio.Event()

        def hear(event):
            told.append(event)
            if isinstance(event, RoundEnded):
                ended.set()

        task = asyncio.create_task(run_collector(store, Graces(retention_ms=3_600_000, round_ms=3_600_000), told=hear))
        async with asyncio.timeout(60):
            await ended.wait()
        task.cancel()
        return told

    async def play(store, clock):
        (one, _), rows = await stored(store, "s1", "s2")
        clock.now = rows[0].until_ns - SECOND
        told = await collected(store)
        clock.now = rows[0].until_ns + SECOND
        told += await collected(store)
        clock.now = rows[0].until_ns + 3_600_000 * MS
        late, read = await collected(store), await pending(store)
        (fenced,) = await store.ask(Fence("s1", "n1", (0, 0), 2, one.token, 1))
        return rows, told, late, read, list(fenced.found[0].rows), await messages(store)

    rows, told, late, read, fenced, left = run(url, play)
    assert told == [RoundEnded(0, 0, True), RoundEnded(0, 1, True)]
    assert late == [MessageLost("m2", 2), RoundEnded(0, 1, True)], "retention is a loss for both"
    assert read == fenced == [rows[0], Queued(2, "", "a", 1)]
    assert left == []


# -- over nodes -------------------------------------------------------------------------------------------------------


class Collecting:
    """A collector of its own over this database, with hardly a grace; its clock is `ahead_s`, and with its next commit
    that of the database."""

    def __init__(self, url):
        self.url = url
        self.ahead_s = 0

    async def __aenter__(self):
        self.store = await asyncio.to_thread(open_session_store, self.url, clock=self._clock)
        self.rounds = 0
        self.task = asyncio.create_task(run_collector(self.store, Graces(message_ms=1, round_ms=20), told=self._hear))
        return self

    async def __aexit__(self, *_):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.store.close()

    def _clock(self):
        return time.time_ns() + self.ahead_s * SECOND

    def _hear(self, event):
        assert not isinstance(event, MessageLost)
        self.rounds += isinstance(event, RoundEnded)

    async def whole_rounds(self, count=2):
        """So many begin and end."""
        wanted = self.rounds + count
        await until(lambda: self.rounds >= wanted)


async def publish_all(nodes, *given):
    async with SessionPublisher(nodes=nodes) as publisher:
        for payload, expiry in given:
            await publisher.publish("t", payload, expiry=expiry)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_PS_209_PS_240_what_one_has_in_flight_and_another_misses(kind, request, tmp_path_factory):
    """One session has two in flight when they expire, and another is away: the first is sent them again, and the other
    what is behind them."""
    url = new_url(kind, request, tmp_path_factory)

    async def body():
        async with node_of(url, graces=None) as node, Collecting(url) as collector:
            nodes = where(node)
            async with PersistentSession("away", nodes=nodes) as session:
                await session.subscribe("t")
            here = PersistentSession("here", nodes=nodes)
            await here.__aenter__()
            await here.subscribe("t")
            await publish_all(nodes, (b"1", MINUTE_S), (b"2", MINUTE_S), (b"3", None))
            assert await take(here, 3, acknowledge=False) == ["1", "2", "3"]
            await here.abort()
            collector.ahead_s = 2 * MINUTE_S
            await collector.whole_rounds()
            assert len(await messages(collector.store)) == 3, "they are in flight"
            node.reception.messages.payloads = Payloads()
            async with PersistentSession("here", nodes=nodes) as here:
                again = [await anext(here) for _ in range(3)]
                assert [(one.payload, one.dup) for one in again] == [(b"1", True), (b"2", True), (b"3", True)]
                for one in again:
                    one.acknowledge()
            while len(await messages(collector.store)) > 1:
                await asyncio.sleep(0.01)
            async with PersistentSession("away", nodes=nodes) as session:
                assert await take(session, 1) == ["3"]
            assert node.reception.expired == 2

    run_nodes(body())


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
