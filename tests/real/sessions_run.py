"""A run of persistent sessions with real nodes that are killed, stopped and kept from their database, and its judge.

Nodes are processes over one database; publishers go on all the time; whoever has a session in its hands is killed
(SIGKILL) or stopped (SIGSTOP) at moments that a seed chooses, or somebody keeps the database locked, or PostgreSQL
stands still, or one node alone does not reach it.  The judge knows what publishers were answered, what the
applications were given, and what lies in the tables, which it reads by itself; it shares nothing with what it judges.
A part of the messages expires soon, and another part long after the run: only of the first may some be missing.

    python tests/real/sessions_run.py --first 7 --runs 1 --faults 12
    python tests/real/sessions_run.py --runs 3 --store postgresql://USER@HOST:PORT/DATABASE   (its tables are dropped)
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from relay import Relay
from still import standing_still

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.testing.postgres import run_sql
from statemachines.testing.process_harness import free_port

STORE_FAULTS = 0.2
"""How many of the faults are the store's."""
EXPIRIES = (0.5, None, None, None, 0.05, 3_600.0)
"""Seconds after which a message is over, by its number: some soon, some not before the run has ended."""
SOON_S = 1.0
STORE_S = (0.2, 1.0, 2.5)
"""How long a store is kept from somebody: below and beyond a node's lease."""
START_S = 180
"""A process that begins imports some hundred modules, which takes a minute and more beside a load of 50."""
PATIENCE_S = 300
"""Longer than anything takes on however busy a machine, so that what has not come by then is missing."""
EACH = 5
"""So many messages for each fault are answered in a run at least, and one between two faults: else nodes on a busy
machine would come and go, and do nothing."""
PAUSE_S = 0.1
"""A publisher rests so long at most between two handfuls: what a run costs is then what its faults cost, however fast
the machine is, and not what two publishers can keep a processor busy with."""
READ_S = 10
"""What is stored is read so often at least: the collectors of the nodes delete a message a minute after it came."""
PROGRAM = (sys.executable, "-m", "statemachines")
QUICK = ("--lease-ms", "1000", "--look-ms", "200", "--marker-ms", "400")


class Got(NamedTuple):
    """What an application was given: `of` (publisher, its number), under which packet."""

    of: tuple[str, int]
    packet: int
    dup: bool
    expiry: float | None = None


class NodeProcess:
    """A node of sessions as a process, which lives in `folder`; it comes back on its port.  `store`: an URL, or a file
    by its whole path.  `program`: what it runs when it starts."""

    def __init__(self, folder, name, store, program=PROGRAM):
        self.folder, self.name, self.store = folder, name, store
        self.program = program
        self.port = free_port()
        self.child = None

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    async def start(self, others, *options):
        peers = ",".join(one.address for one in others if one is not self)
        command = [*self.program, "node", "sessions", "--store", self.store]
        command += ["--name", self.name, "--listen", self.address, "--peers", peers, *QUICK, *options]
        with (self.folder / f"{self.name}.log").open("ab") as log:
            given = {"stdout": subprocess.PIPE, "stderr": log, "cwd": self.folder}  # where its life of a group is kept
            self.child = await asyncio.create_subprocess_exec(*command, **given)
        line = await asyncio.wait_for(self.child.stdout.readline(), START_S)
        assert line.startswith(b"listening on "), self.said()

    def said(self):
        return (self.folder / f"{self.name}.log").read_text()

    @property
    def runs(self):
        return self.child is not None and self.child.returncode is None

    async def end(self, number=signal.SIGTERM):
        """How it ended."""
        self.child.send_signal(number)
        return await asyncio.wait_for(self.child.wait(), PATIENCE_S)

    def stop(self):
        self.child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self):
        self.child.send_signal(signal.SIGCONT)


@contextlib.asynccontextmanager
async def nodes_of(folder, store, names=("a", "b"), *options, last=None, program=PROGRAM):
    """Nodes that run, and have ended when this is left; `last`: another way to the store, for the last of them."""
    nodes = [NodeProcess(folder, name, store, program) for name in names]
    nodes[-1].store = last or store
    try:
        await asyncio.gather(*(node.start(nodes, *options) for node in nodes))
        yield nodes
    finally:
        for node in nodes:
            if node.runs:
                node.child.kill()
                await node.child.wait()


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
                self.got.append(Got((publisher, int(number)), message.packet, message.dup, message.expiry))
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
                await asyncio.sleep(self.chance.random() * PAUSE_S)

    async def publish(self, publisher, number, heard):
        expiry = expiry_of(number)
        await publisher.publish(f"p/{self.name}", f"{self.name}:{number}".encode(), qos=2, expiry=expiry)
        self.answered[self.name, number] = heard


def expiry_of(number):
    """Seconds; None: it does not expire."""
    return EXPIRIES[number % len(EXPIRIES)]


def may_be_missing(of):
    """It expires while the run goes on."""
    expiry = expiry_of(of[1])
    return expiry is not None and expiry < SOON_S


