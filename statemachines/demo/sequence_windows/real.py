"""Real: three publishers and two receivers as processes over UDP multicast on loopback, with a forwarder between."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from statemachines.demo.protocol import Advance, Say
from statemachines.demo.sequence_windows.account import WindowAccount, account_for, wrong_in
from statemachines.demo.sequence_windows.forwarder import Forwarder
from statemachines.demo.sequence_windows.lines import read_lines
from statemachines.drivers.sequence_windows.loss_source import ask_node
from statemachines.drivers.sequence_windows.multicast import Group, by_chance
from statemachines.interrupts import defer_interrupts, not_interrupted
from statemachines.kernel import GaplessError

PUBLISHERS, RECEIVERS = 3, 2
LOSS, COPIES, SEED = 0.15, 0.1, 16
BATCH = 30
"""So many lines are published until all receivers have them: no buffer is ever full but where the forwarder drops."""
CLOSING = b"the end"
PATIENCE_S = 60.0

Process = subprocess.Popen[bytes]


class WindowRun(msgspec.Struct, frozen=True):
    """What it came to; `wrong` lists what does not hold."""

    accounts: list[WindowAccount]
    sent: int
    repeated: int
    killed: int
    seconds: float
    wrong: list[str]


def run(out: Path, given: Path | None, say: Say, advance: Advance) -> WindowRun:
    """Publish lines of the file or folder `given` (None: of our own source).  Raises `ConfigurationError` where there
    are none."""
    lines = read_lines(given)
    out.mkdir(parents=True)
    begin = time.monotonic()
    stage = WindowStage(out)
    try:
        stage.play(lines, say, advance)
        stage.await_advisories()
        sockets = {f"receiver-{number + 1}": out / f"losses-{number + 1}" for number in range(RECEIVERS)}
        shown = {name: ask_node(path).lost_messages for name, path in sockets.items()}
    finally:
        stage.close()
    passed = stage.forwarder.passed
    accounts = [account_for(out / f"{name}.json", passed, lost) for name, lost in shown.items()]
    repeated = sum(one.copies > 1 for one in passed)
    return WindowRun(accounts, len(passed), repeated, stage.killed, time.monotonic() - begin, wrong_in(accounts))


class WindowStage:
    """The processes.  Lines go through standard inputs, one at a time; `killed`: how many publishers were."""

    def __init__(self, out: Path) -> None:
        self.killed = 0
        self._out = out
        pid = os.getpid()
        address = f"239.{87 + pid % 100}.{pid // 100 % 256}.{1 + pid // 25_600 % 250}"
        self._source, self._to = Group(address, 7600), Group(address, 7601)
        self._careful = True
        lose, repeat = by_chance(LOSS, SEED), by_chance(COPIES, SEED + 1)
        self.forwarder = Forwarder(
            self._source,
            self._to,
            out / "trace",
            lambda number: lose(number) and not self._careful,
            lambda number: repeat(number) and not self._careful,
        )
        self._processes: dict[str, Process] = {}

    def play(self, lines: list[bytes], say: Say, advance: Advance) -> None:
        """All start; lines are published; a publisher is killed half way; each ends with a message that comes."""
        for number in range(1, RECEIVERS + 1):
            self._start_receiver(number)
        for number in range(1, PUBLISHERS + 1):
            self._start_publisher(number)
        say(f"real: {PUBLISHERS} publishers, {RECEIVERS} receivers at {self._source.address}, a forwarder between them")
        for at, line in enumerate(lines):
            self._careful = at < PUBLISHERS
            self._publish(1 + at % PUBLISHERS, line)
            if at % BATCH == BATCH - 1:
                self._catch_up()
                advance(at + 1, len(lines))
            if at == len(lines) // 2:
                self._renew(1)
                say("real: SIGKILL to publisher-1; it comes back under another id")
        self._careful = True
        for number in range(1, PUBLISHERS + 1):
            self._publish(number, CLOSING)
        self._catch_up()

    def await_advisories(self) -> None:
        """Until nobody has more to be told: the second of the last advisory is over."""
        passed = self.forwarder.passed
        for number in range(1, RECEIVERS + 1):
            path = self._out / f"receiver-{number}.json"

            def is_told(path: Path = path) -> bool:
                account = account_for(path, passed)
                return account.advised >= account.told

            self._wait(is_told, f"the last advisory of receiver-{number}")

    def close(self) -> None:
        """Nobody lives any more."""
        for process in self._processes.values():
            if process.stdin is None:
                process.terminate()
            else:
                process.stdin.close()  # the end of its input ends it
            process.wait()
        self.forwarder.close()

    def _start_receiver(self, number: int) -> None:
        name = f"receiver-{number}"
        path = self._out / f"{name}.json"
        with path.open("wb") as own:
            words = ["--losses", str(self._out / f"losses-{number}")]
            self._node("multicast-subscriber", name, self._to, words, stdout=own)
        self._wait(lambda: b"joined" in path.read_bytes(), f"{name} to join")

    def _start_publisher(self, number: int) -> None:
        name = f"publisher-{number}"
        words = ["--subject", f"lines.{number}", "--input", "-"]
        self._node("multicast-publisher", name, self._source, words, stdin=subprocess.PIPE)

    def _node(self, role: str, name: str, group: Group, words: list[str], **streams: object) -> None:
        files = ["--state", str(self._out / "state"), "--trace", str(self._out / "trace")]
        where = ["--group", f"{group.address}:{group.port}", "--name", name, *files]
        command = [sys.executable, "-m", "statemachines", "node", role, *where, *words]
        with (self._out / f"{name}.err").open("ab") as errors, defer_interrupts(), not_interrupted():
            self._processes[name] = subprocess.Popen(command, stderr=errors, **streams)  # type: ignore[call-overload]

    def _publish(self, number: int, line: bytes) -> None:
        """The next line waits until this one is at the forwarder."""
        process, count = self._processes[f"publisher-{number}"], len(self.forwarder.passed)
        assert process.stdin is not None
        process.stdin.write(line + b"\n")
        process.stdin.flush()
        self._wait(lambda: len(self.forwarder.passed) > count, f"publisher-{number} to publish")

    def _renew(self, number: int) -> None:
        """Its last message comes: else nothing would follow that could show a loss.  The same of its next life."""
        self._careful = True
        self._publish(number, CLOSING)
        name = f"publisher-{number}"
        process = self._processes[name]
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        self.killed += 1
        self.forwarder.note_kill(name)
        self._start_publisher(number)
        self._publish(number, b"back again")

    def _catch_up(self) -> None:
        """Until every receiver has the last message that was handed over."""
        last = next(one for one in reversed(self.forwarder.passed) if one.copies)
        words = msgspec.json.encode(last.payload)
        for number in range(1, RECEIVERS + 1):
            path = self._out / f"receiver-{number}.json"
            self._wait(lambda path=path: words in path.read_bytes(), f"receiver-{number} to catch up")  # type: ignore[misc]

    def _wait(self, until: Callable[[], bool], what: str) -> None:
        """Forward, until it is so; raises `GaplessError` after `PATIENCE_S`, which nothing here takes."""
        end = time.monotonic() + PATIENCE_S
        while not until():
            self.forwarder.forward()
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise GaplessError(f"{name} ended with {process.returncode}; see {self._out / name}.err")
            if time.monotonic() > end:
                raise GaplessError(f"waited in vain for {what}; see {self._out}")
            time.sleep(0.0005)
