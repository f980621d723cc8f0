"""SharedSession: several subscriptions, shared and private, of one real consumer."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.drivers.shared_subscriptions.shared_session import SharedSession, SharedSubscription, parse_leaders
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.configuration import Configuration

FAST = Configuration(
    find_leader_ms=100,
    ping_interval_ms=100,
    ping_timeout_ms=50_000,
    validity_ms=60_000,
    max_delay_ms=40,
    unsubscribe_timeout_ms=2_000,
    resend_interval_ms=100,
    renew_streams_ms=100,
    revoke_timeout_ms=60_000,
    claim_ttl_ms=60_000,
    claim_heartbeat_ms=500,
    commit_interval_ms=100,
)
"""Everything soon, and nobody is given up for being slow."""


class Place:
    """A store, and the leader host's address."""

    def __init__(self, path):
        self.store = path / "messages.db"
        self.leader = ""

    def session(self, node="consumer-1", **options):
        options = {"leader": self.leader, "store": self.store, "configuration": FAST, "node": node, **options}
        return SharedSession(**options)

    async def publish(self, topic, *payloads):
        async with Publisher(self.store) as publisher:
            await publisher.publish(topic, payloads)

    @asynccontextmanager
    async def leading(self, **options):
        where = {"listen": ("127.0.0.1", 0), "store": self.store, "configuration": FAST, **options}
        async with LeaderNode(**where) as node:
            self.leader = "{}:{}".format(*node.address)
            yield node


async def read(session, count, ack=True):
    """The next `count` messages."""
    got = []
    async with asyncio.timeout(120):
        async for message in session:
            got.append(message)
            if ack:
                await message.ack()
            if len(got) == count:
                break
    return got


def words(messages):
    return sorted((message.subscription, message.topic, message.payload) for message in messages)


async def test_a_topic_filter_is_read_alone_and_its_progress_is_the_application_s(tmp_path):
    async def again(place, kept):
        async with place.session() as session:
            await session.subscribe("#", start="beginning", progress=kept)
            got = await read(session, 1)
            assert session.progress("#")[got[0].stream] == got[0].offset + 1
            return got

    place = Place(tmp_path)
    await place.publish("old", b"1")
    async with place.leading():
        async with place.session() as session:
            await session.subscribe("#")
            async with asyncio.timeout(120):
                while not session.progress("#"):
                    await asyncio.sleep(0.01)
            await place.publish("old", b"2", b"3")
            await place.publish("new", b"4")
            got = await read(session, 2)
            kept = session.progress("#")
        got += await again(place, kept)
    assert sorted(message.payload for message in got) == [b"2", b"3", b"4"]


async def test_fire_and_forget_is_acknowledged_when_it_is_handed_over(tmp_path):
    place = Place(tmp_path)
    await place.publish("a", b"1", b"2")
    options = {"store": place.store, "configuration": FAST, "node": "consumer-1"}
    async with place.leading():
        subscription = SharedSubscription(
            "$shared/g/#", leader=place.leader, acknowledge="delivery", start="beginning", **options
        )
        async with subscription as messages:
            await read(messages, 2, ack=False)
        await place.publish("a", b"3")
        async with SharedSubscription("$shared/g/#", leader=place.leader, **options) as messages:
            assert [message.payload for message in await read(messages, 1)] == [b"3"]


def test_addresses_of_leader_hosts_are_named_so_that_no_node_can_have_the_name():
    hosts = {"leader": ("a", 1), "leader:2": ("b", 2)}
    assert parse_leaders("a:1, b:2") == parse_leaders(["a:1", "b:2"]) == hosts
    assert parse_leaders(["a:1", "a:1"]) == {"leader": ("a", 1)}
    for wrong in ([], "a:1,", [f"a:{port}" for port in range(1, 20)]):
        with pytest.raises(ConfigurationError, match="HOST:PORT"):
            parse_leaders(wrong)


async def test_what_is_wrong_with_a_subscription_is_named(tmp_path):
    async def call(function, *args):
        return function(*args)

    place = Place(tmp_path)
    place.leader = "127.0.0.1:1"
    async with place.session() as session:
        await session.subscribe("$shared/g/#")
        for subscription, options, rule in (
            ("$shared/g/#", {}, "subscribed already"),
            ("$shared/g/x#", {}, "whole last level"),
            ("x#", {}, "whole last level"),
            ("$shared/h/#", {"progress": {}}, "is the group's"),
            ("a", {"start": "yesterday"}, "must be now or beginning"),
            ("a", {"acknowledge": "never"}, '"application" or "delivery"'),
            ("a", {"progress": {"s": -1}}, "none below 0"),
        ):
            with pytest.raises(ConfigurationError, match=rule):
                await session.subscribe(subscription, **options)
        for asked in (session.unsubscribe("#"), call(session.progress, "#")):
            with pytest.raises(ConfigurationError, match="is not subscribed"):
                await asked
