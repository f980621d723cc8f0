"""Fuzzed frames for the hosts of a group that live: they go on living, and whoever is served goes on being served."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from contextlib import closing

from statemachines.drivers import tcp
from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.drivers.shared_subscriptions.roles import CONSUMER, LEADER
from statemachines.drivers.shared_subscriptions.shared_session import SharedSubscription
from statemachines.testing.frames import KINDS, attack, fuzz, make_inputs
from statemachines.testing.shared_subscriptions.readers import READERS
from statemachines.wire import encode_hello

ATTACKS = 330


def identity_of(store):
    with closing(sqlite3.connect(store)) as connection:
        return connection.execute("SELECT identity FROM store").fetchone()[0]


def test_twenty_thousand_inputs_are_taken_or_refused():
    came = fuzz(READERS, 1, 20_000)
    assert came.inputs == 20_000
    assert set(came.kinds) == {kind for kind, _ in KINDS}
    assert came.refused > 10_000
    assert came.taken > 1_000


async def test_a_leader_host_that_lives_goes_on_living(tmp_path):
    """A consumer is served all the while, and everything it is owed arrives."""
    store = tmp_path / "messages.db"
    failures = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with LeaderNode(listen=("127.0.0.1", 0), store=store) as node:
        address = "{}:{}".format(*node.address)
        async with (
            Publisher(store) as publisher,
            SharedSubscription("$shared/g/#", leader=address, store=store, start="beginning") as messages,
            asyncio.timeout(900),
        ):
            throwing = asyncio.create_task(
                attack(READERS, LEADER.full_name, node.address, 2, ATTACKS, store=identity_of(store))
            )
            got = []
            for number in range(10):
                await publisher.publish("orders", [b"%d" % number] * 10)
                async for message in messages:
                    got.append(message.payload)
                    await message.ack()
                    if len(got) == 10 * (number + 1):
                        break
            assert await throwing == ATTACKS
            assert got == [b"%d" % number for number in range(10) for _ in range(10)]
            assert node._runtime.failed is None
    assert failures == []


async def test_a_consumer_that_lives_goes_on_living(tmp_path, monkeypatch):
    """Its leader host says whatever there is, well-formed lies too; then a good one comes, and everything arrives."""
    monkeypatch.setattr(tcp, "BACKOFF_S", (0.001, 0.001))
    store = tmp_path / "messages.db"
    says = (
        one for one in make_inputs(READERS, 6, 40 * ATTACKS) if one.reader == CONSUMER.full_name and one.after_hello
    )
    hostile = itertools.islice(says, ATTACKS)

    async def first(messages, count):
        async for message in messages:
            yield message
            await message.ack()
            count -= 1
            if not count:
                return

    failures = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    done = asyncio.Event()

    async def lie(reader, writer):
        one = next(hostile, None)
        if one is None:
            done.set()
        else:
            writer.write(encode_hello(LEADER.full_name, "leader-1~1", store=identity_of(store)) + one.data)
            await writer.drain()
            await asyncio.sleep(0.002)  # so that it is read before the end is
        writer.close()

    async with Publisher(store) as publisher:
        await publisher.publish("t", [b"one", b"two"])
    server = await asyncio.start_server(lie, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()[:2]
    async with (
        SharedSubscription(
            "$shared/g/#",
            leader="{}:{}".format(*address),
            store=store,
            node=READERS[CONSUMER.full_name].life.partition("~")[0],
            start="beginning",
        ) as messages,
        asyncio.timeout(900),
    ):
        await done.wait()
        server.close()
        await server.wait_closed()
        async with LeaderNode(listen=address, store=store) as node:
            got = [message.payload async for message in first(messages, 2)]
        assert got == [b"one", b"two"]
        assert messages._runtime.failed is None
        assert node._runtime.failed is None
    assert failures == []
