"""Who waits is woken, sleeps in between, and misses nothing that a crash swallowed for long."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest

from statemachines.drivers.cursor_recovery import CircularQueue, GetTimeout, Outcome
from statemachines.drivers.cursor_recovery import bell as bell_module
from statemachines.drivers.cursor_recovery.bell import DOWN, Bell


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


@pytest.mark.usefixtures("long_sleeps")
def test_a_waiting_writer_is_woken_by_room(queue, other):
    while queue.try_put(b"AAAA") is Outcome.WRITTEN:
        pass
    threading.Timer(0.05, lambda: other.get(timeout=0)).start()
    assert seconds(lambda: queue.put(b"BBBB", timeout=20)) < 10


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
