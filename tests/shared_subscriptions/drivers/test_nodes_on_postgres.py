"""A whole group on PostgreSQL: the server crashes under leader, consumer and publisher, and no message is lost."""

from __future__ import annotations

import asyncio
from math import inf

import pytest

from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
from statemachines.drivers.shared_subscriptions.postgres import PostgresGroupStore
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.drivers.shared_subscriptions.shared_session import SharedSubscription
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import Scan
from statemachines.testing.postgres import PostgresServer

FAST = Configuration(
    **{name: getattr(Configuration(), name) // 10 for name in Configuration.__struct_fields__ if name.endswith("_ms")}
)
TOPICS = ("a", "b", "c")
COUNT = 100
"""Messages of each topic."""


@pytest.fixture(scope="module")
def server():
    with PostgresServer() as server:
        yield server


class Group:
    """One leader host, one publisher, and consumers; what they got."""

    def __init__(self, url, state):
        self.where = {"store": url, "state": state}
        self.leader = ""
        self.got = []

    def leading(self):
        return LeaderNode(listen=("127.0.0.1", 0), configuration=FAST, **self.where)

    def consumer(self, name):
        return SharedSubscription(
            "$shared/g/#", leader=self.leader, configuration=FAST, node=name, start="beginning", **self.where
        )

    async def publish(self, count):
        """As many messages to each topic."""
        async with Publisher(**self.where, patience_s=60) as publisher:
            for number in range(count):
                for topic in TOPICS:
                    await publisher.publish(topic, [f"{number}".encode()])

    async def read(self, messages, enough):
        """Until there are `enough` different ones."""
        async with asyncio.timeout(120):
            async for batch in messages.batches(10):
                self.got += [(message.topic, message.offset, message.payload) for message in batch]
                await batch.ack()
                if len(set(self.got)) >= enough:
                    return

    async def committed(self, messages, wanted):
        """Read until the leader has committed the progress of so many messages: where a lease ran out, as on a busy
        host, an acknowledgement is lost and the message comes again."""
        groups = PostgresGroupStore(self.where["store"])
        reading = asyncio.create_task(self.read(messages, inf))
        try:
            async with asyncio.timeout(120):
                found = -1
                while found != wanted:
                    await asyncio.sleep(0.05)
                    (scanned,) = await groups.ask(Scan(1, "/1.1/g/#:progress:", "", 100))
                    found = sum(stored.value for _, stored in scanned.records)
        finally:
            reading.cancel()
            await asyncio.wait([reading])
            await groups.close()


@pytest.mark.long
async def test_a_group_goes_on_after_the_server_crashed(server, tmp_path):
    group = Group(server.database("crash"), tmp_path)
    async with group.leading() as node:
        group.leader = "{}:{}".format(*node.address)
        async with group.consumer("consumer-1") as messages:
            publishing = asyncio.create_task(group.publish(COUNT))
            await group.read(messages, 50)
            await asyncio.to_thread(server.crash)
            await asyncio.to_thread(server.start)
            await group.read(messages, COUNT * len(TOPICS))
            await publishing
            await group.committed(messages, COUNT * len(TOPICS))
    wanted = {(topic, number, f"{number}".encode()) for topic in TOPICS for number in range(COUNT)}
    assert set(group.got) == wanted, "each once in the store, and none missing"
    group.got.clear()
    async with group.leading() as node:
        group.leader = "{}:{}".format(*node.address)
        async with group.consumer("consumer-2") as messages:
            await group.publish(1)
            await group.read(messages, len(TOPICS))
    assert sorted(set(group.got)) == [(topic, COUNT, b"0") for topic in TOPICS], "what was acknowledged is committed"
