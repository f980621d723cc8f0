"""A run of MQTT clients that nobody here wrote: their node is killed, they keep their process, and nothing is missing.

Two nodes over one store, a file or PostgreSQL.  A client subscribes through a proxy whose target moves to the other
node, and then the client's node is killed (SIGKILL) or stands still (SIGSTOP); a paho publisher goes on, through a
proxy of its own.  The judge knows what the publisher's PUBACKs said and what the subscriber printed: it shares nothing
with what it judges.  The logs of the nodes are judged besides.

    python tests/real/mqtt_run.py --faults 20 --seed 7 --client mosquitto5 --kinds kill,stop
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import paho.mqtt.client as paho
from mqtt_subscribers import CLIENT_ID, CLIENTS, FETCHED, WRITER_ID, make_subscriber

from statemachines.drivers.lives import begin_log
from statemachines.testing.fault_proxy import FaultProxy
from statemachines.testing.postgres import PostgresServer
from statemachines.testing.process_harness import free_port
from statemachines.trace.log import kill_row
from statemachines_reports.pipeline import analyze

START_S = 180
PATIENCE_S = 120
STOPPED_S = 30
"""So long a client looks for another node before its own goes on: that may stand still with the file locked."""

SENT = re.compile(r"Sending PUBLISH \(d\d, q\d, r\d, m(\d+)\)")
"""What paho's log says of a PUBLISH that it sends."""

QUICK = ("--lease-ms", "1000", "--look-ms", "200", "--marker-ms", "400")


class MqttProcess:
    """A node as a process; it comes back on its ports."""

    def __init__(self, folder, name, store, groups=False):
        self.folder, self.name, self.store = folder, name, store
        self.port, self.node_port = free_port(), free_port()
        self.group_port = free_port() if groups else 0
        self.child, self.options = None, ()

    async def start(self, others, *options):
        options = self.options = options or self.options
        peers = ",".join(f"127.0.0.1:{one.node_port}" for one in others if one is not self)
        command = [sys.executable, "-m", "statemachines", "node", "mqtt", "--store", self.store, "--name", self.name]
        command += ["--listen", f"127.0.0.1:{self.port}", "--node-listen", f"127.0.0.1:{self.node_port}"]
        command += ["--peers", peers, *QUICK, "--trace", str(self.folder / "trace"), *options]
        if self.group_port:
            leaders = ",".join(f"127.0.0.1:{one.group_port}" for one in others if one is not self)
            command += ["--group-listen", f"127.0.0.1:{self.group_port}", "--group-peers", leaders]
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=log)
        line = await asyncio.wait_for(self.child.stdout.readline(), START_S)
        assert line.startswith(b"listening on "), self.read_log()

    def read_log(self):
        return (self.folder / f"{self.name}.log").read_text()

    async def hurt(self, kind, nemesis):
        """Kill it, or let it stand still."""
        if kind == "stop":
            self.child.send_signal(signal.SIGSTOP)
            return
        await self.end(signal.SIGKILL)
        nemesis.write([kill_row(time.time_ns(), self.name, self.folder / "trace")])

    async def heal(self):
        """One that stands still goes on, finds its sessions gone, and is ended."""
        if self.child.returncode is None:
            self.child.send_signal(signal.SIGCONT)
            await self.end()

    async def end(self, number=signal.SIGTERM):
        self.child.send_signal(number)
        return await asyncio.wait_for(self.child.wait(), PATIENCE_S)


@contextlib.asynccontextmanager
async def mqtt_nodes(folder, store, names=("a", "b"), *options, groups=False):
    """Nodes that run, and have ended when this is left; `groups`: clients may use `$share`."""
    nodes = [MqttProcess(folder, name, store, groups) for name in names]
    try:
        await asyncio.gather(*(node.start(nodes, *options) for node in nodes))
        yield nodes
    finally:
        for node in nodes:
            if node.child is not None and node.child.returncode is None:
                node.child.kill()
                await node.child.wait()


# -- clients --------------------------------------------------------------------------------------------------------


