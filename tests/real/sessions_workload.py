"""Sessions: subscribers and publishers at nodes that are killed, stopped and kept from their database.

Publishers go on all the time; whoever has a session in its hands is killed (SIGKILL) or stopped (SIGSTOP) at moments
that a seed chooses, or somebody keeps the database locked, or PostgreSQL stands still, or one node alone does not reach
it.  The judge knows what publishers were answered, what the applications were given, and what lies in the tables.
A part of the messages expires soon, and another part long after the run: only of the first may some be missing.
"""

import asyncio
import contextlib
import sqlite3
from collections import defaultdict

from carried_judge import SessionsJudgeGot, count_moves, expiry_of, judge_of_sessions_judge, must_come
from node_processes import nodes_of, until
from outside import hurt, reach_by_proxy
from workload import Workload, run_beside

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.testing.postgres import run_sql
from tests.waiting import pause_async, within

EACH = 5
"""So many messages for each fault are answered in a run at least, and one between two faults: else nodes on a busy
machine would come and go, and do nothing."""
PAUSE_S = 0.1
"""A publisher rests so long at most between two handfuls: what a run costs is then what its faults cost, however fast
the machine is, and not what two publishers can keep a processor busy with."""
READ_S = 10
"""What is stored is read so often at least: the collectors of the nodes delete a message a minute after it came."""


class Subscriber:
    """An application: it keeps what it is given, and acknowledges when it likes."""

    def __init__(self, client, nodes, chance, qos):
        self.client, self.nodes, self.chance, self.qos = client, nodes, chance, qos
        self.got = []
        self.subscribed = asyncio.Event()

    async def run(self):
        session = PersistentSession(self.client, nodes=self.nodes, receive_maximum=20)
        async with session:
            await session.subscribe("p/#", qos=self.qos)
            self.subscribed.set()
            kept = []
            async for message in session:
                publisher, _, number = message.payload.decode().partition(":")
                self.got.append(SessionsJudgeGot((publisher, int(number)), message.packet, message.dup, message.expiry))
                kept.append(message)
                if self.chance.random() < 0.7 or len(kept) > 5:
                    for one in kept:
                        one.acknowledge()
                    kept.clear()

    @property
    def seen(self):
        return {one.of for one in self.got}


class Publisher:
    """It publishes until it is told to stop, some at a time; where its node ends, it moves to the next.  `answered`: a
    message that is stored -> its publisher had heard of all up to this number before it sent that one."""

    def __init__(self, name, nodes, chance):
        self.name, self.nodes, self.chance = name, nodes, chance
        self.handed = 0
        self.answered = {}
        self.over = asyncio.Event()

    async def run(self):
        async with SessionPublisher(nodes=self.nodes) as publisher:
            while not self.over.is_set():
                heard = self.handed
                self.handed += self.chance.randint(1, 8)
                numbers = range(heard + 1, self.handed + 1)
                await asyncio.gather(*(self.publish(publisher, number, heard) for number in numbers))
                await pause_async(self.chance.random() * PAUSE_S, "the pace of the publisher")

    async def publish(self, publisher, number, heard):
        expiry = expiry_of(number)
        await publisher.publish(f"p/{self.name}", f"{self.name}:{number}".encode(), qos=2, expiry=expiry)
        self.answered[self.name, number] = heard


def read(store, statement):
    """The rows of a statement, in which `@` stands for where the tables are."""
    if store.startswith("postgresql"):
        return run_sql(store, statement.replace("@", "gapless_sessions."))
    with contextlib.closing(sqlite3.connect(store)) as connection:
        return connection.execute(statement.replace("@", "")).fetchall()


def holder_of(store, client):
    """Who has the client's session, as the tables say; None: nobody."""
    for name, owner in read(store, "SELECT client, owner FROM @sessions"):
        if bytes(name).decode() == client:
            return bytes(owner).decode().partition("~")[0] or None
    return None


def choose_node(store, nodes, clients, chance):
    """Most often the one that has the session of some client."""
    holder = holder_of(store, chance.choice(clients))
    aimed = [node for node in nodes if node.name == holder] if chance.random() < 0.8 else []
    return chance.choice(aimed or nodes)


