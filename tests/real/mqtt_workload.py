"""MQTT: clients keep their process while the nodes that they are at are killed or stand still: nothing is missing.

Nodes over one store, a file or PostgreSQL.  Each client connects through a proxy whose target moves to the other node,
and then its node is killed (SIGKILL) or stands still (SIGSTOP).  The judge knows what PUBACKs said and what subscribers
printed; the logs of the nodes are judged besides.
"""

from __future__ import annotations

import contextlib
import time
from typing import ClassVar

from carried_workload import TENTH, write_times
from mqtt_subscribers import (
    CLIENT_ID,
    WRITER_ID,
    GroupMember,
    OncePublisher,
    PahoPublisher,
    PahoSubscriber,
    TopicPublisher,
    count_moved,
    find_repeated,
    judge,
    judge_once,
    judge_shared,
    judge_trace,
    list_new,
    list_repeats,
    make_subscriber,
)
from node_processes import mqtt_nodes, until
from outside import FAULTS
from workload import Workload

from statemachines.drivers.lives import begin_log
from statemachines.testing.fault_proxy import FaultProxy
from statemachines.trace.log import kill_row
from tests.waiting import pause_async, turns, until_async

REST_S = 0.5
"""What comes twice comes soon."""
TIMES = {**TENTH, "ping_timeout_ms": 1_000, "validity_ms": 1_800, "revoke_timeout_ms": 2_000}


class MqttWorkload(Workload):
    """A subscriber that nobody here wrote, and paho, which publishes; a single node comes back while they wait."""

    options: ClassVar = {"client": "mosquitto3", "kinds": "kill", "nodes": 2}
    schemas = ("gapless_sessions", "gapless")
    files: ClassVar = {}
    """Client id -> its certificate."""
    node_options = ()
    groups = False
    """Whether they are of a group, and spread over the nodes."""
    moves_publisher = True
    nodes, met = 2, 0
    stopped_s = 30
    """So long a client looks for another node before its own goes on: that may stand still with the file locked."""
    counts = (5, 40)
    """Messages between two faults."""

    def plan(self, faults):
        """Each kind in turn."""
        kinds = self.kinds.split(",")
        return [kinds[number % len(kinds)] for number in range(faults)]

    def make_clients(self):
        return [make_subscriber(self.client, self.folder, self.files.get(CLIENT_ID))], PahoPublisher(
            self.files.get(WRITER_ID)
        )

    @contextlib.asynccontextmanager
    async def open(self):
        opened = mqtt_nodes(self.folder, self.store, "ab"[: self.nodes], *self.node_options, groups=self.groups)
        async with opened as self.running, contextlib.AsyncExitStack() as stack:
            self.place, self.spare = self.running[0], self.running[-1]
            self.nemesis = stack.enter_context(begin_log(self.folder / "trace", "nemesis~1"))
            self.subscribers, self.publisher = self.make_clients()
            self.ways = []
            for number, client in enumerate(self.subscribers):
                self.ways.append(await self.open_way(stack, self.running[number % 2 if self.groups else 0]))
                await client.start(self.ways[-1].address[1])
                await until(lambda client=client: client.presents)
            way = await self.open_way(stack, self.spare if self.groups else self.place)
            self.ways += [way] if self.moves_publisher else []
            self.publisher.start(way.address[1])
            await until(lambda: self.publisher.is_connected)  # before that paho sends in another order
            await until_async(  # whoever subscribes late misses what was published before
                lambda: all(client.receipts for client in self.subscribers), meanwhile=self.publisher.publish
            )
            self.first = self.publisher.count
            await until(self.is_all_answered)
            for client in self.subscribers:
                client.receipts.clear()
            yield

    async def open_way(self, stack, node):
        return await stack.enter_async_context(FaultProxy(("127.0.0.1", node.port)))

    def is_all_answered(self):
        return len(self.publisher.answered) == self.publisher.count

    async def publish(self, least, most, pause_s=0.0):
        for _ in range(self.chance.randint(least, most)):
            self.publisher.publish()
            if pause_s:
                await pause_async(self.chance.uniform(0, pause_s), "the pace of the publisher")

    async def pause(self):
        await self.publish(*self.counts, pause_s=0.01)

    async def hurt(self, what):
        """The node that clients are at: of one that stands still nobody hears that it is gone, so ways are cut."""
        kind, place, spare = what.split()[0], self.place, self.spare
        self.done[what] += 1
        at_place = [way.target == ("127.0.0.1", place.port) for way in self.ways]
        lost = {one: len(one.presents) for one, is_lost in zip(self.subscribers, at_place, strict=False) if is_lost}

        def is_back():
            return all(len(one.presents) > count for one, count in lost.items())

        for way in self.ways:
            way.target = ("127.0.0.1", spare.port)
        async with FAULTS[kind](place):
            if kind == "kill":
                self.nemesis.write([kill_row(time.time_ns(), place.name, self.folder / "trace")])
            for way in self.ways:
                way.cut()
            await self.publish(0, 20)
            came = place is not spare and await until(is_back, self.stopped_s)
        if kind == "stop":  # it finds its sessions gone
            await place.end()
            await place.start()
        self.met += came or await until(is_back)
        await until(lambda: self.publisher.is_connected)
        if self.moves_publisher:
            self.place, self.spare = spare, place

    async def finish(self):
        await self.publish(10, 10)
        self.wanted = {self.publisher.name_message(one)[1] for one in range(self.first + 1, self.publisher.count + 1)}
        await until(self.is_all_answered)
        await until(lambda: all({one.number for one in each.receipts} >= self.wanted for each in self.subscribers))
        await pause_async(REST_S, "what comes twice would come now")
        for one in (self.publisher, *self.subscribers):
            await one.end()
        assert {await node.end() for node in self.running} == {0}

    def judge(self):
        (subscriber,) = self.subscribers
        wrong = judge(self.wanted, subscriber.receipts, subscriber.presents, self.publisher.list_sent())
        return wrong + judge_trace(self.folder)

    def tally(self):
        repeats = len(list_repeats(self.subscribers[0].receipts))
        return {"met": self.met, "messages": len(self.wanted), "sent again by the publisher": repeats}


