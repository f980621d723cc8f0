"""How tests wait: for an event, never for a while.

No other module of the tests calls a clock, a sleep or a timeout; a rule of ruff (TID251) holds it.  A wait that comes
to nothing ends after `HANG_S`.  Its failure says what was waited for, and the stacks of this process, of its tasks and
of the commands of ours that it started are printed.
"""

import asyncio
import contextlib
import faulthandler
import inspect
import os
import signal
import time
import traceback
from asyncio import sleep  # a test may replace `asyncio.sleep`
from pathlib import Path

HANG_S = 60.0
"""Only a hang lasts so long; no outcome of a test depends on it."""

read_clock_s, read_clock_ns = time.monotonic, time.monotonic_ns
"""A clock that is never set, which all processes of a machine share: for what is measured and for stamps."""


def until(holds, what="", *, child=None, meanwhile=lambda: None):
    """Wait until `holds()` is true, and return what it returned.

    Args:
        what: what is waited for, or a function that says what there is instead.
        child: a process (`Popen`) that must not end before.
        meanwhile: called before each further look.
    """
    watch = watch_wait(holds, what, child)
    while not (found := holds()):
        next(watch)
        time.sleep(0.02)
        meanwhile()
    return found


async def until_async(holds, what="", *, child=None, meanwhile=lambda: None):
    """The same in an event loop; `holds` may be a coroutine function."""
    watch = watch_wait(holds, what, child)
    while not (found := await result_of(holds)):
        next(watch)
        await sleep(0.02)
        meanwhile()
    return found


async def result_of(call):
    """What a function or a coroutine function returns."""
    found = call()
    return await found if inspect.isawaitable(found) else found


def watch_wait(holds, what, child):
    """Between two looks; raises `AssertionError` for a hang, or if `child` had ended before the last look."""
    end_s = time.monotonic() + HANG_S
    while time.monotonic() < end_s and (child is None or child.poll() is None):
        yield
    yield
    print_stacks()
    raise AssertionError(f"never came: {what() if callable(what) else what or inspect.getsource(holds).strip()}")


@contextlib.asynccontextmanager
async def within(what, hangs=1):
    """What is done in the block ends before it is taken for a hang, after so many times `HANG_S`."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as limit:
            ending = loop.call_later(hangs * HANG_S, lambda: (print_stacks(), limit.reschedule(loop.time())))
            try:
                yield
            finally:
                ending.cancel()
    except TimeoutError as error:
        raise AssertionError(f"never ended: {what}") if limit.expired() else error from None


def run_async(work, hangs=1):
    """What a coroutine returns, in an event loop of its own, within so many times `HANG_S`."""
    return asyncio.run(within(work.__qualname__, hangs)(lambda: work)())


async def turns(count=1):
    """Let the event loop turn so often."""
    for _ in range(count):
        await sleep(0)


def pause(seconds, why):
    """Let time pass where that is the matter of the test; `why` says so to the reader."""
    time.sleep(seconds)


async def pause_async(seconds, why):
    """The same in an event loop."""
    await sleep(seconds)


def silence(seconds, why):
    """A context that raises `TimeoutError` after so long, where it is the matter of the test that nothing comes."""
    return asyncio.timeout(seconds)


def print_stacks():
    """Of all threads here, of the tasks of the running loop, and (on their own stderr) of commands that we started."""
    faulthandler.dump_traceback(2)
    with contextlib.suppress(RuntimeError):  # no loop runs
        for task in asyncio.all_tasks():
            awaited = task.get_coro()
            while frame := getattr(awaited, "cr_frame", None):
                traceback.print_stack(frame)
                awaited = awaited.cr_await
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            if b"\0statemachines\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGABRT)  # `PYTHONFAULTHANDLER` is set for it, by `conftest.py`
