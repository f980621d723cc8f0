"""A log shipper: four processes write log lines, two ship them; one of each is killed on the way.

    python examples/log_shipper.py

What a writer was told is written arrives once, but for the block that the killed shipper had in its hands.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from statemachines.drivers.cursor_recovery import CircularQueue, GetTimeout

LINES = 200


def write_lines(name: str, writer: int, told: Path) -> None:
    """Write log lines; note each one that the queue has taken."""
    with CircularQueue.attach(name) as queue, told.open("w", buffering=1) as log:
        for number in range(LINES):
            line = f"writer {writer} line {number}"
            queue.put(line.encode(), timeout=30)
            log.write(f"{line}\n")


def ship_lines(name: str, shipped: Path) -> None:
    """Ship whatever comes (here: into a file), until nothing comes any more."""
    with CircularQueue.attach(name) as queue, shipped.open("w", buffering=1) as log:
        while True:
            try:
                log.write(queue.get(timeout=2).decode() + "\n")
            except GetTimeout:
                return


def start(work: Callable[[], None]) -> int:
    """Do it in a process of its own."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def lines_of(folder: Path, what: str) -> list[str]:
    """All that the processes noted."""
    return [line for path in folder.glob(f"{what}-*") for line in path.read_text().split("\n")[:-1]]


def main() -> tuple[int, int, int]:
    """Lines acknowledged, lines shipped, and lines that the killed shipper may have lost, as the queue counts."""
    name = f"logs-{os.getpid()}"
    with tempfile.TemporaryDirectory() as made, CircularQueue.create(name, capacity=4096, threshold=0.02) as queue:
        folder = Path(made)
        writers = [start(lambda n=n: write_lines(name, n, folder / f"told-{n}")) for n in range(4)]
        shippers = [start(lambda n=n: ship_lines(name, folder / f"shipped-{n}")) for n in range(2)]
        while len(lines_of(folder, "shipped")) < LINES:
            time.sleep(0.001)
        os.kill(writers[0], signal.SIGKILL)
        os.kill(shippers[0], signal.SIGKILL)
        for pid in (*writers, *shippers):
            os.waitpid(pid, 0)
        told, shipped = lines_of(folder, "told"), lines_of(folder, "shipped")
        assert len(set(shipped)) == len(shipped), "a line came twice"
        missing = set(told) - set(shipped)
        assert len(missing) <= 1, "more is missing than the killed shipper had in its hands"
        return len(told), len(shipped), queue.stats().lost


if __name__ == "__main__":
    acknowledged, arrived, lost = main()
    print(f"{acknowledged} lines acknowledged, {arrived} shipped, at most {lost} lost with the killed shipper")
