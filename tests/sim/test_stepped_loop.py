"""The loop whose time is given to it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from statemachines_sim.asyncio_stage import SteppedLoop, Time

MS = 1_000_000


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def loop(time):
    loop = SteppedLoop(time)
    yield loop
    loop.finish()


def test_timers_fire_in_their_order_and_cancelled_ones_do_not(loop, time):
    called = []
    for name, delay in (("c", 0.003), ("a", 0.001), ("b", 0.001)):
        loop.call_later(delay, called.append, name)
    loop.call_later(0.002, called.append, "never").cancel()
    time.now_ns = 5 * MS
    loop.settle()
    assert called == ["a", "b", "c"]


def test_the_work_of_threads_is_done_before_the_loop_goes_on(loop):
    async def work():
        with ThreadPoolExecutor(1) as pool:
            there = await loop.run_in_executor(pool, int, "7")
        return there, await asyncio.to_thread(int, "8")

    task = loop.create_task(work())
    loop.settle()
    assert task.result() == (7, 8)


def test_what_fails_in_a_thread_fails_where_it_is_waited_for(loop):
    async def work():
        await asyncio.to_thread(int, "seven")

    task = loop.create_task(work())
    loop.settle()
    with pytest.raises(ValueError, match="seven"):
        task.result()
