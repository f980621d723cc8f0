"""Queues in the real shared memory, under names of their own; whatever a test does, nothing of them may stay there."""

import itertools
import os
import signal
import sys

import pytest
from shm_files import left_over

from statemachines.drivers.cursor_recovery import CircularQueue
from statemachines.drivers.cursor_recovery.segment import path_of

NUMBERS = itertools.count(1)


@pytest.fixture
def name():
    """A name that nobody else uses; the queue may be left to the fixture, files beside it may not."""
    name = f"test-{os.getpid()}-{next(NUMBERS)}"
    yield name
    if path_of(name).exists():
        CircularQueue.unlink(name)
    assert left_over(name) == []


@pytest.fixture
def child():
    """Runs a function in a forked child; what still lives in the end is killed, and all are waited for."""
    children = []

    def start(work):
        pid = os.fork()
        if pid:
            children.append(pid)
            return pid
        try:
            os._exit(work() or 0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(99)

    yield start
    for pid in children:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        except ChildProcessError:
            continue
