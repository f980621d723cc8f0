"""Several leader hosts over one store: one leads, the others pass borrowers on, and take over (page, scenario 19)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from statemachines.drivers.shared_subscriptions import LeaderNode, Publisher, SharedSubscription
from statemachines.shared_subscriptions.leader_record import LeaderStatus
from statemachines.testing.process_harness import free_port
from tests.drivers.shared_subscriptions.test_nodes import PATIENT, read

WAIT_S = 30


async def until(true):
    async with asyncio.timeout(WAIT_S):
        while not true():
            await asyncio.sleep(0.01)


def link_of(consumer):
    """Whom its borrower is connected with."""
    return next(consumer._host.nodes[party].record.link for party in consumer._host.parties)


def statuses(hosts):
    """What each host is for the group ("-": nobody asked it)."""
    return [next((node.record.status for node in host._host.nodes.values()), None) for host in hosts]


def test_a_follower_passes_borrowers_on_and_takes_over_when_the_leader_stops(tmp_path):
    store = tmp_path / "messages.db"
    ports = [free_port() for _ in range(3)]
    addresses = [("127.0.0.1", port) for port in ports]

    def host(number):
        peers = [address for place, address in enumerate(addresses) if place != number]
        node, where = f"leader-{number + 1}", addresses[number]
        return LeaderNode(listen=where, store=store, node=node, peers=peers, configuration=PATIENT)

    def consumer(number, leader):
        where = [f"127.0.0.1:{port}" for port in ports[leader:] + ports[:leader]]  # all of them, its own first
        return SharedSubscription(
            "$shared/g/#",
            leader=where,
            store=store,
            node=f"consumer-{number}",
            configuration=PATIENT,
            start="beginning",
        )

    async def publish(topic, *payloads):
        async with Publisher(store) as publisher:
            await publisher.publish(topic, payloads)

    async def test():
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(AsyncExitStack())
            hosts = [await first.enter_async_context(host(0))]
            hosts += [await stack.enter_async_context(host(number)) for number in (1, 2)]
            await publish("a", b"1")
            one = await stack.enter_async_context(consumer(1, leader=0))
            assert [message.payload for message in await read(one, 1)] == [b"1"]
            two = await stack.enter_async_context(consumer(2, leader=1))
            await until(lambda: link_of(two))
            assert statuses(hosts)[:2] == [LeaderStatus.LEADING, LeaderStatus.FOLLOWER], "its own host passed it on"
            assert link_of(two).leader.startswith("leader-1~")
            await first.aclose()
            await until(lambda: LeaderStatus.LEADING in statuses(hosts[1:]))
            await publish("a", b"2")
            got = asyncio.create_task(read(one, 1)), asyncio.create_task(read(two, 1))
            async with asyncio.timeout(WAIT_S):
                done, pending = await asyncio.wait(got, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            assert [message.payload for message in done.pop().result()] == [b"2"]

    asyncio.run(test())
