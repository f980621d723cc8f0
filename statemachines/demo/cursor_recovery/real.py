"""Real: four writers and two shippers at one queue in shared memory; one after the other is killed on the way."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from pathlib import Path

from statemachines.demo.cursor_recovery import shipper
from statemachines.demo.protocol import DemoStage, Figures
from statemachines.demo.real_run import RealRun
from statemachines.drivers.cursor_recovery import CircularQueue
from statemachines.testing.process_harness import ProcessHarness

LINES, LONGEST = 1_800, 200
"""So many lines, of all writers together, of so many bytes at most."""
WRITERS, SHIPPERS = 4, 2
KILLS = ("writer-0", "shipper-0", "writer-1", "writer-2", "shipper-1", "writer-3", "shipper-0", "writer-0", "shipper-1")
"""Who is killed, each when another tenth of the lines has been shipped."""
THRESHOLD_S = 0.05
"""The death of an owner can be told here, so it may be short."""


class QueueRun(RealRun):
    """`lost`: messages that the queue itself counts as taken along by the dead."""

    def __init__(self, stage: DemoStage) -> None:
        program = (sys.executable, "-m", shipper.__name__)
        nodes = ProcessHarness(stage.out, trace=stage.out / "trace", program=program)
        super().__init__(stage, nodes, time.monotonic_ns)
        lines = stage.options.read_lines(LINES, LONGEST)
        for number in range(WRITERS):
            (self.out / f"lines-{number}").write_bytes(b"\n".join(lines[number::WRITERS]))
        self.whole = LINES
        self.lost = 0
        self._name = f"demo-{os.getpid()}"

    async def play(self) -> None:
        """Start everybody; kill one after the other; wait for the end."""
        made: CircularQueue[bytes] = CircularQueue.create(self._name, capacity=8_192, threshold=THRESHOLD_S)
        with made as queue:
            self.stage.tell(f"{WRITERS} writers, {SHIPPERS} shippers, processes of their own at the queue {queue.path}")
            for number in range(WRITERS):
                self._start(f"writer-{number}")
            for number in range(SHIPPERS):
                self._start(f"shipper-{number}")
            for tenth, node in enumerate(KILLS, 1):
                await self.reach(LINES * tenth // (len(KILLS) + 1))
                if self.nodes.nodes[node].exit_code is None:
                    self.kill(node)
                    self.stage.tell(f"SIGKILL to {node}; its next life goes on")
                    self._start(node)
            await self.until(lambda: self._are_over("writer"), "the writers to end")
            (self.out / shipper.DONE).touch()
            await self.until(lambda: self._are_over("shipper"), "the shippers to end")
            self.lost = queue.stats().lost

    def count_done(self) -> int:
        """Lines that are shipped."""
        return sum(path.read_bytes().count(b"\n") for path in self.out.glob("shipped-*"))

    def make_account(self) -> Figures:
        """`gone`: lines that are missing and that nobody knows of."""
        killed = sum(count for node, count in self.killed.items() if node.startswith("shipper"))
        account = account_for(self.out, killed)
        gone = max(account["missing"] - self.lost, 0)
        return {**account, "killed": dict(self.killed), "lost": self.lost, "gone": gone}

    def _start(self, node: str) -> None:
        """The next life of a node."""
        self.nodes.start(node.partition("-")[0], node, self._name, str(self.killed[node] + 1), ends=True)

    def _are_over(self, role: str) -> bool:
        nodes = self.nodes.nodes.values()
        return self.has_reached(0) and all(node.exit_code == 0 for node in nodes if node.role == role)


def account_for(folder: Path, shippers: int) -> Figures:
    """Of a run that is over, in which so many shippers were killed: each took at most the block along that it had in
    its hands, and what is missing lay in so many `blocks` `beyond` those.

    `foreign`: shipped lines that nobody has begun to write.
    """
    begun: dict[bytes, tuple[int, int]] = {}
    acknowledged: set[bytes] = set()
    for path in sorted(folder.glob("told-*")):
        number = int(path.name.partition("-")[2])
        lines = (folder / f"lines-{number}").read_bytes().split(b"\n")
        for kind, first, last in (line.split() for line in path.read_text().splitlines()):
            for at in range(int(first), int(last)):
                line = b"%d %d %s" % (number, at, lines[at])
                begun[line] = (number, at // shipper.BLOCK)
                if kind == "a":
                    acknowledged.add(line)
    shipped = Counter(line for path in folder.glob("shipped-*") for line in path.read_bytes().split(b"\n")[:-1])
    missing = acknowledged - shipped.keys()
    blocks = len({begun[line] for line in missing})
    return {
        "acknowledged": len(acknowledged),
        "shipped": shipped.total(),
        "twice": shipped.total() - len(shipped),
        "arrived": len(acknowledged) - len(missing),
        "missing": len(missing),
        "blocks": blocks,
        "shippers": shippers,
        "beyond": max(blocks - shippers, 0),
        "foreign": len(shipped.keys() - begun.keys()),
    }
