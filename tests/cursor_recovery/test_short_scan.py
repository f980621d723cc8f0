"""The scan behind a dead writer's block: written out, it finds what the machine finds, at a fraction of the work."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from functools import partial

import pytest

from statemachines.cursor_recovery.block import commit_word
from statemachines.cursor_recovery.memory import CELL, HEADER, Store
from statemachines.cursor_recovery.reader import SLICE_BYTES, new_reader
from statemachines.drivers.cursor_recovery import CircularQueue, GetTimeout, Instruments, attachment
from statemachines.drivers.cursor_recovery.bell import Patience
from statemachines.drivers.cursor_recovery.memory_access import MemoryAccess


def later():
    """To a reader with this clock every dead writer is dead for long enough."""
    return time.monotonic_ns() + 500_000_000


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


def drain(queue):
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
                    came.append((drain(reader), reader.skipped_bytes, reader.stats().read_head))
            found.append(came)
            reader.close()
    assert found[0] == found[1]
    assert any(messages for messages, _, _ in found[0])


@pytest.mark.parametrize("stores", range(4))
def test_a_great_dead_block_is_passed_in_a_few_accesses(name, monkeypatch, stores):
    """A megabyte of cells that the machine would look at one by one."""
    accesses = 0
    perform = MemoryAccess.perform

    def count(self, request):
        nonlocal accesses
        accesses += 1
        return perform(self, request)

    monkeypatch.setattr(MemoryAccess, "perform", count)
    with CircularQueue.create(name, capacity=1 << 21, threshold=0.1, instruments=Instruments(clock=later)) as queue:
        die_in(name, bytes(1 << 20), stores)
        accesses = 0
        with pytest.raises(GetTimeout):  # nothing comes behind it
            queue.get(timeout=0)
        queue.put(b"next")
        die_in(name, bytes(1 << 19), stores)
        queue.put(b"last")
        assert [queue.get(timeout=0.5), queue.get(timeout=0.5)] == [b"next", b"last"]
        assert queue.skipped_bytes == (1 << 20) + (1 << 19) + 2 * 16
        assert accesses < 400


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


def test_CR_59_no_read_of_a_waiting_call_looks_through_more_than_a_slice(great, looked):
    """A call whose time is over has made two reads: the first one, and one after it had asked to be woken."""
    for calls in range(1, SLICES // 2 + 1):
        with pytest.raises(GetTimeout):
            great.get(timeout=0)
        assert great.skipped_bytes == 2 * calls * SLICE_BYTES
    assert great.get(timeout=0) == b"behind it"
    assert great.skipped_bytes == GREAT + HEADER
    assert max(cells for _, cells in looked) == SLICE_BYTES // CELL


def test_CR_59_no_cell_is_looked_at_twice_and_a_call_that_has_time_gets_what_is_behind(great, looked):
    assert great.get(timeout=60) == b"behind it"
    assert [at for at, _ in looked] == [number * SLICE_BYTES for number in range(SLICES + 1)]
    assert sum(cells for _, cells in looked) <= GREAT // CELL + HEADER // CELL + 1


def test_CR_59_try_get_comes_back_after_a_slice(great, looked):
    came = [great.try_get() for _ in range(SLICES + 1)]
    assert [one.outcome.value for one in came] == [*["empty"] * SLICES, "delivered"]
    assert len(looked) == SLICES + 1


def test_CR_59_another_process_looks_on_where_this_one_ended(great, child, looked):
    for _ in range(3):
        great.try_get()
    with CircularQueue.attach(great.name, instruments=Instruments(clock=later)) as other:
        assert other.get(timeout=60) == b"behind it"
        assert (great.skipped_bytes, other.skipped_bytes) == (3 * SLICE_BYTES, GREAT + HEADER - 3 * SLICE_BYTES)
    assert len({at for at, _ in looked}) == len(looked) == SLICES + 1


def test_CR_59_other_tasks_of_an_event_loop_run_between_two_slices(great):
    turns = []

    async def count():
        while True:
            turns.append(great.skipped_bytes)
            await asyncio.sleep(0)

    async def get():
        counting = asyncio.create_task(count())
        try:
            return await great.aget(timeout=60)
        finally:
            counting.cancel()

    assert asyncio.run(get()) == b"behind it"
    assert {number * SLICE_BYTES for number in range(2, SLICES + 1)} <= set(turns)


def test_CR_59_CR_57_an_interrupt_amid_a_slice_costs_that_slice(great, monkeypatch, looked):
    """Ctrl-C: what was looked through before stays so."""
    scan = attachment.short_scan

    def interrupt(record, access):
        if len(looked) == 3:
            raise KeyboardInterrupt
        return scan(record, access)

    with monkeypatch.context() as patch:
        patch.setattr(attachment, "short_scan", interrupt)
        with pytest.raises(KeyboardInterrupt):
            great.get(timeout=60)
    assert great.get(timeout=60) == b"behind it"
    assert [at for at, _ in looked] == [number * SLICE_BYTES for number in range(SLICES + 1)]


def test_CR_59_only_who_reads_looks_again_at_once(great):
    """The wait of a writer is not hurried by what a reader of its process has looked through."""
    with pytest.raises(GetTimeout):
        great.get(timeout=0)
    assert great._here.has_looked
    assert great._sleep_s(Patience(), None) > 0
    assert great._sleep_s(Patience(), None, reads=True) == 0