def must_come(answered):
    """Those of the answered messages that nobody may wait for in vain."""
    return {of for of in answered if not may_be_missing(of)}


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


def run_seed(folder, store, seed, faults):
    """A run, judged: how often what was done, how many messages were answered, and what is wrong."""
    done, answered, (one, two), stored = asyncio.run(play(folder, store, seed=seed, faults=faults))
    done["moved"] = count_moves(stored)
    wrong = [f"one: {what}" for what in judge(stored, answered, one.got)]
    wrong += [f"two: {what}" for what in judge(stored, answered, two.got, exactly=True)]
    return done, len(answered), wrong


async def play(folder, store, *, seed, faults, publishers=2, pause_s=(0.2, 0.9), names=("a", "b")):
    """Publishers and two subscribers, and so many faults; what is left to be judged."""
    chance = random.Random(seed)
    plan = [drawn(chance) for _ in range(faults)]  # first, and of nothing that happens: a seed has its faults
    with reached_over_a_relay(store) as (way, relay):
        async with nodes_of(folder, store, names, last=way) as nodes:
            addresses = [node.address for node in nodes]
            subscribers = [
                Subscriber("one", addresses, random.Random(chance.random()), 1),
                Subscriber("two", addresses[::-1], random.Random(chance.random()), 2),
            ]
            writers = [
                Publisher(
                    f"w{place}",
                    addresses[place % len(nodes) :] + addresses[: place % len(nodes)],
                    random.Random(chance.random()),
                )
                for place in range(publishers)
            ]
            tasks = [asyncio.ensure_future(one.run()) for one in subscribers]
            await asyncio.wait_for(asyncio.gather(*(one.subscribed.wait() for one in subscribers)), PATIENCE_S)
            publishing = [asyncio.ensure_future(one.run()) for one in writers]
            done, hurting, copies = Counter(), {}, Copies(store)
            try:
                for what in plan:
                    await answers(writers, copies, 1 + count(writers))
                    await asyncio.sleep(chance.uniform(*pause_s))
                    if what == "store":
                        await keep_from_store(store, relay, chance, done)
                        continue
                    whole = await whole_ones(nodes, hurting)
                    holder = holder_of(store, chance.choice(["one", "two"]))
                    aimed = [node for node in whole if node.name == holder] if chance.random() < 0.8 else []
                    node = chance.choice(aimed or whole)
                    hurting[node.name] = asyncio.ensure_future(hurt(what, node, nodes, chance))
                    done[what] += 1
                await asyncio.gather(*hurting.values())
                await answers(writers, copies, EACH * faults)
                for one in writers:
                    one.over.set()
                await asyncio.wait_for(asyncio.gather(*publishing), PATIENCE_S)
                answered = {of: heard for one in writers for of, heard in one.answered.items()}
                await settle(tasks, subscribers, answered, copies)
            finally:
                every = (*tasks, *publishing, *hurting.values())
                for task in every:
                    task.cancel()
                await asyncio.gather(*every, return_exceptions=True)
    return done, answered, subscribers, copies.read()


def count(publishers):
    """The messages that were answered."""
    return sum(len(one.answered) for one in publishers)


async def answers(publishers, copies, wanted):
    """Until so many messages were answered.  Whatever hinders them ends by itself."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE_S
    while (answered := count(publishers)) < wanted:
        assert loop.time() < end, f"{answered} messages were answered, and for {PATIENCE_S} s not {wanted}"
        copies.look()
        await asyncio.sleep(0.02)


def drawn(chance):
    """Whom the next fault hits, and how: the store, or a node that is killed or stopped."""
    if chance.random() < STORE_FAULTS:
        return "store"
    return "killed" if chance.random() < 0.7 else "stopped"


async def whole_ones(nodes, hurting):
    """Nodes that are neither dead nor stopped: what hurts one goes on while the next is hurt; where all are, the first
    that is whole again."""
    while not (found := [node for node in nodes if node.name not in hurting or hurting[node.name].done()]):
        await asyncio.wait(hurting.values(), return_when=asyncio.FIRST_COMPLETED)
    for task in hurting.values():
        if task.done():
            task.result()
    return found


async def hurt(what, node, nodes, chance):
    """Kill it and start it again, or stop it for a while."""
    if what == "killed":
        await node.end(signal.SIGKILL)
        await asyncio.sleep(chance.choice([0, 0.1, 0.6]))
        await node.start(nodes)
    else:
        node.stop()
        await asyncio.sleep(chance.choice([0.1, 0.5, 1.5, 4.0]))
        node.resume()


@contextlib.contextmanager
def reached_over_a_relay(store):
    """The URL of the same store behind a relay, and that; a file has none."""
    if not store.startswith("postgresql"):
        yield store, None
        return
    port = urlsplit(store).port
    with Relay(port) as relay:
        yield store.replace(f":{port}/", f":{relay.port}/"), relay


async def keep_from_store(store, relay, chance, done):
    """Everybody, or of PostgreSQL the last node alone."""
    seconds = chance.choice(STORE_S)
    if relay is None:
        connected = contextlib.closing(sqlite3.connect(store, timeout=0.5, isolation_level=None))
        with connected as connection, contextlib.suppress(sqlite3.OperationalError):
            connection.execute("BEGIN IMMEDIATE")
            done["locked"] += 1
            await asyncio.sleep(seconds)
            connection.execute("ROLLBACK")
        return
    kind = chance.choice(["stood still", "cut off", "silent"])
    done[kind] += 1
    if kind == "stood still":
        with standing_still(store):
            await asyncio.sleep(seconds)
    elif kind == "cut off":
        relay.cut()
    else:
        relay.open.clear()
        await asyncio.sleep(seconds)
        relay.open.set()


async def settle(tasks, subscribers, answered, copies):
    """Until every subscriber has everything; that something never comes is for the judge."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE_S
    wanted = must_come(answered)
    while loop.time() < end and not all(wanted <= one.seen for one in subscribers):
        for task in tasks:
            if task.done():
                task.result()
                raise AssertionError("a subscriber has ended")
        copies.look()
        await asyncio.sleep(0.05)


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


