"""Waiting for what is certain to come between two sessions of zenoh, in programs without a loop."""

from __future__ import annotations

import time
from collections.abc import Callable

from statemachines.kernel import GaplessError

WAIT_S = 30.0
"""What is certain to come comes late on a busy machine, but no later."""


def await_that(holds: Callable[[], bool], what: str, wait_s: float = WAIT_S) -> None:
    """Wait until it holds; raises `GaplessError` that names `what` if it does not within `wait_s` seconds."""
    end = time.monotonic() + wait_s
    while not holds():
        if time.monotonic() > end:
            raise GaplessError(f"never came: {what}")
        time.sleep(0.002)


def put_until_heard(put: Callable[[int], object], heard: Callable[[int], bool], apart_s: float = 0.3) -> int:
    """Put number after number until two in a row are heard by everybody: the first may be put before the way is known.
    The next number; raises `GaplessError` if it takes too long."""
    number, due = 0, 0.0

    def steady() -> bool:
        nonlocal number, due
        if number > 1 and heard(number - 2) and heard(number - 1):
            return True
        if time.monotonic() >= due:
            put(number)
            number, due = number + 1, time.monotonic() + apart_s
        return False

    await_that(steady, "two of the first samples in a row")
    return number
