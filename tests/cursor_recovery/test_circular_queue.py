"""The queue as an application has it: put and get, statuses, blocks of many, codecs, and every misuse."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from array import array
from collections import deque

import msgspec
import pytest
from shm_files import left_over

from statemachines.cursor_recovery.memory import FREE, NONE, Load, token
from statemachines.cursor_recovery.reader import ReadDone
from statemachines.drivers.cursor_recovery import (
    CircularQueue,
    ClosedQueue,
    DamagedQueue,
    ForkedAmidOperation,
    GetTimeout,
    Instruments,
    MessageTooLarge,
    MissingQueue,
    Outcome,
    PutTimeout,
    QueueError,
    ReadOutcome,
    circular_queue,
)
from statemachines.drivers.cursor_recovery.bell import SOON_S, Bell, Patience
from statemachines.drivers.cursor_recovery.circular_queue import LOOKS, NAP_S
from statemachines.drivers.cursor_recovery.framing import join_messages, split_messages
from statemachines.drivers.cursor_recovery.segment import path_of

ONE_CURSOR = {"read_cursors": 1, "write_cursors": 1}
"""With more, a dead owner's cursor stays until it is in the way: what is left rests on how fast all goes."""


class Job(msgspec.Struct):
    number: int
    text: str = ""


@pytest.fixture
def queue(name):
    with CircularQueue.create(name, capacity=128) as queue:
        yield queue


@pytest.fixture
def other(name, queue):
    with CircularQueue.attach(name) as other:
        yield other


# -- one thin path --------------------------------------------------------------------------------------------------


def test_what_one_process_puts_another_gets(name, queue, child):
    def put():
        with CircularQueue.attach(name) as mine:
            for number in range(50):
                mine.put(b"message %d" % number, timeout=10)

    child(put)
    assert [queue.get(timeout=10) for _ in range(50)] == [b"message %d" % number for number in range(50)]


def test_a_forked_child_takes_a_slot_of_its_own(queue, child):
    def put():
        queue.put(b"from the child")
        return len(queue.stats().processes)

    pid = child(put)
    assert queue.get(timeout=10) == b"from the child"
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2


def test_another_program_attaches_by_name(name, queue):
    program = f"from statemachines.drivers.cursor_recovery import CircularQueue as Q; Q.attach({name!r}).put(b'hello')"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert queue.get(timeout=0) == b"hello"


# -- statuses -------------------------------------------------------------------------------------------------------


def test_empty_and_full_are_statuses(queue, other):
    assert other.try_get().outcome is ReadOutcome.EMPTY
    assert [queue.try_put(b"AAAA") for _ in range(7)] == [Outcome.WRITTEN] * 6 + [Outcome.FULL]
    got = other.try_get()
    assert (got.outcome, got.message, got.position) == (ReadOutcome.DELIVERED, b"AAAA", 0)
    assert queue.try_put(b"AAAA") is Outcome.WRITTEN


def test_an_empty_message_is_a_message(queue, other):
    queue.put(b"")
    assert other.get(timeout=0) == b""


@pytest.mark.parametrize("message", [b"x" * 113, b"x" * 10_000])
def test_a_message_too_large_is_refused_and_nothing_touched(queue, message):
    assert queue.try_put(message) is Outcome.OVERSIZE
    with pytest.raises(MessageTooLarge, match="the whole data area has 128"):
        queue.put(message)
    queue.put(b"x" * 112)
    assert queue.stats().write_head == 128


def test_without_a_free_cursor_the_status_says_so(queue, other):
    here = queue._here
    for cursor in range(4):
        here.words.states["write"][cursor].store(token(here.owner.slot, here.owner.incarnation, time.monotonic_ns()))
        here.words.states["read"][cursor].store(token(here.owner.slot, here.owner.incarnation, time.monotonic_ns()))
    assert other.try_put(b"a") is Outcome.NO_CURSOR
    assert other.try_get().outcome is ReadOutcome.NO_CURSOR
    with pytest.raises(PutTimeout, match="no_cursor for 0"):
        other.put(b"a", timeout=0.01)


