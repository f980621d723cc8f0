"""The real part: processes over TCP and a store; a consumer joins, another is killed with SIGKILL."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from statemachines.demo import account, lines
from statemachines.drivers.lives import node_number
from statemachines.testing.process_harness import ProcessHarness
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
    """The processes of the run and their files, below `out`; `store` is a URL, "" for a file there.

    What is done to them is noted in the trace.
    """

    def __init__(self, out: Path, path: Path | None, config: Path | None, store: str) -> None:
        self.trace = out / "trace"
        self.nodes = ProcessHarness(out, store=store, config=config, trace=self.trace)
        self.path = path
        self.files = {f"consumer-{number}": out / f"consumer-{number}.jsonl" for number in (1, 2, 3)}
        self.address = ""
        self.log = TraceLog(self.trace, Head(FORMAT, "nemesis", "nemesis~1", node_number("nemesis~1"), _tables(), {}))

    def leader(self) -> None:
        """Start it, and wait until it listens."""
        self.address = self.nodes.leader().address

    def consumer(self, name: str) -> None:
        """Start one."""
        more = ("--out", str(self.files[name]), "--work-ms", "22")
        self.nodes.consumer(name, SUBSCRIPTION, self.address, *more)

    def publisher(self, rate: int) -> None:
        """Start it."""
        given = ["--input", str(self.path)] if self.path else []
        self.nodes.publisher("publisher-1", "--rate", str(rate), "--batch", str(max(1, min(50, rate // 20))), *given)

    def kill(self, name: str) -> int:
        """SIGKILL; the process id it had."""
        self.note("kill", name)
        return self.nodes.kill(name).pid

    def note(self, fault: str, node: str) -> None:
        """A row of our own in the trace: what was done to a process, and when."""
        self.log.write([fault_row(time.time_ns(), node, fault)])

    def stop(self) -> list[str]:
        """SIGTERM to all, consumers first; whoever does not end in good order."""
        bad = self.nodes.close()
        self.log.close()
        return bad


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
            stage.nodes.check_alive()
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
