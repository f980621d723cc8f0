"""A command of gapless on a machine whose wall clock steps, and which sleeps.

    python tests/real/stepped_clock.py FILE node leader ...

FILE: the seconds that its wall clock is ahead, and those that it has slept so far; they may change.  The steady clock
goes on as ever, as it does where a real clock is set.  While a machine sleeps (stop the process, write how long, let it
go on) what a loop counts by, the monotonic clock, stands still, and the steady clock (CLOCK_BOOTTIME) goes on.
"""

import signal
import sys
import time
from pathlib import Path

true_ns, monotonic = time.time_ns, time.monotonic
given = Path(sys.argv[1])
slept = 0.0


def written():
    """(ahead, slept), in seconds."""
    ahead, _, asleep = given.read_text().partition(" ")
    return float(ahead or 0), float(asleep or 0)


def stepped_ns():
    """What the wall clock shows."""
    return true_ns() + int(written()[0] * 1e9)


def wake(*_):
    """The process goes on: stopped, or after its machine has slept."""
    global slept
    slept = written()[1]


time.time_ns = stepped_ns
time.time = lambda: stepped_ns() / 1e9
time.monotonic = lambda: monotonic() - slept
wake()
signal.signal(signal.SIGCONT, wake)

from statemachines import cli  # noqa: E402 (who imports the clock must get this one)

sys.argv[0:2] = ["gapless"]
cli.main()
