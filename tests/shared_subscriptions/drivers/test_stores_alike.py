"""What every database adds to the meaning of the stores alike: waiting, failures, the end of a stream, what fits."""

from __future__ import annotations

import asyncio

import pytest
from store_programs import run

from statemachines.drivers.sql.failure import StoreUnavailable
from statemachines.kernel import ConfigurationError, LocalProtocolError
from statemachines.shared_subscriptions.group_store import Commit, Committed, Read, ReadDone, Scan, StoreFailed
from statemachines.shared_subscriptions.stream_store import (
    Append,
    Fetch,
    FetchFailed,
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


def test_a_fetch_answers_with_what_fits_and_the_rest_comes_later(new_database):
    store = new_database.streams()
    other = stream_id("b", 4, 0)

    async def fetch(first, first_of_other):
        request = Fetch(1, (Slice(STREAM, 1, first, 9), Slice(other, 1, first_of_other, 9)))
        fetched, payloads = await store.fetch(request, 25)
        return [(batch.first, batch.last, batch.ended) for batch in fetched.batches], [len(each) for each in payloads]

    async def test():
        for topic in "ab":
            await store.append(topic, [b"x" * 10] * 4)
        await store.end(STREAM)
        assert await fetch(0, 0) == ([(0, 2, False), (0, -1, False)], [3, 0])
        assert await fetch(3, 0) == ([(3, 3, True), (0, 1, False)], [1, 2])
        assert await fetch(4, 2) == ([(4, 3, True), (2, 3, False)], [0, 2])

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


def test_the_loop_goes_on_while_a_store_waits(new_database):
    groups, streams = new_database.groups(busy_s=60), new_database.streams(busy_s=60)

    async def test():
        with new_database.locked() as other:
            waiting = [
                asyncio.create_task(groups.ask(Commit(1, (), (("k", 1),)))),
                asyncio.create_task(streams.append("a", [b"1"])),
            ]
            await asyncio.sleep(0.05)
            assert not any(task.done() for task in waiting)
            other.rollback()
            (committed,), appended = await asyncio.gather(*waiting)
        assert isinstance(committed, Committed)
        assert appended.last == 0

    run(test(), groups, streams)


def test_a_request_that_fails_is_the_protocol_s_store_error(new_database):
    groups, streams = new_database.groups(), new_database.streams()
    for table in ("streams", "group_records"):
        new_database.hide(table)

    async def test():
        assert await groups.ask(Read(2, ("k",))) == (StoreFailed(2),)
        assert await groups.ask(Scan(3, "", "", 1)) == (StoreFailed(3),)
        assert await groups.ask(Commit(4, (), (("k", 1),))) == (StoreFailed(4),)
        assert await streams.ask(ListStreams(5, "#", 0, "", 9)) == (FetchFailed(5),)
        assert await streams.fetch(Fetch(6, (Slice("s", 1, 0, 1),))) == (FetchFailed(6), [])
        assert await streams.ask(Fetch(7, (Slice("s", 1, 0, 1),))) == (FetchFailed(7),)

    run(test(), groups, streams)


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
