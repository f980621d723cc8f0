"""The database of the explorer and the real ones behind one face: a session, two writers, requests and answers.

Moves of writers and of the owner of a session, and the requests that they make of them.

The change that a commit of a whole state is.
"""

from __future__ import annotations

import itertools
import os
from contextlib import asynccontextmanager
from typing import NamedTuple

from hypothesis import strategies as st
from msgspec.structs import replace

from statemachines.drivers.persistent_sessions.host_requests import Beat
from statemachines.drivers.persistent_sessions.life_requests import sessions_kept
from statemachines.drivers.persistent_sessions.route_rows import PutMessage, Subscribe
from statemachines.drivers.persistent_sessions.sql import NAMES
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.kernel import Map
from statemachines.persistent_sessions import collector, life_request
from statemachines.persistent_sessions.in_flight_record import InFlightRecord, InFlightStatus
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    CommitState,
    ConfirmRows,
    EpochBegun,
    EpochRows,
    Fence,
    FencedRows,
    LoadSession,
    MarkDelivered,
    PendingRead,
    Polled,
    PutMarker,
    PutRows,
    ReadPending,
    ReadRow,
    RowStored,
    SessionLoaded,
    SessionState,
    StateChange,
    StateCommitted,
    SubscribeLive,
    UnsubscribeLive,
    change_state,
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


@asynccontextmanager
async def open_node_store(url, *, timed=False, **options):
    """(The store at `url`, of which `n1` is a node; its clock); `timed`: rows have their times."""
    clock = Clock()
    store = open_session_store(url, clock=clock, **options)
    try:
        await store.begin_life("n1", 1_000)
        yield store if timed else Untimed(store), clock
    finally:
        await store.close()


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
        if isinstance(request, collector.DeletePage):
            messages = tuple(replace(one, message=self.real(one.message)) for one in request.messages)
            return replace(request, messages=messages)
        if isinstance(request, collector.ReadMessages):
            return replace(request, after=self.places.get(request.after, ""))
        return request

    def with_keys(self, request):
        """Keys of rows are those of this session."""
        if isinstance(request, collector.DeletePage):
            rows = tuple(replace(one, row=self.key(one.row, self.session, self.first)) for one in request.rows)
            return replace(request, rows=rows)
        if isinstance(request, collector.ReadRows) and request.after is not None:
            return replace(request, after=self.key(request.after, self.session, self.first))
        return request

    def key(self, key, session, first):
        return replace(key, session=session, token=key.token + first if key.tag is collector.Tag.MARKER else 0)

    def without(self, answer):
        """And the other way round; tokens, too."""

        def plain(message):
            return message.partition("@")[0]

        if isinstance(answer, SessionLoaded):
            return replace(answer, state=self.renamed_state(answer.state, plain))
        if isinstance(answer, collector.ClientsRead):
            return collector.ClientsRead(())  # of the explorer's one session nobody says whose it is
        if isinstance(answer, collector.PageDeleted):
            return replace(answer, messages=tuple((plain(message), lost) for message, lost in answer.messages))
        if isinstance(answer, collector.MessagesRead):
            messages = tuple(replace(one, message=plain(one.message)) for one in answer.messages)
            place = messages[-1].message if messages else ""
            self.places[place] = answer.place
            return collector.MessagesRead(messages, place)
        if isinstance(answer, collector.RowsRead):
            return collector.RowsRead(
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


S = "s1"


def queued(number, message=None):
    return Queued(number, message or f"m{number}", "a/+", 1)


WRITER = st.sampled_from(WRITERS)
TOKEN = st.integers(1, 3)
SMALL = st.integers(1, 4)
PAGE = st.integers(0, 3)
RANGE = st.lists(st.sampled_from(MESSAGES), min_size=1, max_size=3)
BEHIND = st.tuples(st.integers(1, 4), st.integers(0, 3))
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), WRITER),
        st.tuples(st.just("row"), WRITER, st.integers(0, 2), RANGE),
        st.tuples(st.just("row"), WRITER, st.just(0), RANGE),
        st.tuples(st.just("marker"), WRITER, st.integers(0, 1), TOKEN, SMALL),
        st.tuples(st.just("read"), WRITER, SMALL, SMALL),
        st.tuples(st.just("load"), TOKEN),
        st.tuples(st.just("pending"), st.sampled_from(("", *WRITERS)), PAGE, BEHIND),
        st.tuples(st.just("subscribe"), TOKEN),
        st.tuples(st.just("unsubscribe"), TOKEN),
        st.tuples(st.just("fence"), WRITER, BEHIND, st.integers(0, 4), TOKEN, PAGE),
        st.tuples(st.just("take"), WRITER, SMALL, SMALL, TOKEN),
        st.tuples(st.just("queue"), st.integers(0, 3), st.integers(0, 3), TOKEN),
        st.tuples(st.just("packet"), SMALL, st.sampled_from(list(InFlightStatus)), TOKEN),
        st.tuples(st.just("mark"), WRITER, SMALL, SMALL, st.integers(0, 4)),
        st.tuples(st.just("live"), WRITER, st.booleans()),
        st.tuples(st.just("confirm"), WRITER, SMALL, st.lists(st.sampled_from(MESSAGES), max_size=4), TOKEN),
    ),
    max_size=30,
)


