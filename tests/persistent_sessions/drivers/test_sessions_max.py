"""No more sessions than may be kept: in the tables, and over nodes (clause PS-212)."""

from __future__ import annotations

import asyncio
import logging

import pytest
from session_databases import MS, connect, kept, run
from session_nodes import node_of, take, where
from session_nodes import run as run_nodes

from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode, SessionPublisher, StoreIsFull
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.collector_request import ClientForgotten, ForgetClient
from statemachines.persistent_sessions.life_request import (
    NEVER,
    ClientLocked,
    LeaveSession,
    LockClient,
    OpenSession,
    SessionOpen,
    StoreFull,
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


def test_PS_212_as_many_as_may_are_kept_and_of_who_is_refused_nothing_is(url):
    async def play(store, clock):
        answers = [await opened(store, f"c{number}", 2) for number in range(4)]
        left = await store._database.run(lambda: clients(store))
        more = await opened(store, "c4", 3)
        return answers, left, more, await kept(store)

    answers, left, more, count = run(url, play)
    assert answers == [SessionOpen(), SessionOpen(), StoreFull(2), StoreFull(2)]
    assert left == {"c0", "c1"}
    assert (more, count) == (SessionOpen(), 3)


def test_PS_212_who_has_a_session_has_it_again_or_another_and_what_is_discarded_makes_room(url):
    async def play(store, clock):
        one = await connect(store, "s1", "c1", expiry_ms=1_000)
        two = await connect(store, "s2", "c2")
        found = [await opened(store, "c3", 2)]
        again = await connect(store, "-", "c1", expiry_ms=1_000)
        (fresh,) = await store.ask(OpenSession("c1", "h", again.token, "s4", "s1", 1_000, 2))
        found += [fresh, await opened(store, "c3", 2), await kept(store)]
        await store.ask(LeaveSession("c2", "s2", two.token, 0))
        found += [await kept(store), await opened(store, "c3", 2), await opened(store, "c5", 2)]
        await store.ask(LeaveSession("c1", "s4", again.token, 1_000))
        clock.now += 5_000 * MS
        found += [
            await opened(store, "c5", 2),
            await store.ask(ForgetClient("c1", 1_000)),
            await opened(store, "c5", 2),
        ]
        return one.present, again.present, found, await kept(store)

    first, again, found, count = run(url, play)
    assert (first, again, count) == (False, True, 2)
    full = StoreFull(2)
    assert found[:4] == [full, SessionOpen(), full, 2]
    assert found[4:7] == [1, SessionOpen(), full]
    assert found[7:] == [full, (ClientForgotten(True),), SessionOpen()], "what has expired counts until it is collected"


def test_PS_212_of_two_stores_that_open_the_last_one_at_once_one_is_refused(url):
    async def play(store, clock):
        other = open_session_store(url)
        try:
            answers = await asyncio.gather(
                *(opened(each, f"c{n}", 3) for n in range(6) for each in [(store, other)[n % 2]])
            )
            return answers, await kept(other)
        finally:
            await other.close()

    answers, count = run(url, play)
    assert sorted(type(one).__name__ for one in answers) == ["SessionOpen"] * 3 + ["StoreFull"] * 3
    assert count == 3


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
