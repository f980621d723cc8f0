"""The real part: processes over TCP and a store; consumers join, die, stand still, leave; the leading host dies."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec

from statemachines.demo.protocol import DemoStage, Figures
from statemachines.demo.real_run import RealRun
from statemachines.demo.shared_subscriptions import account
from statemachines.drivers.shared_subscriptions import text_lines
from statemachines.drivers.shared_subscriptions.node_commands import read_configuration
from statemachines.testing.postgres import PostgresServer
from statemachines.testing.process_harness import free_port
from statemachines.testing.shared_subscriptions.nodes import GroupHarness

SUBSCRIPTION = "$shared/readers/#"
JOIN_AT, KILL_AT, PAUSE_AT, LEAVE_AT, LEADER_AT = 0.15, 0.3, 0.45, 0.6, 0.75
"""Shares of the messages acknowledged when consumer-4 joins, consumer-2 is killed, consumer-3 stands still, consumer-1
leaves, leader-1 is killed."""

PAUSE_VALIDITIES = 1.5
"""How long consumer-3 stands still: longer than the leader believes in it."""

RATE, SECONDS = 1_500, 4
"""The publisher's messages a second at most, and how long it publishes at least."""

AWAKE_S = 1.0
"""So long whoever stood still has at least, to deliver what it must not."""

PATIENCE_S = 900.0
"""No run on this input takes longer; a longer one has lost something."""


class GroupRun(RealRun):
    """`store`: URL of an empty database; without it, a file below `out`.  `default`: what is read where no input is
    given; None: our own source.  `config`: times of the group."""

    patience_s = 2 * PATIENCE_S
    poll_s = 0.25

    def __init__(
        self, stage: DemoStage, store: str = "", default: Path | None = None, config: Path | None = None
    ) -> None:
        self._path = stage.options.place or default
        self._topics = text_lines.read(self._path)
        self._group = GroupHarness(stage.out, store=store, config=config, trace=stage.out / "trace")
        super().__init__(stage, self._group)
        self.whole = sum(len(part) for part in self._topics.values())
        self._pause_s = PAUSE_VALIDITIES * read_configuration(config).validity_ms / 1000
        self._files = {f"consumer-{number}": self.out / f"consumer-{number}.jsonl" for number in (1, 2, 3, 4)}
        self._listen = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self._blows: list[account.Blow] = []
        self._end = time.monotonic() + PATIENCE_S
        self._too_short = False

    async def play(self) -> None:
        """What is done to the group, one thing after the other, as the messages are acknowledged."""
        told = f"{self.whole} lines of {len(self._topics)} files"
        self.stage.tell(f"{told}; 2 leader hosts, 3 consumers, 1 publisher, each a process")
        await self._begin()
        await self._reach(JOIN_AT)
        self.note("join", "consumer-4")
        self._start_consumer("consumer-4")
        self._tell("consumer-4 joins")
        await self._reach(KILL_AT)
        self._blow("consumer-2")
        self._tell(f"SIGKILL to consumer-2 (process {self.kill('consumer-2')})")
        await self._reach(PAUSE_AT)
        waking = asyncio.ensure_future(self._pause("consumer-3"))
        await self._reach(LEAVE_AT)
        # It unsubscribes, finishes what is in hand, and ends.
        self.note("unsubscribe", "consumer-1")
        self.nodes.nodes["consumer-1"].terminate()
        self._tell("consumer-1 unsubscribes")
        await self._reach(LEADER_AT)
        self._blow("")
        self._tell(f"SIGKILL to leader-1, which leads (process {self.kill('leader-1')}); leader-2 takes over")
        await self._reach(1)
        await waking
        await asyncio.sleep(AWAKE_S)

    def count_done(self) -> int:
        """Messages that are acknowledged."""
        return account.count_acknowledged(self._files)

    def make_account(self) -> Figures:
        """What the consumers' own files say, and who did not end well."""
        judged = account.check(self._topics, self._files, self._blows)
        wrong = judged.wrong + self.nodes.wrong
        if self._too_short:
            wrong.append(f"{self.whole} lines were read before all had happened that is to happen: give a longer input")
        lost = judged.lines - judged.acknowledged
        return {**msgspec.structs.asdict(judged), "topics": len(self._topics), "lost": lost, "wrong": wrong}

    async def _begin(self) -> None:
        """Hosts know each other.  Consumers have begun to live: one that is told to leave before could not say so."""
        one, two = self._listen
        self._group.leader("leader-1", "--peers", two, listen=one)
        self._group.leader("leader-2", "--peers", one, listen=two)
        names = ("consumer-1", "consumer-2", "consumer-3")
        for name in names:
            self._start_consumer(name)
        await self.until(lambda: all(self.nodes.nodes[name].began for name in names), "consumers to begin their lives")
        given = ["--input", str(self._path)] if self._path else []
        rate = rate_for(self.whole)
        self._group.publisher("publisher-1", "--rate", str(rate), "--batch", str(max(1, min(50, rate // 20))), *given)

    def _start_consumer(self, name: str) -> None:
        """Every consumer asks leader-1 first."""
        more = ("--out", str(self._files[name]), "--work-ms", "22", "--drain")
        self._group.consumer(name, SUBSCRIPTION, ",".join(self._listen), *more)

    async def _pause(self, name: str) -> None:
        """SIGSTOP, and SIGCONT in time: it must find that nothing is its own any more."""
        self.note("pause", name)
        self._blow(name)
        self.nodes.nodes[name].stop()
        self._tell(f"SIGSTOP to {name}, for {self._pause_s:g} s")
        await asyncio.sleep(self._pause_s)
        self.note("resume", name)
        self.nodes.nodes[name].resume()
        self.stage.tell(f"{name} goes on")

    def _blow(self, node: str) -> None:
        """What the node has in hand may come again, to others."""
        self._blows.append(account.Blow(time.time_ns(), node))

    async def _reach(self, share: float) -> None:
        """Until so much is acknowledged, or the time is up."""
        count = share * self.whole
        await self.until(lambda: self.has_reached(count) or time.monotonic() > self._end, "messages")
        self._too_short |= share < 1 and self.done >= self.whole

    def _tell(self, text: str) -> None:
        self.stage.tell(f"{self.done} acknowledged; {text}")


class PostgresRun:
    """The same on a PostgreSQL server of its own, which is gone afterwards; without an input, a part of our source."""

    def __init__(self, stage: DemoStage) -> None:
        self._stage = stage

    def run(self) -> Figures:
        """The whole of it."""
        with PostgresServer() as server:
            self._stage.tell(f"a private server on port {server.port}")
            return GroupRun(self._stage, server.database("demo"), text_lines.OWN_SOURCE / "kernel").run()


def rate_for(total: int) -> int:
    """Messages a second: a short input is published slowly, so that there is a middle to kill somebody in."""
    return max(1, min(RATE, total // SECONDS))
