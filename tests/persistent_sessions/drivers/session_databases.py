"""The database of the explorer and the real ones behind one face: a session, two writers, requests and answers."""

from __future__ import annotations

import asyncio
import itertools
import os
from typing import NamedTuple

from msgspec.structs import replace

from statemachines.drivers.persistent_sessions.host_requests import Beat
from statemachines.drivers.persistent_sessions.life_requests import sessions_kept
from statemachines.drivers.persistent_sessions.route_rows import PutMessage, Subscribe
from statemachines.drivers.persistent_sessions.sql import NAMES
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.kernel import Map
from statemachines.persistent_sessions import collector_request, life_request
from statemachines.persistent_sessions.request import (
    FencedRows,
    LoadSession,
    PendingRead,
    Polled,
    PutRows,
    SessionLoaded,
    StateCommitted,
)
from statemachines.persistent_sessions.session_tables import SessionService, find_shelf, put_shelf
from statemachines.testing.postgres import run_sql

WRITERS = ("w1", "w2")
MESSAGES = tuple(f"m{number}" for number in range(1, 9))
NUMBERS = itertools.count(1)
EMPTY = []
"""URLs of databases of this process with nothing in them: to make one costs twice what most tests do with it."""
EMPTIED = """
SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid();
DROP SCHEMA IF EXISTS gapless_sessions, gapless CASCADE
"""


def new_url(kind, request, tmp_path_factory):
    """A database with nothing in it; one of PostgreSQL is emptied for the next when `request` ends."""
    if kind == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('sessions')}/sessions.db"
    server = request.getfixturevalue("postgres_server")
    url = EMPTY.pop() if EMPTY else new_database(server)

    def give_back():
        run_sql(url, EMPTIED)
        EMPTY.append(url)

    request.addfinalizer(give_back)
    return url


def new_database(server):
    """The URL of one that was not there."""
    name = f"sessions_{os.getpid()}_{next(NUMBERS)}"
    run_sql(server, f"CREATE DATABASE {name} TEMPLATE template0")
    return f"{server.rpartition('/')[0]}/{name}"


MS = 1_000_000
SECOND = 1_000 * MS


TIMES = ("stored_ns", "complete_ns", "seen_ns")


def without_times(found):
    """Answers without the times of rows, which no other database has."""
    if type(found) in (tuple, list):
        return type(found)(map(without_times, found))
    fields = getattr(found, "__struct_fields__", ())
    values = {name: 0 if name in TIMES else without_times(getattr(found, name)) for name in fields}
    return replace(found, **values) if values else found


class Clock:
    """What a test sets."""

    def __init__(self):
        self.now = SECOND

    def __call__(self):
        return self.now


class Untimed:
    """A store whose answers are without the times of rows."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def ask(self, request):
        return without_times(await self._store.ask(request))

    async def do(self, request):
        return without_times(await self._store.do(request))

    async def carry_out(self, life, batch, requests):
        return without_times(await self._store.carry_out(life, batch, requests))


def run(url, play, *, timed=False, **options):
    """`await play(store, clock)` on the store at `url`, of which `n1` is a node; `timed`: rows have their times."""

    async def body():
        clock = Clock()
        store = open_session_store(url, clock=clock, **options)
        try:
            await store.begin_life("n1", 1_000)
            return await play(store if timed else Untimed(store), clock)
        finally:
            await store.close()

    return asyncio.run(body())


class Connected(NamedTuple):
    """`present`: the session was there before."""

    token: int
    session: str
    present: bool


async def connect(
    store, session, client="c", *, owner="h", clean=False, expiry_ms=life_request.NEVER, lock_ms=500, dead_ms=1_000
):
    """What a connection asks that finds its session, or opens `session`."""
    (locked,) = await store.ask(life_request.LockClient(client, owner, lock_ms))
    assert isinstance(locked, life_request.ClientLocked), locked
    (found,) = await store.ask(life_request.LookUp(client, locked.token, dead_ms))
    assert isinstance(found, life_request.ClientFound), found
    present = bool(found.session) and not clean and not found.expired
    session, replaces = (found.session, "") if present else (session, found.session)
    opened = await store.ask(life_request.OpenSession(client, owner, locked.token, session, replaces, expiry_ms))
    assert opened == (life_request.SessionOpen(),)
    return Connected(locked.token, session, present)


async def kept(store):
    """How many sessions the store says that it keeps; it keeps as many."""

    def look():
        with store._database.reading() as sql:
            ((counted,),) = sql.all("SELECT count(*) FROM @sessions")
            assert sessions_kept(sql) == counted
            return counted

    return await store._database.run(look)


def wipe(sql):
    """Nothing is stored any more."""
    for table in set(NAMES) - {"store"}:
        sql.run(f"DELETE FROM @{table}")


def tidy(answer, taken, request):
    """Without what a party drops anyway: rows that the committed state has taken, or that it has itself, and markers
    before the last; and without the time, which goes on in real ones alone."""
    if isinstance(answer, SessionLoaded):
        return replace(answer, session="s1", time_ns=0)
    if isinstance(answer, StateCommitted):
        return replace(answer, time_ns=0)
    if not isinstance(answer, PendingRead | Polled | FencedRows):
        return answer
    last = {}
    for one in answer.found:
        for mark in one.markers:
            last[one.writer] = max(last.get(one.writer, (0, (0, 0))), (one.epoch, mark))
    found = []
    for one in answer.found:
        begin = max(taken.get(one.writer, (0, 0)), request.behind)
        rows = tuple(row for row in one.rows if (one.epoch, row.number) > begin)
        marks = tuple(mark for mark in one.markers if (one.epoch, mark) == last[one.writer])
        if rows or marks:
            found.append(replace(one, rows=rows, markers=marks))
    return replace(answer, found=tuple(found))


class Model:
    """The pure service, which the explorer's database holds; everything is visible at once."""

    def __init__(self):
        self.service = SessionService(WRITERS)

    async def open(self):
        self.tables = self.service.initial()
        return self

    async def ask(self, request):
        self.tables, answers = self.service.apply(self.tables, request)
        return tuple(tidy(one, self.tables.state.taken, request) for one in answers)

    async def live(self, writer, up):
        self.tables = put_shelf(self.tables, replace(find_shelf(self.tables, writer), up=up))

    async def close(self):
        pass


