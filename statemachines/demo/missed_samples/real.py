"""Real: publishers, a cache and subscribers as processes over zenoh, through a link that loses samples; a publisher
dies, the router is killed and comes back.  zenoh's own AdvancedSubscriber takes part beside ours."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from statemachines.demo.input_lines import input_lines
from statemachines.demo.missed_samples.account import SampleAccount, account_for, wrong_in
from statemachines.demo.protocol import Advance, Say
from statemachines.drivers.lives import begin_log
from statemachines.interrupts import defer_interrupts, not_interrupted
from statemachines.kernel import GaplessError
from statemachines.testing.missed_samples.lossy_link import LossyLink
from statemachines.testing.process_harness import NODE, ProcessHarness, free_port
from statemachines.trace import fault_row
from statemachines.trace.log import kill_row

PUBLISHERS, SUBSCRIBERS = 3, 2
LINES, LONGEST, EVERY_S = 250, 80, 0.02
"""So many lines a publisher, of so many bytes at most, and so long from one to the next."""
LOSS, SEED = 0.25, 15
KILL_AT, ROUTER_AT = 0.3, 0.6
"""Shares of a publisher's lines that subscriber-1 has got when publisher-1 is killed, and when the router is."""
KEY = "demo/lines"
PATIENCE_S = 120.0


class SampleRun(msgspec.Struct, frozen=True):
    """What it came to: the accounts of our subscribers and of `theirs`; `lost`: batches that the link dropped; `wrong`
    lists what does not hold of ours."""

    accounts: list[SampleAccount]
    theirs: SampleAccount
    lost: int
    seconds: float
    wrong: list[str]


def run(out: Path, given: Path | None, say: Say, advance: Advance) -> SampleRun:
    """Publish lines of the file or folder `given` (None: of our own source).  Raises `ConfigurationError` where there
    are none."""
    lines = input_lines(given, PUBLISHERS * LINES, LONGEST)
    out.mkdir(parents=True)
    begin = time.monotonic()
    with SampleStage(out, lines) as stage:
        asyncio.run(stage.play(say, advance))
    dead = frozenset({stage.sources["publisher-1"]})
    accounts = [account_for(out / f"{name}.out", stage.lines, dead) for name in stage.ours]
    theirs = account_for(stage.theirs, stage.lines, dead)
    wrong = [*wrong_in(accounts), *stage.nodes.wrong]
    return SampleRun(accounts, theirs, stage.lost, time.monotonic() - begin, wrong)


