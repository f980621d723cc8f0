"""ScriptStore: the database of a scripted run: a real SQLite file, with the session and the messages of the system in
it, and what lies in its tables as the explorer would have it.

What is asked is answered by what is committed: no replica lags behind a file.  Rows have times where those of the
system have.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from statemachines.drivers.persistent_sessions.host_request import Beat, PutMessage, Subscribe
from statemachines.drivers.persistent_sessions.store import SessionStore, open_session_store
from statemachines.drivers.persistent_sessions.tables import UNDELIVERED
from statemachines.kernel import Answer, ConfigurationError, Map
from statemachines.persistent_sessions.in_flight_record import InFlightRecord, InFlightStatus
from statemachines.persistent_sessions.life_request import NEVER, ClientLocked, LockClient, OpenSession
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import BeginEpoch, FencedRows, PendingRead, Polled, SessionState
from statemachines.persistent_sessions.session_tables import SESSION, StoredEntry, StoredRows
from statemachines_spec.explorer.system import System
from statemachines_spec.persistent_sessions.client import CLIENT
from statemachines_spec.persistent_sessions.database import DatabaseLocal, DatabaseService
from statemachines_spec.persistent_sessions.publisher import PUBLISHER, SessionPublisherActor

FILTER: Final = "t"
"""What the session subscribes, and what messages are about."""

LEASE_MS: Final = 24 * 3_600_000
"""A run is shorter: who is taken for dead has died."""

ROWS: Final = (
    "SELECT epoch, number, message, filter, qos FROM session_rows"
    f" WHERE session = ? AND writer = ? AND tag = {UNDELIVERED} ORDER BY epoch, number"
)
PACKETS: Final = "SELECT packet, place, status, number, message, filter, qos FROM packets WHERE session = ?"

TIMES: Final = ("stored_ns", "complete_ns", "seen_ns")
"""Fields of answers about rows."""


class ScriptStore:
    """The file `path`, whose clock is `clock`; `begin` first."""

    def __init__(self, system: System, path: Path, clock: Callable[[], int]) -> None:
        self.path = path
        self._clock = clock
        components = {one.name: one for one in system.actors}
        database, publisher = components["database"], components[PUBLISHER]
        assert isinstance(database, DatabaseService)
        assert isinstance(publisher, SessionPublisherActor)
        self.database = database
        self._messages = [(one, publisher.qos) for messages in publisher.messages.values() for one in messages]

    def open(self) -> SessionStore:
        """The store, as a node opens it."""
        return open_session_store(self.path, clock=self._clock)

    async def begin(self) -> None:
        """The client's session is there, and subscribes what is published; writers live, and have begun where the
        system has it so."""
        store = self.open()
        try:
            (locked,) = await store.ask(LockClient(CLIENT, "setup", 1))
            if not isinstance(locked, ClientLocked) or locked.token != 1:
                raise ConfigurationError("store", str(self.path), "must be new, so that the first token is 1")
            await store.ask(OpenSession(CLIENT, "setup", 1, SESSION, "", NEVER))
            await store.do(Subscribe(SESSION, 1, FILTER, 2))
            for message, qos in self._messages:
                await store.do(PutMessage(message, FILTER, b"", qos))
            for writer in self.database.writers:
                await store.begin_life(writer, LEASE_MS)
                for _ in range(self.database.service.begun):
                    await store.ask(BeginEpoch(SESSION, writer))
        finally:
            await store.close()

    async def live(self, node: str, up: bool) -> None:
        """The lease of a node that has died has ended; one that is there again has begun another itself."""
        store = self.open()
        try:
            if not up:
                await store.do(Beat(node, 0))
        finally:
            await store.close()

    # -- what lies there ------------------------------------------------------------------------------------------

    def read(self) -> DatabaseLocal:
        """What is committed, read from the tables and from nobody's memory."""
        with closing(sqlite3.connect(self.path)) as sql:
            ((owner, token),) = sql.execute("SELECT owner, token FROM sessions").fetchall()
            shelves = tuple(self._shelf(sql, writer) for writer in self.database.writers)
            packets = {row[0]: _packet(*row) for row in sql.execute(PACKETS, (SESSION.encode(),))}
        return DatabaseLocal(shelves, SessionState(packets=Map(packets)), token, owner.decode())

    def _shelf(self, sql: sqlite3.Connection, writer: str) -> StoredRows:
        keys = (SESSION.encode(), writer.encode())
        ((epoch,),) = sql.execute("SELECT coalesce(max(epoch), 0) FROM epochs WHERE session = ? AND writer = ?", keys)
        rows = sql.execute(ROWS, keys).fetchall()
        return StoredRows(writer, epoch, tuple(StoredEntry(row[0], _queued(*row[1:]), visible=True) for row in rows))


def without_times(answer: Answer) -> Answer:
    """The answer of a database whose rows have no times."""
    times: Any = {name: 0 for name in TIMES if hasattr(answer, name)}
    if isinstance(answer, Polled | PendingRead | FencedRows):
        times["found"] = tuple(
            replace(one, rows=tuple(replace(row, stored_ns=0) for row in one.rows)) for one in answer.found
        )
    return replace(answer, **times)


def _queued(number: int, message: bytes, topic: bytes, qos: int) -> Queued:
    return Queued(number, message.decode(), topic.decode(), qos)


def _packet(packet: int, place: int, status: bytes, *row: Any) -> InFlightRecord:
    return InFlightRecord(packet, CLIENT, _queued(*row), place, InFlightStatus(status.decode()))
