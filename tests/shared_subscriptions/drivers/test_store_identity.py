"""What a store is called: made with it, kept, its copies' too."""

import asyncio


def identities_of(database, count=1):
    """As `count` that open it at once find it."""

    async def read():
        stores = await asyncio.gather(*(asyncio.to_thread(database.groups) for _ in range(count)))
        found = [store.identity for store in stores]
        for store in stores:
            await store.close()
        return found

    return asyncio.run(read())


def test_SS_227_of_several_that_make_a_store_all_find_the_same(new_database):
    assert len(set(identities_of(new_database, 4))) == 1
