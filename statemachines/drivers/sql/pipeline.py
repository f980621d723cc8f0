"""Pipeline: statements of one transaction of PostgreSQL that go out without waiting for one another.

Nothing is waited for but what is read.  What has only to be done goes out with the next read, or with the commit, and
so does an error that it brings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import psycopg
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

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