@pytest.mark.parametrize("declared", [False, True])
def test_who_waits_for_a_cursor_of_its_own_pool_looks_again_soon(name, declared):
    """Nobody rings when one of them is free again, or its dead owner aged."""
    with (
        CircularQueue.create(name, **ONE_CURSOR) as queue,
        CircularQueue.attach(name, instruments=Instruments(declared=declared)) as other,
    ):
        here = queue._here
        for pool, attempt in (("write", lambda: other.try_put(b"a")), ("read", lambda: other.try_get().outcome)):
            word = here.words.states[pool][0]
            word.store(token(here.owner.slot, here.owner.incarnation, time.monotonic_ns()))
            assert attempt() in (Outcome.NO_CURSOR, ReadOutcome.NO_CURSOR)
            assert other._sleep_s(Patience(), None) == SOON_S
            word.store(FREE)
            attempt()
            assert other._sleep_s(Patience(), None) > SOON_S


def test_waiting_in_vain_ends_in_time(queue, other):
    begun = time.monotonic()
    with pytest.raises(GetTimeout, match=r"no message for 0\.05 s"):
        other.get(timeout=0.05)
    while queue.try_put(b"AAAA") is Outcome.WRITTEN:
        pass
    with pytest.raises(PutTimeout, match="full"):
        queue.put(b"AAAA", timeout=0.05)
    with pytest.raises(TimeoutError):
        queue.put(b"AAAA", timeout=0)
    assert time.monotonic() - begun >= 0.1


# -- blocks of many, and codecs -------------------------------------------------------------------------------------


def test_many_messages_in_a_block_come_one_by_one_or_together(queue, other):
    queue.put_many([b"a", b"", b"ccc"])
    assert [other.get(timeout=0) for _ in range(3)] == [b"a", b"", b"ccc"]
    queue.put_many([b"a", b"b", b"c"])
    assert other.get(timeout=0) == b"a"
    assert other.get_many(timeout=0) == [b"b", b"c"]
    assert other.try_get_many().outcome is ReadOutcome.EMPTY
    assert queue.try_put_many([b"only"]) is Outcome.WRITTEN
    assert other.try_get_many().message == [b"only"]


def test_a_block_of_many_is_refused_whole(queue, other):
    assert queue.try_put_many([b"x" * 20] * 5) is Outcome.OVERSIZE
    assert queue.try_put_many([b"x" * 20] * 3) is Outcome.WRITTEN
    assert queue.try_put_many([b"x" * 20] * 3) is Outcome.FULL
    with pytest.raises(MessageTooLarge):
        queue.put_many([b"x" * 20] * 5)
    assert len(other.get_many(timeout=0)) == 3
    assert other.try_get().outcome is ReadOutcome.EMPTY


def test_no_messages_are_nothing_to_do(queue):
    queue.put_many([])
    assert queue.try_put_many([]) is Outcome.WRITTEN
    assert queue.stats().write_head == 0


def test_what_else_is_bytes_goes_in_a_block_too(queue):
    class Named(bytes):
        pass

    every = [b"a", bytearray(b"bb"), memoryview(b"c-c-c")[::2], memoryview(array("H", [1, 2])), Named(b"d")]
    expected = [b"a", b"bb", b"ccc", array("H", [1, 2]).tobytes(), b"d"]
    for sequence in (every, tuple(every), deque(every)):
        queue.put_many(sequence, timeout=0)
        block = queue.get_many(timeout=0)
        assert block == expected
        assert {type(message) for message in block} == {bytes}


@pytest.mark.parametrize("wrong", ["text", 1, None, array("B", [1]), [b"inner"], Job(1)], ids=repr)
def test_what_is_no_bytes_is_refused_wherever_it_stands_in_a_block(queue, wrong):
    for messages in ([b"a", wrong], [wrong, b"a"], (b"a", b"b", wrong), [wrong]):
        with pytest.raises(TypeError, match=f"a message is bytes, not {type(wrong).__name__}"):
            queue.put_many(messages)
    assert queue.try_get().outcome is ReadOutcome.EMPTY


def test_a_block_that_put_many_did_not_write_is_named():
    assert split_messages(join_messages([b"a", b"bc"]), 2) == [b"a", b"bc"]
    for payload, count in ((b"", 1), (join_messages([b"a"]) + b"!", 1), (join_messages([b"a", b"b"]), 3), (b"", 2**30)):
        with pytest.raises(QueueError, match="does not hold"):
            split_messages(payload, count)


def test_with_a_codec_messages_are_of_its_type(name):
    with (
        CircularQueue.create(name, codec=Job) as queue,
        CircularQueue.attach(name, codec=Job) as other,
        CircularQueue.attach(name) as plain,
    ):
        queue.put(Job(1, "one"))
        queue.put_many([Job(2), Job(3)])
        assert [other.get(timeout=0) for _ in range(3)] == [Job(1, "one"), Job(2), Job(3)]
        plain.put(b"\xc1")
        with pytest.raises(QueueError, match="is no Job"):
            other.get(timeout=0)
        queue.put(Job(4))
        assert other.get(timeout=0) == Job(4)