class Copies:
    """What was stored at any time, though it is deleted meanwhile.  It is not to be read while the store is hurt: who
    hurts it waits here, too."""

    def __init__(self, store):
        self.store = store
        self.found = set()
        self.due = 0.0

    def look(self):
        """Read it, unless it was read just now."""
        now = asyncio.get_running_loop().time()
        if now >= self.due:
            self.read()
            self.due = now + READ_S

    def read(self):
        """(publisher, number) -> the lives of nodes that have stored it."""
        self.found.update(read(self.store, "SELECT id, payload FROM @messages"))
        stored = defaultdict(list)
        for message, payload in sorted(self.found):
            publisher, _, number = bytes(payload).decode().partition(":")
            stored[publisher, int(number)].append(bytes(message).decode().partition("/")[0])
        return stored


def copies_in(store):
    """What `Copies` finds at once."""
    return Copies(store).read()


class SessionsWorkload(Workload):
    """Two subscribers of everything, and two publishers, at two nodes."""

    schemas = ("gapless_sessions",)

    def plan(self, faults):
        return [self.draw() for _ in range(faults)]

    def draw(self):
        """What the next fault is."""
        if self.chance.random() < 0.2:
            return "store"
        return "kill" if self.chance.random() < 0.7 else "stop"

    @contextlib.asynccontextmanager
    async def open(self):
        with reach_by_proxy(self.store) as (way, self.way):
            async with nodes_of(self.folder, self.store, last=way) as self.nodes, run_beside() as self.begin:
                one, two = [node.address for node in self.nodes]
                self.subscribers = [
                    Subscriber("one", [one, two], self.fork_chance(), 1),
                    Subscriber("two", [two, one], self.fork_chance(), 2),
                ]
                self.publishers = [
                    Publisher("w0", [one, two], self.fork_chance()),
                    Publisher("w1", [two, one], self.fork_chance()),
                ]
                self.hurting, self.copies = {}, Copies(self.store)
                self.tasks = [self.begin(each.run()) for each in self.subscribers]
                async with within("all have subscribed", hangs=5):
                    await asyncio.gather(*(each.subscribed.wait() for each in self.subscribers))
                self.publishing = [self.begin(each.run()) for each in self.publishers]
                yield

    async def pause(self):
        await self.until_answered(1 + self.count_answered())
        await super().pause()

    def count_answered(self):
        return sum(len(one.answered) for one in self.publishers)

    async def until_answered(self, count):
        """Whatever hinders them ends by itself."""
        assert await self.until(lambda: self.count_answered() >= count), f"not {count} messages were answered"

    async def until(self, holds):
        """That an application has ended is no outcome."""

        def has_come():
            for task in self.tasks:
                assert not task.done(), task.result()
            self.copies.look()
            return holds()

        return await until(has_come, every_s=0.02)

    async def hurt(self, what):
        if what == "store":
            kind = "lock" if self.way is None else self.chance.choice(["lock", "cut", "silence"])
            self.done[kind] += 1
            await hurt(kind, self.chance, self.store if kind == "lock" else self.way)
            return
        whole = await self.list_whole()
        node = choose_node(self.store, whole, ("one", "two"), self.chance)
        self.hurting[node.name] = self.begin(hurt(what, self.chance, node))
        self.done[what] += 1

    async def list_whole(self):
        """Nodes that are neither dead nor stopped: what hurts one goes on while the next is hurt; where all are, the
        first that is whole again."""
        while not (
            found := [node for node in self.nodes if node.name not in self.hurting or self.hurting[node.name].done()]
        ):
            await asyncio.wait(self.hurting.values(), return_when=asyncio.FIRST_COMPLETED)
        for task in self.hurting.values():
            if task.done():
                task.result()
        return found

    async def finish(self):
        await asyncio.gather(*self.hurting.values())
        await self.until_answered(EACH * self.done.total())
        for one in self.publishers:
            one.over.set()
        async with within("all is published", hangs=5):
            await asyncio.gather(*self.publishing)
        self.answered = {of: heard for one in self.publishers for of, heard in one.answered.items()}
        wanted = must_come(self.answered)
        await self.until(lambda: all(wanted <= one.seen for one in self.subscribers))

    def judge(self):
        stored = self.copies.read()
        self.done["moved"] = count_moves(stored)
        one, two = (each.got for each in self.subscribers)
        wrong = [f"one: {what}" for what in judge_of_sessions_judge(stored, self.answered, one)]
        return wrong + [f"two: {what}" for what in judge_of_sessions_judge(stored, self.answered, two, exactly=True)]

    def tally(self):
        return {"messages": len(self.answered)}
