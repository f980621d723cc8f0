"""RealRun: the real part of a demo: processes, what is done to them, and what is waited for."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import ClassVar

from statemachines.demo.protocol import DemoStage, Figures
from statemachines.drivers.lives import begin_log
from statemachines.testing.process_harness import HarnessError, ProcessHarness
from statemachines.trace import fault_row
from statemachines.trace.log import kill_row


class RealRun:
    """A class of its own for each protocol plays it.

    `killed`: how often each node was; `whole`: how much there is to do.  What is done to nodes is in the trace, stamped
    by the `clock` that their logs have.  `closing` ends the processes; what a subclass adds is closed before.
    """

    patience_s: ClassVar[float] = 120.0
    poll_s: ClassVar[float] = 0.02

    def __init__(self, stage: DemoStage, nodes: ProcessHarness, clock: Callable[[], int] = time.time_ns) -> None:
        self.stage = stage
        self.out = stage.out
        self.trace = stage.out / "trace"
        self.nodes = nodes
        self.killed: Counter[str] = Counter()
        self.done = self.whole = 0
        self.clock = clock
        self.log = begin_log(self.trace, "nemesis~1")
        self.closing = ExitStack()
        self.closing.callback(self.log.close)
        self.closing.callback(nodes.close)

    @abstractmethod
    async def play(self) -> None:
        """Start everybody, and do what is to be done, until all is over."""

    @abstractmethod
    def count_done(self) -> int:
        """How much of the `whole` is done."""

    @abstractmethod
    def make_account(self) -> Figures:
        """What it came to, from the files that those who took part have written."""

    def run(self) -> Figures:
        """The whole of it."""
        with self.closing:
            asyncio.run(self.play())
        return {"wrong": self.nodes.wrong, "kills": self.killed.total(), **self.make_account()}

    def kill(self, node: str) -> int:
        """SIGKILL, noted when it is dead; the process id it had."""
        pid = self.nodes.kill(node).pid
        self.killed[node] += 1
        self.log.write([kill_row(self.clock(), node, self.trace)])
        return pid

    def note(self, fault: str, node: str, peer: str = "") -> None:
        """What is done to a node, and when."""
        self.log.write([fault_row(self.clock(), node, fault, peer=peer)])

    def has_reached(self, count: float) -> bool:
        """So much is done."""
        self.done = self.count_done()
        self.stage.advance(min(self.done, self.whole), self.whole)
        return self.done >= count

    async def reach(self, count: float) -> None:
        """Wait until so much is done."""
        await self.until(lambda: self.has_reached(count), f"{count:g} of {self.whole} to come; {self.done} have")

    async def await_output(self) -> None:
        """Wait until all have said their first line, that they are there."""
        await self.until(lambda: all("\n" in node.read_output() for node in self.nodes.nodes.values()), "all to begin")

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait; raises `HarnessError` if somebody ends meanwhile, or if it takes too long."""
        end = time.monotonic() + self.patience_s
        while not holds():
            self.look_after()
            if time.monotonic() > end:
                raise HarnessError(f"waited {self.patience_s:.0f} s for {what}; see {self.out}")
            await asyncio.sleep(self.poll_s)

    def look_after(self) -> None:
        """What is done while something is waited for."""
        self.nodes.check_alive()