class PahoPublisher:
    """Publishes numbers, QoS 1, a few at a time; `answered` are those whose PUBACK came.

    What it sends, in which order and how often, paho's log tells.  No lock is held here: paho holds one of its own
    while it tells of a PUBACK, and takes the same one to publish.
    """

    def __init__(self, files=None):
        self.count = 0
        self._numbers = {}
        self._acknowledged = set()
        self._log = []
        self._client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, WRITER_ID, protocol=paho.MQTTv311, clean_session=False
        )
        if files is not None:
            self._client.tls_set_context(files.make_context())
        self._client.reconnect_delay_set(0.05, 0.2)
        self._client.on_publish = lambda client, userdata, mid, *given: self._acknowledged.add(mid)
        self._client.on_log = lambda client, userdata, level, text: self._log.append(text)

    @property
    def answered(self):
        return {self._numbers[mid] for mid in self._acknowledged & self._numbers.keys()}

    def list_sent(self):
        """A list for each connection: the numbers that were sent over it, in their order."""
        connections = [[]]
        for text in list(self._log):
            found = SENT.match(text)
            if found:
                connections[-1].append(self._numbers[int(found[1])])
            elif text.startswith("Sending CONNECT"):
                connections.append([])
        return connections

    def publish(self):
        self.count += 1
        self._numbers[self._client.publish("p/1", str(self.count), qos=1).mid] = self.count

    @property
    def is_connected(self):
        """Whether it sends in order: what paho is given before CONNACK it sends before what it repeats."""
        return self._client.is_connected()

    def start(self, port):
        self._client.connect_async("127.0.0.1", port, keepalive=5)
        self._client.loop_start()

    async def end(self):
        await asyncio.to_thread(self._client.disconnect)
        await asyncio.to_thread(self._client.loop_stop)


# -- the run --------------------------------------------------------------------------------------------------------


def judge(wanted, receipts, presents, sent):
    """What is wrong with what the clients saw.  The publisher was answered for all that are `wanted`.  `sent` is what
    it sent over each of its connections: what it repeated may come twice, and what it sent in another order over one
    connection may come so."""
    receipts = [one for one in receipts if one.number in wanted]
    numbers = {one.number for one in receipts}
    wrong = [f"missing: {sorted(wanted - numbers)[:10]}"] if wanted - numbers else []
    firsts = list(dict.fromkeys(one.number for one in receipts))
    moved = [(before, after) for before, after in pairwise(firsts) if after < before]
    wrong += [f"{after} came behind {before}" for before, after in moved if not was_sent_so(before, after, sent)]
    again = set(list_repeats(receipts)) - find_repeated(sent)
    if again:
        wrong.append(f"twice without a mark: {sorted(again)[:10]}")
    if not all(one is None or one for one in presents[1:]):
        wrong.append(f"session present: {presents}")
    return wrong


def was_sent_so(before, after, sent):
    """Whether the publisher sent the later number first, over one connection."""
    both = (one for one in sent if before in one and after in one)
    return any(one.index(before) < one.index(after) for one in both)


def find_repeated(sent):
    """Numbers that the publisher sent more than once."""
    counts = Counter(number for one in sent for number in one)
    return {number for number, count in counts.items() if count > 1}


def judge_trace(folder):
    """What is wrong by the logs of the nodes; they must tell of connections, each step of which is judged."""
    analysis = analyze(folder / "trace", folder / "report", spark=False)
    rows = [one for one in analysis.tables["coverage"] if one["machine"] == "mqtt_connections/mqtt_connection"]
    if len(rows) < 5 or analysis.absent:
        return [f"trace: {len(rows)} rows of connections, absent: {analysis.absent}"]
    return [f"trace: {check.name}: {check.wrong} wrong" for check in analysis.checks if not check.held]


def list_repeats(receipts):
    """Numbers that came again without a mark: the publisher has sent them again."""
    seen, repeats = set(), []
    for one in receipts:
        if one.number in seen and not one.dup:
            repeats.append(one.number)
        seen.add(one.number)
    return repeats


