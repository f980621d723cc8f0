"""Wills in the tables: when they are due, when they are not sent, and that they are sent once."""

from __future__ import annotations

import pytest
from session_databases import SECOND, run

from statemachines.drivers.identity import Identity
from statemachines.drivers.persistent_sessions.life_requests import EndWills, FindDueWills, OpenWithWill
from statemachines.drivers.persistent_sessions.node_messages import SessionWill
from statemachines.kernel import incarnation
from statemachines.persistent_sessions import life_request

ANN = Identity(frozenset({"ann"}))


class Client:
    """A client and its connections, at a node in one of its lives."""

    def __init__(self, store, clock, node="n1", expiry_s=100):
        self.store, self.clock, self.node = store, clock, node
        self.expiry_ms = expiry_s if expiry_s == life_request.NEVER else expiry_s * 1_000
        self.count, self.life = 0, 1

    async def lock(self):
        self.count += 1
        owner = f"{incarnation(self.node, self.life)}/{self.count}"
        (locked,) = await self.store.ask(life_request.LockClient("c", owner, 500))
        assert isinstance(locked, life_request.ClientLocked)
        return owner, locked

    async def connect(self, session="s1", delay_s=10):
        """Its will says which connection it is of."""
        owner, locked = await self.lock()
        self.session = session
        self.token = locked.token
        opened = life_request.OpenSession("c", owner, locked.token, session, "", self.expiry_ms)
        will = SessionWill(f"w/{self.count}", b"gone", 1, False, None, b"", delay_s * 1_000, ANN)
        assert await self.store.do(OpenWithWill(opened, will)) == (life_request.SessionOpen(),)
        await self.store.ask(life_request.UnlockClient("c", owner))
        return owner

    async def leave(self, expiry_s=None):
        expiry_ms = self.expiry_ms if expiry_s is None else expiry_s * 1_000
        await self.store.ask(life_request.LeaveSession("c", self.session, self.token, expiry_ms))

    async def due(self, after_s=0.0):
        """Topics of the wills that are due then."""
        self.clock.now += int(after_s * SECOND)
        found = await self.store.do(FindDueWills())
        if found.has_ended:
            await self.store.do(EndWills())
            found = await self.store.do(FindDueWills())
        assert all((one.client, one.will.identity) == ("c", ANN) for one in found.wills)
        return [one.will.topic for one in found.wills]


@pytest.mark.parametrize(
    ("delay_s", "expiry_s", "due_s"), [(10, 100, 10), (10, life_request.NEVER, 10), (10, 3, 3), (0, 100, 0), (10, 0, 0)]
)
def test_PS_478_a_will_is_due_after_its_delay_or_at_the_end_of_the_session(url, delay_s, expiry_s, due_s):
    async def play(store, clock):
        client = Client(store, clock, expiry_s=expiry_s)
        client.life = 2
        await client.connect(delay_s=delay_s)
        assert await client.due(50) == [], "its connection lives"
        await client.leave()
        if due_s:
            assert await client.due(due_s - 0.001) == []
        assert await client.due(0.002) == ["w/1"]

    run(url, lambda store, clock: play_with_life(store, clock, play))


async def play_with_life(store, clock, play):
    """The node lives for long."""
    await store.begin_life("n1", 1_000_000)
    await play(store, clock)


@pytest.mark.parametrize("session", ["s1", "s2"])
def test_PS_478_PS_525_a_connection_that_comes_before_deletes_the_will_and_one_that_comes_behind_does_not(
    sqlite_url, session
):
    """Also one that begins a new session."""

    async def play(store, clock):
        client = Client(store, clock)
        client.life = 2
        await client.connect()
        await client.leave()
        clock.now += 9 * SECOND
        await client.connect(session)
        assert await client.due(100) == []
        await client.leave()
        clock.now += 10 * SECOND
        await client.connect()
        assert await client.due() == ["w/2"]

    run(sqlite_url, lambda store, clock: play_with_life(store, clock, play))


@pytest.mark.parametrize("expiry_s", [life_request.NEVER, 100])
def test_PS_522_a_client_that_locks_its_session_and_dies_leaves_no_will(url, expiry_s):
    """The superseded connection cannot end the session any more."""

    async def play(store, clock):
        client = Client(store, clock, expiry_s=expiry_s)
        client.life = 2
        await client.connect()
        clock.now += 50 * SECOND
        await client.lock()
        await client.leave()
        assert await client.due(9.9) == []
        assert await client.due(0.2) == ["w/1"]

    run(url, lambda store, clock: play_with_life(store, clock, play))
