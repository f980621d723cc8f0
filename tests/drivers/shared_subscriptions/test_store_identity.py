"""What a store is called: made with it, kept, its copies' too; a database of another version is refused."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing

import pytest

from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore
from statemachines.kernel import ConfigurationError


def identities_of(database, count=1):
    """As `count` that open it at once find it."""

    async def read():
        stores = await asyncio.gather(*(asyncio.to_thread(database.groups) for _ in range(count)))
        found = [store.identity for store in stores]
        for store in stores:
            await store.close()
        return found

    return asyncio.run(read())


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


def make_old(database):
    """As a version before left it: messages have no column for heads."""
    identities_of(database)
    if database.kind == "postgres":
        database.sql("ALTER TABLE gapless.messages DROP COLUMN head")
        database.sql("UPDATE gapless.store SET version = 3")
        return
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        connection.execute("ALTER TABLE messages DROP COLUMN head")
        connection.execute("PRAGMA user_version = 4")


def read_old(database):
    """Its version, and the columns of its messages."""
    if database.kind == "postgres":
        ((version,),) = database.sql("SELECT version FROM gapless.store")
        columns = database.sql(
            "SELECT column_name FROM information_schema.columns"
            " WHERE (table_schema, table_name) = ('gapless', 'messages')"
        )
        return version, sorted(name for (name,) in columns)
    with closing(sqlite3.connect(database.path)) as connection:
        ((version,),) = connection.execute("PRAGMA user_version")
        return version, sorted(name for _, name, *_ in connection.execute("PRAGMA table_info(messages)"))


@pytest.mark.parametrize("open_one", ["groups", "streams"])
def test_SS_219_a_database_of_another_version_is_refused_and_SS_383_stays_without_heads(new_database, open_one):
    make_old(new_database)
    before = read_old(new_database)
    versions = rf"of version {before[0]}, and this gapless reads version {before[0] + 1}; use the gapless that made"
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=versions):
            getattr(new_database, open_one)()
    assert read_old(new_database) == before
    assert before[1] == ["payload", "place"]
