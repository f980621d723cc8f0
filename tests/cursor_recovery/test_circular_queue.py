"""The queue as an application has it: put and get, statuses, blocks of many, codecs, and every misuse.

Who waits is woken, sleeps in between, and misses nothing that a crash swallowed for long.

What the host of the machines must do: a queue in shared memory, in one process.

The short way and the declared machines: the same accesses, the same outcome, the same memory.

Both begin with the same bytes; before the same access the same words are changed by somebody else, or the process dies.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading
import time
from array import array

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import read_clock_ns, until, until_async

from statemachines.cursor_recovery.block import commit_word
from statemachines.cursor_recovery.memory import FREE, NONE, TICK_NS, CopyIn, token
from statemachines.drivers.cursor_recovery import (
    CircularQueue,
    ClosedQueue,
    DamagedQueue,
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
from statemachines.drivers.cursor_recovery import bell as bell_module
from statemachines.drivers.cursor_recovery.bell import DOWN, Bell
from statemachines.drivers.cursor_recovery.framing import join_messages, split_messages
from statemachines.testing.cursor_recovery.interrupted_run import play


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


# -- statuses -------------------------------------------------------------------------------------------------------


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
        here.words.states["write"][cursor].store(token(here.owner.slot, here.owner.incarnation, read_clock_ns()))
        here.words.states["read"][cursor].store(token(here.owner.slot, here.owner.incarnation, read_clock_ns()))
    assert other.try_put(b"a") is Outcome.NO_CURSOR
    assert other.try_get().outcome is ReadOutcome.NO_CURSOR
    with pytest.raises(PutTimeout, match="no_cursor for 0"):
        other.put(b"a", timeout=0.01)


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


def test_a_queue_may_be_sent_to_another_process(queue):
    again = pickle.loads(pickle.dumps(queue))
    again.put(b"a")
    assert queue.get(timeout=0) == b"a"
    again.close()


# -- stats ----------------------------------------------------------------------------------------------------------


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


def test_a_queue_that_is_closed_during_a_nap_says_so(queue, monkeypatch):
    monkeypatch.setattr(circular_queue, "time", Naps(queue.close))
    with pytest.raises(ClosedQueue, match="the queue was closed in this process"):
        queue.get(timeout=1)


class Flag:
    """A word of this process alone."""

    def __init__(self):
        self.value = DOWN

    def load(self):
        return self.value

    def store(self, value):
        self.value = value

    def cas(self, expected, desired):
        before = self.value
        self.value = desired if before == expected else before
        return before


@pytest.fixture
def bell(tmp_path):
    bell = Bell(tmp_path / "bell", Flag(), Flag())
    yield bell
    bell.close()


HOUR_S = 3_600.0


@pytest.fixture
def long_sleeps(monkeypatch):
    """Nobody looks again by himself: whoever wakes was woken."""
    from statemachines.drivers.cursor_recovery import circular_queue

    monkeypatch.setattr(bell_module, "LOOK_AGAIN_S", HOUR_S)
    monkeypatch.setattr(circular_queue, "Patience", lambda: Forever())


class Forever:
    def next_s(self, **_):
        return HOUR_S


def test_who_sleeps_when_the_bell_is_closed_wakes_and_closes_it(tmp_path):
    bell = Bell(tmp_path / "bell", Flag(), Flag())
    sleeper = threading.Thread(target=lambda: bell.sleep(HOUR_S), daemon=True)
    sleeper.start()
    until(lambda: bell._sleepers)
    bell.close()
    until(lambda: not sleeper.is_alive())
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(bell.fd)


@pytest.mark.usefixtures("long_sleeps")
def test_a_waiting_writer_is_woken_by_room(queue, other):
    while queue.try_put(b"AAAA") is Outcome.WRITTEN:
        pass
    writer = threading.Thread(target=lambda: queue.put(b"BBBB", timeout=HOUR_S), daemon=True)
    writer.start()
    until(lambda: queue._here.writers_bell._sleepers)
    other.get(timeout=0)
    until(lambda: not writer.is_alive())


# -- in an event loop -----------------------------------------------------------------------------------------------


async def test_aget_takes_what_is_there_and_waits_for_what_comes(queue, other):
    other.put(b"A")
    assert await queue.aget() == b"A"
    loop = asyncio.get_running_loop()
    loop.call_later(0.05, other.put, b"B")
    assert await queue.aget(timeout=20) == b"B"
    with pytest.raises(GetTimeout):
        await queue.aget(timeout=0.03)


@pytest.mark.usefixtures("long_sleeps")
async def test_several_tasks_may_wait_and_the_loop_goes_on(queue, other):
    tasks = [asyncio.create_task(queue.aget(timeout=HOUR_S)) for _ in range(3)]
    await until_async(lambda: sum(map(len, queue._sleepers.values())) == 3)
    for message in (b"A", b"B", b"C"):
        other.put(message)
    assert sorted(await asyncio.gather(*tasks)) == [b"A", b"B", b"C"]


@pytest.mark.parametrize("kind", ["put", "get"])
def test_CR_57_an_operation_that_is_broken_off_holds_nobody_up(kind):
    """Before the instructions in which a turn is taken and given back, and amid the accesses."""
    count = play(kind)
    for place in (*range(24, 34), *range(120, 130), *range(count - 34, count - 24)):
        play(kind, place)


def test_CR_58_a_write_to_a_queue_that_was_removed_is_not_acknowledged():
    """Its very first call after that says so."""
    name = f"removed-{os.getpid()}"
    ours, theirs = CircularQueue.create(name), CircularQueue.attach(name)
    ours.put(b"a")
    CircularQueue.unlink(name)
    with pytest.raises(MissingQueue, match="the queue was removed"):
        ours.put(b"b")
    assert theirs.get(timeout=0) == b"a"
    ours.close()
    theirs.close()


NOW = 10**6 * TICK_NS
THRESHOLD_NS = 2 * 10**9
LIVING, DEAD = 40, 41
YOUNG = token(LIVING, 1, NOW - 1000)
AGED = token(LIVING, 1, NOW - 2 * THRESHOLD_NS)
STALE = token(DEAD, 1, NOW - 2 * THRESHOLD_NS)
REBORN = token(LIVING, 2, NOW - 2 * THRESHOLD_NS)
STATES = (FREE, YOUNG, AGED, STALE, REBORN, 5, token(LIVING, 1, NOW + 10**11))
PLACES = (NONE, 0, 20, 40, 100, 120, 128, 140, 160, 3)
HEADS = (0, 20, 40, 100, 120, 128, 140, 148, 160, 180, 400, 7)
CELLS = (*(word for at in (0, 20, 40, 100, 120) for word in commit_word(at)), 0, 4, 2**31 + 4, 2**31 + 9, 99)


class Crash(Exception):
    pass


class Track:
    """The hook: what was accessed; disturbs before some accesses, and crashes before one."""

    def __init__(self):
        self.begin(None, {}, None, None)

    def begin(self, queue, changes, crash, cells):
        self.queue, self.changes, self.crash, self.cells = queue, changes, crash, cells
        self.seen = []

    def __call__(self, request):
        if self.queue is None:
            return None
        number = len(self.seen)
        self.seen.append(request)
        for address, value in self.changes.get(number, ()):
            write(self.queue, address, value)
        if number == self.crash:
            if isinstance(request, CopyIn) and self.cells is not None:
                self.crash += 1
                return self.cells
            raise Crash
        return None


def write(queue, address, value):
    """Somebody else writes a word, or a cell."""
    words = queue._here.words
    if address.startswith("data/"):
        words.segment.words.store_u32(words.layout.data + int(address[5:]), value)
    else:
        words.plain(address).store(value)


class Twin:
    """One of two queues of one shape, with its track."""

    def __init__(self, name, kind):
        self.track = Track()
        hook = None if kind == "plain" else self.track
        instruments = Instruments(hook=hook, declared=kind == "declared", clock=lambda: NOW)
        self.queue = CircularQueue.create(
            f"{name}-{kind}", capacity=128, read_cursors=2, write_cursors=2, threshold=2.0, instruments=instruments
        )
        self.here = self.queue._here
        self.here.access.is_locked = lambda slot: slot in (0, LIVING)
        self.begin = self.queue._segment.layout.offset_of("read_head")
        write(self.queue, f"incarnation/{LIVING}", 1)
        self.blank = self.memory()

    def memory(self):
        return bytes(self.queue._segment.mapped[self.begin :])

    def play(self, setting, call, changes=None, crash=None, cells=None):
        """What came of it, the accesses, and the memory afterwards."""
        self.queue._segment.mapped[self.begin :] = self.blank
        for payload, messages in setting["written"]:
            self.here.write(payload, messages)
        for _ in range(setting["read"]):
            self.here.read()
        for address, value in setting["words"]:
            write(self.queue, address, value)
        self.track.begin(self.queue, changes or {}, crash, cells)
        try:
            before = self.here.skipped_bytes
            done = self.here.write(*call) if call else self.here.read()
            came = (done, self.here.skipped_bytes - before)
        except (Crash, DamagedQueue) as error:
            came = (type(error), getattr(error, "found", None))
        finally:
            seen = self.track.seen
            self.track.begin(None, {}, None, None)
        return came, seen, self.memory()

    def close(self):
        self.queue.__exit__()


@pytest.fixture
def twins(name):
    twins = {kind: Twin(name, kind) for kind in ("declared", "short", "plain")}
    yield twins
    for twin in twins.values():
        twin.close()


def compare(twins, setting, call, **disturbed):
    declared = twins["declared"].play(setting, call, **disturbed)
    short = twins["short"].play(setting, call, **disturbed)
    if declared[0][0] is DamagedQueue:
        # The short way looks into a word only where that is in its way, and into both heads at once.
        assert short[1][: len(declared[1])] == declared[1]
        return 0
    assert short[1] == declared[1]
    assert short[0] == declared[0]
    assert short[2] == declared[2]
    if not disturbed:
        came, _, memory = twins["plain"].play(setting, call)
        assert (came, memory) == (declared[0], declared[2])
    return len(declared[1])


PLAIN = {"written": (), "read": 0, "words": ()}
SETTINGS = {
    "empty": PLAIN,
    "one block": PLAIN | {"written": ((b"AAAA", 1),)},
    "several messages": PLAIN | {"written": ((b"AAAABBBB", 2),)},
    "empty message": PLAIN | {"written": ((b"", 1),)},
    "full": PLAIN | {"written": ((b"AAAA", 1),) * 6},
    "header across the end": PLAIN | {"written": ((b"AAAA", 1),) * 6, "read": 6},
    "data across the end": PLAIN | {"written": ((b"A" * 80, 1),), "read": 1},
    "header to the very end": PLAIN | {"written": ((b"A" * 96, 1),), "read": 1},
    "young cursors": PLAIN
    | {
        "written": ((b"AAAA", 1),),
        "words": (("read/0/state", YOUNG), ("write/0/state", YOUNG), ("write/0/position", 20)),
    },
    "stale cursors": PLAIN
    | {
        "written": ((b"AAAA", 1),) * 6,
        "words": (("read/1/state", STALE), ("read/1/position", 0), ("write/1/state", STALE), ("write/1/position", 0)),
    },
    "a block that is none": PLAIN | {"written": ((b"AAAA", 1), (b"BBBB", 1)), "words": (("data/8", 7),)},
    "broken data": PLAIN | {"written": ((b"AAAA", 1), (b"BBBB", 1)), "words": (("data/16", 7),)},
}  # fmt: skip
CALLS = {"read": None, "write": (b"CCCCcc", 1), "write nothing": (b"", 1), "write many": (b"CCCCCCcc", 2)}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_both_make_the_same_accesses_and_leave_the_same_with_a_crash_before_each(twins, setting, call):
    accesses = compare(twins, SETTINGS[setting], CALLS[call])
    for crash in range(accesses):
        compare(twins, SETTINGS[setting], CALLS[call], crash=crash)
        compare(twins, SETTINGS[setting], CALLS[call], crash=crash, cells=1)


WORDS = st.one_of(
    st.tuples(
        st.sampled_from([f"{pool}/{i}/state" for pool in ("read", "write") for i in (0, 1)]), st.sampled_from(STATES)
    ),
    st.tuples(
        st.sampled_from([f"{pool}/{i}/position" for pool in ("read", "write") for i in (0, 1)]), st.sampled_from(PLACES)
    ),
    st.tuples(st.sampled_from(["read_head", "write_head"]), st.sampled_from(HEADS)),
    st.tuples(st.integers(0, 31).map(lambda cell: f"data/{4 * cell}"), st.sampled_from(CELLS)),
)
BLOCKS = st.tuples(st.binary(max_size=40), st.integers(1, 2))
SETTING = st.fixed_dictionaries(
    {
        "written": st.lists(BLOCKS, max_size=6),
        "read": st.integers(0, 6),
        "words": st.lists(WORDS, max_size=3),
    }
)


@settings(max_examples=200)
@given(
    setting=SETTING,
    call=st.one_of(st.none(), BLOCKS),
    changes=st.dictionaries(st.integers(0, 30), st.lists(WORDS, min_size=1, max_size=2), max_size=3),
    crash=st.one_of(st.none(), st.integers(0, 40)),
)
def check(twins, setting, call, changes, crash):
    compare(twins, setting, call, changes=changes, crash=crash)
