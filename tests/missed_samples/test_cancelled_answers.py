"""An answer of a cache that is cancelled while its thread sends it."""

from __future__ import annotations

import asyncio

from statemachines.drivers.missed_samples.sample_store import SampleStore


class BorrowedQuery:
    """A query of zenoh that a thread uses just now."""

    def __enter__(self):
        raise RuntimeError("Already borrowed")

    def __exit__(self, *_):
        raise AssertionError("it was never entered")


async def test_a_query_that_its_thread_still_uses_is_left_to_it():
    store = object.__new__(SampleStore)
    work = asyncio.get_running_loop().create_future()
    store._sending = {work: BorrowedQuery()}
    work.cancel()
    store._note(work)
    assert store._sending == {}
