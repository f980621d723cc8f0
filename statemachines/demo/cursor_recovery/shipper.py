"""Shipper: one process of the demo, which writes lines into the queue, or ships them: into a file of its own.

    python -m statemachines.demo.cursor_recovery.shipper writer QUEUE LIFE --name writer-0 --state DIR --trace DIR
    python -m statemachines.demo.cursor_recovery.shipper shipper QUEUE LIFE --name shipper-0 --state DIR --trace DIR

What it did stands in its file before it goes on, so that a SIGKILL takes nothing along; its operations are logged as
those of any node.
"""

from __future__ import annotations

import sys
from pathlib import Path

from statemachines.drivers.cursor_recovery import CircularQueue, GetTimeout, Instruments
from statemachines.drivers.cursor_recovery.operation_log import OperationLog

BLOCK = 3
"""Lines that are written together."""
PATIENCE_S = 60.0
DONE = "done"
"""This file says that nobody writes any more."""


def write_lines(queue: CircularQueue[bytes], folder: Path, number: int) -> None:
    """Go on behind the last block that an earlier life has begun; note each one that is begun, and acknowledged."""
    lines = (folder / f"lines-{number}").read_bytes().split(b"\n")
    told = folder / f"told-{number}"
    begun = [int(line.split()[2]) for line in told.read_text().splitlines() if line[0] == "b"] if told.exists() else []
    with told.open("ab", buffering=0) as own:
        for first in range(max(begun, default=0), len(lines), BLOCK):
            last = min(first + BLOCK, len(lines))
            own.write(b"b %d %d\n" % (first, last))
            queue.put_many([b"%d %d %s" % (number, at, lines[at]) for at in range(first, last)], timeout=PATIENCE_S)
            own.write(b"a %d %d\n" % (first, last))


def ship_lines(queue: CircularQueue[bytes], folder: Path, number: int, life: int) -> None:
    """Ship whatever comes, a block at a time, until nobody writes and nothing is left."""
    with (folder / f"shipped-{number}~{life}").open("ab", buffering=0) as own:
        while True:
            done = (folder / DONE).exists()
            try:
                own.write(b"".join(line + b"\n" for line in queue.get_many(timeout=0.5)))
            except GetTimeout:
                if done:
                    return


def main(words: list[str]) -> None:
    """What the command says."""
    role, name, life, _, node, _, folder, _, trace = words
    number = int(node.partition("-")[2])
    with OperationLog(Path(trace), node, int(life)) as log:
        instruments = Instruments(observe=log.observe, attached=log.note_attached)
        queue: CircularQueue[bytes] = CircularQueue.attach(name, instruments=instruments)
        with queue:
            if role == "writer":
                write_lines(queue, Path(folder), number)
            else:
                ship_lines(queue, Path(folder), number, int(life))


if __name__ == "__main__":
    main(sys.argv[1:])
