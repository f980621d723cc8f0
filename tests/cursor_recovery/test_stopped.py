"""Processes that stand still for long, at each access; a clock that goes on without anybody; a crowd; heads near the
end of their words."""

from __future__ import annotations

import os
import select
import signal
import time

import pytest

from statemachines.cursor_recovery.memory import TICK_NS, Queue
from statemachines.cursor_recovery.reader import READER, new_reader
from statemachines.cursor_recovery.writer import WRITER, new_writer
from statemachines.drivers.cursor_recovery import CircularQueue, DamagedQueue, Instruments, Outcome, ReadOutcome
from statemachines.drivers.cursor_recovery.memory_access import POSITION_MAX
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


def set_heads(queue, position):
    words = queue._here.words
    words.read_head.store(position)
    words.write_head.store(position)


@pytest.mark.parametrize("bits", [31, 32, 33, 48, 53, 60, 61])
def test_a_head_goes_through_every_power_of_two(name, bits):
    """Positions have 64 bits, cells 32: nothing is cut off on the way."""
    with CircularQueue.create(name, capacity=128) as queue:
        set_heads(queue, 2**bits - 64)
        sent = [bytes([number]) * number for number in range(1, 20)]
        for message in sent:
            queue.put(message)
            assert queue.get() == message
        queue.put_many([b"one", b"two"])
        assert queue.get_many() == [b"one", b"two"]
        assert queue.stats().read_head > 2**bits


def test_at_the_last_position_a_queue_ends_and_says_so(name):
    """Position 2**62, after more than a decade at ten gigabytes a second: everybody is told, nothing comes twice."""
    with CircularQueue.create(name, capacity=128) as queue, CircularQueue.attach(name) as other:
        set_heads(queue, POSITION_MAX - 40)
        queue.put(b"A" * 4)
        queue.put(b"B" * 4)
        assert queue.stats().write_head == POSITION_MAX
        assert (other.get(), other.get()) == (b"A" * 4, b"B" * 4)
        queue.put(b"C" * 4)
        for call in (other.try_get, lambda: queue.try_put(b"D" * 4), other.try_get):
            with pytest.raises(DamagedQueue, match="below 2"):
                call()


@pytest.mark.parametrize("position", [2**63 - 40, 2**63, 2**64 - 40, POSITION_MAX + 4])
def test_heads_beyond_the_last_position_are_named_at_once(name, position):
    with CircularQueue.create(name, capacity=128) as queue:
        set_heads(queue, position)
        for call in (queue.try_get, lambda: queue.try_put(b"A")):
            with pytest.raises(DamagedQueue, match="below 2"):
                call()


def test_stamps_come_round_after_eighteen_years_and_no_cursor_looks_dead(name):
    """The stamp of a cursor has 43 bits of 65 536 ns."""
    now = [(2**43 - 2) * TICK_NS]
    with CircularQueue.create(name, capacity=128, instruments=Instruments(clock=lambda: now[0])) as queue:
        for _ in range(5):
            queue.put(b"A")
            assert queue.get() == b"A"
            now[0] += TICK_NS
