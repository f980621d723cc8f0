"""The network in memory: the rules of TCP without a socket."""

from __future__ import annotations

import asyncio
import logging

import pytest

from statemachines.drivers import Credentials
from statemachines.drivers.memory import MemoryNetwork
from statemachines.drivers.shared_subscriptions import LeaderNode, Publisher, SharedSubscription
from statemachines.drivers.shared_subscriptions.roles import CONSUMER, LEADER
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.message import LeaderWanted, Undeclared
from statemachines.wire import Packet

PLACE = ("memory", 7411)
WANTED = Packet("consumer-1~1/1", "leader", 5, LeaderWanted("consumer-1~1/1", "g", "#"))
ANSWER = Packet("leader-1~1/1", "consumer-1~1/1", 6, Undeclared("consumer-1~1/1"))


class Pair:
    """A leader host and a consumer, connected; what each has received."""

    def __init__(self, network):
        self.at_leader, self.at_consumer = [], []
        self.leader = network.transport(life="leader-1~1", role=LEADER, receive=self.at_leader.append, listen=PLACE)
        self.consumer = network.transport(
            life="consumer-1~1",
            role=CONSUMER,
            receive=self.at_consumer.append,
            dial={"leader": PLACE},
        )


def run(test, network=None):
    """`test(pair)` between two open transports."""

    async def main():
        pair = Pair(network or MemoryNetwork())
        async with pair.leader, pair.consumer:
            await test(pair)

    asyncio.run(main())


async def turn():
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_packets_go_both_ways_in_their_order():
    async def test(pair):
        for number in range(3):
            pair.consumer.send(Packet(WANTED.sender, "leader", number, WANTED.message))
        pair.leader.send(ANSWER)
        assert pair.at_leader == []  # not before its turn on the loop
        await turn()
        assert [packet.msg for packet in pair.at_leader] == [0, 1, 2]
        assert pair.at_consumer == [ANSWER]
        assert pair.leader.is_peer_of("consumer", "consumer-1~1/1")
        assert not pair.leader.is_peer_of("leader", "consumer-1~1/1")

    run(test)


def test_who_is_not_connected_gets_nothing_and_it_is_counted():
    async def test(pair):
        pair.leader.send(Packet("leader-1~1/1", "consumer-2~1/1", 1, Undeclared("consumer-2~1/1")))
        assert pair.leader.dropped == 1
        async with MemoryNetwork().transport(life="leader-2~1", role=LEADER, receive=print, listen=PLACE) as stranger:
            stranger.send(ANSWER)
            assert stranger.dropped == 1

    run(test)


def test_SS_236_who_works_on_another_store_is_not_connected_and_it_is_said_once(caplog):
    async def test(pair):
        network = pair.leader._network
        dial = {"leader": PLACE}
        astray = network.transport(life="consumer-2~1", role=CONSUMER, receive=print, dial=dial, store="other")
        async with astray:
            for _ in range(2):
                astray.send(Packet("consumer-2~1/1", "leader", 1, LeaderWanted("consumer-2~1/1", "g", "#")))
            await turn()
            assert (astray.dropped, pair.at_leader) == (2, [])
            assert not pair.leader.is_peer_of("consumer", "consumer-2~1/1")

    run(test)
    assert caplog.text.count("works on another store") == 1


def test_a_queue_that_is_full_takes_no_more():
    async def test(pair):
        for _ in range(100):
            pair.consumer.send(WANTED)
        await turn()
        assert len(pair.at_leader) + pair.consumer.dropped == 100
        assert 0 < len(pair.at_leader) < 10
        pair.consumer.send(WANTED)
        await turn()
        assert len(pair.at_leader) + pair.consumer.dropped == 101  # there is room again
        assert pair.at_leader[-1] == WANTED

    run(test, MemoryNetwork(queue_max=400))


