"""The database of a simulation keeps some of its tables as Python values: everything is as the statements have it."""

from __future__ import annotations

import random
import re
import sqlite3
from contextlib import contextmanager
from functools import partial

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.drivers.persistent_sessions.sqlite import SqliteSql
from statemachines.drivers.persistent_sessions.store import CHECK, WRITE_BATCH, SessionStore, StoredLife
from statemachines.drivers.persistent_sessions.tables import MARKER
from statemachines.drivers.persistent_sessions.tables import NAMES as TABLES
from statemachines_sim.persistent_sessions.memory_database import IDENTITY, MemoryDatabase, run_at_once
from statemachines_sim.persistent_sessions.memory_sql import READ_LIFE
from statemachines_sim.persistent_sessions.memory_statements import CHANGES, PUTS, QUERIES
from statemachines_sim.scenario import find_scenario
from statemachines_sim.world import World


@contextmanager
def write_plainly(self, watch=None, *, may_lose=False, may_share=False):
    """As it was with statements alone."""
    self.connection.execute("BEGIN")
    try:
        yield SqliteSql.writing(self.connection, self.now_ns, watch)
        self.connection.execute("COMMIT")
    except BaseException:
        self.connection.execute("ROLLBACK")
        raise


@contextmanager
def read_plainly(self, watch=None, *, is_complete=False):
    yield SqliteSql.reading(self.connection, self.now_ns, watch)


def play(scenario, seed=1):
    found = find_scenario(f"persistent_sessions/{scenario}")
    world = World(replace(found, phases=replace(found.phases, safety_s=3.0)), seed)
    outcome = world.run()
    database = world.devices["database"].service.database
    database.book.flush()
    tables = [database.connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in TABLES]
    return outcome, world.rows, tables, database.last_commit_ns()


@pytest.mark.parametrize(
    "scenario", mark_long(["sessions_storm", "leaping_clock", "stale_replicas", "bad_database"], "sessions_storm")
)
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
        assert sql.count(WRITE_BATCH, batch=1, name=b"b") == 0
    assert read(database, CHECK, name=b"b") == read(database, f"{CHECK} ", name=b"b") == [(IDENTITY, 0, 0)]


def test_D_452_what_every_batch_asks_for_comes_from_the_values(database, monkeypatch):
    given = []
    monkeypatch.setattr(SqliteSql, "all", lambda self, statement, **values: given.append(statement) or [(3, 0)])
    monkeypatch.setattr(SqliteSql, "run", lambda self, statement, **values: given.append(statement))
    store = SessionStore(database)
    for batch in (1, 2, 3):
        run_at_once(store.carry_out(StoredLife("a", 3, IDENTITY), batch, ()))
    assert given == [READ_LIFE]


DOMAINS = {
    "session": (b"s1", b"s2"), "writer": (b"a", b"b", b""), "epoch": (0, 1, 2), "number": (0, 1, 2, 3),
    "tag": (0, 1, 2, 3), "message": (b"", b"m1", b"m2"), "id": (b"m1", b"m2"), "after": (b"", b"m1"),
    "time_ns": (1, 2), "now_ns": (1, 3), "until_ns": (0, 1, 4), "limit": (1, 3, 99), "page": (1, 2, 99),
    "small": (-1, 4), "below": (1, 2, 9), "none": (b"",), "head": (None, b"h"), "first": (0, 1), "last": (1, 3),
    "place": (1, 2, 3), "packet": (1, 2, 3),
}  # fmt: skip
"""What a value of a statement may be, by its name; (0, 1) of others that are numbers."""
TEXTS = ("filter", "status", "topic", "payload", "client", "owner", "connection", "key0")
ELSEWHERE = (
    "INSERT INTO @sessions VALUES (:session, :client, :token, :owner, :connection, :number, :time_ns, 0, 0)"
    " ON CONFLICT (session) DO UPDATE SET token = excluded.token",
    "UPDATE @sessions SET seen_ns = :time_ns WHERE session = :session",
    "DELETE FROM @session_rows WHERE session = :session AND writer > :none",
    "UPDATE @session_rows SET message = :none WHERE session = :session AND number = :number AND tag = 0",
    "SELECT count(*) FROM @session_rows",
    "SELECT id, qos FROM @messages ORDER BY id",
    "SELECT session, revision, seen_ns FROM @sessions ORDER BY session",
)
"""Statements that SQLite carries out."""


def give(sql, statement, values):
    ask = sql.all if statement.startswith("SELECT") else sql.run
    return ask(statement, **values)


def draw_values(chance, statement):
    names = re.findall(r":(\w+)", statement)
    values = {name: b"x" if name in TEXTS else chance.choice(DOMAINS.get(name, (0, 1))) for name in names}
    return values | ({"number": 0} if values.get("tag") == MARKER else {})


@pytest.mark.parametrize("seed", range(6))
def test_D_561_every_statement_on_values_does_what_it_does_on_sqlite(seed):
    """Transactions of some statements with values drawn by their names; one in four is undone."""
    chance = random.Random(seed)
    ours, plain = MemoryDatabase(), MemoryDatabase()
    ours.make()
    plain.make()
    statements = [*QUERIES, *CHANGES, *PUTS, *PUTS, *ELSEWHERE, *ELSEWHERE[:1] * 3]
    drawn = set()
    for number in range(400):
        given = [(one, draw_values(chance, one)) for one in chance.choices(statements, k=chance.randint(1, 6))]
        drawn.update(statement for statement, _ in given)
        is_undone = chance.random() < 0.25
        ours.now_ns = plain.now_ns = number
        assert carry_out(ours.writing, given, is_undone) == carry_out(partial(write_plainly, plain), given, is_undone)
    ours.book.flush()
    for table in TABLES:
        query = f"SELECT * FROM {table}"
        assert sorted(ours.connection.execute(query), key=repr) == sorted(plain.connection.execute(query), key=repr)
    assert drawn == {*statements}


def carry_out(writing, given, is_undone):
    """What the statements found; a number that is there twice undoes it."""
    found = []
    try:
        with writing() as sql:
            for statement, values in given:
                found.append(give(sql, statement, values))
            if is_undone:
                raise RuntimeError
    except (RuntimeError, sqlite3.IntegrityError) as error:
        found.append(type(error).__name__)
    return found
