"""A run of ever new client ids, each with a session and a will that are kept, at one node beside an ordinary client.

It prints a line every few seconds: ids so far, those a second, refusals by reason code, memory of the node, size of
the store, and how long the ordinary client took to connect, publish and receive.  Then it waits until all sessions
have expired, their wills are sent, and the store has collected both.  Before it begins, rows of one client may be
copied into the store, as if as many clients had been there.

    python tests/real/mqtt_many_clients_run.py --ids 1000000 --expiry-s 900
    python tests/real/mqtt_many_clients_run.py --stored 999000 --ids 2000 --expiry-s 120
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from statemachines.mqtt_codec import (
    ConnectPacket,
    Decoder,
    DisconnectPacket,
    PacketProperties,
    PingreqPacket,
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


class ManyOptions(NamedTuple):
    """What the run does.

    `ids`: client ids; `stored`: sessions that are copied before; `expiry_s` of their sessions; `at_once`: connections;
    `will_bytes` of each will; `retained`: each will is to be retained, under a topic of its own; `every_s`: between two
    lines.
    """

    ids: int
    expiry_s: int
    stored: int = 0
    at_once: int = 64
    will_bytes: int = 20
    retained: bool = False
    every_s: float = 10.0


class ManyResult(NamedTuple):
    """What came of it: reason codes of CONNACK, longest turn of the ordinary client in seconds, largest memory of the
    node in MiB, wills that came, sessions and wills that are left in the store, lines of the node's log."""

    codes: Counter
    probe_s: float
    memory_mib: float
    wills: int
    sessions_left: int
    wills_left: int
    lines: int


class ManyRun:
    """One run at the node of this process id."""

    def __init__(self, folder, address, pid, options):
        self.folder, self.address, self.pid, self.options = folder, address, pid, options
        self.codes, self.wills, self.probes, self.memory_mib = Counter(), 0, [], 0.0
        self._began = time.monotonic()
        head = encode(make_connect("x" * DIGITS, options), 5)
        self._parts = head.split(b"x" * DIGITS)

    async def connect_all(self):
        """Every id connects, and leaves with its will."""
        numbers = iter(range(self.options.ids))
        goodbye = encode(DisconnectPacket(WILL_CODE), 5)

        async def work():
            for number in numbers:
                reader, writer = await asyncio.open_connection(*self.address)
                writer.write((b"%0*d" % (DIGITS, number)).join(self._parts))
                answer = await reader.read(65_536)
                self.codes[answer[3] if len(answer) > 3 else -1] += 1
                writer.write(goodbye)
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

        await asyncio.gather(*(work() for _ in range(self.options.at_once)))

    async def probe(self):
        """An ordinary client connects, publishes and receives, again and again."""
        while True:
            begin = time.monotonic()
            async with asyncio.timeout(PATIENCE_S):
                async with PlainClient(self.address, "probe") as client:
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
        async with PlainClient(self.address, "reader") as client:
            client.send(SubscribePacket(1, (TopicSubscription("will/#", 1),)))
            self._reader = client
            while True:
                packet = await client.read()
                if isinstance(packet, PublishPacket):
                    self.wills += 1
                    client.send(PubackPacket(packet.packet_id))

    async def report(self):
        """A line now and then."""
        before, first = 0, 0
        while True:
            await asyncio.sleep(self.options.every_s)
            self._reader.send(PingreqPacket())
            done = sum(self.codes.values())
            self.memory_mib = max(self.memory_mib, read_rss_mib(self.pid))
            probes = sorted(self.probes[first:]) or [0.0]
            first = len(self.probes)
            sessions, wills = self.count_rows()
            print(
                f"{time.monotonic() - self._began:5.0f} s: {done} ids, {(done - before) / self.options.every_s:.0f}/s,"
                f" {dict(self.codes)}; {read_rss_mib(self.pid):.0f} MiB, store {self.measure_store_mib():.0f} MiB,"
                f" {sessions} sessions, {wills} wills, {self.wills} came; ordinary client"
                f" {probes[len(probes) // 2] * 1e3:.0f} ms, at most {probes[-1] * 1e3:.0f} ms",
                flush=True,
            )
            before = done

    def measure_store_mib(self):
        return sum(one.stat().st_size for one in self.folder.glob("s.db*")) / 2**20

    def count_rows(self):
        """(sessions, wills) in the store."""
        with contextlib.closing(sqlite3.connect(f"file:{self.folder / 's.db'}?mode=ro", uri=True)) as file:
            (sessions,) = file.execute("SELECT sessions FROM store").fetchone()
            (wills,) = file.execute("SELECT count(*) FROM wills").fetchone()
        return sessions, wills

    async def play(self, collect_s):
        """All of it; collecting may take so long beyond the expiry."""
        beside = [asyncio.ensure_future(one()) for one in (self.probe, self.count_wills, self.report)]
        try:
            await asyncio.sleep(0.5)
            await self.connect_all()
            print(f"connected after {time.monotonic() - self._began:.0f} s", flush=True)
            end = time.monotonic() + self.options.expiry_s + collect_s
            while time.monotonic() < end and not any(one.done() for one in beside):
                sessions, wills = self.count_rows()
                if sessions <= 2 and not wills:  # those that look are there
                    break
                await asyncio.sleep(1)
            for one in beside:
                if one.done():
                    one.result()
        finally:
            for one in beside:
                one.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        sessions, wills = self.count_rows()
        lines = len((self.folder / "a.log").read_text().splitlines())
        memory = max(self.memory_mib, read_rss_mib(self.pid))
        return ManyResult(self.codes, max(self.probes), memory, self.wills, sessions, wills, lines)