@pytest.mark.parametrize("bad", ["text", 7, None, [b"a"]])
def test_without_a_codec_a_message_is_bytes(queue, bad):
    with pytest.raises(TypeError, match="codec="):
        queue.put(bad)
    queue.put(bytearray(b"abc"))
    queue.put(memoryview(b"abc"))
    assert queue.get(timeout=0) == queue.get(timeout=0) == b"abc"


# -- closed, removed, damaged ---------------------------------------------------------------------------------------


def test_use_after_close_is_named(queue, other):
    other.close()
    other.close()
    for call in (lambda: other.put(b"a"), other.try_get, lambda: other.get(timeout=1), other.stats, other.get_many):
        with pytest.raises(ClosedQueue, match="closed in this process"):
            call()
    queue.put(b"a")


def test_who_creates_it_as_a_context_removes_it(name):
    with CircularQueue.create(name) as queue:
        queue.put(b"a")
        assert len(left_over(name)) == 3
    assert left_over(name) == []


def test_who_attaches_leaves_it_and_it_can_be_removed_by_name(name, queue):
    with CircularQueue.attach(name) as other:
        other.put(b"a")
    assert queue.get(timeout=0) == b"a"
    CircularQueue.unlink(name)
    assert left_over(name) == []
    with pytest.raises(MissingQueue):
        CircularQueue.unlink(name)


def test_a_failing_body_removes_it_as_well(name):
    with pytest.raises(ZeroDivisionError), CircularQueue.create(name):
        _ = 1 / 0
    assert left_over(name) == []


def test_a_damaged_segment_can_be_removed(name, queue):
    with path_of(name).open("r+b") as file:
        file.write(b"rubbish" * 10)
    with pytest.raises(DamagedQueue):
        CircularQueue.attach(name)
    CircularQueue.unlink(name)
    assert left_over(name) == []


@pytest.mark.parametrize("by_hand", [True, False])
def test_who_waits_at_a_removed_queue_is_told(name, queue, other, by_hand):
    errors = []

    def wait():
        try:
            other.get(timeout=20)
        except MissingQueue as error:
            errors.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    if by_hand:
        path_of(name).unlink()
    else:
        CircularQueue.unlink(name)
    thread.join(10)
    assert "removed while this process was attached" in errors[0]
    for fifo in path_of(name).parent.glob(f"{path_of(name).name}.*"):
        fifo.unlink()


def test_a_queue_removed_and_made_anew_is_another_one(name, queue, other):
    """Nothing that the old ones do shows in the new one, and they are told."""
    queue.put(b"older")
    CircularQueue.unlink(name)
    with CircularQueue.create(name, capacity=256) as new:
        assert other.get(timeout=0) == b"older"
        for _ in range(2):  # not acknowledged: whoever is still attached may read it, and perhaps nobody will
            with pytest.raises(MissingQueue, match="attach again"):
                queue.try_put(b"old")
        assert other.get(timeout=0) == b"old"
        with pytest.raises(MissingQueue, match="attach again"):
            other.get(timeout=5)
        assert new.try_get().outcome is ReadOutcome.EMPTY
        assert new.stats().write_head == 0


DAMAGES = [
    ("read_head", 2),
    ("read_head", 2**40),
    ("write_head", 2**63 + 4),
    ("write_head", 2**40),
    ("write/0/state", 5),
    ("write/0/state", 2**63 - 1),
    ("write/0/state", 2**64 - 1),
    ("read/1/state", 12345),
]


@pytest.mark.parametrize(("address", "value"), DAMAGES)
def test_a_control_word_that_was_written_over_is_named_by_who_meets_it(name, queue, other, address, value):
    other.put(b"AAAA")
    queue._here.words.plain(address).store(value)
    calls = [lambda: other.try_put(b"BBBB"), other.try_get, lambda: other.get(timeout=1)]
    for call in calls[:1] if address.startswith("read/") else calls:
        with pytest.raises(DamagedQueue, match=f"{address} = .*remove it"):
            call()


