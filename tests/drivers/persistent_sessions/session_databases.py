"""The database of the explorer and the real ones behind one face: a session, two writers, requests and answers."""

from __future__ import annotations

import itertools
import os

from msgspec.structs import replace

from statemachines.drivers.persistent_sessions.host_request import NEVER, Beat, Connect, PutMessage, Subscribe
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.persistent_sessions.request import FencedRows, LoadSession, PendingRead, Polled, SessionLoaded
from statemachines.testing.postgres import run_sql
from statemachines_spec.persistent_sessions.database import Database, Lives

WRITERS = ("w1", "w2")
MESSAGES = tuple(f"m{number}" for number in range(1, 9))
NUMBERS = itertools.count(1)


def new_url(kind, request, tmp_path_factory):
    """A database with nothing in it."""
    if kind == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('sessions')}/sessions.db"
    server = request.getfixturevalue("sessions_server")
    name = f"sessions_{os.getpid()}_{next(NUMBERS)}"
    run_sql(server, f"CREATE DATABASE {name} TEMPLATE template0")
    return f"{server.rpartition('/')[0]}/{name}"


def tidy(answer, taken):
    """Without what a party drops anyway: rows that the committed state has taken, and markers before the last."""
    if isinstance(answer, SessionLoaded):
        return replace(answer, session="s1")
    if not isinstance(answer, PendingRead | Polled | FencedRows):
        return answer
    last = {}
    for one in answer.found:
        for mark in one.markers:
            last[one.writer] = max(last.get(one.writer, (0, (0, 0))), (one.epoch, mark))
    found = []
    for one in answer.found:
        begin = taken.get(one.writer, (0, 0))
        rows = tuple(row for row in one.rows if (one.epoch, row.number) > begin)
        marks = tuple(mark for mark in one.markers if (one.epoch, mark) == last[one.writer])
        if rows or marks:
            found.append(replace(one, rows=rows, markers=marks))
    return replace(answer, found=tuple(found))


class Model:
    """The explorer's database; everything is visible at once."""

    def __init__(self):
        self.database = Database(WRITERS, ("c1",))

    async def open(self):
        self.local = self.database.initial()
        return self

    async def ask(self, request):
        self.local, answers, _ = self.database.apply(self.local, request)
        return tuple(tidy(one, self.local.state.taken) for one in answers)

    async def live(self, writer, up):
        event = Lives(writer, up)
        shelves = tuple(replace(one, up=event.up) if one.writer == writer else one for one in self.local.shelves)
        self.local = replace(self.local, shelves=shelves)

    async def close(self):
        pass


class Real:
    """A session of its own in the database at `url`; `s1` and `c1` stand for it."""

    def __init__(self, url, **options):
        self.url = url
        self.options = options

    async def open(self):
        self.store = open_session_store(self.url, **self.options)
        number = next(NUMBERS)
        self.session, self.client = f"s-{number}", f"c-{number}"
        for writer in WRITERS:
            await self.store.begin_life(writer, 1_000_000)
        connect = Connect(self.client, "", WRITERS[0], 1, self.session, True, NEVER, 1)
        connected = await self.store.do(connect)
        await self.store.do(Subscribe(self.session, connected.token, f"{self.session}/#", 1))
        for message in MESSAGES:
            await self.store.do(PutMessage(self.real(message), f"{self.session}/x", b"", 1))
        self.taken = {}
        self.first = connected.token - 1
        return self

    def real(self, message):
        return f"{message}@{self.session}" if message else ""

    async def ask(self, request):
        known = request
        if isinstance(request, LoadSession):
            request = replace(request, client=self.client)
        else:
            request = replace(request, session=self.session)
        if hasattr(request, "token"):
            request = replace(request, token=request.token + self.first)
        answers = await self.store.ask(self.with_messages(request))
        if type(known).__name__ == "CommitState" and type(answers[0]).__name__ == "StateCommitted":
            self.taken = known.state.taken
        return tuple(tidy(self.without(one), self.taken) for one in answers)

    def with_messages(self, request):
        """Ids of messages are those of this session."""
        if hasattr(request, "queued"):
            return replace(request, queued=self.renamed(request.queued, self.real))
        if hasattr(request, "found"):
            found = (
                replace(one, rows=tuple(self.renamed(row, self.real) for row in one.rows)) for one in request.found
            )
            return replace(request, found=tuple(found))
        if hasattr(request, "state"):
            return replace(request, state=self.renamed_state(request.state, self.real))
        return request

    def without(self, answer):
        """And the other way round; tokens, too."""

        def plain(message):
            return message.partition("@")[0]

        if isinstance(answer, SessionLoaded):
            return replace(answer, state=self.renamed_state(answer.state, plain))
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
            client = self.client if name == self.real else "c1"
            packets = packets.set(packet, replace(one, client=client, queued=self.renamed(one.queued, name)))
        return replace(state, packets=packets, queued=tuple(self.renamed(one, name) for one in state.queued))

    async def live(self, writer, up):
        await self.store.do(Beat(writer, 1_000_000 if up else 0))

    async def close(self):
        await self.store.close()
