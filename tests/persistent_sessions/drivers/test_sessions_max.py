"""No more sessions than may be kept: in the tables, and over nodes (clause PS-212)."""

from __future__ import annotations

import logging

import pytest
from session_nodes import node_of, take, where
from session_nodes import run as run_nodes

from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode, SessionPublisher, StoreIsFull
from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.life_request import (
    NEVER,
    ClientLocked,
    LockClient,
    OpenSession,
)


async def opened(store, client, most):
    """What a client without a session is answered."""
    (locked,) = await store.ask(LockClient(client, "h", 500))
    assert isinstance(locked, ClientLocked)
    request = OpenSession(client, "h", locked.token, f"{client}@{locked.token}", "", NEVER, most)
    (answer,) = await store.ask(request)
    return answer


def clients(store):
    with store._database.reading() as sql:
        return {bytes(name).decode() for (name,) in sql.all("SELECT client FROM @clients")}


def test_PS_212_a_flood_is_refused_by_name_and_the_node_goes_on_for_the_others(url, caplog):
    async def body():
        async with node_of(url, max_sessions=2) as node:
            nodes = where(node)
            async with PersistentSession("a", nodes=nodes, expiry_ms=-1) as session:
                await session.subscribe("t")
            async with PersistentSession("b", nodes=nodes) as live:
                await live.subscribe("t")
                for number in range(5):
                    with pytest.raises(StoreIsFull, match=r"no session for 'x\d': the store keeps as many"):
                        await PersistentSession(f"x{number}", nodes=nodes, expiry_ms=-1).__aenter__()
                async with SessionPublisher(nodes=nodes) as publisher:
                    await publisher.publish("t", b"1")
                assert await take(live, 1) == ["1"]
                async with PersistentSession("a", nodes=nodes) as session:
                    assert session.present
                    assert await take(session, 1) == ["1"]
                await live.leave(expiry_ms=0)
            async with PersistentSession("x5", nodes=nodes) as session:
                assert not session.present

    with caplog.at_level(logging.WARNING, "gapless"):
        run_nodes(body())
    said = [one.getMessage() for one in caplog.records if "--max-sessions" in one.getMessage()]
    assert len(said) == 1, "once in a while"
    assert "2 sessions or more" in said[0]


@pytest.mark.parametrize("most", [0, -1, True])
def test_PS_212_a_bound_that_cannot_be_is_refused(store, most):
    with pytest.raises(ConfigurationError, match="max_sessions"):
        SessionNode(store, name="a", max_sessions=most)