def test_a_position_that_was_written_over_is_named(queue, other):
    other.put(b"AAAA")
    words = queue._here.words
    words.states["write"][0].store(token(queue._here.owner.slot, queue._here.owner.incarnation, time.monotonic_ns()))
    words.positions["write"][0].store(3)
    with pytest.raises(DamagedQueue, match="write/0/position = 3"):
        other.try_get()
    words.positions["write"][0].store(NONE)
    assert other.get(timeout=0) == b"AAAA"


def test_data_that_was_written_over_is_never_delivered(queue, other):
    other.put(b"AAAA")
    other.put(b"BBBB")
    here = queue._here
    here.segment.mapped[here.segment.layout.data + 16 : here.segment.layout.data + 20] = b"XXXX"
    assert other.get(timeout=0) == b"BBBB"
    assert other.skipped_bytes == 20


def test_a_broken_guard_shows_in_stats(queue):
    queue._here.segment.mapped[queue._here.segment.layout.guard_after] = 0
    with pytest.raises(DamagedQueue, match="guard behind"):
        queue.stats()


# -- threads, signals, forks, exits ---------------------------------------------------------------------------------


def test_threads_take_turns(queue, other):
    got = []

    def get():
        got.extend(other.get(timeout=10) for _ in range(100))

    def put(number):
        for count in range(100):
            queue.put(b"%d %d" % (number, count), timeout=10)

    threads = [threading.Thread(target=put, args=(n,)) for n in range(2)]
    threads += [threading.Thread(target=get) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(got) == sorted(b"%d %d" % (number, count) for number in range(2) for count in range(100))


@pytest.mark.parametrize("block", [1, 3])
def test_what_a_thread_has_waited_for_is_its_own(queue, other, monkeypatch, block):
    """Another thread that asks between its taking and its leaving gets what comes after it, or nothing."""
    between = []
    arrived = other._arrived
    puts = iter([lambda: queue.put_many([b"%d" % n for n in range(block)])])

    def late():
        for put in puts:  # not before it waits
            put()
        return arrived()

    def hand_over(bell):
        between.append(other.try_get())

    monkeypatch.setattr(other, "_look_soon", lambda attempt: None)
    monkeypatch.setattr(other, "_arrived", late)
    monkeypatch.setattr(other, "_hand_over", hand_over)
    assert other.get(timeout=10) == b"0"
    (told,) = between
    assert (told.outcome, told.message) == ((ReadOutcome.DELIVERED, b"1") if block > 1 else (ReadOutcome.EMPTY, None))


def test_who_waits_gets_what_another_thread_left_of_its_block(queue, other, monkeypatch):
    """All the same where nothing more is in the queue: the rest of a block is known to this process alone."""
    queue.put_many([b"0", b"1"])
    got = []
    read = other._read

    def empty():
        if not got:
            got.append(other._first_of(read()))  # another thread is faster: it takes the block, and one of it
            return ReadDone(ReadOutcome.EMPTY, -1)
        raise AssertionError("a look at shared memory, with a message left")

    monkeypatch.setattr(other, "_read", empty)
    assert other.get(timeout=10) == b"1"


class Interrupted(BaseException):
    pass


def interrupted_at(number):
    """A hook that raises before the access with this number, once."""
    count = 0

    def hook(request):
        nonlocal count
        count += 1
        if count == number:
            raise Interrupted

    return hook


def accesses_of(name, call):
    """How many accesses attaching and then `call` make."""
    count = [0, 0]

    def hook(request):
        count[0] += 1

    with CircularQueue.attach(name, instruments=Instruments(hook=hook)) as queue:
        count[1] = count[0]
        call(queue)
    return count[1], count[0]


@pytest.mark.parametrize("call", ["put", "get"])
def test_who_is_interrupted_at_any_access_leaves_a_dead_owner_and_takes_part_again(name, call):
    """As Control-C amid an operation: afterwards everybody goes on, this process too."""
    calls = {"put": lambda queue: queue.try_put(b"CCCC"), "get": lambda queue: queue.try_get()}
    with CircularQueue.create(name, capacity=128, threshold=0.001, **ONE_CURSOR) as first:
        first.put(b"AAAA")
        begin, end = accesses_of(name, calls[call])
        while first.try_get().outcome is ReadOutcome.DELIVERED:
            pass
        assert end - begin >= 15
        for number in range(begin + 1, end + 1):
            first.put(b"AAAA", timeout=5)
            with CircularQueue.attach(name, instruments=Instruments(hook=interrupted_at(number))) as cut:
                with pytest.raises(Interrupted):
                    calls[call](cut)
                cut.put(b"DDDD", timeout=5)
                came = [first.get(timeout=5)]
                while came[-1] != b"DDDD":
                    came.append(first.get(timeout=5))
                assert came in ([b"AAAA", b"DDDD"], [b"AAAA", b"CCCC", b"DDDD"], [b"DDDD"])
        assert first.stats().cursors == ()


def test_a_signal_handler_must_not_use_the_queue(name, queue):
    errors = []

    def hook(request):
        if armed:
            armed.pop()
            signal.raise_signal(signal.SIGUSR1)

    def handle(*_):
        try:
            used.try_put(b"from a handler")
        except QueueError as error:
            errors.append(str(error))

    armed = []
    previous = signal.signal(signal.SIGUSR1, handle)
    try:
        with CircularQueue.attach(name, instruments=Instruments(hook=hook)) as used:
            armed.append(1)
            used.put(b"AAAA")
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert "signal handler" in errors[0]
    assert queue.get(timeout=0) == b"AAAA"


@pytest.mark.parametrize("number", [3, 10, 18])
def test_who_forks_amid_an_operation_has_it_once(name, queue, number):
    """The parent goes on; the child is told, and may begin anew with a slot of its own."""
    pids = []
    count = 0

    def hook(request):
        nonlocal count
        count += 1
        if count == start + number:
            pids.append(os.fork())

    start = 10**6
    with CircularQueue.attach(name, instruments=Instruments(hook=hook)) as used:
        start = count
        try:
            used.put(b"AAAA")
        except ForkedAmidOperation as error:
            fine = "goes on in the parent" in str(error)
            used.put(b"BBBB")
            os._exit(0 if fine else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pids[0], 0)[1]) == 0
    came = sorted([queue.get(timeout=5), queue.get(timeout=5)])
    assert came == [b"AAAA", b"BBBB"]
    assert queue.try_get().outcome is ReadOutcome.EMPTY


