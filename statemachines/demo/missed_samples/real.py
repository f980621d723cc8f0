"""Real: publishers, a cache and subscribers as processes over zenoh, through a link that loses samples; a publisher
dies, the router is killed and comes back.  zenoh's own AdvancedSubscriber takes part beside ours."""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import msgspec

from statemachines.demo.protocol import DemoStage, Figures, sum_accounts
from statemachines.demo.real_run import RealRun
from statemachines.testing.missed_samples.lossy_link import LossyLink
from statemachines.testing.process_harness import NODE, ProcessHarness, free_port

PUBLISHERS, SUBSCRIBERS = 3, 2
LINES, LONGEST, EVERY_S = 250, 80, 0.02
"""So many lines a publisher, of so many bytes at most, and so long from one to the next."""
LOSS, SEED = 0.25, 15
KILL_AT, ROUTER_AT = 0.3, 0.6
"""Shares of a publisher's lines that subscriber-1 has got when publisher-1 is killed, and when the router is."""
KEY = "demo/lines"
THEIRS, THEIR_PROGRAM = "their-subscriber", "statemachines.demo.missed_samples.their_subscriber"


class SampleRun(RealRun):
    """`dropped`: batches that the link lost; `sources`: node -> the id under which it publishes."""

    def __init__(self, stage: DemoStage) -> None:
        super().__init__(stage, ProcessHarness(stage.out, trace=stage.out / "trace"))
        self.dropped = 0
        self.whole = LINES
        self.ours = [f"subscriber-{number}" for number in range(1, SUBSCRIBERS + 1)]
        self.sources: dict[str, str] = {}
        lines = stage.options.read_lines(PUBLISHERS * LINES, LONGEST)
        self._given = {f"publisher-{one + 1}": lines[one::PUBLISHERS] for one in range(PUBLISHERS)}
        self._port = free_port()
        self._there = ("--connect", f"tcp/127.0.0.1:{self._port}")

    async def play(self) -> None:
        """All start; a publisher is killed, then the router, which comes back; until everything is told."""
        chance = random.Random(SEED)
        async with LossyLink(("127.0.0.1", self._port)) as link:
            await self._begin(link.endpoint)
            self.stage.tell(
                f"{PUBLISHERS} publishers, a cache, {SUBSCRIBERS} subscribers; a link that loses {LOSS:.0%}"
            )
            link.lose = lambda batch: chance.random() < LOSS
            await self.reach(KILL_AT * LINES)
            self.kill("publisher-1")
            self.stage.tell("SIGKILL to publisher-1; the cache answers for it")
            await self.reach(ROUTER_AT * LINES)
            self.note("kill", "", peer="router")
            self.nodes.kill("router")
            self.stage.tell("SIGKILL to the router; it comes back")
            await self._start_router()
            await self.until(self._is_told, "everything to be told")
            self.dropped = link.lost

    async def _begin(self, endpoint: str) -> None:
        """Subscribers before publishers: then nothing is missed before it begins."""
        await self._start_router()
        theirs = [sys.executable, "-m", THEIR_PROGRAM, endpoint, "demo/*"]
        self.nodes.start_command("their-subscriber", THEIRS, theirs)
        self.nodes.start("cache", "cache-1", "--key", "demo/**", "--history", "10000", *self._there)
        for name in self.ours:
            words = ("--key", "demo/*", "--connect", endpoint, "--retries", "20")
            self.nodes.start("zenoh-subscriber", name, *words)
        await self.await_output()
        for name, lines in self._given.items():
            path = self.out / f"{name}.txt"
            path.write_bytes(b"".join(line + b"\n" for line in lines))
            beats = ("--heartbeat", "periodic", "--heartbeat-period", "0.2")
            words = ("--key", KEY, "--input", str(path), "--every", str(EVERY_S))
            self.nodes.start("zenoh-publisher", name, *words, *beats, *self._there)
        await self.await_output()
        for name in self._given:
            said = self.nodes.nodes[name].read_output().splitlines()[0]
            self.sources[name] = msgspec.json.decode(said)["publisher"]

    async def _start_router(self) -> None:
        command = [*NODE, "zenoh-router", "--listen", f"tcp/127.0.0.1:{self._port}"]
        self.nodes.start_command("zenoh-router", "router", command)
        await self.await_output()

    def count_done(self) -> int:
        """Lines of a publisher of which the first subscriber has been told."""
        return self._count_told(self.ours[0], "publisher-2")

    def _count_told(self, subscriber: str, publisher: str) -> int:
        """How many samples of a publisher it was delivered, or reported."""
        source, count = self.sources[publisher], 0
        for line in (self.out / f"{subscriber}.out").read_bytes().rpartition(b"\n")[0].splitlines():
            said = msgspec.json.decode(line)
            if said.get("from") == source:
                count += 1
            elif said.get("missed") == source:
                count += said["last"] - said["first"] + 1
        return count

    def _is_told(self) -> bool:
        living = [name for name in self._given if not self.killed[name]]
        return self.has_reached(LINES) and all(
            self._count_told(subscriber, one) >= LINES for subscriber in self.ours for one in living
        )

    def make_account(self) -> Figures:
        """Of ours, and beside them of `theirs`."""
        dead = frozenset(self.sources[name] for name in self.killed)
        lines = {
            self.sources[name]: [line.decode(errors="replace") for line in own] for name, own in self._given.items()
        }
        *ours, theirs = (account_for(self.out / f"{name}.out", lines, dead) for name in (*self.ours, THEIRS))
        return {**sum_accounts(ours), "theirs": theirs, "dropped": self.dropped}


def account_for(path: Path, lines: Mapping[str, list[str]], dead: frozenset[str] = frozenset()) -> Figures:
    """Of the subscriber whose lines of JSON these are; `lines`: the id of a publisher -> what it publishes, in order.

    Samples that were `delivered`, of them asked for (`recovered`); `undelivered` ones, of which some are reported
    (`missed`) and others not (`silent`); delivered again (`twice`) or after a later one (`late`), and those that are
    not the line of that number (`foreign`).  Of publishers that are `dead` nobody knows how much they have published:
    what it was told counts, up to the last.
    """
    delivered: dict[str, set[int]] = defaultdict(set)
    missed: dict[str, set[int]] = defaultdict(set)
    recovered = undelivered = twice = late = foreign = unnamed = 0
    for said in map(msgspec.json.decode, path.read_bytes().splitlines()):
        if "missed" in said:
            missed[said["missed"]].update(range(said["first"], said["last"] + 1))
        elif "lost" in said:  # zenoh's own says how many, and not which
            unnamed += said["lost"]
        elif "payload" in said:
            given, number, before = lines.get(said["from"], []), said["number"], delivered[said["from"]]
            foreign += not 0 <= number < len(given) or given[number] != said["payload"]
            recovered += said.get("recovered", False)
            twice += number in before
            late += number not in before and number < max(before, default=-1)
            before.add(number)
    for source, given in lines.items():
        whole = max((*delivered[source], *missed[source]), default=-1) + 1 if source in dead else len(given)
        undelivered += whole - len(delivered[source] & set(range(whole)))
    reported = sum(len(numbers - delivered[source]) for source, numbers in missed.items()) + unnamed
    return {
        "subscriber": path.stem,
        "delivered": sum(map(len, delivered.values())),
        "recovered": recovered,
        "undelivered": undelivered,
        "missed": reported,
        "silent": max(undelivered - reported, 0),
        "twice": twice,
        "late": late,
        "foreign": foreign,
    }
