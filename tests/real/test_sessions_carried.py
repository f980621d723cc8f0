"""Groups in sessions, over processes: nodes that carry are killed and stopped, and nothing of a group is missing.

The judge knows what was published, what the applications were given, and what lies in the tables, where the id of a
message says which life of which node has stored it; it shares nothing with what it judges."""

from __future__ import annotations

import asyncio
import random
import re
import signal
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing, contextmanager

import pytest
from node_processes import PATIENCE_S, nodes_of
from outside import Process
from sessions_workload import holder_of

from statemachines.drivers.persistent_sessions import PersistentSession
from statemachines.drivers.shared_subscriptions import Publisher
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.testing.process_harness import free_port

GROUP = "$share/g/jobs/#"
TENTH = {
    field: getattr(Configuration(), field) // 10 for field in Configuration.__struct_fields__ if field.endswith("_ms")
}
TIMES = {**TENTH, "ping_timeout_ms": 1_500, "validity_ms": 2_000, "claim_ttl_ms": 6_000, "revoke_timeout_ms": 5_000}
"""Leases of 1.6 s."""
TOPICS = ("jobs/a", "jobs/b", "jobs/c", "jobs/d")


class Client:
    """An application with a session of the group: what it was given, as (topic, number, packet, dup)."""

    def __init__(self, name, nodes, chance):
        self.name, self.nodes, self.chance = name, nodes, chance
        self.got = []
        self.subscribed = asyncio.Event()

    async def run(self):
        async with PersistentSession(self.name, nodes=self.nodes, receive_maximum=20) as session:
            await session.subscribe(GROUP)
            self.subscribed.set()
            async for message in session:
                self.got.append((message.topic, int(message.payload), message.packet, message.dup))
                if self.chance.random() < 0.01:
                    await asyncio.sleep(0.01)
                message.acknowledge()


@contextmanager
def leader_of(folder, store):
    """A leader host as a process, and what nodes of sessions are told of it."""
    config = folder / "group.toml"
    config.write_text("".join(f"{key} = {value}\n" for key, value in TIMES.items()))
    where = f"127.0.0.1:{free_port()}"
    arguments = ("node", "leader", "--store", store, "--listen", where, "--config", config)
    with Process(folder / "leader.log", *arguments) as leader:
        assert leader.child.stdout.readline().startswith("listening on"), leader.said
        yield ("--group-leader", where, "--group-store", str(store), "--group-config", str(config), "--no-collect")


async def play(folder, seed, faults):
    """Messages of a group come, two sessions share them, and nodes are killed and stopped: what was published, what
    each application was given, what lies in the tables, and the lives that were hurt."""
    chance = random.Random(seed)
    store, streams = str(folder / "sessions.db"), folder / "messages.db"
    published = dict.fromkeys(TOPICS, 0)
    hurt = set()
    with leader_of(folder, streams) as options:
        async with (
            nodes_of(folder, store, ("a", "b"), *options) as nodes,
            Publisher(streams, patience_s=PATIENCE_S) as publisher,
        ):
            note_rows(store)
            addresses = [node.address for node in nodes]
            clients = [
                Client("tablet", addresses, random.Random(seed)),
                Client("phone", addresses[::-1], random.Random(seed)),
            ]
            tasks = [asyncio.ensure_future(one.run()) for one in clients]
            await asyncio.gather(*(one.subscribed.wait() for one in clients))
            over = asyncio.Event()

            async def publish():
                while not over.is_set():
                    topic = chance.choice(TOPICS)
                    count = chance.randint(1, 9)
                    first = published[topic]
                    published[topic] += count
                    await publisher.publish(topic, [str(first + one).encode() for one in range(count)])
                    await asyncio.sleep(0.03)

            publishing = asyncio.ensure_future(publish())
            try:
                for fault in faults:
                    wanted = rows_in(store) + chance.randint(1, 80)
                    await until(lambda wanted=wanted: rows_in(store) >= wanted, tasks)
                    client = chance.choice(("tablet", "phone"))
                    await until(lambda client=client: holder_of(store, client), tasks)
                    node = {one.name: one for one in nodes}[holder_of(store, client)]
                    hurt.add(life_of(store, node.name))
                    if fault == "killed":
                        await node.end(signal.SIGKILL)
                        await node.start(nodes, *options)
                    else:
                        node.stop()
                        await asyncio.sleep(chance.choice((0.1, 1.5, 4.0)))
                        node.resume()
                await until(lambda: all(client.got for client in clients), tasks)
                over.set()
                await publishing
                wanted = {(topic, number) for topic in TOPICS for number in range(published[topic])}
                await until(lambda: wanted <= {one[:2] for client in clients for one in client.got}, tasks)
            finally:
                for task in (*tasks, publishing):
                    task.cancel()
                await asyncio.gather(*tasks, publishing, return_exceptions=True)
    return published, clients, stored_in(store), hurt | lapsed_in(folder / "leader.log")