def test_the_messages_that_a_parent_holds_are_not_its_childs(queue, other, child):
    queue.put_many([b"a", b"b"])
    assert other.get(timeout=0) == b"a"
    pid = child(lambda: other.try_get().outcome is ReadOutcome.EMPTY)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert other.get(timeout=0) == b"b"


def test_a_parent_dies_although_its_child_lives(name, queue, child):
    """The child has closed the lock that it inherited, without any use of the queue."""
    ready, told = os.pipe()

    def parent():
        used = CircularQueue.attach(name)
        if os.fork() == 0:
            os.write(told, b"%d\n" % os.getpid())
            time.sleep(60)
        os.read(ready_too, 1)
        used.put(b"AAAA")
        os.kill(os.getpid(), signal.SIGKILL)

    ready_too, told_too = os.pipe()
    pid = child(parent)
    grandchild = int(os.read(ready, 20))
    try:
        assert len(queue.stats().processes) == 2
        os.write(told_too, b"!")
        os.waitpid(pid, 0)
        assert len(queue.stats().processes) == 1
    finally:
        os.kill(grandchild, signal.SIGKILL)


@pytest.mark.parametrize("end", ["sys.exit(3)", "os._exit(3)", "os.kill(os.getpid(), 9)"])
def test_an_interpreter_that_exits_amid_an_operation_harms_nobody(name, end):
    """In the main thread the exit is an exception; in the others the interpreter ends under them."""
    program = (
        "import os, sys, threading\n"
        "from statemachines.drivers.cursor_recovery import CircularQueue, Instruments\n"
        "count = [0]\n"
        "def hook(request):\n"
        "    count[0] += 1\n"
        f"    if count[0] == 30: {end}\n"
        f"queue = CircularQueue.attach({name!r}, instruments=Instruments(hook=hook))\n"
        "while True: queue.try_put(b'A')\n"
    )
    with CircularQueue.create(name, threshold=0.001, **ONE_CURSOR) as queue:
        done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
        assert done.returncode in (3, -9), done.stderr
        assert len(queue.stats().processes) == 1
        queue.put(b"B", timeout=5)
        while queue.get(timeout=5) != b"B":
            pass
        assert queue.stats().cursors == ()


def test_an_interpreter_that_ends_while_a_thread_is_in_an_operation_harms_nobody(name):
    program = (
        "import threading, time\n"
        "from statemachines.drivers.cursor_recovery import CircularQueue, Instruments\n"
        f"queue = CircularQueue.attach({name!r}, instruments=Instruments(hook=lambda request: time.sleep(0.01)))\n"
        "def work():\n"
        "    while True: queue.try_put(b'A')\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "time.sleep(0.15)\n"
    )
    with CircularQueue.create(name, threshold=0.001) as queue:
        done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        queue.put(b"B", timeout=5)
        while queue.get(timeout=5) != b"B":
            pass


