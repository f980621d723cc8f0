"""A run of `$share`: members that nobody here wrote share topics, their node is killed, and nothing is missing or given
to two of them.

Two nodes over one store.  Three `mosquitto_sub` of one group keep their process; each connects through a proxy whose
target moves to the other node when its node is killed (SIGKILL).  A paho publisher goes on: at the node that stays, or
(`--moves-publisher`) through a proxy of its own.  The judge knows what PUBACKs said and what members printed.

    python tests/real/shared_run.py --faults 20 --seed 7 --moves-publisher
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from mqtt_run import PATIENCE_S, PahoPublisher, find_repeated, mqtt_nodes, until

from statemachines.testing.fault_proxy import FaultProxy

TOPICS = 6
MEMBERS = 3
SPREAD = 1_000_000
"""A payload is the number of its topic times this, and its number within the topic."""
TIMES = {
    "find_leader_ms": 200,
    "ping_interval_ms": 200,
    "ping_timeout_ms": 1_000,
    "validity_ms": 1_800,
    "max_delay_ms": 200,
    "unsubscribe_timeout_ms": 1_000,
    "resend_interval_ms": 200,
    "renew_streams_ms": 100,
    "revoke_timeout_ms": 2_000,
    "claim_ttl_ms": 1_500,
    "claim_heartbeat_ms": 400,
    "commit_interval_ms": 100,
    "idle_stop_ms": 10_000,
}


class Receipt(NamedTuple):
    """What a member printed: its number among members, the payload, the packet id, and whether it was marked."""

    member: int
    payload: int
    packet_id: int
    dup: bool


class GroupMember:
    """`mosquitto_sub` of the group; all of them write to one list, in the order in which they print."""

    def __init__(self, number, receipts, version="5"):
        self.number, self.receipts, self.connections, self._version = number, receipts, 0, version

    async def start(self, port):
        command = ["stdbuf", "-oL", "mosquitto_sub", "-V", self._version, "-h", "127.0.0.1", "-p", str(port), "-d"]
        command += ["-c", "-i", f"member{self.number}", "-q", "1", "-t", "$share/g/jobs/#", "-k", "5"]
        command += ["-F", '{"n":"%p","m":%m}', *(("-x", "3600") if self._version == "5" else ())]
        self.child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        self._task = asyncio.ensure_future(self._read())
        self.is_subscribed = asyncio.Event()
        await asyncio.wait_for(self.is_subscribed.wait(), PATIENCE_S)

    async def _read(self):
        dups = {}
        async for line in self.child.stdout:
            text = line.decode()
            if text.startswith("{"):
                found = json.loads(text)
                self.receipts.append(Receipt(self.number, int(found["n"]), found["m"], dups.get(found["m"], False)))
            elif "received PUBLISH (" in text:
                fields = text.split("(")[1].split(", ")
                dups[int(fields[3][1:])] = fields[0] == "d1"
            elif "received CONNACK (0)" in text:
                self.connections += 1
            elif text.startswith("Subscribed"):
                self.is_subscribed.set()

    async def end(self):
        self.child.kill()
        await self.child.wait()
        await self._task


class TopicPublisher(PahoPublisher):
    """Publishes to so many topics in turn."""

    def __init__(self, topics):
        super().__init__()
        self.topics = topics

    def publish(self):
        self.count += 1
        topic, number = self.count % self.topics, self.count // self.topics
        payload = topic * SPREAD + number
        self._numbers[self._client.publish(f"jobs/{topic}", str(payload), qos=1).mid] = payload


def judge(wanted, receipts, uncertain):
    """What is wrong with what members printed, `receipts` in the order of printing.  The publisher was answered for all
    that are `wanted`; those that are `uncertain` it sent more than once."""
    members, firsts, wrong = defaultdict(set), {}, []
    for one in receipts:
        if one.payload in members and one.member in members[one.payload] and not one.dup | (one.payload in uncertain):
            wrong.append(f"twice without a mark: {one}")
        members[one.payload].add(one.member)
        firsts.setdefault(one.payload, one)
    missing = sorted(wanted - set(members))
    wrong += [f"missing: {missing[:10]}"] if missing else []
    shared = sorted(one for one, its in members.items() if len(its) > 1 and one not in uncertain)
    wrong += [f"given to several: {shared[:10]}"] if shared else []
    orders = defaultdict(list)
    for one in firsts.values():
        orders[one.member, one.payload // SPREAD].append(one.payload)
    for its in orders.values():
        wrong += [f"{after} came behind {before}" for before, after in pairwise(its) if after < before]
    return wrong


async def play(folder, store, seed, faults, moves_publisher, version="5", topics=TOPICS):
    """(what is wrong, kills, messages, how many each member got)"""
    chance = random.Random(seed)
    times = folder / "groups.toml"
    times.write_text("".join(f"{name} = {value}\n" for name, value in TIMES.items()))
    groups = ("--group-config", str(times))
    async with (
        mqtt_nodes(folder, store, ("a", "b"), *groups, groups=True) as nodes,
        contextlib.AsyncExitStack() as stack,
    ):
        ways = []
        for place in range(MEMBERS + 1):
            node = nodes[1] if place == MEMBERS and not moves_publisher else nodes[place % 2]
            ways.append(await stack.enter_async_context(FaultProxy(("127.0.0.1", node.port))))
        receipts = []
        members = [GroupMember(number, receipts, version) for number in range(MEMBERS)]
        for member, way in zip(members, ways, strict=False):
            await member.start(way.address[1])
        publisher = TopicPublisher(topics)
        publisher.start(ways[MEMBERS].address[1])
        await until(lambda: publisher.is_connected)  # before that paho sends in another order
        for turn in range(faults):
            target = publisher.count + chance.randint(20, 60) * max(1, topics // 20)
            while publisher.count < target:
                publisher.publish()
                await asyncio.sleep(chance.uniform(0, 0.02) * min(1, 20 / topics))
            place, spare = nodes if turn % 2 == 0 or not moves_publisher else nodes[::-1]
            await place.end(signal.SIGKILL)
            lost = [one for one, way in zip(members, ways, strict=False) if way.target[1] == place.port]
            before = {one.number: one.connections for one in lost}
            for way in ways:
                way.target = ("127.0.0.1", spare.port)
            for _ in range(20):
                publisher.publish()
            await until(lambda: all(one.connections > before[one.number] for one in lost))  # noqa: B023
            await place.start(nodes)
            back = chance.randrange(MEMBERS)  # one goes home, so that the next kill meets somebody
            ways[back].target = ("127.0.0.1", place.port)
            ways[back].cut()
        for _ in range(30):
            publisher.publish()
        wanted = {one % topics * SPREAD + one // topics for one in range(1, publisher.count + 1)}
        await until(lambda: len(publisher.answered) == publisher.count)
        await until(lambda: {one.payload for one in receipts} >= wanted)
        await asyncio.sleep(0.5)  # what comes twice comes soon
        await publisher.end()
        for member in members:
            await member.end()
    counts = [sum(one.member == number for one in receipts) for number in range(MEMBERS)]
    return judge(wanted, receipts, find_repeated(publisher.list_sent())), faults, len(wanted), counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=5)
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--moves-publisher", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        wrong, kills, count, counts = asyncio.run(
            play(
                Path(name),
                os.path.join(name, "s.db"),
                given.seed,
                given.faults,
                given.moves_publisher,
                topics=given.topics,
            )
        )
        for one in sorted(Path(name).glob("*.log")):
            print(one.read_text()[-3000:])
    print(f"{kills} kills, {count} messages, {counts} by member, {len(wrong)} wrong")
    for one in wrong:
        print(one)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
