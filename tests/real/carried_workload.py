"""Sessions that share streams of groups: nodes and a leader host are killed and stopped, and clients come and go.

Storms and calm take turns.  In a storm somebody is killed (SIGKILL) or stopped (SIGSTOP), or a database is kept locked
or stands still.  In the calm nobody is, but clients go on to leave, to vanish, to take their sessions over and to
subscribe anew, and nodes are ended in good order: then nothing may come twice.  `carried_judge` says what came of it,
and knows what clients and publishers know.

A group and its messages, in the store before the processes of a test begin.

This process stores them: a command would take a quarter of a second to begin, and it is not what these tests are about.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import ClassVar

from carried_judge import Acked, Ended, Got, Handed, Hurt, Run, judge, tally
from node_processes import PATIENCE_S, nodes_of
from outside import hurt
from sessions_workload import choose_node
from workload import Workload, run_beside

from statemachines.drivers.persistent_sessions import (
    PersistentSession,
    SessionPublisher,
    SessionTaken,
    SubscribeRefused,
)
from statemachines.drivers.shared_subscriptions import Publisher
from statemachines.drivers.shared_subscriptions.groups import declare
from statemachines.drivers.shared_subscriptions.node_commands import read_configuration
from statemachines.drivers.sql.failure import StoreUnavailable
from statemachines.shared_subscriptions.configuration import Configuration
from tests.waiting import pause_async, silence, within

TENTH = {
    field: getattr(Configuration(), field) // 10 for field in Configuration.__struct_fields__ if field.endswith("_ms")
}
"""Times of a group: a tenth of the defaults."""


def write_times(folder, times):
    """The file of them."""
    path = folder / "group.toml"
    path.write_text("".join(f"{key} = {value}\n" for key, value in times.items()))
    return path


def declare_group(store, subscription="$shared/g/#", *, config=None, start="beginning", order=None):
    """Declare the group; `config`: the file of its times."""
    times = read_configuration(config)
    asyncio.run(declare(subscription, store=store, start=start, order=order, configuration=times))


def publish_lines(store, lines, topic="lines"):
    """Store the lines in one topic, in one transaction."""

    async def publish():
        async with Publisher(store) as publisher:
            await publisher.publish(topic, [line.encode() for line in lines])

    asyncio.run(publish())


TIMES = {**TENTH, "ping_timeout_ms": 1_500, "validity_ms": 2_000, "claim_ttl_ms": 6_000, "revoke_timeout_ms": 30_000}
"""Leases of 1.6 s; and time to store what a member has in hand, on however busy a machine."""
OPEN_MAX = 100
"""Publishers wait while so many messages have not come: a run costs then what its faults cost."""
TOPICS = ("jobs/a", "jobs/b", "jobs/c", "jobs/d")
SHARED, SINGLE = "$share/g/jobs/#", "$share/h/jobs/a"
GROUPS = {SHARED: set(TOPICS), SINGLE: {"jobs/a"}}
CLIENTS = {"tablet": (1, 20), "phone": (2, 5), "watch": (1, 2)}
"""Quality of what each subscribes, and how many messages it receives at a time."""
GROUPLESS = "c"
"""A node that knows no groups."""
STILL_S = 90
"""When nothing has come for so long nothing comes any more."""
PACES_S = (0, 0, 0.01, 0.05)
"""How long an application works at a message, by its connection: some are too slow for what is published."""
IDLE_S = 0.3
"""So long an application waits for more before it acknowledges what it holds."""
LAPSES = (
    "is no member any more: ",
    "does not lead",
    "stood still",
    "the store has not answered for",
    "says nothing for",
)
"""What processes, and clients here, say of somebody who was silent for longer than a lease.  Where it is a store, its
node sends publishers on, and what was not answered is stored again."""
LOOK_S = 0.5
QUIET_S = 4.0
"""After a storm leases end, and what was stored twice comes."""


class Story:
    """What has happened, as its judge wants it."""

    def __init__(self):
        self.events, self.hurts = [], []
        self.handed = {}
        self.given, self.open = set(), set()
        """(filter, topic, number) of what came, and of what was answered and did not come."""

    def now(self):
        return asyncio.get_running_loop().time()

    @contextlib.contextmanager
    def hurting(self, what):
        begin = self.now()
        try:
            yield
        finally:
            self.hurts.append(Hurt(begin, self.now(), what))

    def run(self):
        own = {f"own/{name}": {f"own/{name}"} for name in CLIENTS}
        most = {name: most for name, (_, most) in CLIENTS.items()}
        return Run(list(self.handed.values()), self.events, self.hurts, GROUPS, own, most)


class Client:
    """An application with a session; `reading` it; the last `connection` that something came over in this `life`."""

    def __init__(self, name, nodes, chance, story):
        self.name, self.nodes, self.chance, self.story = name, nodes, chance, story
        self.qos, self.most = CLIENTS[name]
        self.filters = [SHARED, f"own/{name}", *([SINGLE] if name == "tablet" else [])]
        self.subscribed = asyncio.Event()
        self.session = None
        self.reading = None
        self.life, self.connection = 0, None

    async def come(self, groupless=0.0):
        """Connect, to some node first, and subscribe."""
        nodes = self.chance.sample(self.nodes[:2], 2)
        if self.chance.random() < groupless:
            nodes = [self.nodes[2], *nodes]
        session = await self.connected(nodes)
        before, self.session = self.session, session
        if before is not None:
            await self.forget(before, "taken")
        self.life, self.connection = self.life + 1, None
        self.reading = asyncio.ensure_future(self.read(session))
        if not self.subscribed.is_set():
            await self.subscribe()

    async def connected(self, nodes):
        """The connection of before may be the last, where its node has died just now."""
        while True:
            with contextlib.suppress(SessionTaken):
                session = PersistentSession(self.name, nodes=nodes, receive_maximum=self.most, patience_s=PATIENCE_S)
                return await session.__aenter__()

    async def subscribe(self):
        for each in self.filters:
            await self.session.subscribe(each, qos=self.qos)
        self.subscribed.set()

    async def read(self, session):
        """Until it ends; acknowledge some at a time, and what is held when nothing comes."""
        held, pace = [], self.chance.choice(PACES_S)
        with contextlib.suppress(SessionTaken):
            while True:
                try:
                    async with silence(IDLE_S, "what is held is acknowledged then"):
                        message = await anext(session)
                except TimeoutError:
                    self.acknowledge(held)
                    continue
                except StopAsyncIteration:
                    return
                held.append((message, self.note(message)))
                if len(held) >= self.most or self.chance.random() < 0.5:
                    self.acknowledge(held)
                if pace:
                    await pause_async(pace, "the application works")

    def note(self, message):
        self.connection = (self.name, self.life, message.connection)
        got = Got(self.story.now(), self.name, self.connection, message.filter, message.topic, int(message.payload),
                  message.packet, message.dup)  # fmt: skip
        self.story.events.append(got)
        self.story.given.add(got.message)
        self.story.open.discard(got.message)
        return got

    def acknowledge(self, held):
        for message, got in held:
            self.story.events.append(Acked(self.story.now(), got))
            message.acknowledge()
        held.clear()

    async def forget(self, session, how):
        """It is not read any more."""
        if self.reading is not None:
            self.reading.cancel()
            await asyncio.gather(self.reading, return_exceptions=True)
        if how == "left":
            was_connected = session._connected
            await session.leave()
            how = "left" if was_connected and session._left.is_set() else "aborted"
        else:
            await session.abort()
        if self.connection is not None:
            self.story.events.append(Ended(self.story.now(), self.name, self.connection, how))

    async def move(self, what, groupless=0.0):
        if what == "take over":
            await self.come(groupless)
            return
        if what == "subscribe":
            with contextlib.suppress(SessionTaken, SubscribeRefused):  # its node may know no groups
                await self.session.unsubscribe(SHARED)
                await pause_async(self.chance.choice([0, 0.2]), "without the filter")
                await self.session.subscribe(SHARED, qos=self.qos)
            return
        session, self.session = self.session, None
        await self.forget(session, {"leave": "left", "vanish": "aborted"}[what])
        await pause_async(self.chance.choice([0, 0, 0.3, 1.0]), "it is away")
        await self.come(groupless)


class CarriedWorkload(Workload):
    """Three nodes of sessions, of which one knows no groups, a leader host, three clients, and publishers."""

    options: ClassVar = {"rounds": 2, "moves": 8, "streams": ""}
    schemas = ("gapless_sessions", "gapless")
    kinds = ("kill", "kill", "kill", "stop", "stop", "kill leader", "stop leader", "lock", "end")
    moves_of_clients = ("leave", "leave", "vanish", "take over", "subscribe")
    pause_s = (0.1, 0.7)

    def plan(self, faults):
        """Faults of a storm, and what is done in the calm behind it, for each round."""
        plan = []
        for _ in range(self.rounds):
            moves = self.chance.choices((*self.moves_of_clients, "end"), k=self.moves)
            plan += ["storm", *super().plan(faults), "calm", *(f"calm {move}" for move in moves)]
        return plan

    @contextlib.asynccontextmanager
    async def open(self):
        self.story = Story()
        if not self.streams:
            is_file = not self.store.startswith("postgresql")
            self.streams = str(self.folder / "messages.db") if is_file else self.store
        config = str(write_times(self.folder, TIMES))
        clients_log = logging.FileHandler(self.folder / "clients.log")
        logging.getLogger("gapless").addHandler(clients_log)
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(clients_log.close)
            stack.callback(logging.getLogger("gapless").removeHandler, clients_log)
            leader = nodes_of(self.folder, self.streams, ("leader",), "--config", config, role="leader", times=())
            (self.leader,) = await stack.enter_async_context(leader)
            grouped = ("--group-leader", self.leader.address, "--group-store", self.streams, "--group-config", config)
            self.nodes = await stack.enter_async_context(nodes_of(self.folder, self.store, ("a", "b"), *grouped))
            self.nodes += await stack.enter_async_context(nodes_of(self.folder, self.store, (GROUPLESS,)))
            for node in self.nodes:
                node.others = self.nodes
            addresses = [node.address for node in self.nodes]
            self.publisher = await stack.enter_async_context(Publisher(self.streams, patience_s=PATIENCE_S))
            self.private = await stack.enter_async_context(SessionPublisher(nodes=addresses))
            self.clients = [Client(name, addresses, self.fork_chance(), self.story) for name in CLIENTS]
            self.begin = await stack.enter_async_context(run_beside())
            async with within("all clients come", hangs=5):
                await asyncio.gather(*(one.come() for one in self.clients))
            self.begin(self.watch())
            try:
                yield
            finally:
                for one in self.clients:
                    if one.session is not None:
                        await one.forget(one.session, "closed")

    # -- what is published ------------------------------------------------------------------------------------------

    def hand(self, topic, count):
        """The next messages of a topic, as they are handed over."""
        first = sum(1 for of in self.story.handed if of[0] == topic)
        numbers = range(first, first + count)
        for number in numbers:
            self.story.handed[topic, number] = Handed(self.story.now(), topic, number, None)
        return numbers

    def answered(self, topic, number):
        of = (topic, number)
        self.story.handed[of] = self.story.handed[of]._replace(stored_at=self.story.now())
        by = [each for each, topics in GROUPS.items() if topic in topics] or [topic]
        self.story.open |= {(each, *of) for each in by} - self.story.given

    async def publish(self):
        """A handful, to a stream or to a client."""
        if self.chance.random() < 0.25:
            topic = f"own/{self.chance.choice(tuple(CLIENTS))}"
            numbers = self.hand(topic, self.chance.randint(1, 4))
            await asyncio.gather(*(self.publish_own(topic, number) for number in numbers))
            return
        topic = self.chance.choice(TOPICS)
        numbers = self.hand(topic, self.chance.randint(1, 9))
        with contextlib.suppress(StoreUnavailable):  # nobody knows whether it is there, then
            await self.publisher.publish(topic, [str(number).encode() for number in numbers])
            for number in numbers:
                self.answered(topic, number)

    async def publish_own(self, topic, number):
        await self.private.publish(topic, str(number).encode(), qos=2)
        self.answered(topic, number)

    async def publish_on(self):
        while not self.over.is_set():
            if len(self.story.open) < OPEN_MAX:
                await self.publish()
            await pause_async(self.chance.uniform(0.02, 0.1), "the pace of the publisher")

    def begin_publishing(self):
        self.over = asyncio.Event()
        self.publishing = self.begin(self.publish_on())

    async def end_publishing(self):
        self.over.set()
        await self.publishing

    async def drained(self):
        """Until everything has come, or nothing comes any more: that is for the judge."""
        came, at = 0, self.story.now()
        while self.story.open and self.story.now() - at < STILL_S:
            if len(self.story.given) > came:
                came, at = len(self.story.given), self.story.now()
            await pause_async(0.1, "between two looks")

    # -- what goes wrong --------------------------------------------------------------------------------------------

    async def hurt(self, what):
        """Storm and calm are the beginnings of both; of a client that moves in a storm nobody knows where it goes."""
        if what == "storm":
            self.begin_publishing()
        elif what == "calm":
            await self.calm_down()
        elif what.startswith("calm "):
            self.done[what] += 1
            await self.move(what.removeprefix("calm "))
        else:
            self.done[what] += 1
            moving = ()
            if self.chance.random() < 0.5:
                moving = (self.move(self.chance.choice(self.moves_of_clients), groupless=0.2),)
            await asyncio.gather(self.hurt_one(what), *moving)

    async def hurt_one(self, what):
        kind, _, of_leader = what.partition(" ")
        node = choose_node(self.store, self.nodes, tuple(CLIENTS), self.chance)
        if kind == "end":
            await self.end(node)
            return
        victim = self.chance.choice([self.store, self.streams]) if kind == "lock" else node
        with self.story.hurting(kind):
            await hurt(kind, self.chance, self.leader if of_leader else victim)

    async def end(self, node):
        """In good order, and another life of it."""
        with self.story.hurting("closed"):
            assert await node.end() == 0, node.said()
            await pause_async(self.chance.choice([0, 0.5]), "it is away")
            await node.start()

    async def move(self, what, groupless=0.0):
        """Of a client; or a node ends."""
        if what == "end":
            await self.end(self.chance.choice(self.nodes))
        else:
            await self.chance.choice(self.clients).move(what, groupless)

    async def calm_down(self):
        """Everybody is where groups are, and nothing is under way when the calm begins."""
        await self.end_publishing()
        for one in self.clients:
            await one.move("leave")
            await one.subscribe()
        await self.drained()
        await pause_async(QUIET_S, "nothing is under way")
        self.begin_publishing()

    async def finish(self):
        await self.end_publishing()
        await self.drained()
        await pause_async(1.0, "what comes twice would come now")
        for one in self.clients:  # whoever was taken over and has said nothing since
            assert one.reading is not None
            if one.reading.done():
                one.reading.result()

    def judge(self):
        for path in sorted(self.folder.glob("*.log")):
            assert "Traceback" not in path.read_text(), path
        run = self.story.run()
        lines = [f"{one!r}\n" for one in sorted([*run.handed, *run.events, *run.hurts], key=lambda one: one.at)]
        (self.folder / "story").write_text("".join(lines))
        return judge(run)

    def tally(self):
        return tally(self.story.run())

    # -- who is taken for dead --------------------------------------------------------------------------------------

    async def watch(self):
        """On a busy machine somebody is taken for dead, or for slow, whom nobody has hurt: that is no calm, either."""
        at, before = self.story.now(), self.lapsed()
        while True:
            await pause_async(LOOK_S, "between two looks")
            now, lapsed = self.story.now(), self.lapsed()
            if lapsed != before:
                self.story.hurts.append(Hurt(at, now, "lapsed"))
            at, before = now, lapsed

    def lapsed(self):
        """How often anybody has said so, so far."""
        said = "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))
        lines = [line for line in said.splitlines() if any(words in line for words in LAPSES)]
        return sum("any more: it left" not in line for line in lines)
