"""What a store is called: made with it, kept, its copies' too."""

from __future__ import annotations

import asyncio
import shutil

from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore


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
