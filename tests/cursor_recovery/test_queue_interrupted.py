"""Operations that an exception breaks off, before any one instruction of the interpreter, or before two of them.

All places, and all pairs that are near each other, are played by `make soak`.
"""

from __future__ import annotations

import itertools
import threading

import pytest

from statemachines.drivers.cursor_recovery import CircularQueue
from statemachines.testing.cursor_recovery.interrupted_run import KINDS, interrupt, play


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_an_operation_may_be_broken_off_before_any_instruction(kind, every):
    """Every seventh one; all in `make soak`."""
    count = play(kind)
    assert count > 100
    for place in range(1, count + 1, every):
        play(kind, place)


@pytest.mark.parametrize("kind", ["put", "get"])
def test_what_cleans_up_may_be_broken_off_as_well(kind):
    """Two exceptions: the second one while the first is dealt with."""
    count = play(kind)
    for place in range(3, count + 1, count // 9):
        for later in range(1, 40, 3):
            play(kind, place, place + later)


def test_who_waits_for_a_turn_gets_it(name):
    """Threads that call at the same time, one of which is broken off again and again."""
    with CircularQueue.create(name, threshold=0.0001, capacity=1 << 12) as queue:
        done = threading.Event()

        def others():
            for number in range(300):
                queue.put(b"%d" % number, timeout=30)
                queue.get(timeout=30)
            done.set()

        thread = threading.Thread(target=others, daemon=True)
        thread.start()
        for place in itertools.cycle((31, 60, 120, 240)):
            interrupt(lambda: queue.try_put(b""), (place,))
            if done.wait(0.0005):
                break
        thread.join(10)
        assert not thread.is_alive()
