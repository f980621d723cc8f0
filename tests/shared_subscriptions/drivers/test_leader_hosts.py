"""Several leader hosts over one store: one leads, the others pass borrowers on, and take over (page, scenario 19)."""

from test_sessions import PATIENT, read_of_nodes
from waiting import until_async

from statemachines.drivers.shared_subscriptions import LeaderNode, Publisher, SharedSubscription
from statemachines.drivers.shared_subscriptions.leader_node import REQUESTS_MAX, WAITING_MAX
from statemachines.shared_subscriptions.message import LeaderWanted
from statemachines.testing.process_harness import free_port
from statemachines.wire import Packet


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


async def test_SS_435_questions_for_leaders_of_undeclared_groups_keep_nobody_waiting(tmp_path):
    place = Hosts(tmp_path)
    async with place.host(0) as host:
        for number in range(3_000):
            borrower = f"x~1/{number}"
            host._runtime.receive(Packet(borrower, "leader-1", number, LeaderWanted(borrower, f"g{number}", "#")))
        assert len(host.machines.nodes) == REQUESTS_MAX
        assert len(host._starts._waiting) == WAITING_MAX
        await until_async(lambda: not host._starts._waiting and not host.machines.nodes)
        await place.publish("a", b"1")
        async with place.consumer(1, leader=0) as one:
            assert [message.payload for message in await read_of_nodes(one, 1)] == [b"1"]