class SharedWorkload(MqttWorkload):
    """Three `mosquitto_sub` of one group share topics; the publisher is at the node that stays, or moves with them."""

    options: ClassVar = {"kinds": "kill", "topics": 6, "moves_publisher": False, "version": 5}
    groups = True
    counts = (20, 60)

    def make_clients(self):
        self.node_options, self.receipts = ("--group-config", str(write_times(self.folder, TIMES))), []
        return [GroupMember(number, self.receipts, self.version) for number in range(3)], TopicPublisher(self.topics)

    async def hurt(self, what):
        """One goes home, so that the next kill meets somebody."""
        place = self.place
        await super().hurt(what)
        way = self.chance.choice(self.ways[: len(self.subscribers)])
        way.target = ("127.0.0.1", place.port)
        way.cut()

    def judge(self):
        return judge_shared(self.wanted, self.receipts, find_repeated(self.publisher.list_sent()))

    def tally(self):
        counts = [sum(one.member == member.number for one in self.receipts) for member in self.subscribers]
        return super().tally() | {"by member": counts}


class OnceWorkload(MqttWorkload):
    """A publisher of QoS 2 whose node is killed or stands still between any two packets of the handshake.

    It speaks bytes of its own.  Two subscribers say what they got: each message comes once."""

    options: ClassVar = {}
    stopped_s = 2

    def plan(self, faults):
        """Behind which packet a fault comes."""
        places = ("publish", "pubrec", "pubrel", "pubcomp")
        return [
            f"{self.chance.choice(['kill', 'kill', 'stop'])} at {self.chance.choice(places)}" for _ in range(faults)
        ]

    def make_clients(self):
        subscribers = [PahoSubscriber(5, client_id=name) for name in ("one", "two")]
        return subscribers, OncePublisher(self.chance)

    async def pause(self):
        """It comes at a packet."""

    async def hurt(self, what):
        place = what.split()[-1]
        wanted = self.publisher.seen[place] + self.chance.randint(1, 12)
        while self.publisher.seen[place] < wanted:
            if not self.publisher.handed:
                self.publisher.publish()
            await turns()
        await pause_async(self.chance.choice((0, 0, 0.001, 0.003, 0.01)), "amid the packet or behind it")
        await super().hurt(what)

    def judge(self):
        wrong, count = [], self.publisher.count - self.first
        self.numbers = [list_new(reader.receipts, self.first) for reader in self.subscribers]
        for reader, numbers in zip(self.subscribers, self.numbers, strict=True):
            wrong += [f"{reader.client_id}: {one}" for one in judge_once(count, numbers)]
        return wrong

    def tally(self):
        return super().tally() | {"not in order": sum(map(count_moved, self.numbers))}
