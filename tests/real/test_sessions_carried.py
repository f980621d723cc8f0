"""Groups in sessions, over processes: nodes that carry are killed and stopped, and nothing of a group is missing.

The judge knows what was published, what the applications were given, and what lies in the tables, where the id of a
message says which life of which node has stored it; it shares nothing with what it judges.

An application that computes in its loop for most of a lease, message by message, against a real leader host.

A dead letter that does not fit on the disk of a real leader host: it keeps the message, and goes on later.
"""

import asyncio
import random
import re
import resource
import signal
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing, contextmanager

import pytest
from node_processes import PATIENCE_S, nodes_of
from node_processes import until as until_node
from outside import Process
from sessions_workload import holder_of
from stage import CALM, TENTH, Stage

from statemachines.drivers.persistent_sessions import PersistentSession
from statemachines.drivers.shared_subscriptions import Publisher, SharedSubscription
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.dead_letter import read_dead_letter
from statemachines.testing.process_harness import free_port
from tests.real.outside import LeaderHost
from tests.waiting import pause, pause_async, run_async

GROUP = "$share/g/jobs/#"
SESSIONS_CARRIED_TENTH = {
    field: getattr(Configuration(), field) // 10 for field in Configuration.__struct_fields__ if field.endswith("_ms")
}
TIMES = {
    **SESSIONS_CARRIED_TENTH,
    "ping_timeout_ms": 1_500,
    "validity_ms": 2_000,
    "claim_ttl_ms": 6_000,
    "revoke_timeout_ms": 5_000,
}
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
                    await pause_async(0.01, "the application works")
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
                    await pause_async(0.03, "the pace of the publisher")

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
                        await pause_async(chance.choice((0.1, 1.5, 4.0)), "it stands still")
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

    def has_come():
        for task in tasks:
            assert not task.done(), task.result()
        return holds()

    await until_node(has_come, every_s=0.1)


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


LONG = {"ping_interval_ms": 2_000, "ping_timeout_ms": 10_000, "validity_ms": 15_000, "revoke_timeout_ms": 20_000}
"""A lease lasts 12 s, and a ping is due long before a quarter of that."""

MESSAGES = 8


def member(stage, times):
    """The one member of the group."""
    return SharedSubscription(
        "$shared/g/#",
        leader=stage.leader,
        store=stage.nodes.store,
        trace=stage.trace,
        configuration=times,
        start="beginning",
    )


async def publish(stage):
    """The messages, in one stream."""
    await stage._publish(["orders"], MESSAGES)
    stage.stream = "0.0/orders"


def test_SS_183_before_it_gets_more_what_it_acknowledged_is_told_and_pings_are_answered(tmp_path):
    times = Configuration(**LONG).check()

    async def test(stage):
        async with member(stage, times) as messages:
            handed = pinged = 0
            async for batch in messages.batches(1):
                borrower = messages.machines.nodes[batch[0].owner].record
                if 0 < handed < 4:
                    assert borrower.ping_n > pinged, "one was due"
                    assert not borrower.outstanding, "whatever it asked is answered"
                    assert borrower.streams[stage.stream].progress == handed
                handed, pinged = handed + 1, borrower.ping_n
                if handed < 4:
                    pause(1.05 * times.lease_ms / 4 / 1000, "the handler works")
                await batch.ack()
                if handed == MESSAGES:
                    break
            assert messages.machines.record.recreated == 0

    with Stage(tmp_path, **{field: getattr(times, field) for field in TENTH}) as stage:
        asyncio.run(publish(stage))
        stage.lead()
        run_async(test(stage), hangs=2)


LARGE, ROOM = b"x" * 900_000, 300_000
"""Bytes of the message, and those that every file of the store may still grow by: enough for renewals of a claim."""
GIVEN = {**TENTH, **CALM, "max_deliver": 1, "dead_letter_topic": "$dead/g"}


def limit_files(pid, size):
    """No file of the process may be larger, as on a disk that is full; None: there is room again."""
    most = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most if size is None else size, most))


def test_SS_348_a_letter_for_which_the_disk_has_no_room_keeps_its_message_until_there_is_room(tmp_path):
    store, config = tmp_path / "messages.db", tmp_path / "group.toml"
    config.write_text("".join(f"{key} = {value!r}\n" for key, value in GIVEN.items()))

    async def play(host):
        options = {"leader": f"127.0.0.1:{host.port}", "store": store, "configuration": Configuration(**GIVEN)}
        async with Publisher(store) as publisher:
            await publisher.publish("orders", [LARGE, b"small"])
        async with SharedSubscription("$shared/g/#", start="beginning", **options) as messages:
            reading = aiter(messages)
            message = await anext(reading)
            largest = max(path.stat().st_size for path in tmp_path.glob("messages.db*"))
            limit_files(host.child.pid, largest + ROOM)
            await message.nack(reason="too large")
            await asyncio.to_thread(host.until_said, "cannot be stored in $dead/g (2 failures in a row)")
            limit_files(host.child.pid, None)
            assert (await anext(reading)).payload == b"small"
            dead = SharedSubscription("$shared/h/$dead/#", start="beginning", **options)
            async with dead as letters:
                letter = await anext(aiter(letters))
        said = read_dead_letter(letter.headers)
        assert (letter.payload, said.offset, said.reason) == (LARGE, 0, "too large")

    with LeaderHost(tmp_path, store, "--config", config) as host:
        run_async(play(host))
        assert host.stop() == 0, host.said
    assert "disk" in host.said
    assert "until its dead letter is stored, or somebody says" in host.said
    assert host.said.count("leads it, under epoch") == 2, "the claims of both groups were kept"
