"""Every database answers connections as the explorer's does: equal answers to equal requests, whatever has passed."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from session_databases import MS, NUMBERS, Clock, new_url

from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.kernel import Request
from statemachines.persistent_sessions import life_request as requests
from statemachines.persistent_sessions.collector_request import (
    ClientForgotten,
    ClientsRead,
    ForgetClient,
    ReadClients,
    StoredClient,
)
from statemachines.persistent_sessions.life_request import (
    ClientBusy,
    ClientFound,
    ClientLocked,
    KeepAlive,
    LeaveSession,
    LockClient,
    LookUp,
    OpenSession,
    SessionLeft,
    SessionOpen,
    UnlockClient,
)
from statemachines.persistent_sessions.request import NotOwner
from statemachines_spec.explorer.actor import Envelope
from statemachines_spec.persistent_sessions.clients import CLIENT, Clients, Ended, Expire, LeaseEnds

LEASE_MS, DEAD_MS, EXPIRY_MS = 10, 1_000, 10**6
"""However often the shorter ones pass in a run, the longer ones have not."""
NAMES = ("a", "b", "c")


class StartClean(dict):
    """No connection, whatever its name."""

    def __missing__(self, name):
        return False


class Tokens:
    """Tokens that go up, and the numbers from 1 on that stand for them."""

    def __init__(self):
        self.given = [0]

    def real(self, request):
        known = {key: self.given[getattr(request, key)] for key in ("token", "aged") if hasattr(request, key)}
        return replace(request, **known)

    def plain(self, answer):
        if isinstance(answer, ClientBusy):
            return ClientBusy(self.given.index(answer.token))
        if not isinstance(answer, ClientLocked):
            return answer
        assert answer.token > self.given[-1]
        self.given.append(answer.token)
        return replace(answer, token=len(self.given) - 1)


def keep_over(answer):
    """Clients that are not over may be left out."""
    if not isinstance(answer, ClientsRead):
        return answer
    return ClientsRead(tuple(one for one in answer.clients if one.over))


class LifeModel:
    """The explorer's tables of a client."""

    def __init__(self):
        self.tokens = Tokens()
        self.clients = Clients(StartClean(), messages=0)
        self.local = self.clients.initial()

    async def open(self):
        return self

    async def ask(self, name, request):
        self.local, answers = self.clients.apply(self.local, name, self.tokens.real(request))
        return tuple(keep_over(self.tokens.plain(one)) for one in answers)

    def _happen(self, event):
        found = self.clients.react(self.local, Envelope("database", "database", event))
        self.local = found.local

    async def lease_ends(self):
        self._happen(LeaseEnds())

    async def falls_silent(self):
        """Whoever has the session; a lease is shorter."""
        await self.lease_ends()
        if self.local.now is not None and not self.local.now.left:
            self._happen(Ended(self.local.now.owner.partition("~")[0]))

    async def expires(self):
        await self.falls_silent()
        if self.local.now is not None and self.local.now.expiry_ms:
            self._happen(Expire())

    async def close(self):
        pass


class LifeReal:
    """A client of its own in the database at `url`; `client` stands for it."""

    def __init__(self, url):
        self.url = url

    async def open(self):
        self.clock = Clock()
        self.store = open_session_store(self.url, clock=self.clock)
        self.clock.now = await self.store.last_commit_ns() + 1  # others have used the store before
        self.client = f"life-{next(NUMBERS)}"
        self.tokens = Tokens()
        return self

    async def ask(self, name, request):
        if isinstance(request, ReadClients):
            (found,) = await self.store.ask(replace(request, limit=10**6))
            known = tuple(replace(one, client=CLIENT) for one in found.clients if one.client == self.client)
            return (keep_over(ClientsRead(known)),)
        real = replace(request, client=self.client)
        for key in ("session", "replaces"):
            if getattr(real, key, ""):
                real = replace(real, **{key: f"{self.client}/{getattr(real, key)}"})
        return tuple(self.plain(one) for one in await self.store.ask(self.tokens.real(real)))

    def plain(self, answer):
        if isinstance(answer, ClientFound):
            return replace(answer, session=answer.session.rpartition("/")[2])
        return self.tokens.plain(answer)

    async def lease_ends(self):
        self.clock.now += (LEASE_MS + 1) * MS

    async def falls_silent(self):
        self.clock.now += (DEAD_MS + 1) * MS

    async def expires(self):
        self.clock.now += (EXPIRY_MS + 1) * MS

    async def close(self):
        await self.store.close()


