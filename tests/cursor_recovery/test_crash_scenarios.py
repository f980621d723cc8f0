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


@pytest.mark.parametrize("cells", [0, 1, 2])
def test_a_writer_dead_with_half_its_payload_written(queue, clock, die, cells):
    die(lambda end: end.put(b"AAAAaaaaAAAA"), 7, cells)
    queue.put(b"BBBB")
    clock.now_ns += AGED_NS
    assert drain(queue) == [b"BBBB"]
    assert queue.skipped_bytes == 28


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


def test_a_block_of_many_lost_with_its_reader_is_counted_in_messages(queue, clock, die):
    queue.put_many([b"AAAA", b"BBBB", b"CCCC"])
    die(lambda end: end.try_get(), 6)
    clock.now_ns += AGED_NS
    for _ in range(4):  # every read cursor is looked at: the stale one is freed and counted where it is in the way
        queue.try_put(b"D" * 60)
        queue.try_get()
    assert queue.stats().lost == 3


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


@pytest.mark.parametrize("dead", [1, 2])
def test_stale_last_blocks_are_passed_and_what_comes_next_is_delivered(queue, clock, die, dead):
    for _ in range(dead):
        die(lambda end: end.put(b"AAAA"), 6)
    clock.now_ns += AGED_NS
    assert drain(queue) == []
    assert queue.skipped_bytes == 20 * dead
    queue.put(b"BBBB")
    assert drain(queue) == [b"BBBB"]


def test_all_cursors_of_the_dead(name, clock, die):
    with CircularQueue.create(
        name, capacity=128, read_cursors=1, write_cursors=1, instruments=Instruments(clock=clock)
    ) as queue:
        die(lambda end: end.put(b"AAAA"), 1)
        die(lambda end: end.try_get(), 1)
        assert queue.try_put(b"BBBB") is Outcome.NO_CURSOR
        assert queue.try_get().outcome is ReadOutcome.NO_CURSOR
        clock.now_ns += AGED_NS
        assert queue.try_put(b"BBBB") is Outcome.WRITTEN
        assert queue.try_get().message == b"BBBB"


def test_a_stale_block_across_the_end(queue, clock, die):
    for _ in range(5):
        queue.put(b"AAAA")
    assert drain(queue) == [b"AAAA"] * 5
    die(lambda end: end.put(b"DDDDddddDDDDdddd"), 7, 3)
    queue.put(b"BBBB")
    clock.now_ns += AGED_NS
    assert drain(queue) == [b"BBBB"]
    queue._segment.check_guards()


def test_marker_bytes_in_the_payload_of_a_dead_writer_are_no_block(queue, clock, die):
    """A commit word of a position within the payload, and a plausible size before it."""
    from statemachines.cursor_recovery.block import commit_word

    low, high = commit_word(20)
    phantom = b"".join(word.to_bytes(4, "little") for word in (4, 0, low, high, 0x41414141))
    die(lambda end: end.put(b"zzzz" + phantom + b"zzzz"), 7, 6)
    queue.put(b"BBBB")
    clock.now_ns += AGED_NS
    assert drain(queue) == [b"BBBB"]


def test_a_stopped_writer_that_holds_a_position_blocks_until_it_goes_on(name, queue, clock, child):
    """It is alive: however old its cursor is, nobody takes it for dead."""

    def work():
        doom = DeadAfter(6, clock)
        stop = []

        def hook(request):
            if doom.at[0] == "7" and not stop:
                stop.append(1)
                os.kill(os.getpid(), signal.SIGSTOP)

        end = CircularQueue.attach(name, instruments=Instruments(hook=hook, observe=doom.observe, clock=clock))
        end.put(b"AAAA")

    pid = child(work)
    os.waitpid(pid, os.WUNTRACED)
    clock.now_ns += 10 * THRESHOLD_NS
    queue.put(b"BBBB")
    assert drain(queue) == []
    os.kill(pid, signal.SIGCONT)
    os.waitpid(pid, 0)
    assert drain(queue) == [b"AAAA", b"BBBB"]


def test_by_age_alone_a_slow_reader_loses_what_it_took(name, clock, child):
    """Its block is overwritten meanwhile: it gets none of its bytes, nor mixed ones."""
    with CircularQueue.create(name, capacity=64, threshold_only=True, instruments=Instruments(clock=clock)) as queue:
        queue.put(b"AAAA" * 10)

        def work():
            doom = DeadAfter(9, clock)
            stop = []

            def hook(request):
                if doom.at[0] == "7" and not stop:
                    stop.append(1)
                    os.kill(os.getpid(), signal.SIGSTOP)

            end = CircularQueue.attach(name, instruments=Instruments(hook=hook, observe=doom.observe, clock=clock))
            got = end.try_get()
            return 3 if got.outcome is ReadOutcome.DISCARDED else 4

        pid = child(work)
        os.waitpid(pid, os.WUNTRACED)
        clock.now_ns += AGED_NS
        assert queue.try_put(b"BBBB" * 10) is Outcome.WRITTEN
        assert queue.stats().lost == 1
        os.kill(pid, signal.SIGCONT)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
        assert queue.try_get().message == b"BBBB" * 10
