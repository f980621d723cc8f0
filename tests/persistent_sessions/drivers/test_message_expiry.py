"""Messages that expire: in the tables, in databases of before, and over real nodes (clauses PS-208 to PS-211)."""

from __future__ import annotations

import math

import pytest
from session_databases import SECOND, change_to, connect, new_url, open_node_store
from session_nodes import node_of, where
from waiting import pause_async

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.drivers.persistent_sessions.route_rows import PutMessage, Subscribe
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.kernel import ConfigurationError, Map
from statemachines.persistent_sessions.in_flight_record import TAKEN, InFlightRecord
from statemachines.persistent_sessions.message import MESSAGE_EXPIRY_MAX_S, Queued
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    CommitState,
    LoadSession,
    PutRows,
    SessionState,
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


async def test_PS_209_what_was_in_flight_is_committed_again_however_late(url):
    async with open_node_store(url) as (store, clock):
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
    assert loaded.state.packets == first.packets


# -- over nodes -------------------------------------------------------------------------------------------------------


async def publish_all(nodes, *messages):
    """Each as (payload, seconds)."""
    async with SessionPublisher(nodes=nodes) as publisher:
        for payload, expiry in messages:
            await publisher.publish("t", payload, expiry=expiry)


@pytest.mark.parametrize(("kind", "qos"), [("sqlite", 0), ("sqlite", 2), ("postgres", 1)])
async def test_PS_208_PS_210_what_has_expired_while_its_session_was_away_does_not_come(
    kind, qos, request, tmp_path_factory
):
    url = new_url(kind, request, tmp_path_factory)

    async with node_of(url) as node:
        nodes = where(node)
        async with PersistentSession("c", nodes=nodes) as session:
            await session.subscribe("t", qos=qos)
        await publish_all(nodes, (b"1", SOON_S), (b"2", None), (b"3", SOON_S), (b"4", HOUR_S))
        await pause_async(2 * SOON_S, "messages expire")
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


@pytest.mark.parametrize(
    "expiry", [0, -1, 0.0, -0.5, math.nan, math.inf, -math.inf, MESSAGE_EXPIRY_MAX_S + 1, True, "1", 10**400]
)
async def test_PS_211_a_publisher_refuses_what_is_no_expiry(expiry):
    async with SessionPublisher(nodes=["127.0.0.1:1"]) as publisher:
        with pytest.raises(ConfigurationError, match=r"^expiry.*more than 0 and at most 4294967295; leave it out"):
            await publisher.publish("t", b"x", expiry=expiry)