class Connections:
    """Three connections of a client that ask what the machine asks, in any order."""

    def __init__(self, database):
        self.database = database
        self.token = {}
        self.found = {}
        self.session = {}
        self.met = {}
        self.silences = 0
        """Whoever comes after one is another connection."""

    def party(self, name):
        return f"{name}{self.silences}~1/1"

    async def move(self, kind, name="", expiry_ms=0):
        """The answers; None: the machine does not ask that now."""
        if not name:
            self.silences += kind != "lease_ends"
            return await getattr(self.database, kind)()
        request = getattr(self, kind)(name, expiry_ms)
        if request is None:
            return None
        answers = await self.database.ask(self.party(name), request)
        for answer in answers:
            if isinstance(answer, ClientLocked):
                self.token[name] = answer.token
                self.found.pop(name, None)
                self.session.pop(name, None)
            if isinstance(answer, ClientBusy):
                self.met[name] = answer.token
            if isinstance(answer, ClientFound):
                self.found[name] = answer
            if isinstance(answer, SessionOpen):
                self.session[name] = (request.session, self.silences)
        return answers

    def find(self, name, expiry_ms):
        return ReadClients("", 9, DEAD_MS)

    def forget(self, name, expiry_ms):
        return ForgetClient(CLIENT, DEAD_MS)

    def lock(self, name, expiry_ms):
        return LockClient(CLIENT, self.party(name), LEASE_MS)

    def insist(self, name, expiry_ms):
        return LockClient(CLIENT, self.party(name), LEASE_MS, self.met[name]) if name in self.met else None

    def count(self, name, attempt):
        """One of those that "me" makes, by whatever connection."""
        return LockClient(CLIENT, self.party(name), LEASE_MS, 0, "me", attempt)

    def unlock(self, name, expiry_ms):
        return UnlockClient(CLIENT, self.party(name))

    def look(self, name, expiry_ms):
        return LookUp(CLIENT, self.token[name], DEAD_MS) if name in self.token else None

    def open(self, name, expiry_ms):
        found = self.found.get(name)
        if found is None:
            return None
        keeps = found.session and not found.expired
        session, replaces = (found.session, "") if keeps else (f"{name}{self.token[name]}", found.session)
        return OpenSession(CLIENT, self.party(name), self.token[name], session, replaces, expiry_ms)

    def fresh(self, name, expiry_ms):
        found = self.found.get(name)
        session = f"{name}{self.token.get(name)}"
        if found is None or found.session == session:
            return None
        return OpenSession(CLIENT, self.party(name), self.token[name], session, found.session, expiry_ms)

    def alive(self, name, expiry_ms):
        session, silences = self.session.get(name, ("", 0))
        return KeepAlive(CLIENT, session, self.token[name]) if session and silences == self.silences else None

    def leave(self, name, expiry_ms):
        session, _ = self.session.get(name, ("", 0))
        return LeaveSession(CLIENT, session, self.token[name], expiry_ms) if session else None


@pytest.fixture(params=["model", "sqlite", "postgres"])
def life(request, tmp_path_factory):
    return LifeModel() if request.param == "model" else LifeReal(new_url(request.param, request, tmp_path_factory))


def play(database, *moves):
    """The answer to each of these moves."""

    async def run():
        connections = Connections(await database.open())
        try:
            found = [await connections.move(*one) for one in moves]
        finally:
            await database.close()
        return [one[0] if one else one for one in found]

    return asyncio.run(run())


def test_a_client_connects_leaves_and_comes_back(life):
    found = play(
        life, ("lock", "a"), ("look", "a"), ("open", "a", EXPIRY_MS), ("unlock", "a"), ("leave", "a", EXPIRY_MS),
        ("lock", "b"), ("look", "b"), ("open", "b", EXPIRY_MS), ("look", "b"), ("alive", "a"), ("leave", "a"),
    )  # fmt: skip
    assert found == [
        ClientLocked(1), ClientFound("", False, ""), SessionOpen(), (), SessionLeft(),
        ClientLocked(2), ClientFound("a1", False, ""), SessionOpen(), ClientFound("a1", False, "b0~1/1"),
        NotOwner(), NotOwner(),
    ]  # fmt: skip


def test_a_client_id_that_is_locked_is_busy_until_the_lease_ends(life):
    found = play(life, ("lock", "a"), ("lock", "b"), ("lock", "a"), ("lease_ends",), ("lock", "b"), ("look", "a"))
    assert found == [ClientLocked(1), ClientBusy(1), ClientLocked(2), None, ClientLocked(3), NotOwner()]


def test_PS_116_a_client_id_is_free_of_the_lock_that_somebody_has_met_for_long_and_of_no_other(life):
    found = play(life, ("lock", "a"), ("lock", "b"), ("lock", "c"), ("insist", "b"), ("insist", "c"), ("look", "a"),
                 ("insist", "c"), ("look", "b"))  # fmt: skip
    assert found == [
        ClientLocked(1), ClientBusy(1), ClientBusy(1), ClientLocked(2), ClientBusy(2), NotOwner(), ClientLocked(3),
        NotOwner(),
    ]  # fmt: skip


