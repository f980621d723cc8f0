"""MQTT: clients keep their process while the nodes that they are at are killed or stand still: nothing is missing.

Nodes over one store, a file or PostgreSQL.  Each client connects through a proxy whose target moves to the other node,
and then its node is killed (SIGKILL) or stands still (SIGSTOP).  The judge knows what PUBACKs said and what subscribers
printed; the logs of the nodes are judged besides.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from typing import ClassVar

from faults import FAULTS, hurt
from mqtt_clients import OncePublisher, OnceSubscriber, PahoPublisher, TopicPublisher
from mqtt_judge import (
    count_moved,
    find_repeated,
    judge,
    judge_once,
    judge_shared,
    judge_trace,
    list_repeats,
)
from mqtt_subscribers import CLIENT_ID, WRITER_ID, GroupMember, make_subscriber
from node_processes import mqtt_nodes, until
from stored_group import TENTH, write_times
from workload import Workload, run_beside

from statemachines.drivers.lives import begin_log
from statemachines.testing.fault_proxy import FaultProxy
from statemachines.trace.log import kill_row

STOPPED_S = 30
"""So long a client looks for another node before its own goes on: that may stand still with the file locked."""
REST_S = 0.5
"""What comes twice comes soon."""
TIMES = {**TENTH, "ping_timeout_ms": 1_000, "validity_ms": 1_800, "revoke_timeout_ms": 2_000}


class MqttNodes(Workload):
    """Nodes; the next fault hits the first of the pair, and clients move to the other."""

    schemas = ("gapless_sessions", "gapless")
    kinds = ("kill", "stop")
    nodes = 2
    node_options = ()
    groups = False

    @contextlib.asynccontextmanager
    async def open(self):
        names = "ab"[: self.nodes]
        opened = mqtt_nodes(self.folder, self.store, names, *self.list_options(), groups=self.groups)
        async with opened as self.running, contextlib.AsyncExitStack() as stack:
            self.place, self.spare = self.running[0], self.running[-1]
            self.nemesis = stack.enter_context(begin_log(self.folder / "trace", "nemesis~1"))
            self.begin = await stack.enter_async_context(run_beside())
            await self.begin_clients(stack)
            yield

    def list_options(self):
        return self.node_options

    async def open_way(self, stack, node):
        return await stack.enter_async_context(FaultProxy(("127.0.0.1", node.port)))

    def note_kill(self, what):
        """For who judges the logs."""
        if what == "kill":
            self.nemesis.write([kill_row(time.time_ns(), self.place.name, self.folder / "trace")])

    async def bring_back(self, what):
        """One that stood still finds its sessions gone, and is ended."""
        if what == "stop":
            await self.place.end()
            await self.place.start()


class MqttWorkload(MqttNodes):
    """A subscriber that nobody here wrote, and paho, which publishes; a single node comes back while they wait."""

    options: ClassVar = {"client": "mosquitto3", "kinds": "kill", "nodes": 2}
    files: ClassVar = {}
    """Client id -> its certificate."""
    met = 0

    def plan(self, faults):
        """Each kind in turn."""
        kinds = self.kinds.split(",")
        return [kinds[number % len(kinds)] for number in range(faults)]

    async def begin_clients(self, stack):
        self.ways = [await self.open_way(stack, self.place) for _ in range(2)]
        self.subscriber = make_subscriber(self.client, self.folder, self.files.get(CLIENT_ID))
        self.publisher = PahoPublisher(self.files.get(WRITER_ID))
        await self.subscriber.start(self.ways[0].address[1])
        await until(lambda: self.subscriber.presents)
        self.publisher.start(self.ways[1].address[1])
        await until(lambda: self.publisher.is_connected)
        while not self.subscriber.receipts:
            self.publisher.publish()  # whoever subscribes late misses what was published before
            await asyncio.sleep(0.05)
        self.first = self.publisher.count
        await until(self.is_all_answered)
        self.subscriber.receipts.clear()

    def is_all_answered(self):
        return len(self.publisher.answered) == self.publisher.count

    async def publish(self, least, most, pause_s=0.0):
        for _ in range(self.chance.randint(least, most)):
            self.publisher.publish()
            if pause_s:
                await asyncio.sleep(self.chance.uniform(0, pause_s))

    async def pause(self):
        await self.publish(5, 40, pause_s=0.01)

    async def hurt(self, what):
        """The node that clients are at: of one that stands still nobody hears that it is gone, so ways are cut."""
        place, spare = self.place, self.spare
        self.done[what] += 1
        back = self.await_lost()
        for way in self.ways:
            way.target = ("127.0.0.1", spare.port)
        async with FAULTS[what](place):
            self.note_kill(what)
            for way in self.ways:
                way.cut()
            await self.publish(0, 20)
            came = place is not spare and await until(back, STOPPED_S)
        await self.bring_back(what)
        self.met += came or await until(back)
        await until(lambda: self.publisher.is_connected)
        self.place, self.spare = spare, place

    def await_lost(self):
        """What says whether each client has connected again."""
        connections = len(self.subscriber.presents)
        return lambda: len(self.subscriber.presents) > connections

    async def finish(self):
        await self.publish(10, 10)
        self.wanted = self.list_wanted()
        await until(self.is_all_answered)
        await until(self.has_all_come)
        await self.publisher.end()
        await self.end_subscribers()
        assert {await node.end() for node in self.running} == {0}

    def list_wanted(self):
        return set(range(self.first + 1, self.publisher.count + 1))

    def has_all_come(self):
        return {one.number for one in self.subscriber.receipts} >= self.wanted

    async def end_subscribers(self):
        await self.subscriber.end()

    def judge(self):
        receipts, presents = self.subscriber.receipts, self.subscriber.presents
        return judge(self.wanted, receipts, presents, self.publisher.list_sent()) + judge_trace(self.folder)

    def tally(self):
        repeats = len(list_repeats(self.subscriber.receipts))
        return {"met": self.met, "messages": len(self.wanted), "sent again by the publisher": repeats}


class SharedWorkload(MqttWorkload):
    """Three `mosquitto_sub` of one group share topics; the publisher is at the node that stays, or moves with them."""

    options: ClassVar = {"kinds": "kill", "topics": 6, "moves_publisher": False, "version": 5}
    groups = True
    members = 3

    def list_options(self):
        return "--group-config", str(write_times(self.folder, TIMES))

    async def begin_clients(self, stack):
        self.receipts = []
        self.subscribers = [GroupMember(number, self.receipts, self.version) for number in range(self.members)]
        self.ways = []
        for number, member in enumerate(self.subscribers):
            self.ways.append(await self.open_way(stack, self.running[number % 2]))
            await member.start(self.ways[-1].address[1])
            await member.is_subscribed.wait()
        publishing = await self.open_way(stack, self.spare)
        if self.moves_publisher:
            self.ways.append(publishing)
        self.publisher = TopicPublisher(self.topics)
        self.publisher.start(publishing.address[1])
        await until(lambda: self.publisher.is_connected)  # before that paho sends in another order

    async def pause(self):
        await self.publish(20, 60, pause_s=0.02)

    def await_lost(self):
        at_place = ("127.0.0.1", self.place.port)
        ways = zip(self.subscribers, self.ways, strict=False)
        lost = {member: len(member.presents) for member, way in ways if way.target == at_place}
        return lambda: all(len(member.presents) > count for member, count in lost.items())

    async def hurt(self, what):
        """One goes home, so that the next kill meets somebody."""
        await super().hurt(what)
        back = self.spare
        if not self.moves_publisher:
            self.place, self.spare = self.spare, self.place
        way = self.chance.choice(self.ways[: self.members])
        way.target = ("127.0.0.1", back.port)
        way.cut()

    def list_wanted(self):
        return {self.publisher.name_message(one)[1] for one in range(1, self.publisher.count + 1)}

    def has_all_come(self):
        return {one.payload for one in self.receipts} >= self.wanted

    async def end_subscribers(self):
        await asyncio.sleep(REST_S)
        for member in self.subscribers:
            await member.end()

    def judge(self):
        repeated = find_repeated(self.publisher.list_sent())
        return judge_shared(self.wanted, self.receipts, repeated) + judge_trace(self.folder)

    def tally(self):
        counts = [sum(one.member == number for one in self.receipts) for number in range(self.members)]
        return {"met": self.met, "messages": len(self.wanted), "by member": counts}


class OnceWorkload(MqttNodes):
    """A publisher of QoS 2 whose node is killed or stands still between any two packets of the handshake.

    It speaks bytes of its own; it goes to the other node, and repeats what was not answered, as the standard says.  Two
    subscribers, one at each node, say what they got: each message comes once."""

    kinds = ("publish", "pubrec", "pubrel", "pubcomp")
    """Behind which packet a fault comes."""

    async def begin_clients(self, stack):
        self.publisher = OncePublisher(self.chance)
        self.readers = [OnceSubscriber("one"), OnceSubscriber("two")]
        ports = [node.port for node in self.running]
        for reader, order in zip(self.readers, (ports, ports[::-1]), strict=True):
            self.begin(reader.run(order))
        for reader in self.readers:
            while not reader.numbers:  # until it is subscribed; these messages do not count
                await self.publisher.begin(ports[0])
                await self.publisher.go_on(most=self.publisher.count + 1)
                self.publisher.close()
                await asyncio.sleep(0.05)
        self.first = self.publisher.count
        await self.publisher.begin(self.place.port)

    async def pause(self):
        """It comes at a packet."""

    async def hurt(self, what):
        """One that stands still goes on while the publisher is elsewhere: it may have the file locked."""
        place, spare = self.place, self.spare
        await self.publisher.go_on(what, self.chance.randint(1, 12))
        await asyncio.sleep(self.chance.choice((0, 0, 0.001, 0.003, 0.01)))
        self.done[what] += 1
        kind = "stop" if self.chance.random() < 0.3 else "kill"
        healed = self.begin(hurt(kind, self.chance, place, holds_s=(self.chance.uniform(0.5, 2),)))
        await asyncio.sleep(0)
        self.publisher.close()
        await self.publisher.begin(spare.port)
        await self.publisher.go_on("pubcomp", self.chance.randint(1, 6))
        await healed
        if kind == "stop":
            await asyncio.sleep(self.chance.uniform(0.1, 0.5))
            await place.end(signal.SIGKILL)
            await place.start()
        self.place, self.spare = spare, place

    async def finish(self):
        await self.publisher.go_on(most=self.publisher.count + 20)
        wanted = set(range(self.first + 1, self.publisher.count + 1))
        await until(lambda: all(wanted <= set(reader.numbers) for reader in self.readers))
        await asyncio.sleep(REST_S)
        self.publisher.close()

    def judge(self):
        count, wrong = self.publisher.count - self.first, []
        for reader in self.readers:
            numbers = [number - self.first for number in reader.numbers if number > self.first]
            wrong += [f"{reader.client_id}: {one}" for one in judge_once(count, numbers)]
        return wrong

    def tally(self):
        moved = sum(count_moved(reader.numbers) for reader in self.readers)
        return {"messages": self.publisher.count - self.first, "not in order": moved}
