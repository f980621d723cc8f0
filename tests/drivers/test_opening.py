"""What is opened, declared or closed in a thread while whoever waits for it is cancelled."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from statemachines.drivers.missed_samples.declaration import Declarations
from statemachines.drivers.opening import finish_in_thread, open_in_thread


class Entity:
    def __init__(self):
        self.undeclared = 0

    def undeclare(self):
        self.undeclared += 1


async def cancelled_amid(work, begun):
    """Cancel it once `begun` is set."""
    task = asyncio.ensure_future(work)
    await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_nobody_waits_for_any_more_is_closed_once_it_is_open():
    begun, go_on, closed = threading.Event(), threading.Event(), asyncio.Event()

    def make():
        begun.set()
        go_on.wait(10)
        return "opened"

    got = []
    await cancelled_amid(open_in_thread(make, lambda made: (got.append(made), closed.set())), begun)
    assert got == []
    go_on.set()
    await asyncio.wait_for(closed.wait(), 10)
    assert got == ["opened"]


async def test_a_call_is_made_though_its_task_is_cancelled_before_a_thread_takes_it_up():
    """Of a pool whose only thread is busy: `to_thread` drops the call then."""
    loop, go_on, calls = asyncio.get_running_loop(), threading.Event(), []
    loop.set_default_executor(ThreadPoolExecutor(max_workers=1))
    busy = asyncio.ensure_future(asyncio.to_thread(go_on.wait, 10))
    call = asyncio.ensure_future(finish_in_thread(lambda: calls.append("called")))
    for _ in range(2):
        await asyncio.sleep(0)
        call.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert calls == ["called"]
    await busy


async def test_what_a_thread_declares_after_that_is_undeclared_at_once():
    declared = Declarations()
    await declared.close()
    assert declared.add(Entity()).undeclared == 1
