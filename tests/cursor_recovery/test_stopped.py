"""Processes that stand still for long, at each access; a clock that goes on without anybody; a crowd; heads near the
end of their words."""

from __future__ import annotations

import os
import select
import signal
import time

import pytest

from statemachines.cursor_recovery.memory import Queue
from statemachines.cursor_recovery.reader import READER, new_reader
from statemachines.cursor_recovery.writer import WRITER, new_writer
from statemachines.drivers.cursor_recovery import CircularQueue, Instruments, Outcome, ReadOutcome
from statemachines.drivers.cursor_recovery.segment import path_of
from statemachines.testing.cursor_recovery.crowd_run import main as crowd_main
from statemachines.testing.cursor_recovery.crowd_run import run_crowd
from statemachines.testing.cursor_recovery.stepped_process import SteppedQueue

THRESHOLD_S = 0.02
ACCESSES = range(1, 26)
"""More than an operation has in these queues."""


class StopAt:
    """The hook of a process: before its access number `left` from now (0: never) it stops itself, once."""

    def __init__(self, left):
        self.left = left

    def __call__(self, request):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGSTOP)


def drain(queue):
    came = []
    while (got := queue.try_get()).outcome is ReadOutcome.DELIVERED:
        came.append(got.message)
    return came


class Case:
    """A queue of its own, and a process of it that is stopped at one access of its operation, which it ends later."""

    def __init__(self, name, child, access, work, before=()):
        self.queue = CircularQueue.create(name, capacity=128, threshold=THRESHOLD_S)
        self.came = []
        for message in before:
            self.queue.put(message)
        self.reads, writes = os.pipe()

        def run():
            hook = StopAt(0)
            end = CircularQueue.attach(name, instruments=Instruments(hook=hook))
            hook.left = access
            os.write(writes, repr(work(end)).encode())
            signal.pause()

        self.pid = child(run)
        os.close(writes)
        self.is_stopped = self._wait_until_stopped()

    def _has_ended(self):
        return bool(select.select([self.reads], [], [], 0.001)[0])

    def _wait_until_stopped(self):
        """False: its operation has ended; it had fewer accesses."""
        while not self._has_ended():
            pid, status = os.waitpid(self.pid, os.WUNTRACED | os.WNOHANG)
            if pid:
                assert os.WIFSTOPPED(status)
                return True
        return False

    def go_on(self):
        """It goes on while others read; what its operation came to.

        It lives on: one that ends at the moment its cursor is judged is counted as dead (CR-D11).
        """
        if self.is_stopped:
            os.kill(self.pid, signal.SIGCONT)
        while not self._has_ended():
            self.came += drain(self.queue)
        return eval(os.read(self.reads, 1000))

    def end(self):
        self.queue.__exit__()
        os.close(self.reads)


@pytest.fixture
def cases(name, child):
    """Makes a case for each access of an operation."""
    made = []

    def make(work, before):
        made.extend(Case(f"{name}-{access}", child, access, work, before) for access in ACCESSES)
        assert 15 < sum(case.is_stopped for case in made) < len(ACCESSES)
        return made

    yield make
    for case in made:
        case.end()


def stand_still(cases):
    """Ten thresholds and more, in which the others try to go on; nobody takes a living one for dead."""
    until_s = time.monotonic() + 11 * THRESHOLD_S
    while time.monotonic() < until_s:
        for case in cases:
            case.came += drain(case.queue)
            case.queue.try_put(b"")
        time.sleep(THRESHOLD_S / 4)


@pytest.mark.long
def test_a_writer_that_stands_still_at_any_access_for_ten_thresholds_loses_nothing(cases):
    made = cases(lambda end: end.put(b"S" * 20), [b"A"])
    stand_still(made)
    for case in made:
        assert case.go_on() is None
        case.came += drain(case.queue)
        assert [message for message in case.came if message] == [b"A", b"S" * 20]
        assert case.queue.try_put(b"C" * 100) is Outcome.WRITTEN
        assert drain(case.queue) == [b"C" * 100]
        assert (case.queue.skipped_bytes, case.queue.stats().lost) == (0, 0)


@pytest.mark.long
def test_a_reader_that_stands_still_at_any_access_for_ten_thresholds_loses_nothing(cases):
    made = cases(lambda end: end.try_get().message, [b"A" * 20, b"B" * 20])
    stand_still(made)
    for case in made:
        got = case.go_on()
        assert got in (b"A" * 20, b"B" * 20, b"", None)
        case.came += drain(case.queue) + ([got] if got is not None else [])
        assert sorted(message for message in case.came if message) == [b"A" * 20, b"B" * 20]
        assert case.queue.try_put(b"C" * 100) is Outcome.WRITTEN
        assert drain(case.queue) == [b"C" * 100]
        assert (case.queue.skipped_bytes, case.queue.stats().lost) == (0, 0)


# -- a machine that was suspended: the clock has gone on, and nobody has done anything --------------------------------

HOUR_NS = 3600 * 10**9


def whole(process):
    """A whole operation, from where it stands; how it ended."""
    process.go_on()
    while process.status:
        process.access()
    return process.tells[-1].outcome


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("side", ["writer", "reader"])
def test_a_machine_that_is_suspended_within_any_access_loses_nothing(name, side, every):
    """All clocks jump by an hour while one is before an access, and again while the other is."""
    accesses = 0
    for access in ACCESSES[::every]:
        with SteppedQueue(path_of(name), Queue(capacity=64, read_cursors=1, write_cursors=1)) as stage:
            stage.now_ns = HOUR_NS
            first = stage.start("first", WRITER, new_writer, [(b"AAAA", 1)])
            assert whole(first) == "written"
            reader = stage.start("reader", READER, new_reader)
            writer = stage.start("writer", WRITER, new_writer, [(b"BBBB", 1)])
            slow, other = (writer, reader) if side == "writer" else (reader, writer)
            slow.begin()
            for _ in range(access):
                if slow.status:
                    slow.access()
                    accesses += 1
            is_amid = bool(slow.status)
            stage.now_ns += HOUR_NS
            whole(other)
            stage.now_ns += HOUR_NS
            if is_amid:
                whole(slow)
            while writer.has_more:
                whole(writer)
            while whole(reader) == "delivered":
                pass
            assert [told.payload for told in reader.tells if told.outcome == "delivered"] == [b"AAAA", b"BBBB"]
            assert stage.words.lost.load() == 0
            assert not [told for told in reader.tells if told.event == "skipped"]
    assert accesses > len(ACCESSES[::every]) * 8


# -- many processes ---------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_processes_that_come_and_go_harm_nobody():
    """A small slice of what `make soak` does for minutes, with as many at once as a queue takes."""
    crowd = run_crowd(seed=1, lives=24, at_once=20)
    assert crowd.violations == []
    assert 0 < crowd.killed < crowd.lives == 24
    assert crowd.delivered > 24


@pytest.mark.parametrize("at_once", [0, 256])
def test_a_crowd_that_a_queue_has_no_room_for_is_refused(at_once, capsys):
    with pytest.raises(SystemExit) as refused:
        crowd_main(["--at-once", str(at_once)])
    assert refused.value.code == 2
    assert f"1 to 255 are possible, {at_once} is not" in capsys.readouterr().err


# -- counters that grow for ever --------------------------------------------------------------------------------------
