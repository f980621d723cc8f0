"""The scan behind a dead writer's block: written out, it finds what the machine finds, at a fraction of the work."""

from __future__ import annotations

import random
import time

import pytest

from statemachines.cursor_recovery.block import commit_word
from statemachines.cursor_recovery.memory import Store
from statemachines.drivers.cursor_recovery import CircularQueue, GetTimeout, Instruments
from statemachines.drivers.cursor_recovery.memory_access import Access


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
            return got


@pytest.mark.parametrize("seed", range(12))
def test_both_ways_find_the_same(name, seed):
    """Dead blocks of every kind, also across the end, between whole ones, with marks of other places in their data."""
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
    perform = Access.perform

    def count(self, request):
        nonlocal accesses
        accesses += 1
        return perform(self, request)

    monkeypatch.setattr(Access, "perform", count)
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
