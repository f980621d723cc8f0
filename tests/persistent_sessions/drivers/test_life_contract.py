"""Every database answers connections as the explorer's does: equal answers to equal requests, whatever has passed.

A round passes over messages that wait, and finds those that do not, whatever sessions have taken meanwhile.

What connections ask of a real database: locks by lease, tokens, who is live, expiry, what is replaced.
"""

import asyncio
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from session_databases import MS, NUMBERS, Clock, connect, new_url, open_node_store, wipe
from test_collector_contract import LATER, NOW

from statemachines.drivers.persistent_sessions.collector_requests import SessionBounds
from statemachines.drivers.persistent_sessions.machine_requests import PUT_ROW
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.kernel import Request
from statemachines.persistent_sessions import life_request as requests
from statemachines.persistent_sessions import resume_record
from statemachines.persistent_sessions.collector import (
    NEVER_MS,
    ClientForgotten,
    ClientsRead,
    ForgetClient,
    ReadClients,
    ReadMessages,
    StoredClient,
)
from statemachines.persistent_sessions.life_request import (
    NEVER,
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
from statemachines.persistent_sessions.request import LoadSession, NotOwner, SessionAbsent, SessionLoaded
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


GRACE_MS = 60_000
OLDEST_NS = NOW - 100 * GRACE_MS * MS
UNTIL_NS = {"lasts": 0, "ends later": LATER, "has ended": NOW}


class Backlog:
    """A database in which messages wait, as a collector that remembers and one that does not see it."""

    def __init__(self, url, retention_ms=NEVER_MS):
        self.store, self._other = (open_session_store(url, clock=lambda: NOW) for _ in range(2))
        self.store.bound_sessions(SessionBounds(), retention_ms)
        self._messages = 0
        self._rows = {}

    async def write(self, work):
        def carry_out():
            with self.store._database.writing() as sql:
                work(sql)

        await self.store._database.run(carry_out)

    async def begin(self):
        def work(sql):
            wipe(sql)
            sql.run("UPDATE @store SET time_ns = :now", now=NOW)

        await self.write(work)

    async def publish(self, count, sessions, ends="lasts"):
        """Messages that are old, with a row for each of these sessions."""

        def work(sql):
            for _ in range(count):
                self._messages += 1
                message = b"m%d" % self._messages
                sql.run("INSERT INTO @messages VALUES (:id, :none, :none, 1, :at, NULL)",
                        id=message, none=b"", at=OLDEST_NS + self._messages)  # fmt: skip
                for session in sessions:
                    number = self._rows[session] = self._rows.get(session, 0) + 1
                    row = (
                        session.encode(),
                        b"w",
                        1,
                        number,
                        0,
                        message,
                        b"",
                        1,
                        0,
                        0,
                        0,
                        OLDEST_NS,
                        UNTIL_NS[ends],
                        None,
                    )
                    sql.put_many(PUT_ROW, [row])

        await self.write(work)

    async def take(self, session, share):
        """So much of what was ever stored for the session goes, from the front."""
        last = int(self._rows.get(session, 0) * share)
        statement = "DELETE FROM @session_rows WHERE session = :session AND number <= :last"
        await self.write(lambda sql: sql.run(statement, session=session.encode(), last=last))

    async def delete(self, messages):
        await self.write(
            lambda sql: [sql.run("DELETE FROM @messages WHERE id = :id", id=one.encode()) for one in messages]
        )

    async def walk(self, page, *, remembers=True):
        """The messages that nobody waits for any more, as a round finds them, and how many pages it reads."""
        after, found, pages = "", [], 0
        while True:
            (read,) = await (self.store if remembers else self._other).ask(ReadMessages(after, page, GRACE_MS))
            pages += 1
            if not read.messages:
                return found, pages
            assert read.place > after
            found += [one.message for one in read.messages if one.over or not one.referenced]
            after = read.place

    async def close(self):
        for store in (self.store, self._other):
            await store.close()


def on(url, body, **options):
    async def main():
        backlog = Backlog(url, **options)
        try:
            await backlog.begin()
            return await body(backlog)
        finally:
            await backlog.close()

    return asyncio.run(main())


SESSIONS = st.lists(st.sampled_from("abc"), unique=True)
PUBLISHES = st.lists(st.tuples(st.integers(1, 7), SESSIONS, st.sampled_from(sorted(UNTIL_NS))), max_size=3)
TAKES = st.dictionaries(st.sampled_from("abc"), st.sampled_from((0.2, 0.5, 0.9, 1.0)))
ROUNDS = st.lists(st.tuples(PUBLISHES, TAKES, st.booleans()), min_size=2, max_size=5)


@settings(max_examples=20)
@given(rounds=ROUNDS, page=st.integers(1, 4), run_max=st.integers(1, 9), asked_max=st.integers(1, 3))
def test_PS_710_a_round_that_passes_over_messages_finds_what_one_finds_that_reads_all(
    shared_url, rounds, page, run_max, asked_max
):
    async def body(backlog):
        for publishes, takes, is_deleted in rounds:
            for one in publishes:
                await backlog.publish(*one)
            for session, share in takes.items():
                await backlog.take(session, share)
            found, _ = await backlog.walk(page)
            assert found == (await backlog.walk(page, remembers=False))[0]
            if is_deleted:
                await backlog.delete(found)

    with (
        patch.object(resume_record, "RUN_MAX", run_max),
        patch.object(resume_record, "ASKED_MAX", asked_max),
        patch.object(resume_record, "SHARE", 1),
    ):
        on(shared_url, body)


LIFE_REQUESTS_DEAD_MS = 1_000


async def asked(store, request):
    (answer,) = await store.ask(request)
    return answer


async def look_up(store, token, client="c"):
    return await asked(store, LookUp(client, token, LIFE_REQUESTS_DEAD_MS))


async def lock(store, owner="h", client="c", lease_ms=500):
    return await asked(store, LockClient(client, owner, lease_ms))


@pytest.mark.parametrize("ends", ["another life", "its lease", "not at all"])
async def test_PS_421_a_node_that_has_ended_holds_no_lock_and_has_no_session(url, ends):
    """Long before the lease of the lock, and before its session counts as silent."""

    has_ended = ends != "not at all"
    async with open_node_store(url) as (store, clock):
        life = await store.begin_life("n2", 100)
        owner = f"n2~{life.number}.00f3a1c29e8d4b67/1"
        one = await connect(store, "s1", owner=owner, lock_ms=LIFE_REQUESTS_DEAD_MS)
        if ends == "another life":
            await store.begin_life("n2", 100)
        clock.now += (101 if ends == "its lease" else 99) * MS
        found = await look_up(store, one.token)
        assert (found.live == owner, found.session, type(await lock(store, "other"))) == (
            not has_ended,
            "s1",
            ClientLocked if has_ended else ClientBusy,
        )


@pytest.mark.parametrize(
    ("expiry_ms", "gone_ms", "is_over"), [(500, 499, False), (500, 500, True), (NEVER, 10**9, False)]
)
async def test_a_session_expires_after_it_was_left(url, expiry_ms, gone_ms, is_over):
    async with open_node_store(url) as (store, clock):
        one = await connect(store, "s1", expiry_ms=10)
        clock.now += 10**6 * MS
        await store.ask(LeaveSession("c", "s1", one.token, expiry_ms))
        clock.now += gone_ms * MS
        loaded = await asked(store, LoadSession("c", "o", one.token))
        found, again = await look_up(store, one.token), await connect(store, "s2")
    assert isinstance(loaded, SessionAbsent if is_over else SessionLoaded)
    assert found == ClientFound("s1", is_over, "")
    assert (again.present, again.session) == (not is_over, "s2" if is_over else "s1")


@pytest.mark.parametrize(("expiry_ms", "passed_ms", "is_over"), [(0, 999, False), (0, 1_000, True),
                                                                (1_500, 1_499, False), (1_500, 1_500, True),
                                                                (NEVER, 10**9, False)])  # fmt: skip
async def test_of_an_owner_that_died_the_expiry_counts_from_when_it_was_heard_of_last(
    url, expiry_ms, passed_ms, is_over
):
    async with open_node_store(url) as (store, clock):
        one = await connect(store, "s1", expiry_ms=expiry_ms)
        clock.now += 10**6 * MS
        await store.ask(KeepAlive("c", "s1", one.token))
        clock.now += passed_ms * MS
        found = await look_up(store, one.token)
        clock.now -= 10**5 * MS  # the clock steps back: the time of the store does not
        again = await look_up(store, one.token)
    assert found.expired is is_over
    assert again.expired is is_over


async def test_of_whoever_opens_a_session_of_another_client_nothing_is_touched(url):
    async with open_node_store(url) as (store, _clock):
        await connect(store, "s1", "c")
        locked = await lock(store, client="d")
        found = await asked(store, OpenSession("d", "h", locked.token, "s1", "", NEVER))
        again = await connect(store, "s9", "c")
    assert found == NotOwner()
    assert (again.session, again.present) == ("s1", True)
