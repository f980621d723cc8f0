"""A command of gapless on a machine whose wall clock steps: by the seconds that stand in a file, which may change.

    python tests/real/stepped_clock.py FILE node leader ...

The steady clock goes on as ever, as it does where a real clock is set.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

true_ns = time.time_ns
ahead = Path(sys.argv[1])


def stepped_ns():
    """What the wall clock shows."""
    return true_ns() + int(float(ahead.read_text() or 0) * 1e9)


time.time_ns = stepped_ns
time.time = lambda: stepped_ns() / 1e9

from statemachines import cli  # noqa: E402 (who imports the clock must get this one)

sys.argv[0:2] = ["gapless"]
cli.main()