class SampleStage:
    """The processes; `sources`: node -> the id under which it publishes; `lines` of each id."""

    def __init__(self, out: Path, lines: list[bytes]) -> None:
        self.nodes = ProcessHarness(out, trace=out / "trace")
        self.ours = [f"subscriber-{number}" for number in range(1, SUBSCRIBERS + 1)]
        self.theirs = out / "their-subscriber.out"
        self.sources: dict[str, str] = {}
        self.lines: dict[str, list[str]] = {}
        self.lost = 0
        self._out = out
        self._given = {f"publisher-{one + 1}": lines[one::PUBLISHERS] for one in range(PUBLISHERS)}
        self._port = free_port()
        self._others: dict[str, subprocess.Popen[bytes]] = {}
        self._log = begin_log(out / "trace", "nemesis~1")

    def __enter__(self) -> SampleStage:
        return self

    def __exit__(self, *_: object) -> None:
        self.nodes.close()
        for process in self._others.values():
            process.kill()
            process.wait()
        self._log.close()

    async def play(self, say: Say, advance: Advance) -> None:
        """All start; a publisher is killed, then the router, which comes back; until everything is told."""
        chance = random.Random(SEED)
        async with LossyLink(("127.0.0.1", self._port)) as link:
            await self._begin(link.endpoint)
            say(f"real: {PUBLISHERS} publishers, a cache, {SUBSCRIBERS} subscribers; a link that loses {LOSS:.0%}")
            link.lose = lambda batch: chance.random() < LOSS
            await self._until(lambda: self._progress("publisher-2") > KILL_AT, "the first lines", advance)
            killed_ns = time.time_ns()
            self.nodes.kill("publisher-1")
            self._log.write([kill_row(killed_ns, "publisher-1", self._out / "trace")])
            say("real: SIGKILL to publisher-1; the cache answers for it")
            await self._until(lambda: self._progress("publisher-2") > ROUTER_AT, "more lines", advance)
            self._log.write([fault_row(time.time_ns(), "", "kill", peer="router")])
            self._others["router"].kill()
            self._others["router"].wait()
            say("real: SIGKILL to the router; it comes back")
            await self._start_router()
            await self._until(self._is_told, "everything to be told", advance)
            self.lost = link.lost

    async def _begin(self, endpoint: str) -> None:
        """Subscribers before publishers: then nothing is missed before it begins."""
        there = ("--connect", f"tcp/127.0.0.1:{self._port}")
        await self._start_router()
        module = "statemachines.demo.missed_samples.their_subscriber"
        begins = [self._run("theirs", [sys.executable, "-m", module, endpoint, "demo/*"], self.theirs, b"subscribed")]
        begins.append(self._start("cache", "cache-1", "--key", "demo/**", "--history", "10000", *there))
        for name in self.ours:
            words = ("--key", "demo/*", "--connect", endpoint, "--retries", "20")
            begins.append(self._start("zenoh-subscriber", name, *words))
        await asyncio.gather(*begins)
        await asyncio.gather(*(self._publish(name, lines, there) for name, lines in self._given.items()))

    async def _publish(self, name: str, lines: list[bytes], there: tuple[str, str]) -> None:
        path = self._out / f"{name}.txt"
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        beats = ("--heartbeat", "periodic", "--heartbeat-period", "0.2")
        words = ("--key", KEY, "--input", str(path), "--every", str(EVERY_S), *beats)
        await self._start("zenoh-publisher", name, *words, *there)
        source = msgspec.json.decode(self.nodes.nodes[name].read_output().splitlines()[0])["publisher"]
        self.sources[name] = source
        self.lines[source] = [line.decode(errors="replace") for line in lines]

    async def _start(self, role: str, name: str, *words: str) -> None:
        """Until it has said its first line, that it is there."""
        node = self.nodes.start(role, name, *words)
        await self._until(lambda: "\n" in node.read_output(), f"{name} to begin")

    async def _start_router(self) -> None:
        command = [*NODE, "zenoh-router", "--listen", f"tcp/127.0.0.1:{self._port}"]
        await self._run("router", command, self._out / "router.out", b"listening")

    async def _run(self, name: str, command: list[str], path: Path, says: bytes) -> None:
        """One that is no node with a name and a log."""
        before = path.stat().st_size if path.exists() else 0
        with path.open("ab") as said, defer_interrupts(), not_interrupted():
            self._others[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said)
        await self._until(lambda: says in path.read_bytes()[before:], f"{name} to begin")

    # -- what is waited for -----------------------------------------------------------------------------------------

    async def _until(self, holds: Callable[[], bool], what: str, advance: Advance | None = None) -> None:
        end = time.monotonic() + PATIENCE_S
        while not holds():
            self.nodes.check_alive()
            for name, process in self._others.items():
                if process.poll() is not None:
                    raise GaplessError(f"{name} ended with {process.returncode}; see {self._out}")
            if time.monotonic() > end:
                raise GaplessError(f"waited in vain for {what}; see {self._out}")
            if advance is not None:
                advance(round(100 * self._progress("publisher-2")), 100)
            await asyncio.sleep(0.05)

    def _progress(self, publisher: str) -> float:
        """The share of its lines of which the first subscriber has been told."""
        return self._count_told(self.ours[0], publisher) / LINES

    def _count_told(self, subscriber: str, publisher: str) -> int:
        """How many samples of a publisher it was delivered, or reported."""
        source, count = self.sources[publisher], 0
        for line in (self._out / f"{subscriber}.out").read_bytes().rpartition(b"\n")[0].splitlines():
            said = msgspec.json.decode(line)
            if said.get("from") == source:
                count += 1
            elif said.get("missed") == source:
                count += said["last"] - said["first"] + 1
        return count

    def _is_told(self) -> bool:
        living = [name for name in self._given if name != "publisher-1"]
        return all(self._count_told(subscriber, one) >= LINES for subscriber in self.ours for one in living)