async def play(folder, store, client, seed, faults, *, kinds=("kill",), files=None, options=(), names=("a", "b")):
    """(what is wrong, faults that met connected clients, messages, repeats of the publisher).  `files`: client id ->
    its certificate; `options` of the nodes.  A single node comes back while its clients wait for it."""
    chance = random.Random(seed)
    given = files or {}
    async with mqtt_nodes(folder, store, names, *options) as nodes, contextlib.AsyncExitStack() as stack:
        nemesis = stack.enter_context(begin_log(folder / "trace", "nemesis~1"))
        place, spare = nodes[0], nodes[-1]
        ways = [await stack.enter_async_context(FaultProxy(("127.0.0.1", place.port))) for _ in range(2)]
        subscriber = make_subscriber(client, folder, given.get(CLIENT_ID))
        publisher = PahoPublisher(given.get(WRITER_ID))
        await subscriber.start(ways[0].address[1])
        await until(lambda: subscriber.presents)
        publisher.start(ways[1].address[1])
        await asyncio.sleep(0.2)
        publisher.publish()
        while not subscriber.receipts:
            publisher.publish()  # whoever subscribes late misses what was published before
            await asyncio.sleep(0.05)
        first = publisher.count
        await until(lambda: len(publisher.answered) == publisher.count)
        subscriber.receipts.clear()
        met = 0
        for number in range(faults):
            target = publisher.count + chance.randint(5, 40)
            while publisher.count < target:
                publisher.publish()
                await asyncio.sleep(chance.uniform(0, 0.01))
            connections = len(subscriber.presents)
            for way in ways:
                way.target = ("127.0.0.1", spare.port)
            await place.hurt(kinds[number % len(kinds)], nemesis)
            for way in ways:
                way.cut()  # of a node that stands still nobody hears that it is gone
            for _ in range(chance.randint(0, 20)):
                publisher.publish()
            came = place is not spare and await until(lambda: len(subscriber.presents) > connections, STOPPED_S)  # noqa: B023
            await place.heal()
            await place.start(nodes, *options)
            met += came or await until(lambda: len(subscriber.presents) > connections)  # noqa: B023
            await until(lambda: publisher.is_connected)
            place, spare = spare, place
        for _ in range(10):
            publisher.publish()
        wanted = set(range(first + 1, publisher.count + 1))
        await until(lambda: len(publisher.answered) == publisher.count)
        await until(lambda: {one.number for one in subscriber.receipts} >= wanted)
        await publisher.end()
        await subscriber.end()
        assert {await node.end() for node in nodes} == {0}
    wrong = judge(wanted, subscriber.receipts, subscriber.presents, publisher.list_sent())
    return wrong, met, len(wanted), len(list_repeats(subscriber.receipts))


async def until(holds, seconds=PATIENCE_S):
    """Wait; whether it came to hold."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(0.01)
    return holds()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", choices=(*CLIENTS, *FETCHED), default="mosquitto3")
    parser.add_argument("--kinds", default="kill", help="kill, stop, or both in turn: kill,stop")
    parser.add_argument(
        "--store", default="", help="the URL of a database, or a file, or postgres: a server is started"
    )
    parser.add_argument("--nodes", type=int, default=2, choices=(1, 2))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=5)
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory())
        store = given.store or os.path.join(name, "s.db")
        if store == "postgres":
            store = stack.enter_context(PostgresServer()).database("sessions")
        asked = (Path(name), store, given.client, given.seed, given.faults)
        played = play(*asked, kinds=given.kinds.split(","), names=("a", "b")[: given.nodes])
        wrong, met, count, repeats = asyncio.run(played)
        wrong += judge_trace(Path(name))
        for one in sorted(Path(name).glob("*.log")):
            print(one.read_text()[-2000:])
    print(f"{met} faults, {count} messages, {repeats} sent again by the publisher, {len(wrong)} wrong")
    for one in wrong:
        print(one)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
