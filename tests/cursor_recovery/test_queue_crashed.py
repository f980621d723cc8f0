"""Processes that stand still for long, at each access; a clock that goes on without anybody; a crowd; heads near the
end of their words.

The scan behind a dead writer's block: written out, it finds what the machine finds, at a fraction of the work.

Random runs of real processes with SIGKILL and SIGSTOP before random accesses; and the judge, on made-up evidence.

The scenarios of spec/cursor_recovery/scenarios.md that need real processes: one dies after step k, others go on.

A step is one of the eight of the source's table.  The clock stands still until a test sets it on.
"""

import os
import random
import select
import signal
import subprocess
import sys
from functools import partial

import pytest
from waiting import pause, read_clock_ns

from statemachines.cursor_recovery.block import commit_word
from statemachines.cursor_recovery.memory import CELL, FREE, TICK_NS, CopyIn, Queue, Store, token
from statemachines.cursor_recovery.reader import READER, SLICE_BYTES, new_reader
from statemachines.cursor_recovery.writer import WRITER, new_writer
from statemachines.drivers.cursor_recovery import (
    CircularQueue,
    GetTimeout,
    Instruments,
    Outcome,
    ReadOutcome,
    attachment,
)
from statemachines.drivers.cursor_recovery.segment import path_of
from statemachines.testing.cursor_recovery.crash_judge import Evidence, HeldBlock, Plan, ReadMessage, judge, messages_in
from statemachines.testing.cursor_recovery.crash_run import check_that_cursors_become_free, run_seed
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
    for _ in range(44):
        for case in cases:
            case.came += drain(case.queue)
            case.queue.try_put(b"")
        pause(THRESHOLD_S / 4, "the threshold passes")


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


def later():
    """To a reader with this clock every dead writer is dead for long enough."""
    return read_clock_ns() + 500_000_000


class Cut(Exception):
    """The writer dies here."""


def die_in(name, payload, stores=0):
    """A writer that dies after so many of the header's cells."""
    left = stores

    def hook(request):
        nonlocal left
        if isinstance(request, Store) and request.address.startswith("data/"):
            if not left:
                raise Cut
            left -= 1

    queue = CircularQueue.attach(name, instruments=Instruments(hook=hook))
    with pytest.raises(Cut):
        queue.put(payload)
    queue.close()


def drain_of_short_scan(queue):
    got = []
    while True:
        try:
            got.append(queue.get(timeout=0))
        except GetTimeout:
            if not queue._here.has_looked:
                return got


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("slice_bytes", [SLICE_BYTES, 12])
def test_both_ways_find_the_same(name, seed, slice_bytes, monkeypatch):
    """Dead blocks of every kind, also across the end, between whole ones, with marks of other places in their data."""
    monkeypatch.setattr(attachment, "new_reader", partial(new_reader, slice_bytes=slice_bytes))
    found = []
    for number, instruments in enumerate((Instruments(declared=True, clock=later), Instruments(clock=later))):
        chance = random.Random(seed)
        with CircularQueue.create(f"{name}-{number}", capacity=1024, threshold=0.1, write_cursors=12) as queue:
            reader = CircularQueue.attach(queue.name, instruments=instruments)
            came = []
            for turn in range(12):
                low, high = commit_word(4 * chance.randrange(600))
                payload = (
                    chance.randbytes(chance.randrange(120)) + low.to_bytes(4, "little") + high.to_bytes(4, "little")
                )
                if chance.random() < 0.5:
                    die_in(queue.name, payload, chance.randrange(4))
                else:
                    queue.try_put(payload + b"%d" % turn)
                if turn % 3 == 2:
                    came.append((drain_of_short_scan(reader), reader.skipped_bytes, reader.stats().read_head))
            found.append(came)
            reader.close()
    assert found[0] == found[1]
    assert any(messages for messages, _, _ in found[0])


# -- a slice at a time ----------------------------------------------------------------------------------------------

SLICES = 6
GREAT = SLICES * SLICE_BYTES
"""Bytes of a dead writer's message; its block has a header more, and so one slice more."""


