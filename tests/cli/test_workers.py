"""Workers: who leaves them with an exception waits for nobody, and hears nothing of the pool's own thread."""

import multiprocessing
import threading

import pytest
from waiting import pause, until

from statemachines.workers import open_workers


def interrupted():
    """Some tasks are done, some are being done, and thousands wait."""
    with open_workers(2) as pool:
        results = pool.map(pause, [0.0] * 5 + [3_600.0] * 3_000, ["a task that takes long"] * 3_005)
        assert [next(results) for _ in range(5)] == [None] * 5
        del results  # as of who is interrupted while waiting for one: all that has not begun is cancelled
        raise KeyboardInterrupt


@pytest.mark.long
def test_who_is_interrupted_waits_for_nobody_and_no_thread_falls_over(monkeypatch):
    fell = []
    monkeypatch.setattr(threading, "excepthook", fell.append)
    for _ in range(6):
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert [thread for thread in threading.enumerate() if "Executor" in type(thread).__name__] == []
        until(lambda: not multiprocessing.active_children(), "the pool's thread says that they are dead")
    assert fell == []
