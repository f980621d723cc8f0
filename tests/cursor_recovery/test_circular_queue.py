"""The queue as an application has it: put and get, statuses, blocks of many, codecs, and every misuse."""

from __future__ import annotations

import pickle
import signal
import threading
import time
from array import array

import msgspec
import pytest

from statemachines.cursor_recovery.memory import token
from statemachines.drivers.cursor_recovery import (
    CircularQueue,
    ClosedQueue,
    DamagedQueue,
    Instruments,
    MessageTooLarge,
    MissingQueue,
    Outcome,
    PutTimeout,
    QueueError,
    ReadOutcome,
    circular_queue,
)
from statemachines.drivers.cursor_recovery.framing import join_messages, split_messages


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
        here.words.states["write"][cursor].store(token(here.owner.slot, here.owner.incarnation, time.monotonic_ns()))
        here.words.states["read"][cursor].store(token(here.owner.slot, here.owner.incarnation, time.monotonic_ns()))
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
