"""The real part: processes over TCP and a store; consumers join, die, stand still, leave; the leading host dies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from statemachines.demo.protocol import Say
from statemachines.demo.shared_subscriptions import account
from statemachines.drivers.lives import begin_log
from statemachines.drivers.shared_subscriptions import text_lines as lines
from statemachines.drivers.shared_subscriptions.node_commands import read_configuration
from statemachines.testing.process_harness import free_port
from statemachines.testing.shared_subscriptions.nodes import GroupHarness
from statemachines.trace import fault_row
from statemachines.trace.log import kill_row

SUBSCRIPTION = "$shared/readers/#"
JOIN_AT, KILL_AT, PAUSE_AT, LEAVE_AT, LEADER_AT = 0.15, 0.3, 0.45, 0.6, 0.75
"""Shares of the messages acknowledged when consumer-4 joins, consumer-2 is killed, consumer-3 stands still, consumer-1
leaves, leader-1 is killed."""

PAUSE_VALIDITIES = 1.5
"""How long consumer-3 stands still: longer than the leader believes in it."""

RATE, SECONDS = 1_500, 4
"""The publisher's messages a second at most, and how long it publishes at least."""

AWAKE_S = 1.0
"""Long enough for it to deliver what it must not."""

PATIENCE_S = 900.0
"""No run on this input takes longer; a longer one has lost something."""


class GroupRun(msgspec.Struct, frozen=True):
    """What the real part came to; `wrong` lists what does not hold; times in seconds."""

    lines: int
    topics: int
    acknowledged: int
    got: int
    duplicates: int
    seconds: float
    wrong: list[str]


