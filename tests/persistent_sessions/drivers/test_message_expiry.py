"""Messages that expire: in the tables, in databases of before, and over real nodes (clauses PS-208 to PS-211)."""

from __future__ import annotations

import asyncio
import math

import pytest
from session_databases import MS, SECOND, connect, new_url, run
from session_nodes import Stranger, node_of, take, where
from session_nodes import run as run_nodes
from state_changes import change_to

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.drivers.persistent_sessions.host_request import PutMessage, Subscribe
from statemachines.drivers.persistent_sessions.route_trie import Route
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.kernel import ConfigurationError, Map
from statemachines.persistent_sessions.collector_request import DeletePage, MessageDeletion, Only, PageDeleted
from statemachines.persistent_sessions.in_flight_record import TAKEN, InFlightRecord
from statemachines.persistent_sessions.message import MESSAGE_EXPIRY_MAX_S, PublishStored, PublishWanted, Queued
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    CommitState,
    LoadSession,
    PutRows,
    ReadPending,
    SessionState,
    StateCommitted,
)

HOUR_S = 3_600
SOON_S = 0.15


# -- in the tables ----------------------------------------------------------------------------------------------------


async def stored(store, expiry_ms):
    """The session of a client, and a row of a message that expires."""
    one = await connect(store, "s1")
    await store.do(Subscribe("s1", one.token, "a", 1))
    (route,) = await store.do(PutMessage("m1", "a", b"x", 1, expiry_ms))
    await store.ask(BeginEpoch("s1", "n1"))
    queued = Queued(1, "m1", route.filter, route.qos, route.until_ns)
    await store.ask(PutRows("s1", "n1", 1, (queued,)))
    return one, queued


def test_PS_211_a_message_is_over_so_long_after_it_was_stored_by_the_clock_of_the_database(url):
    async def play(store, clock):
        _, queued = await stored(store, 1_500)
        (read,) = await store.ask(ReadPending("s1", "n1"))
        (plain,) = await store.do(PutMessage("m2", "a", b"x", 1))
        return clock.now, queued, read.found[0].rows, plain

    now, queued, rows, plain = run(url, play)
    assert 0 <= queued.until_ns - (now + 1_500 * MS) < MS, "the store's time goes on by a nanosecond a commit"
    assert rows == (queued,)
    assert plain == Route("s1", "a", 1, 0)


@pytest.mark.parametrize(("late_ns", "is_over"), [(-1, False), (0, True), (SECOND, True)])
def test_PS_208_the_transaction_leaves_out_what_is_over_and_was_not_in_flight(url, late_ns, is_over):
    """At the very moment, and not a nanosecond before; what is queued stays where it is."""

    async def play(store, clock):
        one, queued = await stored(store, 1_500)
        packet = InFlightRecord(1, "c", queued, 0, TAKEN)
        state = SessionState(Map({"n1": (1, 1)}), Map({1: packet}), (queued,), 1)
        clock.now = queued.until_ns + late_ns
        (committed,) = await store.ask(CommitState("s1", one.token, change_to(state)))
        (loaded,) = await store.ask(LoadSession("c", "o", one.token))
        return queued, state, committed, loaded

    queued, state, committed, loaded = run(url, play)
    assert isinstance(committed, StateCommitted)
    assert committed.time_ns == queued.until_ns + late_ns
    assert loaded.state.packets == (Map() if is_over else state.packets)
    assert (loaded.state.queued, loaded.state.taken) == (state.queued, state.taken)


def test_PS_209_what_was_in_flight_is_committed_again_however_late(url):
    async def play(store, clock):
        one, queued = await stored(store, 1_500)
        flying = InFlightRecord(1, "c", queued, 0, TAKEN)
        first = SessionState(Map({"n1": (1, 1)}), Map({1: flying}), (), 1)
        await store.ask(CommitState("s1", one.token, change_to(first)))
        clock.now = queued.until_ns + HOUR_S * SECOND
        other = open_session_store(url, clock=clock)  # it reads what is committed: it has seen none of it
        try:
            second = SessionState(first.taken, Map({1: flying, 2: InFlightRecord(2, "c", queued, 1, TAKEN)}), (), 2)
            await other.ask(CommitState("s1", one.token, change_to(second, first)))
            (loaded,) = await store.ask(LoadSession("c", "o", one.token))
        finally:
            await other.close()
        return first, loaded

    first, loaded = run(url, play)
    assert loaded.state.packets == first.packets