@pytest.mark.parametrize("other", ["consumer-2~1/1", "consumer-1~2/1", "consumer-1~11/1"])
def test_nobody_speaks_with_anothers_voice(caplog, other):
    async def test(pair):
        pair.consumer.send(Packet(other, "leader", 1, LeaderWanted(other, "g", "#")))
        assert not pair.leader.is_peer_of("consumer", other)
        assert pair.leader.is_peer_of("consumer", "consumer-1~1/1")
        pair.leader.send(Packet("leader-1~1/1", "consumer-1~1/1", 1, WANTED.message))
        await turn()
        assert pair.at_leader == pair.at_consumer == []

    with caplog.at_level(logging.WARNING, "gapless"):
        run(test)
    assert f"sent a message as {other}, which does not live on it" in caplog.text
    assert "a message that is not taken here" in caplog.text


def test_a_packet_too_large_is_dropped_where_it_is_sent(caplog):
    async def test(pair):
        pair.consumer.send(Packet(WANTED.sender, "leader", 1, LeaderWanted(WANTED.sender, "g" * 2**20, "#")))
        await turn()
        assert (pair.at_leader, pair.consumer.dropped) == ([], 1)

    with caplog.at_level(logging.WARNING, "gapless"):
        run(test)
    assert "at most" in caplog.text


def test_a_gate_decides_when_a_packet_arrives_and_how_often():
    held = []

    async def test(pair):
        pair.consumer.send(WANTED)
        await turn()
        assert pair.at_leader == []
        ((sender, to, packet, arrive),) = held
        assert (sender, to, packet) == ("consumer-1", "leader-1", WANTED)
        arrive()
        arrive()
        await turn()
        assert pair.at_leader == [WANTED, WANTED]

    run(test, MemoryNetwork(lambda *packet: held.append(packet)))


def test_a_killed_node_hears_and_says_nothing_and_its_next_life_does(caplog):
    network = MemoryNetwork()

    async def test(pair):
        network.kill("leader-1")
        pair.consumer.send(WANTED)
        pair.leader.send(ANSWER)
        await turn()
        assert pair.at_leader == pair.at_consumer == []
        assert (pair.consumer.dropped, pair.leader.dropped) == (1, 1)
        async with network.transport(life="leader-1~2", role=LEADER, receive=pair.at_leader.append, listen=PLACE):
            pair.consumer.send(WANTED)
            await turn()
        assert pair.at_leader == [WANTED]

    run(test, network)
    assert caplog.text == ""


def test_two_lives_at_once_are_told():
    network = MemoryNetwork()

    async def test(pair):
        again = network.transport(life="consumer-1~2", role=CONSUMER, receive=print)
        async with again:
            pass

    with pytest.MonkeyPatch.context() as patch:
        said = []
        patch.setattr(logging.getLogger("gapless"), "warning", lambda text, *words: said.append(text % words))
        run(test, network)
    assert said == ["consumer-1~2 has connected again, its connection from before is closed"]


def test_an_address_that_is_in_use_and_credentials_are_refused():
    network = MemoryNetwork()

    async def test(pair):
        options = {"role": LEADER, "receive": print}
        with pytest.raises(ConfigurationError, match=r"memory:7411.*in use"):
            async with network.transport(life="leader-2~1", listen=PLACE, **options):
                pass
        async with network.transport(life="leader-3~1", listen=("memory", 0), **options) as other:
            assert other.address[1] != 0
        with pytest.raises(ConfigurationError, match="takes none"):
            network.transport(life="leader-2~1", credentials=Credentials(secret=b"x" * 16), **options)

    run(test, network)


def test_a_group_in_one_process_without_a_socket(tmp_path):
    """The drivers as they are, over a network in memory."""

    async def main():
        environment = MemoryNetwork().environment
        store = tmp_path / "messages.db"
        taken = []
        async with LeaderNode(listen=PLACE, store=store, environment=environment) as leader:
            assert leader.address == PLACE
            async with (
                SharedSubscription(
                    "$shared/g/#", leader="memory:7411", store=store, start="beginning", environment=environment
                ) as messages,
                Publisher(store) as publisher,
            ):
                await publisher.publish("orders", [b"one", b"two"])
                async for message in messages:
                    taken.append(message.payload)
                    await message.ack()
                    if len(taken) == 2:
                        await messages.unsubscribe()
        return taken

    assert asyncio.run(main()) == [b"one", b"two"]