class Real:
    """A session of its own in the database at `url`; `s1` and `c1` stand for it."""

    def __init__(self, url, **options):
        self.url = url
        self.options = options
        self.places = {}
        """Message -> where the page ends of which it was the last."""

    async def open(self):
        self.store = open_session_store(self.url, **self.options)
        await self.prepare()
        number = next(NUMBERS)
        self.session, self.client = f"s-{number}", f"c-{number}"
        lives = [await self.store.begin_life(writer, 1_000_000) for writer in WRITERS]
        connected = await connect(self.store, self.session, self.client)
        asked = [Subscribe(self.session, connected.token, f"{self.session}/#", 1)]
        asked += [PutMessage(self.real(message), f"{self.session}/x", b"", 1) for message in MESSAGES]
        await self.store.carry_out(lives[0], 1, asked)
        self.taken = Map()
        self.first = connected.token - 1
        return self

    async def prepare(self):
        """Whatever is done with the store before the session is there."""

    def real(self, message):
        return f"{message}@{self.session}" if message else ""

    async def ask(self, request):
        known = request
        if isinstance(request, LoadSession):
            request = replace(request, client=self.client)
        if hasattr(request, "session"):
            request = replace(request, session=self.session)
        if hasattr(request, "token"):
            request = replace(request, token=request.token + self.first)
        answers = await self.store.ask(self.with_keys(self.with_messages(request)))
        if type(known).__name__ == "CommitState" and type(answers[0]).__name__ == "StateCommitted":
            self.taken = self.taken.update(known.change.taken)
        return tuple(tidy(self.without(without_times(one)), self.taken, request) for one in answers)

    def with_messages(self, request):
        """Ids of messages are those of this session."""
        if isinstance(request, PutRows):
            return replace(request, rows=tuple(self.renamed(row, self.real) for row in request.rows))
        if hasattr(request, "found"):
            found = (
                replace(one, rows=tuple(self.renamed(row, self.real) for row in one.rows)) for one in request.found
            )
            return replace(request, found=tuple(found))
        if hasattr(request, "change"):
            change = request.change
            packets = tuple(self.renamed_packet(one, self.real) for one in change.packets)
            queued = tuple(self.renamed(one, self.real) for one in change.queued)
            return replace(request, change=replace(change, packets=packets, queued=queued))
        if isinstance(request, collector_request.DeletePage):
            messages = tuple(replace(one, message=self.real(one.message)) for one in request.messages)
            return replace(request, messages=messages)
        if isinstance(request, collector_request.ReadMessages):
            return replace(request, after=self.places.get(request.after, ""))
        return request

    def with_keys(self, request):
        """Keys of rows are those of this session."""
        if isinstance(request, collector_request.DeletePage):
            rows = tuple(replace(one, row=self.key(one.row, self.session, self.first)) for one in request.rows)
            return replace(request, rows=rows)
        if isinstance(request, collector_request.ReadRows) and request.after is not None:
            return replace(request, after=self.key(request.after, self.session, self.first))
        return request

    def key(self, key, session, first):
        return replace(key, session=session, token=key.token + first if key.tag is collector_request.Tag.MARKER else 0)

    def without(self, answer):
        """And the other way round; tokens, too."""

        def plain(message):
            return message.partition("@")[0]

        if isinstance(answer, SessionLoaded):
            return replace(answer, state=self.renamed_state(answer.state, plain))
        if isinstance(answer, collector_request.ClientsRead):
            return collector_request.ClientsRead(())  # of the explorer's one session nobody says whose it is
        if isinstance(answer, collector_request.PageDeleted):
            return replace(answer, messages=tuple((plain(message), lost) for message, lost in answer.messages))
        if isinstance(answer, collector_request.MessagesRead):
            messages = tuple(replace(one, message=plain(one.message)) for one in answer.messages)
            place = messages[-1].message if messages else ""
            self.places[place] = answer.place
            return collector_request.MessagesRead(messages, place)
        if isinstance(answer, collector_request.RowsRead):
            return collector_request.RowsRead(
                tuple(replace(row, key=self.key(row.key, "s1", -self.first)) for row in answer.rows)
            )
        if not hasattr(answer, "found") or isinstance(answer.found, bool):
            return answer
        found = tuple(
            replace(
                one,
                rows=tuple(self.renamed(row, plain) for row in one.rows),
                markers=tuple((token - self.first, n) for token, n in one.markers),
            )
            for one in answer.found
        )
        return replace(answer, found=found)

    def renamed(self, queued, name):
        return replace(queued, message=name(queued.message))

    def renamed_state(self, state, name):
        packets = state.packets
        for packet, one in state.packets.items():
            packets = packets.set(packet, self.renamed_packet(one, name))
        return replace(state, packets=packets, queued=tuple(self.renamed(one, name) for one in state.queued))

    def renamed_packet(self, one, name):
        client = self.client if name == self.real else "c1"
        return replace(one, client=client, queued=self.renamed(one.queued, name))

    async def live(self, writer, up):
        await self.store.do(Beat(writer, 1_000_000 if up else 0))

    async def close(self):
        await self.store.close()
