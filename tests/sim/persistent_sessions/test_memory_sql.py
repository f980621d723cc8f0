"""The database of a simulation keeps some of its tables as Python values: everything is as the statements have it."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from statemachines.drivers.persistent_sessions.sqlite import SqliteSql
from statemachines.drivers.persistent_sessions.store import CHECK, WRITE_BATCH, NodeLife, SessionStore
from statemachines.drivers.persistent_sessions.tables import NAMES as TABLES
from statemachines_sim.persistent_sessions.memory_database import IDENTITY, MemoryDatabase, run_at_once
from statemachines_sim.persistent_sessions.memory_sql import READ_LIFE
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World


@contextmanager
def write_plainly(self, watch=None):
    """As it was with statements alone."""
    self.connection.execute("BEGIN")
    try:
        yield SqliteSql.writing(self.connection, self.now_ns, watch)
        self.connection.execute("COMMIT")
    except BaseException:
        self.connection.execute("ROLLBACK")
        raise


@contextmanager
def read_plainly(self, watch=None):
    yield SqliteSql.reading(self.connection, self.now_ns, watch)


def play(scenario, seed=1):
    found = find_scenario(f"persistent_sessions/{scenario}")
    world = World(replace(found, phases=replace(found.phases, safety_s=3.0)), seed)
    outcome = world.run()
    database = world.devices["database"].service.database
    database.book.flush()
    tables = [database.connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in TABLES]
    return outcome, world.rows, tables, database.last_commit_ns()


@pytest.mark.parametrize("scenario", ["sessions_storm", "leaping_clock", "stale_replicas", "bad_database"])
def test_D_366_rows_and_tables_are_those_of_the_statements(monkeypatch, scenario):
    ours = play(scenario)
    with monkeypatch.context() as patch:
        patch.setattr(MemoryDatabase, "writing", write_plainly)
        patch.setattr(MemoryDatabase, "reading", read_plainly)
        patch.setattr(MemoryDatabase, "last_commit_ns", lambda self: time_of(self))
        patch.setattr("statemachines_sim.persistent_sessions.memory_sql.StoreBook.read_time", read_anew)
        plain = play(scenario)
    assert ours == plain


def time_of(database):
    return database.connection.execute("SELECT time_ns FROM store").fetchone()[0]


def read_anew(book):
    from statemachines.persistent_sessions.store_time import StoreTime

    return StoreTime(*book.connection.execute("SELECT time_ns, ahead_ns, stopped_ns FROM store").fetchone())


@pytest.fixture
def database():
    made = MemoryDatabase()
    made.make()
    made.now_ns = 100
    with made.writing() as sql:
        sql.run("INSERT INTO @nodes VALUES (:name, 3, 500, 0)", name=b"a")
    return made


def write_batch(database, batch):
    with database.writing() as sql:
        sql.all(CHECK, name=b"a")
        sql.run(WRITE_BATCH, batch=batch, name=b"a")


def read(database, statement, **values):
    with database.reading() as sql:
        return sql.all(statement, **values)


def test_what_is_kept_is_in_the_tables_for_every_other_statement(database):
    write_batch(database, 7)
    assert read(database, CHECK, name=b"a") == read(database, f"{CHECK} ", name=b"a") == [(IDENTITY, 3, 7)]
    assert read(database, "SELECT name, batch FROM @nodes") == [(b"a", 7)]
    assert read(database, "SELECT time_ns FROM @store") == [(database.last_commit_ns(),)] == [(101,)]
    with database.writing() as sql:
        sql.run("UPDATE @nodes SET life = 4, batch = 0")
    assert read(database, READ_LIFE, name=b"a") == [(4, 0)]


def fail_to_write(database):
    with database.writing() as sql:
        sql.run("UPDATE @nodes SET until_ns = 0, batch = 9")
        sql.all(CHECK, name=b"a")
        sql.run(WRITE_BATCH, batch=10, name=b"a")
        raise RuntimeError


def test_a_transaction_that_fails_leaves_nothing(database):
    write_batch(database, 7)
    before = database.last_commit_ns()
    with pytest.raises(RuntimeError):
        fail_to_write(database)
    assert database.last_commit_ns() == before
    assert read(database, READ_LIFE, name=b"a") == [(3, 7)]
    assert read(database, "SELECT until_ns, batch FROM @nodes") == [(500, 7)]


def test_a_batch_of_a_node_that_nobody_knows_changes_nothing(database):
    with database.writing() as sql:
        assert sql.run(WRITE_BATCH, batch=1, name=b"b") == 0
    assert read(database, CHECK, name=b"b") == read(database, f"{CHECK} ", name=b"b") == [(IDENTITY, 0, 0)]


def test_D_452_what_every_batch_asks_for_comes_from_the_values(database, monkeypatch):
    given = []
    monkeypatch.setattr(SqliteSql, "all", lambda self, statement, **values: given.append(statement) or [(3, 0)])
    monkeypatch.setattr(SqliteSql, "run", lambda self, statement, **values: given.append(statement))
    store = SessionStore(database)
    for batch in (1, 2, 3):
        run_at_once(store.carry_out(NodeLife("a", 3, IDENTITY), batch, ()))
    assert given == [READ_LIFE]