async def until(holds, tasks):
    """No longer than anything takes; that something never comes is for the judge."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE_S
    while loop.time() < end and not holds():
        for task in tasks:
            if task.done():
                task.result()
                raise AssertionError("an application has ended")
        await asyncio.sleep(0.1)


def read(store, statement, *values):
    with closing(sqlite3.connect(store, timeout=60)) as database:
        return database.execute(statement, values).fetchall()


def note_rows(store):
    """From now on each row of a session is noted when it is stored: one that its owner has taken is deleted."""
    with closing(sqlite3.connect(store, timeout=60)) as database:
        database.execute("CREATE TABLE stored_rows (session, message, writer, epoch, number)")
        database.execute(
            "CREATE TRIGGER note_rows AFTER INSERT ON session_rows WHEN NEW.tag = 0 BEGIN INSERT INTO stored_rows"
            " VALUES (NEW.session, NEW.message, NEW.writer, NEW.epoch, NEW.number); END"
        )


def stored_in(store):
    """Rows of sessions that were stored, as (client, topic, number, life of the node that took it from the group,
    epoch and number)."""
    asked = (
        "SELECT client, topic, payload, id, writer, epoch, number FROM stored_rows JOIN messages ON id = message"
        " JOIN sessions USING (session) ORDER BY 1, 5, 6, 7"
    )
    return [
        (client.decode(), topic.decode(), int(payload), life.decode().partition("/")[0], epoch, number)
        for client, topic, payload, life, _, epoch, number in read(store, asked)
    ]


def rows_in(store):
    return read(store, "SELECT count(*) FROM stored_rows")[0][0]


def lapsed_in(log):
    """Lives that the leader host has taken for dead or for slow; all, if it has stood still itself: on a busy machine
    that may be."""
    said = log.read_text()
    lapsed = r" (\S+~\d+)\.\S+ is no member any more: (?!it left)"
    return set(re.findall(r" (\S+~\d+)\.\S+ is a member" if "does not lead" in said else lapsed, said))


def life_of(store, name):
    (row,) = read(store, "SELECT life FROM nodes WHERE name = ?", name.encode())
    return f"{name}~{row[0]}"


def judge(published, clients, stored, hurt):
    """What is wrong, in words."""
    wrong = []
    copies, lives = defaultdict(list), defaultdict(list)
    for client, topic, number, life, *_ in stored:
        copies[topic, number].append((client, life.partition(".")[0]))
        lives[client, topic, life].append(number)
    came = {one[:2] for client in clients for one in client.got}
    for topic, count in published.items():
        wrong += [f"{topic} {number} is missing" for number in range(count) if (topic, number) not in came]
    for of, stores in copies.items():
        if len(stores) > 1 and not any(life in hurt for _, life in stores):
            wrong.append(f"{of} was stored by {stores}, and none of them was hurt")
    for client in clients:
        unmarked = Counter(one[:2] for one in client.got if not one[3])
        for of, times in unmarked.items():
            if times > sum(name == client.name for name, _ in copies[of]):
                wrong.append(f"{of} came to {client.name} {times} times unmarked, and was stored as {copies[of]}")
    for (client, topic, life), numbers in lives.items():
        if numbers != sorted(set(numbers)) and life.partition(".")[0] not in hurt:
            wrong.append(f"{topic} is out of order for {client}, and {life} was not hurt")
    return wrong


@pytest.mark.long
@pytest.mark.parametrize("faults", [("killed", "stopped")], ids=" ".join)
def test_PS_261_nothing_of_a_group_is_missing_where_nodes_that_carry_it_are_killed_and_stopped(tmp_path, faults):
    published, clients, stored, hurt = asyncio.run(play(tmp_path, 1, faults))
    assert judge(published, clients, stored, hurt) == []
    assert hurt
    assert all(client.got for client in clients)
