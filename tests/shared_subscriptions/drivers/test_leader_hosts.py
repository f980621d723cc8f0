"""Several leader hosts over one store: one leads, the others pass borrowers on, and take over (page, scenario 19)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from test_nodes import PATIENT, read

from statemachines.drivers.environment import NodeEnvironment
from statemachines.drivers.shared_subscriptions import LeaderNode, Publisher, SharedSubscription
from statemachines.drivers.shared_subscriptions.leader_node import REQUESTS_MAX, WAITING_MAX
from statemachines.drivers.shared_subscriptions.open_stores import open_stores
from statemachines.shared_subscriptions.group_store import Claim, Commit, Read
from statemachines.shared_subscriptions.leader_record import LeaderStatus
from statemachines.shared_subscriptions.message import LeaderWanted
from statemachines.testing.process_harness import free_port
from statemachines.wire import Packet

WAIT_S = 120
BUSY_S = 1.0


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


class Hosts:
    """Three addresses over one store; a host at each, and consumers that know all of them."""

    def __init__(self, folder):
        self.store = folder / "messages.db"
        self.ports = [free_port() for _ in range(3)]

    def host(self, number, **options):
        addresses = [("127.0.0.1", port) for port in self.ports]
        peers = [address for place, address in enumerate(addresses) if place != number]
        where, node = addresses[number], f"leader-{number + 1}"
        return LeaderNode(listen=where, store=self.store, node=node, peers=peers, configuration=PATIENT, **options)

    def consumer(self, number, leader, group="g"):
        ports = self.ports[leader:] + self.ports[:leader]
        return SharedSubscription(
            f"$shared/{group}/#",
            leader=[f"127.0.0.1:{port}" for port in ports],
            store=self.store,
            node=f"consumer-{number}",
            configuration=PATIENT,
            start="beginning",
        )

    async def publish(self, topic, *payloads):
        async with Publisher(self.store) as publisher:
            await publisher.publish(topic, payloads)


async def test_a_follower_passes_borrowers_on_and_takes_over_when_the_leader_stops(tmp_path):
    place = Hosts(tmp_path)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(AsyncExitStack())
        hosts = [await first.enter_async_context(place.host(0))]
        hosts += [await stack.enter_async_context(place.host(number)) for number in (1, 2)]
        await place.publish("a", b"1")
        one = await stack.enter_async_context(place.consumer(1, leader=0))
        assert [message.payload for message in await read(one, 1)] == [b"1"]
        two = await stack.enter_async_context(place.consumer(2, leader=1))
        await until(lambda: link_of(two))
        assert statuses(hosts)[:2] == [LeaderStatus.LEADING, LeaderStatus.FOLLOWER], "its own host passed it on"
        assert link_of(two).leader.startswith("leader-1~")
        await first.aclose()
        await until(lambda: LeaderStatus.LEADING in statuses(hosts[1:]))
        await place.publish("a", b"2")
        got = asyncio.create_task(read(one, 1)), asyncio.create_task(read(two, 1))
        async with asyncio.timeout(WAIT_S):
            done, pending = await asyncio.wait(got, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        assert [message.payload for message in done.pop().result()] == [b"2"]


def busy_with(group):
    """Stores over which that group gives its claim up late: its host is not done yet while others ask again."""

    def opened(where):
        stores = open_stores(where)
        ask = stores.groups.ask

        async def late(request):
            if isinstance(request, Commit) and any(
                isinstance(value, Claim) and not value.leader and group in key for key, value in request.put
            ):
                await asyncio.sleep(BUSY_S)
            return await ask(request)

        stores.groups.ask = late
        return stores

    return opened


async def test_SS_224_a_host_that_ends_takes_no_claim_that_it_has_given_up(tmp_path):
    """Of two groups one is given up at once: its consumer asks again while the host is busy with the other."""
    place = Hosts(tmp_path)
    async with AsyncExitStack() as stack:
        leaving = await place.host(0, environment=NodeEnvironment(open_stores=busy_with("later"))).__aenter__()
        consumers = []
        for number, group in enumerate(("g", "later"), 1):
            consumers.append(await stack.enter_async_context(place.consumer(number, leader=0, group=group)))
            await until(lambda: link_of(consumers[-1]))
        claims = [node.record.key("claim") for node in leaving.machines.nodes.values()]
        await leaving.__aexit__(None, None, None)
        assert len(claims) == 2
        assert leaving.machines.nodes == {}
        stores = open_stores(place.store)
        (found,) = await stores.groups.ask(Read(1, tuple(claims)))
        assert [(stored.value.leader, stored.value.epoch) for stored in found.records] == [("", 1), ("", 1)]
        await stores.groups.close()
        await stores.streams.close()


async def test_SS_435_questions_for_leaders_of_undeclared_groups_keep_nobody_waiting(tmp_path):
    place = Hosts(tmp_path)
    async with place.host(0) as host:
        for number in range(3_000):
            borrower = f"x~1/{number}"
            host._runtime.receive(Packet(borrower, "leader-1", number, LeaderWanted(borrower, f"g{number}", "#")))
        assert len(host.machines.nodes) == REQUESTS_MAX
        assert len(host._starts._waiting) == WAITING_MAX
        await until(lambda: not host._starts._waiting and not host.machines.nodes)
        await place.publish("a", b"1")
        async with place.consumer(1, leader=0) as one:
            assert [message.payload for message in await read(one, 1)] == [b"1"]
