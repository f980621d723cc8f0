"""What a store is called: made with it, kept, its copies' too; a database of before gets it as it is opened."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing

import pytest
from headless_store import forget_heads

from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore
from statemachines.drivers.shared_subscriptions.sqlite import tables as sqlite_tables
from statemachines.drivers.sql.sqlite import Database
from statemachines.kernel import ConfigurationError
from tests.drivers.shared_subscriptions.conftest import SqliteDatabase


def identities_of(database, count=1):
    """As `count` that open it at once find it."""

    async def read():
        stores = await asyncio.gather(*(asyncio.to_thread(database.groups) for _ in range(count)))
        found = [store.identity for store in stores]
        for store in stores:
            await store.close()
        return found

    return asyncio.run(read())


def forget_identity(database):
    """As the version before left it."""
    forget_heads(database)
    if database.kind == "postgres":
        database.sql("ALTER TABLE gapless.store DROP COLUMN identity")
        database.sql("UPDATE gapless.store SET version = 2")
        return
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        connection.execute("ALTER TABLE store DROP COLUMN identity")
        connection.execute("PRAGMA user_version = 3")


def test_SS_227_a_store_has_an_identity_that_stays(new_database):
    (identity,) = identities_of(new_database)
    assert len(identity) == 32
    assert identities_of(new_database) == [identity]


def test_SS_227_of_several_that_make_a_store_all_find_the_same(new_database):
    assert len(set(identities_of(new_database, 4))) == 1


def test_SS_227_no_two_stores_are_called_alike_but_for_copies(tmp_path):
    paths = [tmp_path / "one.db", tmp_path / "two.db", tmp_path / "copy.db"]
    one, two = (SqliteGroupStore(path) for path in paths[:2])
    assert one.identity != two.identity
    asyncio.run(one.close())
    asyncio.run(two.close())
    shutil.copy(paths[0], paths[2])
    copy = SqliteGroupStore(paths[2])
    assert copy.identity == one.identity
    asyncio.run(copy.close())


def test_SS_227_a_database_of_before_gets_one_whoever_opens_it_first(new_database):
    (before,) = identities_of(new_database)
    forget_identity(new_database)
    found = set(identities_of(new_database, 4))
    assert len(found) == 1
    assert found != {before}
    assert identities_of(new_database) == list(found)


def test_SS_227_an_upgrade_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    database = SqliteDatabase(tmp_path)
    identities_of(database)
    forget_identity(database)
    monkeypatch.setattr(sqlite_tables, "CHANCE", "no_such_function()")
    with pytest.raises(ConfigurationError, match="cannot be opened for writing"):
        SqliteGroupStore(database.path)
    with closing(sqlite3.connect(database.path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (3,)
        columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(store)")]
        assert "identity" not in columns


def test_SS_227_a_program_of_before_refuses_the_file(tmp_path):
    database = SqliteDatabase(tmp_path)
    identities_of(database)
    of_before = sqlite_tables.LAYOUT._replace(version=3)
    with pytest.raises(ConfigurationError, match="is of version 5, and this gapless reads version 3"):
        Database(database.path, of_before)
