"""Real nodes: an application's consumer, a leader host and a publisher, over TCP and SQLite."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.drivers.shared_subscriptions.shared_session import SharedSubscription
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.configuration import Configuration

FAST = Configuration(
    find_leader_ms=100,
    ping_interval_ms=100,
    ping_timeout_ms=200,
    validity_ms=500,
    max_delay_ms=40,
    unsubscribe_timeout_ms=500,
    resend_interval_ms=100,
    renew_streams_ms=100,
    revoke_timeout_ms=1_000,
    claim_ttl_ms=1_500,
    claim_heartbeat_ms=500,
    commit_interval_ms=100,
    idle_stop_ms=3_000,
)
"""The defaults divided by ten."""

CALM = replace(FAST, validity_ms=60_000, ping_timeout_ms=50_000, revoke_timeout_ms=60_000, claim_ttl_ms=60_000)
"""The same, and nobody is given up for being slow: what a test on a busy machine must not meet."""

PATIENT = replace(CALM, validity_ms=5_000, ping_timeout_ms=2_000)
"""The same, and a leader host that is gone is given up after two seconds."""


class Place:
    """A store, and the leader host's address."""

    def __init__(self, path, times=CALM):
        self.times = times
        self.store = path / "messages.db"
        self.trace = path / "trace"
        self.leader = ""

    def consumer(self, node, **options):
        options = {"leader": self.leader, "store": self.store, "configuration": self.times, **options}
        return SharedSubscription("$shared/g/#", node=node, trace=self.trace, start="beginning", **options)

    async def publish(self, topic, *payloads):
        async with Publisher(self.store, trace=self.trace) as publisher:
            await publisher.publish(topic, payloads)

    @asynccontextmanager
    async def leading(self, listen=("127.0.0.1", 0)):
        node = LeaderNode(listen=listen, store=self.store, trace=self.trace, configuration=self.times)
        async with node:
            self.leader = "{}:{}".format(*node.address)
            yield node


async def read(messages, count, ack=True):
    """The next `count` messages."""
    got = []
    async with asyncio.timeout(120):
        async for message in messages:
            got.append(message)
            if ack:
                await message.ack()
            if len(got) == count:
                return got
    return got


def run(test):
    asyncio.run(test)


def test_lives_are_numbered_on_disk(tmp_path):
    from statemachines.drivers.lives import next_life, node_number

    assert [next_life(tmp_path, "a"), next_life(tmp_path, "a"), next_life(tmp_path, "b")] == ["a~1", "a~2", "b~1"]
    assert 0 < node_number("a~1") < 2**23
    assert node_number("a~1") != node_number("a~2")
    (tmp_path / "a.life").write_text("many")
    with pytest.raises(ConfigurationError, match="does not hold a number"):
        next_life(tmp_path, "a")
    with pytest.raises(ConfigurationError, match="letters, digits"):
        next_life(tmp_path, "a b")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        next_life(tmp_path / "file", "a")
