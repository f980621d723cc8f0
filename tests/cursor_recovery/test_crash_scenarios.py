"""The scenarios of spec/cursor_recovery/scenarios.md that need real processes: one dies after step k, others go on.

A step is one of the eight of the source's table.  The clock stands still until a test sets it on.
"""

from __future__ import annotations

import os
import signal

import pytest

from statemachines.cursor_recovery.memory import TICK_NS, CopyIn
from statemachines.drivers.cursor_recovery import CircularQueue, Instruments, Outcome, ReadOutcome

THRESHOLD_NS = 2 * 10**9
AGED_NS = THRESHOLD_NS + TICK_NS


class Clock:
    def __init__(self):
        self.now_ns = 10**6 * TICK_NS

    def __call__(self):
        return self.now_ns


class DeadAfter:
    """Kills its process when step `step` is done: before the first access of a later one."""

    def __init__(self, step, clock, cells=None):
        self.step, self.cells = step, cells
        self.at = "0"
        self.instruments = Instruments(hook=self.hook, observe=self.observe, clock=clock)

    def observe(self, node, event, status, step, now_ns):
        self.at = node.record.status.value

    def hook(self, request):
        if self.cells is not None and isinstance(request, CopyIn) and self.at[0] == "7":
            cells, self.cells, self.step = self.cells, None, 6
            return cells
        if self.at[0].isdigit() and int(self.at[0]) > self.step:
            os.kill(os.getpid(), signal.SIGKILL)
        return None


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def queue(name, clock):
    """What the living use."""
    with CircularQueue.create(name, capacity=128, threshold=2.0, instruments=Instruments(clock=clock)) as queue:
        yield queue


@pytest.fixture
def die(name, clock, child):
    """A process that takes part and dies within `call`, after the step; or after the call."""

    def die(call, step, cells=None):
        def work():
            end = CircularQueue.attach(name, instruments=DeadAfter(step, clock, cells).instruments)
            call(end)
            os.kill(os.getpid(), signal.SIGKILL)

        assert os.waitstatus_to_exitcode(os.waitpid(child(work), 0)[1]) == -signal.SIGKILL

    return die


def drain(queue):
    came = []
    while (got := queue.try_get()).outcome is ReadOutcome.DELIVERED:
        came.append(got.message)
    return came


@pytest.mark.parametrize("step", range(1, 9))
def test_a_writer_dead_after_step_k(queue, clock, die, step):
    die(lambda end: end.put(b"AAAA"), step)
    assert queue.try_put(b"BBBB") is Outcome.WRITTEN
    early = drain(queue)
    clock.now_ns += THRESHOLD_NS
    early += drain(queue)  # exactly the threshold is not longer
    clock.now_ns += TICK_NS
    late = drain(queue)
    expected = {
        1: ([b"BBBB"], []),
        2: ([b"BBBB"], []),
        3: ([b"BBBB"], []),
        4: ([], [b"BBBB"]),
        5: ([], [b"BBBB"]),
        6: ([], [b"BBBB"]),
        7: ([], [b"AAAA", b"BBBB"]),
        8: ([b"AAAA", b"BBBB"], []),
    }
    assert (early, late) == expected[step]
    assert queue.skipped_bytes == (20 if step in (5, 6) else 0)
    assert queue.stats().lost == 0


@pytest.mark.parametrize("step", range(1, 9))
def test_a_reader_dead_after_step_k(queue, clock, die, step):
    queue.put(b"AAAA")
    queue.put(b"BBBB")
    die(lambda end: end.try_get(), step)
    assert drain(queue) == ([b"AAAA", b"BBBB"] if step <= 5 else [b"BBBB"])
    while queue.try_put(b"CCCC") is Outcome.WRITTEN:
        pass
    clock.now_ns += AGED_NS
    while queue.try_put(b"CCCC") is Outcome.WRITTEN:
        pass
    lost = queue.stats().lost
    assert lost == 1 if step in (6, 7) else lost <= (step == 5)  # after step 5 it may have taken it, or another did


def test_a_read_cursor_that_is_stale_where_the_area_comes_round(queue, clock, die):
    for _ in range(6):
        queue.put(b"AAAA")
    die(lambda end: end.try_get(), 6)
    assert queue.try_put(b"BBBB") is Outcome.FULL
    clock.now_ns += THRESHOLD_NS
    assert queue.try_put(b"BBBB") is Outcome.FULL
    clock.now_ns += TICK_NS
    assert queue.try_put(b"BBBB") is Outcome.WRITTEN
    assert drain(queue) == [b"AAAA"] * 5 + [b"BBBB"]
    assert queue.stats().lost == 1