def make_connect(client_id, options):
    """CONNECT for a session that is kept, with a will."""
    topic = f"will/{client_id}" if options.retained else "will/all"
    will = WillMessage(topic, b"w" * options.will_bytes, 1, options.retained, PacketProperties(will_delay=2**31))
    return ConnectPacket(client_id, will=will, properties=PacketProperties(session_expiry=options.expiry_s))


class PlainClient:
    """A client that keeps its session."""

    def __init__(self, address, client_id):
        self._address, self._client_id, self._decoder, self._packets = address, client_id, Decoder(5), []

    async def __aenter__(self):
        self._reader, self._writer = await asyncio.open_connection(*self._address)
        self.send(ConnectPacket(self._client_id, clean_start=False, properties=PacketProperties(session_expiry=86_400)))
        connack = await self.read()
        if connack.reason_code:
            raise ConnectionRefusedError(f"{self._client_id}: {connack.reason_code:#x}")
        return self

    async def __aexit__(self, *_):
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def send(self, packet):
        self._writer.write(encode(packet, 5))

    async def read(self):
        while not self._packets:
            data = await self._reader.read(65_536)
            if not data:
                raise ConnectionResetError(f"{self._client_id}: the node has closed the connection")
            self._packets += self._decoder.feed(data)
        return self._packets.pop(0)


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


async def run(folder, options, *node_options, collect_s=600.0):
    """The result of a run at a node of its own."""
    if options.stored:
        async with run_node(folder, *node_options) as (address, pid):
            await ManyRun(folder, address, pid, options._replace(ids=1)).connect_all()
        copy_session(folder / "s.db", b"0" * DIGITS, options.stored)
    async with run_node(folder, *node_options) as (address, pid):
        return await ManyRun(folder, address, pid, options).play(collect_s)


@contextlib.asynccontextmanager
async def run_node(folder, *node_options):
    """(address, process id) of a node, which ends when this is left."""
    command = [sys.executable, "-m", "statemachines", "node", "mqtt", "--store", str(folder / "s.db"), "--name", "a"]
    with (folder / "a.log").open("w") as log:
        child = await asyncio.create_subprocess_exec(
            *command, "--listen", "127.0.0.1:0", *node_options, stdout=subprocess.PIPE, stderr=log
        )
        try:
            line = await asyncio.wait_for(child.stdout.readline(), PATIENCE_S)
            host, _, port = line.decode().split()[-1].rpartition(":")
            yield (host, int(port)), child.pid
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
            await child.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, default=1_000_000)
    parser.add_argument("--expiry-s", type=int, default=900)
    parser.add_argument("--stored", type=int, default=0, help="sessions with wills that are copied before")
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--will-bytes", type=int, default=20)
    parser.add_argument("--retained", action="store_true", help="each will is to be retained, under its own topic")
    parser.add_argument("--folder", type=Path, help="for the store and the log; default: one that is removed")
    given = parser.parse_args()
    options = ManyOptions(given.ids, given.expiry_s, given.stored, given.at_once, given.will_bytes, given.retained)
    with contextlib.ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        print(asyncio.run(run(folder, options)))
        print((folder / "a.log").read_text()[-3000:])


if __name__ == "__main__":
    main()
