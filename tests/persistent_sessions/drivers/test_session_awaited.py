"""A store of sessions that is not there when a node starts is waited for (PS-201)."""

from __future__ import annotations

from session_nodes import QUICK, run, take

from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode, SessionPublisher, session_node
from statemachines.drivers.persistent_sessions.store import SessionStore
from statemachines.drivers.sql import awaited
from statemachines.drivers.sql.failure import StoreAway, StoreUnavailable

AWAY = StoreAway("store", "db", "cannot be reached")
BUSY = StoreUnavailable("db: the database system is starting up")


def failing(monkeypatch, owner, name, *failures):
    """What it is called in the place of, so often; how often it was called."""
    left, calls, real = list(failures), [], getattr(owner, name)

    def instead(*given, **named):
        calls.append(name)
        if left:
            raise left.pop(0)
        return real(*given, **named)

    monkeypatch.setattr(owner, name, instead)
    return calls


async def serves(store):
    """A node that has begun has clients."""
    async with (
        SessionNode(store, name="a", **QUICK) as node,
        PersistentSession("c", node=node) as session,
        SessionPublisher(node=node) as publisher,
    ):
        await session.subscribe("t")
        await publisher.publish("t", b"one")
        assert await take(session, 1) == ["one"]


def test_PS_201_a_node_waits_for_its_store_and_says_so_once(store, monkeypatch, caplog):
    opened = failing(monkeypatch, session_node, "open_session_store", AWAY, BUSY, AWAY)
    begun = failing(monkeypatch, SessionStore, "begin_life", BUSY)
    closed = failing(monkeypatch, SessionStore, "close")
    monkeypatch.setitem(awaited.retry_while_unavailable.__kwdefaults__, "again_s", 0.001)
    run(serves(store))
    assert (len(opened), len(begun), len(closed)) == (5, 2, 2), "the one that has begun no life is closed"
    said = [line for line in caplog.messages if "waits" in line]
    assert said == ["a waits for its store: store = 'db': cannot be reached"]
