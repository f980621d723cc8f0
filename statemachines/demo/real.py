"""The real part: processes over TCP and a store; a consumer joins, another is killed with SIGKILL."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from statemachines.demo import account, lines
from statemachines.drivers.lives import node_number
from statemachines.kernel import GaplessError
from statemachines.trace import fault_row, fingerprint
from statemachines.trace.log import FORMAT, Head, TraceLog

SUBSCRIPTION = "$shared/readers/#"
JOIN_AT, KILL_AT = 0.25, 0.5
"""Shares of the messages acknowledged when the third consumer joins, when the second is killed."""

RATE, SECONDS = 1_500, 4
"""The publisher's messages a second at most, and how long it publishes at least."""

PATIENCE_S = 120.0
"""No run on this input takes longer; a longer one has lost something."""

Say = Callable[[str], None]


class Real(msgspec.Struct, frozen=True):
    """What the real part came to; `wrong` lists what does not hold; times in seconds."""

    lines: int
    topics: int
    acknowledged: int
    got: int
    duplicates: int
    seconds: float
    wrong: list[str]


class Stage:
    """The processes of the run and their files, below `out`; `store` is a URL, "" for a file there."""

    def __init__(self, out: Path, path: Path | None, config: Path | None, store: str) -> None:
        self.out = out
        self.config = [] if config is None else ["--config", str(config)]
        self.store = store or str(out / "messages.db")
        self.trace = out / "trace"
        self.path = path
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.files = {f"consumer-{number}": out / f"consumer-{number}.jsonl" for number in (1, 2, 3)}
        self.address = ""
        self.log = TraceLog(self.trace, Head(FORMAT, "nemesis", "nemesis~1", node_number("nemesis~1"), _tables(), {}))

    def leader(self) -> None:
        """Start it, and wait until it listens."""
        process = self._start("leader-1", "leader", "--listen", "127.0.0.1:0", "--start", "beginning", *self.config)
        assert process.stdout is not None
        said = process.stdout.readline()
        if not said.startswith("listening on "):
            raise GaplessError(f"the leader did not start; its messages are in {self.out / 'leader-1.err'}")
        self.address = said.removeprefix("listening on ").strip()

    def consumer(self, name: str) -> None:
        """Start one."""
        out = str(self.files[name])
        self._start(
            name, "consumer", SUBSCRIPTION, "--leader", self.address, "--out", out, "--work-ms", "22", *self.config
        )

    def publisher(self, rate: int) -> None:
        """Start it."""
        given = ["--input", str(self.path)] if self.path else []
        batch = str(max(1, min(50, rate // 20)))
        self._start("publisher-1", "publisher", "--rate", str(rate), "--batch", batch, *given)

    def kill(self, name: str) -> int:
        """SIGKILL; the process id it had."""
        process = self.processes[name]
        self.note("kill", name)
        process.send_signal(signal.SIGKILL)
        process.wait()
        return process.pid

    def note(self, fault: str, node: str) -> None:
        """A row of our own in the trace: what was done to a process, and when."""
        self.log.write([fault_row(time.time_ns(), node, fault)])

    def check_alive(self, *gone: str) -> None:
        """Nobody but these has ended, or ended badly."""
        for name, process in self.processes.items():
            ended = process.poll()
            if ended is not None and name not in gone and (name != "publisher-1" or ended != 0):
                raise GaplessError(f"{name} ended with {ended}; its messages are in {self.out / name}.err")

    def stop(self) -> list[str]:
        """SIGTERM to all, consumers first; whoever does not end in good order."""
        bad = []
        for name in sorted(self.processes):
            process = self.processes[name]
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(15)
            if process.poll() is None:
                process.kill()
                bad.append(f"{name} did not stop on SIGTERM")
            elif process.returncode not in (0, -signal.SIGKILL):
                bad.append(f"{name} ended with {process.returncode}")
            if process.stdout is not None:
                process.stdout.close()
        self.log.close()
        return bad

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "statemachines", "node", *arguments, "--name", name]
        command += ["--store", self.store, "--state", str(self.out), "--trace", str(self.trace)]
        with (self.out / f"{name}.err").open("w") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        self.processes[name] = process
        return process


def run(
    out: Path,
    path: Path | None,
    say: Say,
    progress: Callable[[int, int], None],
    config: Path | None = None,
    store: str = "",
) -> Real:
    """The whole real part, its files below `out` (must not exist); `progress(acknowledged, lines)`.

    `store`: URL of an empty database; without it, a file below `out`."""
    topics = lines.read(path)
    total = sum(len(part) for part in topics.values())
    out.mkdir(parents=True)
    stage = Stage(out, path, config, store)
    begin = time.monotonic()
    bad: list[str] = []
    joined = killed = False
    try:
        say(f"real: {total} lines of {len(topics)} files; 1 leader, 2 consumers, 1 publisher, each a process")
        stage.leader()
        stage.consumer("consumer-1")
        stage.consumer("consumer-2")
        stage.publisher(rate_for(total))
        for done in _acknowledged(stage, total, begin):
            progress(done, total)
            if not joined and done >= JOIN_AT * total:
                stage.note("join", "consumer-3")
                stage.consumer("consumer-3")
                joined = True
                say(f"real: {done} acknowledged; consumer-3 joins")
            if joined and not killed and done >= KILL_AT * total:
                pid = stage.kill("consumer-2")
                killed = True
                say(f"real: {done} acknowledged; SIGKILL to consumer-2 (process {pid})")
            stage.check_alive("consumer-2" if killed else "")
    finally:
        bad += stage.stop()
    if not killed:
        bad.append(f"{total} lines were read before a consumer could be killed: give a longer input")
    judged = account.check(topics, stage.files, "consumer-2")
    seconds = time.monotonic() - begin
    return Real(total, len(topics), judged.acknowledged, judged.got, judged.duplicates, seconds, judged.wrong + bad)


def rate_for(total: int) -> int:
    """Messages a second: a short input is published slowly, so that there is a middle to kill somebody in."""
    return max(1, min(RATE, total // SECONDS))


def _acknowledged(stage: Stage, total: int, begin: float) -> Iterator[int]:
    """How many lines are acknowledged, every quarter of a second, until all are or the time is up."""
    done = 0
    while done < total and time.monotonic() - begin < PATIENCE_S:
        time.sleep(0.25)
        done = account.acknowledged(stage.files)
        yield done


def _tables() -> str:
    from statemachines.shared_subscriptions import MACHINES

    return fingerprint(MACHINES)
