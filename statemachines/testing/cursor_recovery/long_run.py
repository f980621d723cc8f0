"""Long run: very many messages through one queue, so many that a counter that was too narrow would come round.

    python -m statemachines.testing.cursor_recovery.long_run --messages 100000000

One process puts numbers, a block of them at a time, another one gets them and looks whether each is the one that comes
next.  The queue is small: every byte of it is used some thousand times for every ten million messages.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

from statemachines.drivers.cursor_recovery import CircularQueue
from statemachines.testing.cursor_recovery.crash_judge import PATIENCE_S
from statemachines.testing.cursor_recovery.crash_run import fork

BLOCK = 256
CAPACITY = 1 << 16
WIDTH = 8


def put_numbers(name: str, messages: int) -> None:
    """All of them, in order."""
    with CircularQueue[bytes].attach(name) as queue:
        for first in range(0, messages, BLOCK):
            last = min(first + BLOCK, messages)
            queue.put_many([number.to_bytes(WIDTH, "little") for number in range(first, last)], timeout=PATIENCE_S)


def get_numbers(queue: CircularQueue[bytes], messages: int, say: Callable[[int], None]) -> int:
    """How many came before one was not the next."""
    came = 0
    while came < messages:
        block = queue.get_many(timeout=PATIENCE_S)
        if block != [number.to_bytes(WIDTH, "little") for number in range(came, came + len(block))]:
            return came
        came += len(block)
        say(came)
    return came


def run_long(messages: int, say: Callable[[int], None]) -> tuple[int, int]:
    """How many came in order, and where the write head is in the end."""
    queue: CircularQueue[bytes] = CircularQueue.create(f"long-{os.getpid()}", capacity=CAPACITY)
    with queue:
        child = fork(lambda: put_numbers(queue.name, messages))
        try:
            came = get_numbers(queue, messages, say)
        finally:
            os.waitpid(child, 0)
        return came, queue.stats().write_head


def main() -> int:
    """Exit code 1: something else came than what is next."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000_000)
    messages = parser.parse_args().messages
    begin = time.monotonic()

    shown = sys.stderr.isatty()

    def say(came: int) -> None:
        if shown and came % (1 << 20) < BLOCK:
            print(f"\r{came:,}", end="", file=sys.stderr)

    came, head = run_long(messages, say)
    seconds = time.monotonic() - begin
    print(f"{came:,} of {messages:,} messages came in order, {head:,} bytes through {CAPACITY:,}, {seconds:.0f} s")
    return 0 if came == messages else 1


if __name__ == "__main__":
    sys.exit(main())
