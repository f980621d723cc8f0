"""The loop whose time is given to it."""

from __future__ import annotations

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


def test_nothing_is_due_before_its_time(loop, time):
    called = []
    loop.call_later(0.002, called.append, "later")
    loop.call_soon(called.append, "soon")
    assert loop.settle()
    assert (called, loop.deadline()) == (["soon"], 2 * MS)
    time.now_ns = 2 * MS - 1
    assert not loop.settle()
    time.now_ns = 2 * MS
    assert loop.settle()
    assert (called, loop.deadline()) == (["soon", "later"], None)


def test_timers_fire_in_their_order_and_cancelled_ones_do_not(loop, time):
    called = []
    for name, delay in (("c", 0.003), ("a", 0.001), ("b", 0.001)):
        loop.call_later(delay, called.append, name)
    loop.call_later(0.002, called.append, "never").cancel()
    time.now_ns = 5 * MS
    loop.settle()
    assert called == ["a", "b", "c"]


def test_a_task_sleeps_in_given_time(loop, time):
    async def work():
        await asyncio.sleep(3600)
        return loop.time()

    task = loop.create_task(work())
    loop.settle()
    assert loop.deadline() == 3600 * 1000 * MS
    time.now_ns = loop.deadline()
    loop.settle()
    assert task.result() == 3600.0


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


def test_a_loop_that_is_not_run_stands_still(loop, time):
    other = SteppedLoop(time)
    called = []
    for one in (loop, other):
        one.call_later(0.001, called.append, one)
    time.now_ns = MS
    loop.settle()
    assert called == [loop]
    other.settle()
    assert called == [loop, other]
    other.finish()
