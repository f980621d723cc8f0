"""Ever new client ids, each with a session and a will that are kept, at one node beside an ordinary client of MQTT.

All sessions expire, their wills are sent, and the store collects both.  Counted are refusals by reason code, memory of
the node, and how long the ordinary client takes to connect, publish and receive.  Before it begins, rows of one client
may be copied into the store, as if as many clients had been there.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import ClassVar

from mqtt_clients import RawClient
from node_processes import nodes_of, until
from workload import Workload, run_beside

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

DIGITS = 8
WILL_CODE = 0x04
"""DISCONNECT with the will."""
PROBE_EVERY_S = 1.0
PATIENCE_S = 120
COME_S = 30
"""So long the last wills take at most to the client that counts them."""
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
        await until(lambda: self.wills >= self.stored + self.codes[0], COME_S)

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
            begin = time.monotonic()
            async with asyncio.timeout(PATIENCE_S):
                with contextlib.closing(RawClient("probe")) as client:
                    await client.connect(self.node.port)
                    client.send(SubscribePacket(1, (TopicSubscription("probe", 1),)))
                    client.send(PublishPacket("probe", b"x", 1, packet_id=2))
                    while True:
                        packet = await client.read()
                        if isinstance(packet, PublishPacket):
                            break
            self.probes.append(time.monotonic() - begin)
            await asyncio.sleep(PROBE_EVERY_S)

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
