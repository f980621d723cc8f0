"""What every database adds to the meaning of the stores alike: waiting, failures, the end of a stream, what fits."""

from __future__ import annotations

import asyncio

import pytest
from store_programs import run

from statemachines.drivers.sql.failure import StoreUnavailable
from statemachines.kernel import ConfigurationError, LocalProtocolError
from statemachines.shared_subscriptions.group_store import Commit, Committed, Read, ReadDone, StoreFailed
from statemachines.shared_subscriptions.stream_store import (
    Append,
    Fetch,
    ListStreams,
    Slice,
    StreamsListed,
    stream_id,
)

STREAM = stream_id("a", 4, 0)


def test_all_stores_of_a_database_have_the_same_shards(new_database):
    asyncio.run(new_database.groups().close())
    asyncio.run(new_database.streams(shards=7).close())
    with pytest.raises(ConfigurationError, match="shards = 4: the store was made with 7; give that number"):
        new_database.streams()
    asyncio.run(new_database.streams(shards=7).close())
    with pytest.raises(ConfigurationError, match="shards = 0: must be at least 1"):
        new_database.streams(shards=0)


def test_the_end_of_a_stream(new_database):
    store = new_database.streams()

    async def test():
        with pytest.raises(ConfigurationError, match="is not in the store; give an id"):
            await store.end(STREAM)
        await store.append("a", [b"1"])
        await store.end(STREAM)
        await store.end(STREAM)
        (fetched,) = await store.ask(Fetch(1, (Slice(STREAM, 1, 0, 9),)))
        assert fetched.batches[0].ended
        with pytest.raises(ConfigurationError, match="topic = 'a': has ended"):
            await store.append("a", [b"2"])

    run(test(), store)


# -- failures -------------------------------------------------------------------------------------------------------


def test_SS_255_a_busy_database_answers_that_it_failed(new_database, caplog):
    groups, streams = new_database.groups(busy_s=0.05), new_database.streams(busy_s=0.05)

    async def test():
        with new_database.locked() as other:
            assert await groups.ask(Commit(5, (), (("k", 1),))) == (StoreFailed(5),)
            with pytest.raises(StoreUnavailable, match=r"lock.*; nothing was written, try again"):
                await streams.append("a", [b"1"])
            if new_database.kind == "sqlite":  # elsewhere an end waits for its stream alone
                with pytest.raises(StoreUnavailable):
                    await streams.end(STREAM)
            assert isinstance((await groups.ask(Read(6, ("k",))))[0], ReadDone), "reads do not wait for writes"
            assert isinstance((await streams.ask(ListStreams(7, "#", 0, "", 9)))[0], StreamsListed)
            other.rollback()
            assert isinstance((await groups.ask(Commit(8, (), (("k", 1),))))[0], Committed)
            assert (await streams.append("a", [b"1"])).first == 0

    run(test(), groups, streams)
    assert new_database.says_locked in caplog.text


def test_a_closed_store_takes_nothing_and_another_service_s_request_is_refused(new_database):
    store, streams = new_database.groups(), new_database.streams()

    async def test():
        for opened in (store, streams):
            with pytest.raises(TypeError, match="does not take a Append"):
                await opened.ask(Append(1, "a", 1))
        await streams.close()
        await store.close()
        await store.close()
        with pytest.raises(LocalProtocolError, match="was closed; open another"):
            await store.ask(Read(1, ()))

    run(test())
