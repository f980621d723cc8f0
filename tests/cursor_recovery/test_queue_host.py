"""What the host of the machines must do: a queue in shared memory, in one process."""

from __future__ import annotations

import os

import pytest

from statemachines.drivers.cursor_recovery import CircularQueue, MissingQueue
from statemachines.testing.cursor_recovery.interrupted_run import play


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
