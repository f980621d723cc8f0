"""Ever new client ids, each with a session and a will that are kept, at one node beside an ordinary client of MQTT.

All sessions expire, their wills are sent, and the store collects both.  Counted are refusals by reason code, memory of
the node, and how long the ordinary client takes to connect, publish and receive.  Before it begins, rows of one client
may be copied into the store, as if as many clients had been there.

Many topics: a real group starts on all of them at once, beside processes that keep the machine busy.

    python tests/real/run.py many_topics --topics 70000 --busy 4 --hosts 2

Leader hosts and a member find so many topics with a message each.  When half of the messages are acknowledged a second
member joins, which is given half of the streams; then one topic in ten gets another message.  Every message must be
acknowledged in time, and the second member must get some of them; what was delivered twice is counted, and so is how
often a claim was taken, and renewed late.

Members that do not reach the leader host, which another host does: what they get meanwhile.

The first of two leader hosts leads.  One member knows it alone; two reach it by a proxy that goes bad, and reach the
other host.  The hosts see each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
from collections import Counter
from pathlib import Path
from typing import ClassVar

from mqtt_subscribers import RawClient
from node_processes import nodes_of, until
from outside import FAULTS
from stage import ONE, THREE, TWO, Stage, topics
from workload import Workload, run_beside

from statemachines.demo.shared_subscriptions.account import count_acknowledged
from statemachines.drivers.shared_subscriptions import consumer_file
from statemachines.drivers.shared_subscriptions.sqlite import SqliteStreamStore
from statemachines.mqtt_codec import (
    ConnectPacket,
    DisconnectPacket,
    PacketProperties,
    PubackPacket,
    PublishPacket,
    SubscribePacket,
    TopicSubscription,
    encode,
)
from statemachines.mqtt_codec.packet import WillMessage
from statemachines.testing import fault_proxy
from statemachines.testing.process_harness import free_port
from statemachines.testing.shared_subscriptions.nodes import GroupHarness
from tests.waiting import pause, pause_async, read_clock_s, within

DIGITS = 8
WILL_CODE = 0x04
"""DISCONNECT with the will."""
PROBE_EVERY_S = 1.0
LOOKERS = 2
"""Clients that look, and have sessions, too."""


class CrowdWorkload(Workload):
    """`ids`: client ids; `stored`: sessions that are copied before; `expiry_s` of their sessions; `at_once`:
    connections; `will_bytes` of each will; `retained`: each will is to be retained, under a topic of its own;
    `collect_s`: collecting may take so long beyond the expiry; `max_sessions` of the
    node (0: as it is)."""

    options: ClassVar = {
        "ids": 1_000_000,
        "expiry_s": 900,
        "stored": 0,
        "at_once": 64,
        "will_bytes": 20,
        "retained": False,
        "collect_s": 600.0,
        "max_sessions": 0,
    }

    @contextlib.asynccontextmanager
    async def open(self):
        self.codes, self.wills, self.probes, self.memory_mib = Counter(), 0, [], 0.0
        self.is_reading = False
        self.parts = encode(self.make_connect("x" * DIGITS), 5).split(b"x" * DIGITS)
        if self.stored:
            async with self.open_node():
                await self.connect_all(1)
            copy_session(self.store, b"0" * DIGITS, self.stored)
            self.codes.clear()
        async with self.open_node(), run_beside() as begin:
            self.beside = [begin(one()) for one in (self.probe, self.count_wills)]
            yield

    @contextlib.asynccontextmanager
    async def open_node(self):
        bound = ("--max-sessions", str(self.max_sessions)) if self.max_sessions else ()
        async with nodes_of(self.folder, self.store, ("a",), *bound, role="mqtt", times=()) as (self.node,):
            yield
            await self.node.end()

    async def finish(self):
        """Every id comes and goes, and all of it is collected."""
        await until(lambda: self.probes and self.is_reading)  # they have their sessions before there are too many
        await self.connect_all(self.ids)
        await until(self.is_collected, self.expiry_s + self.collect_s, every_s=1)
        await until(lambda: self.wills >= self.stored + self.codes[0])

    def is_collected(self):
        for one in self.beside:
            assert not one.done(), one.result()
        self.memory_mib = max(self.memory_mib, read_rss_mib(self.node.child.pid))
        self.sessions_left, self.wills_left = self.count_rows()
        return self.sessions_left <= LOOKERS and not self.wills_left

    def judge(self):
        found = (self.wills, self.sessions_left, self.wills_left)
        wanted = (self.stored + self.codes[0], LOOKERS, 0)
        return [] if found == wanted else [f"wills that came, sessions and wills left: {found}, and not {wanted}"]

    def tally(self):
        """Answers by reason code, wills that came, lines of the node's log, its largest memory, and how long the
        ordinary client took at the median and at most."""
        times = sorted(self.probes)
        said = {"codes": dict(self.codes), "wills": self.wills, "lines": len(self.node.said().splitlines())}
        return said | {"memory_mib": self.memory_mib, "probe_s": (times[len(times) // 2], times[-1])}

    async def connect_all(self, count):
        """Every id connects, and leaves with its will."""
        numbers = iter(range(count))
        goodbye = encode(DisconnectPacket(WILL_CODE), 5)

        async def work():
            for number in numbers:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.node.port)
                writer.write((b"%0*d" % (DIGITS, number)).join(self.parts))
                answer = await reader.read(65_536)
                self.codes[answer[3] if len(answer) > 3 else -1] += 1
                writer.write(goodbye)
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

        await asyncio.gather(*(work() for _ in range(self.at_once)))

    async def probe(self):
        """An ordinary client connects, publishes and receives, again and again."""
        while True:
            begin = read_clock_s()
            async with within("an ordinary client is served", hangs=2):
                with contextlib.closing(RawClient("probe")) as client:
                    await client.connect(self.node.port)
                    client.send(SubscribePacket(1, (TopicSubscription("probe", 1),)))
                    client.send(PublishPacket("probe", b"x", 1, packet_id=2))
                    while True:
                        packet = await client.read()
                        if isinstance(packet, PublishPacket):
                            break
            self.probes.append(read_clock_s() - begin)
            await pause_async(PROBE_EVERY_S, "between two probes")

    async def count_wills(self):
        """A client that subscribes all wills."""
        with contextlib.closing(RawClient("reader")) as client:
            await client.connect(self.node.port)
            client.send(SubscribePacket(1, (TopicSubscription("will/#", 1),)))
            self.is_reading = bool(await client.read())
            while True:
                packet = await client.read()
                if isinstance(packet, PublishPacket):
                    self.wills += 1
                    client.send(PubackPacket(packet.packet_id))

    def count_rows(self):
        """(sessions, wills) in the store."""
        with contextlib.closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True)) as file:
            (sessions,) = file.execute("SELECT sessions FROM store").fetchone()
            (wills,) = file.execute("SELECT count(*) FROM wills").fetchone()
        return sessions, wills

    def make_connect(self, client_id):
        """CONNECT for a session that is kept, with a will."""
        topic = f"will/{client_id}" if self.retained else "will/all"
        will = WillMessage(topic, b"w" * self.will_bytes, 1, self.retained, PacketProperties(will_delay=2**31))
        return ConnectPacket(client_id, will=will, properties=PacketProperties(session_expiry=self.expiry_s))


def read_rss_mib(pid):
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1_024


COPY = """
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
INSERT INTO {table} SELECT {columns} FROM numbers, {table} WHERE {table}.client = :client"""
COPIED = {
    # Column -> its value in a copy.
    "client": "CAST(printf('copy%08d', n) AS BLOB)",
    "session": "CAST(printf('copy%08d@%s', n, session) AS BLOB)",
    "connection": "CAST(CASE WHEN connection = x'' THEN '' ELSE printf('%s%08d', connection, n) END AS BLOB)",
}


def copy_session(path, client, count):
    """So many copies of the session and the will of this client, while no node runs."""
    with contextlib.closing(sqlite3.connect(path)) as file:
        for table in ("clients", "sessions", "wills"):
            names = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
            columns = ", ".join(COPIED.get(name, f"{table}.{name}") for name in names)
            file.execute(COPY.format(table=table, columns=columns), {"count": count, "client": client})
        file.execute("UPDATE store SET sessions = sessions + :count", {"count": count})
        file.commit()


SUBSCRIPTION = "$shared/many/#"
AGAIN = 10
"""One topic in so many gets a second message."""
MANY_TOPICS_WORKLOAD_PATIENCE_S = 600.0
LOOK_S = 0.5


class ManyTopicsWorkload(Workload):
    """`busy`: processes that compute all the time; `hosts`: leader hosts that know each other."""

    options: ClassVar = {"topics": 70_000, "busy": 2, "hosts": 1}

    @contextlib.asynccontextmanager
    async def open(self):
        self.files = {name: self.folder / f"{name}.jsonl" for name in ("consumer-1", "consumer-2")}
        with GroupHarness(self.folder) as self.harness:
            await self.publish(1, b"first")
            self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(self.hosts)]
            self.leaders = []
            for number, address in enumerate(self.addresses, 1):
                others = [other for other in self.addresses if other != address]
                peers = ("--peers", ",".join(others)) if others else ()
                self.leaders.append(self.harness.leader(f"leader-{number}", *peers, listen=address))
            async with FAULTS["busy"](self.busy):
                self.began = read_clock_s()
                yield
        self.wrong += self.harness.wrong

    async def publish(self, every, text):
        """A message to one topic in `every`."""
        streams = SqliteStreamStore(self.harness.store)
        for number in range(0, self.topics, every):
            await streams.append(f"t/{number:06}", [text])
        await streams.close()

    def until(self, count, what, counted=None):
        """Seconds since the first member was started, when so many are acknowledged (or `counted`); raises
        `HarnessError` if it does not come."""

        def look():
            pause(LOOK_S, "between two looks")
            return (counted or self.count_acknowledged)() >= count

        self.harness.until(look, what, MANY_TOPICS_WORKLOAD_PATIENCE_S)
        return round(read_clock_s() - self.began, 1)

    def count_acknowledged(self):
        return count_acknowledged(self.files)

    def count_granted(self):
        """How many streams the leader host has granted, as its log counts them (SS-257)."""
        return sum(int(count) for count in re.findall(r"streams moved: (\d+) granted", self.read_log()))

    def read_log(self):
        return "".join(one.read_log() for one in self.leaders)

    def join(self, name):
        self.harness.consumer(name, SUBSCRIPTION, ",".join(self.addresses), "--out", str(self.files[name]))

    async def finish(self):
        """Until the first message, one of each topic, and half of the streams moved; and some more messages."""
        topics, more = self.topics, len(range(0, self.topics, AGAIN))
        self.join("consumer-1")
        self.first_s = self.until(1, "the first message")
        self.until(topics / 2, "half of the messages")
        self.join("consumer-2")
        self.all_s = self.until(topics, f"all {topics} messages")
        self.shared_s = self.until(topics + topics // 2, "half of the streams moved", self.count_granted)
        await self.publish(AGAIN, b"second")
        self.messages = topics + more
        self.until(self.messages, f"{more} more messages")
        self.log = self.read_log()

    def judge(self):
        lines = [line for path in self.files.values() for line in consumer_file.read_file(path)]
        self.got = Counter((one.stream, one.offset) for one in lines if one.what == consumer_file.GOT)
        second = consumer_file.read_file(self.files["consumer-2"])
        self.second = sum(one.what == consumer_file.ACK for one in second)
        wrong = [] if self.second else ["the second member got nothing"]
        if len(self.got) != self.messages:
            wrong.append(f"{len(self.got)} of {self.messages} messages were delivered")
        return self.wrong + wrong

    def tally(self):
        """`elected`: so often a host took the claim; `late`: so often it was renewed late, and `latest_s` after the
        time before; seconds until the first message, one of each topic, and half of the streams moved."""
        late = [float(seconds) for seconds in re.findall(r"renewed its claim late, (\S+) s", self.log)]
        elected = self.log.count("leads it, under epoch")
        claims = {"elected": elected, "late": len(late), "latest_s": max(late, default=0.0)}
        twice = self.got.total() - len(self.got)
        seconds = {"first_s": self.first_s, "all_s": self.all_s, "shared_s": self.shared_s}
        return {"messages": len(self.got), "twice": twice, "second": self.second, **claims, **seconds}


TIMES = {"ping_timeout_ms": 1_000, "validity_ms": 2_000, "claim_ttl_ms": 2_000, "revoke_timeout_ms": 5_000}
LOAD = topics(4)


class UnreachableWorkload(Workload):
    """`way` in which the proxy goes bad ("": the seed says); `stays`: whether the member does that reaches the leader;
    `rounds`: so many times every member that is there gets messages again."""

    options: ClassVar = {"way": "", "stays": 1, "rounds": 1}
    kinds = ("refused", "up", "down", "both")
    """Nobody is there any more; or what is said one way, or both, does not arrive."""

    def plan(self, faults):
        return [self.way or self.chance.choice(self.kinds)]

    @contextlib.asynccontextmanager
    async def open(self):
        with Stage(self.folder, **TIMES) as self.stage:
            self.first, second = (f"127.0.0.1:{free_port()}" for _ in range(2))
            self.stage.nodes.leader("leader-1", "--peers", second, listen=self.first)
            self.stage.nodes.leader("leader-2", "--peers", self.first, listen=second)
            host, _, port = self.first.rpartition(":")
            with fault_proxy.run_in_thread((host, int(port))) as self.proxy:
                self.hosts = "{}:{},{}".format(*self.proxy.address, second)
                yield

    async def hurt(self, what):
        self.done[what] += 1
        await asyncio.to_thread(self.serve, what)

    def serve(self, way):
        """A member that has another way, and one that comes later, get messages after the proxy has gone bad."""
        stage = self.stage
        stage.join(THREE, leader=self.first)
        stage.until_serving(THREE, load=LOAD)
        stage.join(ONE, leader=self.hosts)
        stage.until_serving(ONE, THREE, load=LOAD)
        if way == "refused":
            self.proxy.target = ("127.0.0.1", free_port())
            self.proxy.cut()
        else:
            self.proxy.block(way)
        stage.blow("leader-1")
        stage.join(TWO, leader=self.hosts)
        if not self.stays:
            stage.leave(THREE)
        for _ in range(self.rounds):
            stage.until_serving(ONE, TWO, *((THREE,) if self.stays else ()), load=LOAD)
        stage.until_done()

    def judge(self):
        return self.stage.wrong()

    def tally(self):
        return {"messages": self.stage.acked()}
