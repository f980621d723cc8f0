"""Who waits is woken, sleeps in between, and misses nothing that a crash swallowed for long."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest

from statemachines.cursor_recovery.memory import position_of, token
from statemachines.drivers.cursor_recovery import CircularQueue, GetTimeout, Outcome
from statemachines.drivers.cursor_recovery import bell as bell_module
from statemachines.drivers.cursor_recovery.bell import DOWN, LATER_S, LOOK_AGAIN_S, REMOVED, SOON_S, Bell, Patience
from statemachines.drivers.cursor_recovery.circular_queue import LOOKS


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


@pytest.fixture
def queue(name):
    with CircularQueue.create(name, capacity=128) as queue:
        yield queue


@pytest.fixture
def other(name, queue):
    with CircularQueue.attach(name) as other:
        yield other


@pytest.fixture
def long_sleeps(monkeypatch):
    """Nobody looks again by himself: whoever wakes was woken."""
    from statemachines.drivers.cursor_recovery import circular_queue

    monkeypatch.setattr(bell_module, "LOOK_AGAIN_S", 60)
    monkeypatch.setattr(circular_queue, "Patience", lambda: Forever())


class Forever:
    def next_s(self, **_):
        return 60


def seconds(call):
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


def test_a_bell_nobody_waits_at_is_not_rung(bell):
    assert bell.ring()
    assert seconds(lambda: bell.sleep(0.02)) >= 0.02


def test_who_is_armed_is_woken_once(bell):
    bell.arm()
    assert bell.ring()
    assert bell.ring()
    assert seconds(lambda: bell.sleep(20)) < 10
    assert seconds(lambda: bell.sleep(0.02)) >= 0.02


def test_the_flag_of_a_removed_queue_stays(bell):
    bell.flag.store(REMOVED)
    bell.arm()
    assert not bell.ring()
    assert bell.flag.load() == REMOVED
    assert seconds(lambda: bell.sleep(20)) < 10


def test_a_bell_that_was_rung_too_often_takes_no_harm(bell):
    for _ in range(100_000):
        bell.write()
    bell.sleep(20)


def test_who_sleeps_when_the_bell_is_closed_wakes_and_closes_it(tmp_path):
    bell = Bell(tmp_path / "bell", Flag(), Flag())
    sleeper = threading.Thread(target=lambda: bell.sleep(20))
    sleeper.start()
    while not bell._sleepers:
        time.sleep(0.001)
    bell.close()
    sleeper.join(10)
    assert not sleeper.is_alive()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(bell.fd)


def test_patience_grows_while_somebody_is_in_the_way_and_ends_when_he_is_aged():
    patience = Patience()
    assert patience.next_s(in_the_way=False, aged_in_s=None) == LOOK_AGAIN_S
    naps = [patience.next_s(in_the_way=True, aged_in_s=None) for _ in range(10)]
    assert naps[:3] == [SOON_S, 2 * SOON_S, 4 * SOON_S]
    assert naps[-1] == LATER_S
    assert patience.next_s(in_the_way=True, aged_in_s=0.0003) == 0.0003
    assert patience.next_s(in_the_way=False, aged_in_s=None) == LOOK_AGAIN_S
    assert patience.next_s(in_the_way=True, aged_in_s=None) == SOON_S


@pytest.mark.usefixtures("long_sleeps")
def test_a_waiting_reader_is_woken_by_a_message(queue, other):
    threading.Timer(0.05, lambda: other.put(b"A")).start()
    assert seconds(lambda: queue.get(timeout=20)) < 10


@pytest.mark.usefixtures("long_sleeps")
def test_a_waiting_writer_is_woken_by_room(queue, other):
    while queue.try_put(b"AAAA") is Outcome.WRITTEN:
        pass
    threading.Timer(0.05, lambda: other.get(timeout=0)).start()
    assert seconds(lambda: queue.put(b"BBBB", timeout=20)) < 10


@pytest.mark.usefixtures("long_sleeps")
def test_two_messages_wake_two_readers(name, queue):
    """Both sleep; both messages come before either has woken."""
    ends = [CircularQueue.attach(name) for _ in range(2)]
    got = []
    threads = [threading.Thread(target=lambda end=end: got.append(end.get(timeout=20))) for end in ends]
    for thread in threads:
        thread.start()
    while sum(len(end._here.readers_bell._sleepers) for end in ends) < 2:
        time.sleep(0.001)
    begun = time.monotonic()
    queue.put(b"A")
    queue.put(b"B")
    for thread in threads:
        thread.join(30)
    assert sorted(got) == [b"A", b"B"]
    assert time.monotonic() - begun < 10
    for end in ends:
        end.close()


@pytest.mark.usefixtures("long_sleeps")
def test_who_still_sleeps_is_woken_by_a_later_message(name, queue):
    """One of two sleepers was woken and has gone; the flag is up again for the other."""
    ends = [CircularQueue.attach(name) for _ in range(2)]
    got = []
    threads = [threading.Thread(target=lambda end=end: got.append(end.get(timeout=20))) for end in ends]
    for thread in threads:
        thread.start()
    while sum(len(end._here.readers_bell._sleepers) for end in ends) < 2:
        time.sleep(0.001)
    begun = time.monotonic()
    queue.put(b"A")
    while not got:
        time.sleep(0.001)
    queue.put(b"B")
    for thread in threads:
        thread.join(30)
    assert sorted(got) == [b"A", b"B"]
    assert time.monotonic() - begun < 10
    for end in ends:
        end.close()


def test_nobody_is_busy_while_nothing_comes(queue):
    """A second of waiting costs a few looks."""
    looks = []
    read = queue._read
    queue._read = lambda: looks.append(1) or read()
    with pytest.raises(GetTimeout):
        queue.get(timeout=1)
    assert len(looks) <= LOOKS + 3 + 1 / LOOK_AGAIN_S + 1


def test_nobody_is_busy_while_a_stopped_process_is_in_the_way(queue, other):
    """A writer that is alive and holds a position blocks readers: they look ever more seldom."""
    other.put(b"AAAA")
    here = queue._here
    word = token(here.owner.slot, here.owner.incarnation, time.monotonic_ns() - 10**10)
    here.words.states["write"][0].store(word)
    here.words.by_address[position_of("write", 0)].store(0)
    looks = []
    read = other._read
    other._read = lambda: looks.append(1) or read()
    with pytest.raises(GetTimeout):
        other.get(timeout=1)
    assert LOOKS + 1 < len(looks) < LOOKS + 35
    here.words.states["write"][0].store(0)
    assert other.get(timeout=1) == b"AAAA"


def test_a_ring_that_a_crash_swallowed_costs_a_moment(queue, other):
    """The writer died between its release and the byte."""
    other._here.readers_bell.ring = lambda: True
    threading.Timer(0.05, lambda: other.put(b"A")).start()
    assert queue.get(timeout=20) == b"A"


# -- in an event loop -----------------------------------------------------------------------------------------------


def until(holds, within_s=20):
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


async def test_aget_takes_what_is_there_and_waits_for_what_comes(queue, other):
    other.put(b"A")
    assert await queue.aget() == b"A"
    loop = asyncio.get_running_loop()
    loop.call_later(0.05, other.put, b"B")
    assert await queue.aget(timeout=20) == b"B"
    with pytest.raises(GetTimeout):
        await queue.aget(timeout=0.03)


@pytest.mark.usefixtures("long_sleeps")
def test_several_tasks_may_wait_and_the_loop_goes_on(queue, other):
    async def main():
        tasks = [asyncio.create_task(queue.aget(timeout=20)) for _ in range(3)]
        await asyncio.sleep(0.02)
        for message in (b"A", b"B", b"C"):
            other.put(message)
        assert sorted(await asyncio.gather(*tasks)) == [b"A", b"B", b"C"]

    assert seconds(lambda: asyncio.run(main())) < 10


async def test_a_task_that_is_cancelled_loses_nothing(queue, other):
    task = asyncio.create_task(queue.aget())
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    other.put(b"A")
    assert await queue.aget(timeout=20) == b"A"


def test_two_event_loops_in_two_threads_wait_for_one_queue(queue, other):
    """Each is woken by its own loop, and one that has gone takes nothing from the other."""
    got = []

    def run():
        got.append(asyncio.run(queue.aget(timeout=20)))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    until(lambda: len(queue._sleepers) == 2)
    other.put(b"A")
    until(lambda: got)
    other.put(b"B")
    for thread in threads:
        thread.join(20)
    assert sorted(got) == [b"A", b"B"]
    assert queue._sleepers == {}
