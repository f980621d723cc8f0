"""LoopConnection: a connection of PostgreSQL whose statements are sent and answered on the event loop.

A worker thread costs a short statement more than the server does: two switches between threads, and its answer waits
until the loop lets the interpreter go.  Each statement is prepared, and is a transaction.

Pipeline: statements of one transaction of PostgreSQL that go out without waiting for one another.

Nothing is waited for but what is read.  What has only to be done goes out with the next read, or with the commit, and
so does an error that it brings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from statemachines.drivers.sql.failure import StoreUnavailable
from statemachines.drivers.sql.postgres import PostgresDatabase

Driver = psycopg.Connection[tuple[Any, ...]]


class Pipeline(NamedTuple):
    """The `driver` of a connection; `leave`: from now on each statement is waited for."""

    connection: Connection
    driver: Driver
    leave: Callable[[], None]


@contextmanager
def open_pipeline(connection: Connection) -> Iterator[Pipeline]:
    """In the transaction that has begun; it is committed with what went out last.

    Raises what SQLAlchemy would: `DBAPIError`.
    """
    driver: Any = connection.connection.driver_connection
    try:
        with ExitStack() as stack:
            stack.enter_context(driver.pipeline())
            yield Pipeline(connection, driver, stack.close)
            driver.commit()
    except psycopg.Error as error:
        raise wrap_error(connection, error) from error


def wrap_error(connection: Connection, error: psycopg.Error) -> BaseException:
    """The error as SQLAlchemy has it; a connection that is lost is not used again."""
    dialect = connection.dialect
    is_lost = dialect.is_disconnect(error, connection.connection.dbapi_connection, None)  # type: ignore[arg-type]
    if is_lost:
        connection.invalidate(error)
    return DBAPIError.instance(None, None, error, psycopg.Error, connection_invalidated=is_lost, dialect=dialect)


BINARY: Final = 1


class Statement(NamedTuple):
    """A statement that is prepared: its `name`, its `text` with values as $1, $2, ..., and their `types` as the server
    numbers them."""

    name: bytes
    text: bytes
    types: tuple[int, ...]


class LoopConnection:
    """A connection of `database` beside that of its worker, opened when it is needed; one statement at a time."""

    def __init__(self, database: PostgresDatabase, statements: Sequence[Statement]) -> None:
        self._database = database
        self._statements = statements
        self._connection: Connection | None = None
        self._opened: list[Connection] = []
        """Where the worker leaves the connection that is wanted now."""
        self._driver: Any = None
        self._pgconn: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answer: asyncio.Future[None] | None = None
        self._results: list[Any] = []

    async def ask(self, statement: Statement, values: Sequence[bytes | None]) -> bytes | None:
        """The first value of its first row, which it has; `values` in the binary form of the server.

        Raises `StoreUnavailable`, `OutcomeOpen` or `StoreDamaged`.
        """
        if self._pgconn is None:
            await self._connect()
        assert self._answer is None, "one statement at a time"
        try:
            await self._carry_out(statement, values)
            return self._read_answer()
        except psycopg.Error as error:
            assert self._connection is not None
            failure = wrap_error(self._connection, error)
            self.close()
            assert isinstance(failure, DBAPIError)
            await self._database.raise_failure(failure)
        except BaseException:
            self.close()  # an answer may come that nobody waits for
            raise

    def close(self) -> None:
        """Let the connection go; the next statement opens another one."""
        connection, self._connection = self._connection, None
        opened, self._opened = self._opened, []
        discard(opened)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._pgconn = self._loop = None
        if connection is not None:
            discard([connection])

    async def _connect(self) -> None:
        opened = self._opened = []
        try:
            await self._database.run(partial(self._open, opened))
        except BaseException:
            self.close()  # the worker may not have ended
            raise
        if not opened:
            raise StoreUnavailable(f"{self._database.url}: the connection was closed while it was opened; try again")
        self._connection = opened.pop()
        self._driver = self._connection.connection.driver_connection
        self._database.connections.on_loop.add(self._driver)
        self._pgconn, self._loop = self._driver.pgconn, asyncio.get_running_loop()
        self._socket: int = self._pgconn.socket
        self._loop.add_reader(self._socket, self._read)

    def _open(self, opened: list[Connection]) -> None:
        """In the worker, which discards the connection if it is not wanted any more."""
        connection = self._database.connect_anew()
        driver: Any = connection.connection.driver_connection
        try:
            for one in self._statements:
                result = driver.pgconn.prepare(one.name, one.text, one.types)
                if result.status != ExecStatus.COMMAND_OK:
                    raise error_from_result(result)
        except psycopg.Error as error:
            failure = wrap_error(connection, error)
            discard([connection])
            raise failure from error
        driver.pgconn.nonblocking = 1
        opened.append(connection)
        if self._opened is not opened:
            discard(opened)

    async def _carry_out(self, statement: Statement, values: Sequence[bytes | None]) -> None:
        assert self._loop is not None
        self._results.clear()
        self._answer = self._loop.create_future()
        try:
            self._pgconn.send_query_prepared(statement.name, values, [BINARY] * len(values), BINARY)
            self._write()
            await self._database.connections.await_answer(self._answer, self._driver)
        finally:
            self._answer = None

    def _write(self) -> None:
        """What the socket takes; the others when it is ready."""
        assert self._loop is not None
        try:
            if self._pgconn.flush():
                self._loop.add_writer(self._socket, self._write)
            else:
                self._loop.remove_writer(self._socket)
        except psycopg.Error as error:
            self._fail(error)

    def _read(self) -> None:
        """The statement is over, and committed, when there is no more result."""
        try:
            self._pgconn.consume_input()
            while self._answer is not None and not self._pgconn.is_busy():
                result = self._pgconn.get_result()
                if result is None:
                    if not self._answer.done():
                        self._answer.set_result(None)
                    return
                self._results.append(result)
        except psycopg.Error as error:
            self._fail(error)

    def _fail(self, error: psycopg.Error) -> None:
        if self._answer is None:
            self.close()  # nobody waits: the next statement opens another one
        elif not self._answer.done():
            self._answer.set_exception(error)

    def _read_answer(self) -> bytes | None:
        found: bytes | None = None
        for result in self._results:
            if result.status != ExecStatus.TUPLES_OK:
                raise error_from_result(result)
            if result.ntuples:
                found = result.get_value(0, 0)
        return found


def discard(opened: list[Connection]) -> None:
    """Close the connection that is there, if any.  Loop and worker may both do so: one of them finds it."""
    while opened:
        try:
            connection = opened.pop()
        except IndexError:
            return
        connection.invalidate()
        connection.close()
