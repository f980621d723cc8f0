"""The scan behind a dead writer's block: written out, it finds what the machine finds, at a fraction of the work."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial

import pytest

from statemachines.cursor_recovery.block import commit_word
from statemachines.cursor_recovery.memory import CELL, Store
from statemachines.cursor_recovery.reader import SLICE_BYTES, new_reader
from statemachines.drivers.cursor_recovery import CircularQueue, GetTimeout, Instruments, attachment


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