def test_a_queue_may_be_sent_to_another_process(queue):
    again = pickle.loads(pickle.dumps(queue))
    again.put(b"a")
    assert queue.get(timeout=0) == b"a"
    again.close()


def test_a_queue_that_is_dropped_gives_its_slot_back(name, queue):
    CircularQueue.attach(name).put(b"a")
    assert len(queue.stats().processes) == 1


# -- stats ----------------------------------------------------------------------------------------------------------


def test_stats_show_the_heads_and_who_takes_part(queue, other):
    queue.put(b"AAAA")
    other.put(b"BBBB")
    queue.get(timeout=0)
    stats = queue.stats()
    assert (stats.capacity, stats.used, stats.read_head, stats.write_head, stats.lost) == (128, 20, 20, 40, 0)
    assert [(one.slot, one.pid) for one in stats.processes] == [(0, os.getpid()), (1, os.getpid())]
    here = queue._here
    here.words.states["read"][2].store(token(0, 1, time.monotonic_ns() - 10**9))
    (taken,) = queue.stats().cursors
    assert (taken.pool, taken.cursor, taken.slot, taken.incarnation) == ("read", 2, 0, 1)
    assert 0.9 < taken.age_s < 60


@pytest.mark.parametrize("call", ["put", "get"])
def test_who_sleeps_between_the_heads_while_more_than_the_queue_goes_by_begins_anew(name, call):
    """Nobody looks for a block through all that was written meanwhile."""
    with CircularQueue.create(name, capacity=128) as first:
        seen = []

        def hook(request):
            seen.append(request)
            if request == Load("write_head") and not slept:
                slept.append(1)
                for number in range(100):
                    first.put(b"%d" % number)
                    first.get(timeout=0)
                first.put(b"last")

        slept = [1]
        with CircularQueue.attach(name, instruments=Instruments(hook=hook)) as sleeper:
            slept.clear()
            seen.clear()
            if call == "put":
                sleeper.put(b"mine")
                assert [first.get(timeout=0) for _ in range(2)] == [b"last", b"mine"]
            else:
                assert sleeper.get(timeout=0) == b"last"
            assert len(seen) < 60
        assert first.stats().cursors == ()


# -- naps before sleeping -------------------------------------------------------------------------------------------


class Naps:
    """In place of `time` in the queue: `meanwhile` happens in the nap of this number, from 1 on."""

    def __init__(self, meanwhile=lambda: None, number=1):
        self.taken = []
        self._meanwhile = meanwhile
        self._number = number

    def sleep(self, seconds):
        self.taken.append(seconds)
        if len(self.taken) == self._number:
            self._meanwhile()

    def __getattr__(self, name):
        return getattr(time, name)


@pytest.mark.parametrize("number", range(1, LOOKS + 1))
def test_what_is_put_during_a_nap_is_taken_and_nobody_sleeps(queue, other, monkeypatch, number):
    naps = Naps(lambda: other.put(b"soon"), number)
    monkeypatch.setattr(circular_queue, "time", naps)
    monkeypatch.setattr(Bell, "sleep", lambda bell, seconds: pytest.fail("slept"))
    assert queue.get(timeout=1) == b"soon"
    assert naps.taken == [NAP_S] * number


def test_who_has_napped_long_enough_sleeps_until_woken(queue, other, monkeypatch):
    naps, slept = Naps(), []
    monkeypatch.setattr(circular_queue, "time", naps)
    monkeypatch.setattr(Bell, "sleep", lambda bell, seconds: (slept.append(seconds), other.put(b"woken")))
    assert queue.get(timeout=1) == b"woken"
    assert (naps.taken, len(slept)) == ([NAP_S] * LOOKS, 1)


def test_who_does_not_wait_does_not_nap(queue, monkeypatch):
    naps = Naps()
    monkeypatch.setattr(circular_queue, "time", naps)
    with pytest.raises(GetTimeout):
        queue.get(timeout=0)
    assert queue.try_get().message is None
    assert naps.taken == []


def test_a_queue_that_is_closed_during_a_nap_says_so(queue, monkeypatch):
    monkeypatch.setattr(circular_queue, "time", Naps(queue.close))
    with pytest.raises(ClosedQueue, match="the queue was closed in this process"):
        queue.get(timeout=1)