def judge(stored, answered, got, exactly=False):
    """What is wrong, in words; nothing: all is well.  `answered` as a `Publisher` has it."""
    missing = sorted(must_come(answered) - {one.of for one in got})
    wrong = [f"{of} was answered, and never came" for of in missing]
    firsts, packets, seen = Counter(), defaultdict(list), {}
    for place, one in enumerate(got):
        if one.of not in stored:
            wrong.append(f"{one.of} came, and nobody has stored it")
        wrong += out_of_time(one)
        seen.setdefault(one.of, place)
        firsts[one.of] += not one.dup
        if one.packet not in packets[one.of]:
            packets[one.of].append(one.packet)
    for of, copies in stored.items():
        if firsts[of] > len(copies):
            wrong.append(f"{of} came {firsts[of]} times unmarked, and was stored {len(copies)} times")
        if len(packets[of]) > len(copies):
            wrong.append(f"{of} came under packets {packets[of]}, and was stored {len(copies)} times")
    if exactly:
        often = Counter(one.of for one in got)
        wrong += [f"{of} came {often[of]} times" for of in often if often[of] > len(stored[of])]
    return wrong + out_of_order(stored, seen) + overtaken(stored, answered, seen)


def out_of_time(one):
    """What comes says what is left of its time; that may be nothing only for one that comes again."""
    expiry = expiry_of(one.of[1])
    if expiry is None:
        return [] if one.expiry is None else [f"{one.of} does not expire, and came with {one.expiry} s left"]
    if one.expiry is None or not (0 <= one.expiry <= expiry) or not (one.expiry or one.dup):
        return [f"{one.of} expires after {expiry} s, and came with {one.expiry} s left, dup = {one.dup}"]
    return []


def out_of_order(stored, seen):
    """Of one publisher through one life of a node, by when each was seen first; what was stored twice is of two."""
    last, wrong = {}, []
    for of, _ in sorted(seen.items(), key=lambda item: item[1]):
        if len(stored[of]) != 1:
            continue
        publisher, number = of
        before = last.get((publisher, stored[of][0]), 0)
        if number < before:
            wrong.append(f"{of} came behind {before}, over {stored[of][0]}")
        last[publisher, stored[of][0]] = max(before, number)
    return wrong


def overtaken(stored, answered, seen):
    """What came behind a message that its publisher sent when it had heard that the other is stored, over whichever
    nodes.  What expires soon and was stored twice is left out: the copy that was answered may be over."""
    last, wrong = defaultdict(lambda: (0, ())), []
    for of in sorted(seen, key=seen.get):
        publisher, number = of
        heard, later = last[publisher]
        if number <= heard and not (may_be_missing(of) and len(stored[of]) > 1):
            wrong.append(f"{of} was answered before {later} was sent, and came behind it")
        last[publisher] = max((answered.get(of, 0), of), last[publisher])
    return wrong


def count_moves(stored):
    """How often a message was stored by another node than the one before it of its publisher."""
    nodes = {of: lives[0].partition("~")[0] for of, lives in sorted(stored.items())}
    return sum(node != nodes.get((name, number - 1), node) for (name, number), node in nodes.items())


def main():
    """Runs of some seeds; 1: something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--runs", type=int, default=1, help="seeds")
    parser.add_argument("--faults", type=int, default=12, help="faults in a run")
    parser.add_argument("--store", default="", help="URL of PostgreSQL; a file of SQLite otherwise")
    given = parser.parse_args()
    failed = False
    for seed in range(given.first, given.first + given.runs):
        folder = Path(tempfile.mkdtemp(prefix=f"sessions-{seed}-"))
        if given.store:
            run_sql(given.store, "DROP SCHEMA IF EXISTS gapless_sessions CASCADE")
        done, answered, wrong = run_seed(folder, given.store or str(folder / "sessions.db"), seed, given.faults)
        print(f"seed {seed}: {dict(done)}, {answered} messages, {len(wrong)} wrong; {folder}", flush=True)
        for what in wrong:
            print(f"  {what}")
        failed = failed or bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
