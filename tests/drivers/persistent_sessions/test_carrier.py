"""Groups in sessions: a node carries messages of shared streams into the sessions that subscribe them (clauses PS-260
to PS-269)."""

from __future__ import annotations

from contextlib import asynccontextmanager

from session_nodes import node_of, run, take, until, where

from statemachines.drivers.persistent_sessions import Groups, PersistentSession, SessionPublisher
from statemachines.drivers.shared_subscriptions.lead import LeaderNode
from statemachines.drivers.shared_subscriptions.publish import Publisher
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
    """The streams of groups, and who leads them."""

    def __init__(self, folder):
        self.store = folder / "messages.db"
        self.leader = ""

    @property
    def groups(self):
        return Groups(leader=self.leader, store=self.store, configuration=FAST)

    async def publish(self, topic, *payloads):
        async with Publisher(self.store) as publisher:
            await publisher.publish(topic, [one.encode() for one in payloads])


@asynccontextmanager
async def place_of(folder):
    place = Place(folder)
    async with LeaderNode(listen=("127.0.0.1", 0), store=place.store, configuration=FAST) as leader:
        place.leader = "{}:{}".format(*leader.address)
        yield place


def test_PS_260_a_session_has_messages_of_its_groups_and_its_own(store, tmp_path):
    async def main():
        async with place_of(tmp_path) as place, node_of(store, groups=place.groups) as node:
            async with PersistentSession("tablet", nodes=where(node)) as session:
                await session.subscribe("news/+")
                await session.subscribe("$share/g/jobs/#")
                await place.publish("jobs/a", "1", "2", "3")
                assert await take(session, 3) == ["1", "2", "3"]
                async with SessionPublisher(nodes=where(node)) as publisher:
                    await publisher.publish("news/x", b"own")
                message = await anext(session)
                assert (message.topic, message.filter, message.payload) == ("news/x", "news/+", b"own")
                await place.publish("jobs/b", "4")
                message = await anext(session)
                assert (message.topic, message.filter, message.payload) == ("jobs/b", "$share/g/jobs/#", b"4")
            await until(lambda: not node.machines.owners)

    run(main())