def test_PS_208_what_retention_removes_is_lost_only_where_it_was_not_over(url):
    async def play(store, clock):
        _, queued = await stored(store, 1_500)
        clock.now = queued.until_ns
        deleted = await store.ask(DeletePage(messages=(MessageDeletion("m1", Only.ALWAYS),)))
        (after,) = await store.ask(ReadPending("s1", "n1"))
        return queued, deleted, after.found[0].rows

    queued, deleted, rows = run(url, play)
    assert deleted == (PageDeleted(messages=(("m1", 0),)),)
    assert rows == (queued,), "it is passed over by its name, and is no message that is missing"


# -- over nodes -------------------------------------------------------------------------------------------------------


async def publish_all(nodes, *messages):
    """Each as (payload, seconds)."""
    async with SessionPublisher(nodes=nodes) as publisher:
        for payload, expiry in messages:
            await publisher.publish("t", payload, expiry=expiry)


@pytest.mark.parametrize(("kind", "qos"), [("sqlite", 0), ("sqlite", 2), ("postgres", 1)])
def test_PS_208_PS_210_what_has_expired_while_its_session_was_away_does_not_come(kind, qos, request, tmp_path_factory):
    url = new_url(kind, request, tmp_path_factory)

    async def body():
        async with node_of(url) as node:
            nodes = where(node)
            async with PersistentSession("c", nodes=nodes) as session:
                await session.subscribe("t", qos=qos)
            await publish_all(nodes, (b"1", SOON_S), (b"2", None), (b"3", SOON_S), (b"4", HOUR_S))
            await asyncio.sleep(2 * SOON_S)
            async with PersistentSession("c", nodes=nodes, receive_maximum=1) as session:
                two, four = [], []
                for kept in (two, four):
                    kept.append(await anext(session))
                    kept[0].acknowledge()
            found = [(one.payload, one.expiry, one.dup) for one in (*two, *four)]
            assert found[0] == (b"2", None, False)
            assert found[1][0] == b"4"
            assert 0 < found[1][1] < HOUR_S
            assert node.reception.expired == 2

    run_nodes(body())


def test_PS_208_what_expires_while_its_live_session_lags_does_not_come(store):
    async def body():
        async with node_of(store) as node:
            nodes = where(node)
            async with PersistentSession("c", nodes=nodes, receive_maximum=1) as session:
                await session.subscribe("t", qos=1)
                await publish_all(nodes, (b"0", None))
                first = await anext(session)
                await publish_all(nodes, (b"1", SOON_S), (b"2", SOON_S), (b"3", None))
                await asyncio.sleep(2 * SOON_S)
                first.acknowledge()
                assert await take(session, 1) == ["3"]
            assert node.reception.expired == 2

    run_nodes(body())


def test_PS_209_PS_210_what_was_sent_comes_again_though_it_is_over(store):
    async def body():
        async with node_of(store) as node:
            nodes = where(node)
            session = PersistentSession("c", nodes=nodes)
            await session.__aenter__()
            await session.subscribe("t", qos=1)
            await publish_all(nodes, (b"1", SOON_S))
            first = await anext(session)
            assert 0 < first.expiry <= SOON_S
            await session.abort()
            await asyncio.sleep(2 * SOON_S)
            async with PersistentSession("c", nodes=nodes) as session:
                again = await anext(session)
                assert (again.payload, again.dup, again.expiry) == (b"1", True, 0)
                again.acknowledge()
            assert node.reception.expired == 0

    run_nodes(body())


@pytest.mark.parametrize(
    "expiry", [0, -1, 0.0, -0.5, math.nan, math.inf, -math.inf, MESSAGE_EXPIRY_MAX_S + 1, True, "1", 10**400]
)
def test_PS_211_a_publisher_refuses_what_is_no_expiry(expiry):
    async def body():
        async with SessionPublisher(nodes=["127.0.0.1:1"]) as publisher:
            with pytest.raises(ConfigurationError, match=r"^expiry.*more than 0 and at most 4294967295; leave it out"):
                await publisher.publish("t", b"x", expiry=expiry)

    run_nodes(body())


@pytest.mark.parametrize("expiry_ms", [0, -1, MESSAGE_EXPIRY_MAX_S * 1_000 + 1, 2**63, 1.5, True, "1"])
def test_PS_211_a_node_takes_no_such_expiry_from_the_network_and_goes_on(store, expiry_ms):
    async def body():
        async with node_of(store) as node, PersistentSession("c", nodes=where(node)) as session:
            await session.subscribe("t")
            async with Stranger(node.address) as stranger:
                stranger.say(PublishWanted(1, "t", b"bad", 1, expiry_ms))
                stranger.say(PublishWanted(2, "t", b"bad", 1))
                await asyncio.sleep(0)
            await publish_all(where(node), (b"good", MESSAGE_EXPIRY_MAX_S))
            assert await take(session, 1) == ["good"]
            assert not [one for one in stranger.heard if isinstance(one, PublishStored)]

    run_nodes(body())
