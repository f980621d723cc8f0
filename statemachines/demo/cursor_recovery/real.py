"""Real: four writers and two shippers at one queue in shared memory; one after the other is killed on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from statemachines.demo.cursor_recovery.account import QueueAccount, account_for
from statemachines.demo.cursor_recovery.lines import LINES, read_lines
from statemachines.demo.cursor_recovery.shipper import DONE
from statemachines.demo.protocol import Advance, Say
from statemachines.drivers.cursor_recovery import CircularQueue
from statemachines.drivers.lives import begin_log
from statemachines.interrupts import defer_interrupts, not_interrupted
from statemachines.kernel import GaplessError
from statemachines.trace.log import kill_row

WRITERS, SHIPPERS = 4, 2
KILLS = ("writer-0", "shipper-0", "writer-1", "writer-2", "shipper-1", "writer-3", "shipper-0", "writer-0", "shipper-1")
"""Who is killed, each when another tenth of the lines has been shipped."""
THRESHOLD_S = 0.05
"""The death of an owner can be told here, so it may be short."""
PATIENCE_S = 120.0

Process = subprocess.Popen[bytes]


class QueueRun(msgspec.Struct, frozen=True):
    """What it came to; `lost`: messages that the queue itself counts as taken along by the dead; `wrong` lists what
    does not hold."""

    account: QueueAccount
    killed: dict[str, int]
    lost: int
    seconds: float
    wrong: list[str]


def run(out: Path, given: Path | None, say: Say, advance: Advance) -> QueueRun:
    """Ship lines of the file or folder `given` (None: of our own source).  Raises `ConfigurationError` where there are
    none."""
    lines = read_lines(given)
    out.mkdir(parents=True)
    share_out(out, lines)
    begin = time.monotonic()
    name = f"demo-{os.getpid()}"
    made: CircularQueue[bytes] = CircularQueue.create(name, capacity=8_192, threshold=THRESHOLD_S)
    with made as queue:
        stage = QueueStage(name, out)
        say(f"real: {WRITERS} writers, {SHIPPERS} shippers, processes of their own at the queue {queue.path}")
        try:
            stage.play(say, advance)
        finally:
            stage.close()
        stats = queue.stats()
    account = account_for(out)
    return QueueRun(account, stage.killed, stats.lost, time.monotonic() - begin, wrong_in(account, stage.killed))


def wrong_in(account: QueueAccount, killed: dict[str, int]) -> list[str]:
    """What does not hold: a shipper that is killed takes at most the block along that it had in its hands."""
    shippers = sum(count for node, count in killed.items() if node.startswith("shipper"))
    wrong = [f"{account.twice} lines came twice"] if account.twice else []
    wrong += [f"{account.foreign} lines came that nobody wrote"] if account.foreign else []
    if account.blocks > shippers:
        wrong.append(f"acknowledged lines of {account.blocks} blocks never came; shippers killed: {shippers}")
    return wrong


def share_out(out: Path, lines: list[bytes]) -> None:
    """To each writer its own."""
    for number in range(WRITERS):
        (out / f"lines-{number}").write_bytes(b"\n".join(lines[number::WRITERS]))


class QueueStage:
    """The processes; `killed`: how often each node was."""

    def __init__(self, name: str, out: Path) -> None:
        self.killed: dict[str, int] = {}
        self._name = name
        self._out = out
        self._lives: dict[str, int] = {}
        self._processes: dict[str, Process] = {}
        self._log = begin_log(out / "trace", "nemesis~1")

    def play(self, say: Say, advance: Advance) -> None:
        """Start everybody; kill one after the other; wait for the end."""
        for number in range(WRITERS):
            self.start(f"writer-{number}")
        for number in range(SHIPPERS):
            self.start(f"shipper-{number}")
        for tenth, node in enumerate(KILLS, 1):
            self._wait(partial(self._has_shipped, LINES * tenth // (len(KILLS) + 1)), advance)
            if self._processes[node].poll() is None:
                self.kill(node)
                say(f"real: SIGKILL to {node}; its next life goes on")
                self.start(node)
        self._wait(lambda: all(self._is_over(f"writer-{number}") for number in range(WRITERS)), advance)
        (self._out / DONE).touch()
        self._wait(lambda: all(self._is_over(node) for node in self._processes), advance)

    def start(self, node: str) -> None:
        """The next life of a node."""
        life = self._lives[node] = self._lives.get(node, 0) + 1
        role, _, number = node.partition("-")
        module = "statemachines.demo.cursor_recovery.shipper"
        words = ["write" if role == "writer" else "ship", self._name, str(self._out), number, str(life)]
        with defer_interrupts(), not_interrupted():
            self._processes[node] = subprocess.Popen([sys.executable, "-m", module, *words])

    def kill(self, node: str) -> None:
        """SIGKILL; noted when it is dead."""
        process = self._processes[node]
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.killed[node] = self.killed.get(node, 0) + 1
        self._log.write([kill_row(time.monotonic_ns(), node, self._out / "trace")])

    def close(self) -> None:
        """Whoever still lives does not any more."""
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        self._log.close()

    def _is_over(self, node: str) -> bool:
        """It has ended in good order; `GaplessError` where it has not."""
        code = self._processes[node].poll()
        if code:
            raise GaplessError(f"{node} ended with exit code {code}")
        return code == 0

    def _shipped(self) -> int:
        return sum(path.read_bytes().count(b"\n") for path in self._out.glob("shipped-*"))

    def _has_shipped(self, lines: int) -> bool:
        return self._shipped() >= lines

    def _wait(self, holds: Callable[[], bool], advance: Advance) -> None:
        end = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > end:
                raise GaplessError(f"the real part has not ended in {PATIENCE_S:.0f} s")
            advance(min(self._shipped(), LINES), LINES)
            time.sleep(0.02)
