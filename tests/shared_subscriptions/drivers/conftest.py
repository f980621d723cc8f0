"""The databases that the stores are tried on: a file, and a PostgreSQL server that the whole test run shares."""

import itertools
import os
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from statemachines.drivers.shared_subscriptions.postgres import PostgresGroupStore, PostgresStreamStore
from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore, SqliteStreamStore
from statemachines.testing.postgres import run_sql

NUMBERS = itertools.count()


class SqliteDatabase:
    """A file; `empty` takes another one."""

    kind = "sqlite"
    says_locked = "database is locked"

    def __init__(self, directory):
        self._directory = directory
        self.empty()

    def empty(self):
        """Nothing is in it."""
        self.path = Path(self._directory) / f"{next(NUMBERS)}.db"
        self.url = f"sqlite:///{self.path}"

    def wipe(self):
        """It was never opened; the same URL."""
        for path in self.path.parent.glob(f"{self.path.name}*"):
            path.unlink()

    def hide(self, table):
        """It is not found under its name."""
        with closing(sqlite3.connect(self.path)) as other:
            other.execute(f"ALTER TABLE {table} RENAME TO elsewhere_{table}")

    @contextmanager
    def locked(self):
        """Somebody else's transaction, in the middle of a commit."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield other

    def groups(self, clock=None, **options):
        return SqliteGroupStore(self.path, **({"clock": clock} if clock else {}), **options)

    def streams(self, clock=None, **options):
        return SqliteStreamStore(self.path, **({"clock": clock} if clock else {}), **options)


class PostgresDatabase:
    """A database of its own on the server."""

    kind = "postgres"
    says_locked = "canceling statement due to lock timeout"

    def __init__(self, server):
        name = f"test_{os.getpid()}_{next(NUMBERS)}"
        run_sql(server, f"CREATE DATABASE {name} TEMPLATE template0")
        self.url = f"{server.rpartition('/')[0]}/{name}"

    def empty(self):
        """Nothing is in it."""
        if run_sql(self.url, "SELECT to_regnamespace('gapless')") != [(None,)]:
            run_sql(self.url, "TRUNCATE gapless.group_records, gapless.streams, gapless.appends, gapless.messages")
            run_sql(self.url, "UPDATE gapless.store SET time_ns = 0, shards = 0, generation = 0, oldest = 0")

    def wipe(self):
        """It was never opened."""
        self.sql("DROP SCHEMA IF EXISTS gapless CASCADE")

    def sql(self, statement):
        return run_sql(self.url, statement)

    def hide(self, table):
        """It is not found under its name."""
        self.sql(f"ALTER TABLE gapless.{table} RENAME TO elsewhere_{table}")

    @contextmanager
    def locked(self):
        """Somebody else's transaction, in the middle of a commit."""
        with psycopg.connect(self.url) as other:
            other.execute("UPDATE gapless.store SET time_ns = time_ns")
            yield other
            other.rollback()

    def groups(self, clock=None, **options):
        return PostgresGroupStore(self.url, clock=clock, **options)

    def streams(self, clock=None, **options):
        return PostgresStreamStore(self.url, clock=clock, **options)


def make_database(kind, request, tmp_path_factory):
    if kind == "sqlite":
        return SqliteDatabase(tmp_path_factory.mktemp("sqlite"))
    return PostgresDatabase(request.getfixturevalue("postgres_server"))


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def database(request, tmp_path_factory):
    """Each database in turn, shared by the tests of a module: call `empty` first."""
    return make_database(request.param, request, tmp_path_factory)


@pytest.fixture(params=["sqlite", "postgres"])
def new_database(request, tmp_path_factory):
    """Each database in turn, and nothing is in it."""
    return make_database(request.param, request, tmp_path_factory)


@pytest.fixture
def postgres(request, tmp_path_factory):
    """A database of PostgreSQL with nothing in it."""
    return make_database("postgres", request, tmp_path_factory)