class GroupProcesses:
    """The processes of the run and their files, below `out`; `store` is a URL, "" for a file there.

    What is done to them is noted in the trace.
    """

    def __init__(self, out: Path, path: Path | None, config: Path | None, store: str) -> None:
        self.trace = out / "trace"
        self.nodes = GroupHarness(out, store=store, config=config, trace=self.trace)
        self.path = path
        self.files = {f"consumer-{number}": out / f"consumer-{number}.jsonl" for number in (1, 2, 3, 4)}
        self.listen = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.blows: list[account.Blow] = []
        self.log = begin_log(self.trace, "nemesis~1")

    def leaders(self) -> None:
        """Start both hosts, and wait until they listen; each knows the other."""
        one, two = self.listen
        self.nodes.leader("leader-1", "--peers", two, listen=one)
        self.nodes.leader("leader-2", "--peers", one, listen=two)

    def consumer(self, name: str) -> None:
        """Start one; every consumer asks leader-1 first."""
        more = ("--out", str(self.files[name]), "--work-ms", "22", "--drain")
        self.nodes.consumer(name, SUBSCRIPTION, ",".join(self.listen), *more)

    def consumers(self, *names: str) -> None:
        """Start several, and wait until each has begun to live: one that is told to leave before could not say so."""
        for name in names:
            self.consumer(name)
        begun = [self.nodes.nodes[name] for name in names]
        self.nodes.until(lambda: all(node.began for node in begun), f"{', '.join(names)} to begin their lives")

    def publisher(self, rate: int) -> None:
        """Start it."""
        given = ["--input", str(self.path)] if self.path else []
        self.nodes.publisher("publisher-1", "--rate", str(rate), "--batch", str(max(1, min(50, rate // 20))), *given)

    def kill(self, name: str) -> int:
        """SIGKILL; the process id it had."""
        killed_ns = time.time_ns()
        self.blow("" if name.startswith("leader") else name)
        pid = self.nodes.kill(name).pid
        self.log.write([kill_row(killed_ns, name, self.trace)])
        return pid

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        self.note("pause", name)
        self.blow(name)
        self.nodes.nodes[name].stop()

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self.note("resume", name)
        self.nodes.nodes[name].resume()

    def leave(self, name: str) -> None:
        """SIGTERM: it unsubscribes, finishes what is in hand, and ends."""
        self.note("unsubscribe", name)
        self.nodes.nodes[name].terminate()

    def blow(self, node: str) -> None:
        """What the node has in hand may come again, to others."""
        self.blows.append(account.Blow(time.time_ns(), node))

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
) -> GroupRun:
    """The whole real part, its files below `out` (must not exist); `progress(acknowledged, lines)`.

    `store`: URL of an empty database; without it, a file below `out`."""
    topics = lines.read(path)
    total = sum(len(part) for part in topics.values())
    out.mkdir(parents=True)
    stage = GroupProcesses(out, path, config, store)
    begin = time.monotonic()
    bad: list[str] = []
    acts = Acts(stage, say, PAUSE_VALIDITIES * read_configuration(config).validity_ms / 1000)
    try:
        say(f"real: {total} lines of {len(topics)} files; 2 leader hosts, 3 consumers, 1 publisher, each a process")
        stage.leaders()
        stage.consumers("consumer-1", "consumer-2", "consumer-3")
        stage.publisher(rate_for(total))
        for done in _acknowledged(stage, total, begin):
            progress(done, total)
            acts.go_on(done, total)
            stage.nodes.check_alive()
        acts.finish()
    finally:
        bad += stage.stop()
    if acts.left:
        bad.append(f"{total} lines were read before all had happened that is to happen: give a longer input")
    judged = account.check(topics, stage.files, stage.blows)
    seconds = time.monotonic() - begin
    return GroupRun(total, len(topics), judged.acknowledged, judged.got, judged.duplicates, seconds, judged.wrong + bad)


class Acts:
    """What is done to the group, one thing after the other, as the messages are acknowledged."""

    def __init__(self, stage: GroupProcesses, say: Say, pause_s: float) -> None:
        self._stage = stage
        self._say = say
        self._pause_s = pause_s
        self._resume_at = float("inf")
        self.left: list[tuple[float, Callable[[], str]]] = [
            (JOIN_AT, self._join),
            (KILL_AT, self._kill),
            (PAUSE_AT, self._pause),
            (LEAVE_AT, self._leave),
            (LEADER_AT, self._kill_leader),
        ]

    def go_on(self, done: int, total: int) -> None:
        """The next thing, if so many are acknowledged."""
        if time.monotonic() > self._resume_at:
            self._resume()
        if self.left and done >= self.left[0][0] * total:
            _, act = self.left.pop(0)
            self._say(f"real: {done} acknowledged; {act()}")

    def finish(self) -> None:
        """Whoever stands still wakes up after all: it must find that nothing is its own any more."""
        if self._resume_at < float("inf"):
            time.sleep(max(0.0, self._resume_at - time.monotonic()))
            self._resume()
            time.sleep(AWAKE_S)

    def _resume(self) -> None:
        self._resume_at = float("inf")
        self._stage.resume("consumer-3")
        self._say("real: consumer-3 goes on")

    def _join(self) -> str:
        self._stage.note("join", "consumer-4")
        self._stage.consumer("consumer-4")
        return "consumer-4 joins"

    def _kill(self) -> str:
        return f"SIGKILL to consumer-2 (process {self._stage.kill('consumer-2')})"

    def _pause(self) -> str:
        self._stage.pause("consumer-3")
        self._resume_at = time.monotonic() + self._pause_s
        return f"SIGSTOP to consumer-3, for {self._pause_s:g} s"

    def _leave(self) -> str:
        self._stage.leave("consumer-1")
        return "consumer-1 unsubscribes"

    def _kill_leader(self) -> str:
        return f"SIGKILL to leader-1, which leads (process {self._stage.kill('leader-1')}); leader-2 takes over"


def rate_for(total: int) -> int:
    """Messages a second: a short input is published slowly, so that there is a middle to kill somebody in."""
    return max(1, min(RATE, total // SECONDS))


def _acknowledged(stage: GroupProcesses, total: int, begin: float) -> Iterator[int]:
    """How many lines are acknowledged, every quarter of a second, until all are or the time is up."""
    done = 0
    while done < total and time.monotonic() - begin < PATIENCE_S:
        time.sleep(0.25)
        done = account.count_acknowledged(stage.files)
        yield done