def test_PS_280_of_the_connections_of_one_client_an_earlier_one_does_not_lock_behind_a_later(life):
    found = play(life, ("count", "a", 2), ("unlock", "a"), ("count", "b", 1), ("count", "b", 2), ("unlock", "b"),
                 ("count", "a", 3), ("count", "b", 2), ("look", "a"))  # fmt: skip
    assert found == [
        ClientLocked(1), (), NotOwner(), ClientLocked(2), (), ClientLocked(3, True), NotOwner(),
        ClientFound("", False, ""),
    ]  # fmt: skip


def test_PS_420_a_client_does_not_wait_for_a_lock_of_an_earlier_attempt_of_its_own(life):
    found = play(life, ("count", "a", 1), ("look", "a"), ("count", "b", 2), ("look", "a"), ("lock", "c"),
                 ("count", "a", 2), ("count", "b", 3))  # fmt: skip
    assert found == [
        ClientLocked(1), ClientFound("", False, ""), ClientLocked(2, True), NotOwner(), ClientBusy(2), ClientBusy(2),
        ClientLocked(3, True),
    ]  # fmt: skip


def test_PS_280_of_another_client_nothing_is_late(life):
    found = play(life, ("count", "a", 2), ("unlock", "a"), ("lock", "b"), ("unlock", "b"), ("count", "c", 1))
    assert found == [ClientLocked(1), (), ClientLocked(2), (), ClientLocked(3)]


def test_who_falls_silent_is_not_live_and_its_session_expires_some_time_after(life):
    begin = (("lock", "a"), ("look", "a"), ("open", "a", EXPIRY_MS))
    found = play(life, *begin, ("look", "a"), ("falls_silent",), ("lock", "b"), ("look", "b"), ("expires",),
                 ("look", "b"), ("open", "b", 0), ("falls_silent",), ("look", "b"))  # fmt: skip
    assert found[3:] == [
        ClientFound("a1", False, "a0~1/1"), None, ClientLocked(2), ClientFound("a1", False, ""), None,
        ClientFound("a1", True, ""), SessionOpen(), None, ClientFound("b2", True, ""),
    ]  # fmt: skip


def test_PS_122_PS_123_a_client_is_forgotten_when_it_is_over_and_whoever_has_its_token_is_superseded(life):
    begin = (("lock", "a"), ("look", "a"), ("open", "a", EXPIRY_MS), ("leave", "a", EXPIRY_MS))
    found = play(life, *begin, ("forget", "c"), ("unlock", "a"), ("forget", "c"), ("find", "c"), ("lock", "b"),
                 ("look", "b"), ("expires",), ("find", "c"), ("forget", "c"), ("find", "c"), ("forget", "c"),
                 ("open", "b", EXPIRY_MS), ("look", "b"), ("lock", "c"), ("look", "c"))  # fmt: skip
    kept, over = ClientsRead(()), ClientsRead((StoredClient(CLIENT, True),))
    kept_on = ClientForgotten(False)
    assert found[4:] == [
        kept_on, (), kept_on, kept, ClientLocked(2), ClientFound("a1", False, ""), None, over,
        ClientForgotten(True), ClientsRead(()), kept_on, NotOwner(), NotOwner(), ClientLocked(3),
        ClientFound("", False, ""),
    ]  # fmt: skip


def test_PS_120_a_client_without_a_session_is_forgotten_when_nobody_has_it_locked(life):
    found = play(life, ("lock", "a"), ("find", "c"), ("forget", "c"), ("lease_ends",), ("find", "c"), ("forget", "c"))
    kept, over = ClientsRead(()), ClientsRead((StoredClient(CLIENT, True),))
    assert found[1:] == [kept, ClientForgotten(False), None, over, ClientForgotten(True)]


def test_nobody_asks_of_its_life_what_is_not_answered():
    """The requests of the protocol, and those that are compared here."""
    kinds = {one for one in vars(requests).values() if isinstance(one, type) and issubclass(one, Request)} - {Request}
    assert kinds == {LockClient, UnlockClient, LookUp, OpenSession, KeepAlive, LeaveSession}


NAME = st.sampled_from(NAMES)
EXPIRY = st.sampled_from((0, EXPIRY_MS))
MOVES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("lock", "unlock", "look", "alive", "find", "forget")), NAME),
        st.tuples(st.sampled_from(("open", "open", "fresh", "leave")), NAME, EXPIRY),
        st.tuples(st.sampled_from(("lock", "insist", "look", "unlock", "forget")), NAME),
        st.tuples(st.just("count"), NAME, st.integers(1, 3)),
        st.sampled_from((("lease_ends",), ("falls_silent",), ("expires",))),
    ),
    max_size=40,
)


async def compare(url, moves):
    model, real = Connections(await LifeModel().open()), Connections(await LifeReal(url).open())
    try:
        for move in moves:
            wanted = await model.move(*move)
            assert await real.move(*move) == wanted, move
    finally:
        await real.database.close()


@given(moves=MOVES)
def test_random_connections_are_answered_as_the_model_answers(shared_url, moves):
    asyncio.run(compare(shared_url, moves))