class Player:
    """Makes requests of moves: what a writer and an owner that keep to the protocol would ask."""

    def __init__(self):
        self.epochs = dict.fromkeys(WRITERS, 0)
        self.last = {}
        self.state = SessionState()
        self.count = 0

    def request(self, kind, *given):
        return getattr(self, kind)(*given)

    def begin(self, writer):
        return BeginEpoch(S, writer)

    def row(self, writer, back, messages):
        epoch = self.epochs[writer] - back
        numbered = enumerate(messages, self.last.get((writer, epoch), 0) + 1)
        return PutRows(S, writer, epoch, tuple(queued(*one) for one in numbered)) if epoch > 0 else None

    def marker(self, writer, back, token, n):
        epoch = self.epochs[writer] - back
        return PutMarker(S, writer, epoch, self.last.get((writer, epoch), 0) + 1, token, n) if epoch > 0 else None

    def read(self, writer, epoch, number):
        return ReadRow(S, writer, epoch, number)

    def load(self, token):
        return LoadSession("c1", "owner", token)

    def pending(self, writer, rows, behind):
        return ReadPending(S, writer, rows, behind if writer else (0, 0))

    def subscribe(self, token):
        return SubscribeLive(S, "owner", token)

    def unsubscribe(self, token):
        return UnsubscribeLive(S, token)

    def fence(self, writer, behind, below, token, rows):
        return Fence(S, writer, behind, below, token, 1, rows)

    def confirm(self, writer, epoch, rows, token):
        """Rows that follow each other, as an owner that yields keeps them."""
        rows = tuple(queued(place, message) for place, message in enumerate(rows, 1))
        return ConfirmRows(S, token, (EpochRows(writer, epoch, rows),))

    def take(self, writer, epoch, number, token):
        return CommitState(S, token, StateChange(Map({writer: (epoch, number)}), places=self.state.places))

    def queue(self, gone, more, token):
        added = tuple(queued(self.count + place, MESSAGES[place]) for place in range(more))
        self.count += more
        dequeued = min(gone, len(self.state.queued))
        return CommitState(S, token, StateChange(dequeued=dequeued, queued=added, places=self.state.places))

    def packet(self, packet, status, token):
        places = self.state.places
        if status is InFlightStatus.DONE:
            return CommitState(S, token, StateChange(ended=(packet,), places=places + 1))
        one = InFlightRecord(packet, "c1", queued(packet), places, status)
        return CommitState(S, token, StateChange(packets=(one,), places=places + 1))

    def mark(self, writer, epoch, number, last):
        return MarkDelivered(S, writer, epoch, number, last if last >= number else 0)

    def learn(self, asked, answers):
        """What they know from the answers."""
        for answer in answers:
            match asked, answer:
                case BeginEpoch(), EpochBegun(epoch):
                    self.epochs[asked.writer] = epoch
                case Fence(), FencedRows(writer, below):
                    self.epochs[writer] = max(self.epochs[writer], below)
                case PutRows(), RowStored():
                    self.last[asked.writer, asked.epoch] = asked.last_number
                case CommitState(), StateCommitted():
                    self.state = change_state(self.state, asked.change, 0)
                case LoadSession(), SessionLoaded(_, state):
                    assert state == self.state


NOTHING = SessionState()


def change_to(after, before=NOTHING):
    """What makes `after` of `before`."""
    first = next(
        count
        for count in range(len(before.queued) + 1)
        if before.queued[count:] == after.queued[: len(before.queued) - count]
    )
    return StateChange(
        Map({writer: at for writer, at in after.taken.items() if before.taken.get(writer) != at}),
        tuple(sorted(packet for packet in before.packets if packet not in after.packets)),
        tuple(one for packet, one in sorted(after.packets.items()) if before.packets.get(packet) != one),
        first,
        after.queued[len(before.queued) - first :],
        after.places,
    )