@pytest.fixture
def looked(monkeypatch):
    """Where each scan of this process began, and how many cells it looked at."""
    scan, looks = attachment.short_scan, []

    def look(record, access):
        after, answer = scan(record, access)
        looks.append((record.at, (after.at - record.at) // CELL + 1))
        return after, answer

    monkeypatch.setattr(attachment, "short_scan", look)
    return looks


@pytest.fixture
def great(name, child):
    """A queue in which a process was killed amid a great `put`, and then another one has put a message."""

    def put_and_die():
        def die(request):
            if isinstance(request, Store) and request.address.startswith("data/"):
                os.kill(os.getpid(), signal.SIGKILL)

        CircularQueue.attach(name, instruments=Instruments(hook=die)).put(bytes(GREAT))

    with CircularQueue.create(name, capacity=2 * GREAT, threshold=0.1, instruments=Instruments(clock=later)) as queue:
        assert os.waitstatus_to_exitcode(os.waitpid(child(put_and_die), 0)[1]) == -signal.SIGKILL
        queue.put(b"behind it")
        yield queue


AT_ONCE = 4


@pytest.mark.long
@pytest.mark.parametrize("runs", [8, 400])
def test_random_runs_keep_every_property(runs):
    """Several at once: what a run does most is wait."""
    module = "statemachines.testing.cursor_recovery.crash_run"
    each = runs // AT_ONCE
    programs = [
        subprocess.Popen(
            [sys.executable, "-m", module, "--first", str(first), "--runs", str(each)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for first in range(0, runs, each)
    ]
    said = [program.communicate()[0] for program in programs]
    assert [program.returncode for program in programs] == [0] * AT_ONCE, said
    assert all(f"{each} runs, 0 violations" in one for one in said)


def test_a_run_leaves_other_children_of_its_process_alone():
    """One of them that ends meanwhile is still there for whoever waits for it."""
    other = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert run_seed(3) == []
    assert other.wait() == 7


@pytest.mark.parametrize("pool", ["read", "write"])
def test_all_cursors_of_a_pool_may_be_dead_ones(name, child, pool):
    """Whoever judges frees one after the other: what became free first is not taken twice."""
    with CircularQueue.create(name, capacity=128, read_cursors=2, write_cursors=2, threshold=0.02) as queue:
        for cursor in (0, 1):

            def die(cursor=cursor):
                end = CircularQueue.attach(name)
                here = end._here
                ours = token(here.owner.slot, here.owner.incarnation, read_clock_ns())
                assert here.words.states[pool][cursor].cas(FREE, ours) == FREE
                os.kill(os.getpid(), signal.SIGKILL)

            assert os.waitstatus_to_exitcode(os.waitpid(child(die), 0)[1]) == -signal.SIGKILL
        assert check_that_cursors_become_free(queue, 0.02) == []


PLAN = Plan(0, 128, 1, 1, ((((1, 2)), (3,)),), ((),), ((),), True)
MESSAGES = messages_in(PLAN)


def whole_run():
    """Nothing went wrong."""
    return Evidence(
        begun=dict(MESSAGES),
        acknowledged=set(MESSAGES),
        deliveries=[ReadMessage(0, 0, 20 * (number // 2), message) for (_, number), message in MESSAGES.items()],
        heads=[(0, 0, 0), (0, 128, 0), (0, 140, 12)],
        held=[HeldBlock("read/0/state", "reader-0~1", 5, 9), HeldBlock("read/0/state", "reader-1~1", 9, 12)],
    )


def twice(seen):
    seen.deliveries.append(ReadMessage(1, 0, 90, seen.deliveries[0].message))


def torn(seen):
    seen.deliveries[0] = ReadMessage(0, 0, 0, seen.deliveries[0].message[:-1] + b"?")


def never_begun(seen):
    del seen.begun[0, 2]


def backwards(seen):
    seen.deliveries.reverse()


def missing(seen):
    seen.deliveries.pop()


def missing_more_than_the_dead_took(seen):
    seen.deliveries.clear()
    seen.lost, seen.readers_killed = 3, 1


def missing_and_not_counted(seen):
    seen.deliveries.pop()
    seen.readers_killed = 1


def counted_without_a_death(seen):
    seen.lost = 1


def too_far(seen):
    seen.heads.append((0, 132, 0))


def behind(seen):
    seen.heads.append((8, 4, 8))


def shared(seen):
    seen.held.append(HeldBlock("read/0/state", "reader-0~2", 11, 11))


def shared_by_one_that_had_it_all_the_time(seen):
    seen.held = [
        HeldBlock("write/1/state", "a", 1, 9),
        HeldBlock("write/1/state", "b", 9, 10),
        HeldBlock("write/1/state", "c", 3, 4),
    ]


def guards(seen):
    seen.guards = False


def stuck(seen):
    seen.stuck.append(("STALE", "for ever"))


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (twice, "ONCE"),
        (torn, "INTEG"),
        (never_begun, "INTEG"),
        (backwards, "ORDER"),
        (missing, "ACK"),
        (missing_more_than_the_dead_took, "ACK"),
        (missing_and_not_counted, "ACK"),
        (counted_without_a_death, "ACK"),
        (too_far, "BOUND"),
        (behind, "BOUND"),
        (shared, "EXCL"),
        (shared_by_one_that_had_it_all_the_time, "EXCL"),
        (guards, "SPACE"),
        (stuck, "STALE"),
    ],
)
def test_the_judge_names_what_is_broken(spoil, name):
    seen = whole_run()
    spoil(seen)
    assert name in [violation.name for violation in judge(PLAN, seen)]


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
