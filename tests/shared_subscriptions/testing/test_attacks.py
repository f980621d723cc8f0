"""Fuzzed frames for the hosts of a group that live: they go on living, and whoever is served goes on being served."""

import asyncio
import sqlite3
from contextlib import closing

from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.drivers.shared_subscriptions.roles import LEADER
from statemachines.drivers.shared_subscriptions.shared_session import SharedSubscription
from statemachines.testing.frames import KINDS, attack, fuzz
from statemachines.testing.shared_subscriptions.readers import READERS

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
