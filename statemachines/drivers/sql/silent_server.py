"""Silent server: a database whose connection stays open and never answers, as behind a pooler that stands still.

TCP answers there, so neither keepalives nor `tcp_user_timeout` end the connection, and the server's own limits are
behind the silence.  Whether an answer is still to be expected is asked over a connection of its own.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import psycopg
from psycopg.pq import TransactionStatus

from statemachines.drivers.sql.postgres_address import SAID, STATEMENT_S

ANSWER_S: Final = 1.0
"""After so long without an answer the server is asked whether it still works on the request."""
PROBE_S: Final = 1.5
"""The server has so long to say so.  Both together are shorter than a lease of groups and of sessions."""
LONGEST_S: Final = STATEMENT_S + 5.0
"""A request that takes longer is given up, whatever the server says: its own limit has passed by then."""

IS_WORKING: Final = (
    "SELECT state = 'active' AND wait_event_type IS DISTINCT FROM 'Client', state_change::text"
    " FROM pg_stat_activity WHERE pid = %s"
)
"""Whether a session of ours works on something, and does not wait for us; and when it began or ended something."""

T = TypeVar("T")


class ServerConnections:
    """The connections of one engine that are open."""

    def __init__(self) -> None:
        self._opened: WeakSet[psycopg.Connection[Any]] = WeakSet()
        self._arguments: dict[str, Any] = {}
        self._looked: WeakKeyDictionary[psycopg.Connection[Any], str | None] = WeakKeyDictionary()
        """When the session of each had begun or ended something, as the server said last."""
        self.on_loop: WeakSet[psycopg.Connection[Any]] = WeakSet()
        """Those that no worker uses."""
        self.is_pooled = False
        """A pooler numbers its own sessions, and not those of the server."""

    def note(self, connection: psycopg.Connection[Any], arguments: dict[str, Any]) -> None:
        """One was opened with these arguments."""
        self._arguments = arguments
        self._opened.add(connection)

    async def is_working(self, one: psycopg.Connection[Any]) -> bool:
        """Whether the server can be reached anew, and works on what this connection has sent, or has done so since it
        was asked last: between two statements it works on none."""
        try:
            async with asyncio.timeout(PROBE_S):
                async with await psycopg.AsyncConnection.connect(**self._arguments, autocommit=True) as probe:
                    if self.is_pooled:
                        await probe.execute("SELECT 1")
                        return True
                    found = await (await probe.execute(IS_WORKING, [one.info.backend_pid])).fetchone()
                    works, changed = found or (False, None)
                    before, self._looked[one] = self._looked.get(one), changed
                    return bool(works) or changed != before
        except TimeoutError:
            return False
        except psycopg.Error as error:
            return SAID in str(error)

    def list_waiting(self) -> list[psycopg.Connection[Any]]:
        """Those of the worker that have sent something and have no answer."""
        open_ones = [one for one in list(self._opened) if one not in self.on_loop and not one.closed]
        return [one for one in open_ones if one.info.transaction_status is TransactionStatus.ACTIVE]

    async def await_answer(self, answer: asyncio.Future[None], one: psycopg.Connection[Any]) -> None:
        """Wait for it on this connection.  Raises `psycopg.OperationalError` when none is to be expected."""
        deadline = time.monotonic() + LONGEST_S
        while not (await asyncio.wait([answer], timeout=ANSWER_S))[0]:
            if time.monotonic() > deadline or not await self.is_working(one):
                raise psycopg.OperationalError(NO_ANSWER)
        await answer

    def cut(self, some: Iterable[psycopg.Connection[Any]]) -> None:
        """Shut these down: a thread that waits for an answer gets an error."""
        for connection in some:
            with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as same:
                if not connection.closed:  # so the number was that of its socket
                    same.shutdown(socket.SHUT_RDWR)


NO_ANSWER: Final = "connection is lost: it is open, and no answer came"


class AnsweredWorker:
    """One thread that waits for the answers of a server; what it waits for in vain is cut."""

    def __init__(self, connections: ServerConnections) -> None:
        self._connections = connections
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="postgres")
        self._pending: set[Future[Any]] = set()
        self._began: float | None = None
        """When the piece of work began that is under way."""
        self._looks_on: asyncio.AbstractEventLoop | None = None
        """The loop that looks after it while there is work."""
        self._probe: asyncio.Task[None] | None = None

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Hand it to the thread."""

        def timed() -> T:
            self._began = time.monotonic()
            try:
                return work()
            finally:
                self._began = None

        future = self._worker.submit(timed)
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return future

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        """What it returns; the loop looks after it."""
        future = self.submit(work)
        loop = asyncio.get_running_loop()
        if self._looks_on is not loop:
            self._look_later(loop)
        return asyncio.wrap_future(future)

    def open(self, work: Callable[[], T]) -> T:
        """What it returns, in a thread that waits for it."""
        future = self.submit(work)
        with suppress(TimeoutError):
            return future.result(LONGEST_S)
        self._connections.cut(self._connections.list_waiting())
        return future.result()

    def shut_down(self, *, wait: bool) -> None:
        """No more work; with `wait` the thread has ended."""
        self._worker.shutdown(wait=wait)

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looks_on = loop
        loop.call_later(ANSWER_S, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._pending:
            self._looks_on = None
            return
        began = self._began
        if began is not None and time.monotonic() - began >= ANSWER_S:
            self._probe = loop.create_task(self._ask_server(began))
            self._probe.add_done_callback(lambda _: self._look_later(loop))
        else:
            self._look_later(loop)

    async def _ask_server(self, began: float) -> None:
        is_late = time.monotonic() - began >= LONGEST_S
        for one in self._connections.list_waiting():
            if (is_late or not await self._connections.is_working(one)) and self._began == began:
                self._connections.cut([one])
