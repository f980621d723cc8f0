"""run_apart: what may hang, in a process of its own; killed with whatever it has begun."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence

from statemachines.kernel import GaplessError


def run_apart(command: Sequence[str], what: str, at_most_s: float) -> bytes:
    """Its stdout.  Raises `GaplessError`, beginning with `what`, if it fails, with the last it said, or if it takes
    more than `at_most_s` seconds; then it and its children are killed."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        out, err = process.communicate(timeout=at_most_s)
    except BaseException as error:  # an interrupt of ours, too: it is in a group of its own, and does not hear it
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise GaplessError(f"{what} hung for {at_most_s:g} s, and was killed") from None
        raise
    if process.returncode:
        said = err.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise GaplessError(f"{what} ended with {process.returncode}: {said[-1]}")
    return out
