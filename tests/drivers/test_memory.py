"""The network in memory: the rules of TCP without a socket."""

from __future__ import annotations

import asyncio
import logging

import pytest

from statemachines.drivers import Credentials
from statemachines.drivers.memory import MemoryNetwork
from statemachines.drivers.shared_subscriptions.roles import CONSUMER, LEADER
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.message import LeaderWanted
from statemachines.wire import Packet

PLACE = ("memory", 7411)
WANTED = Packet("consumer-1~1/1", "leader", 5, LeaderWanted("consumer-1~1/1", "g", "#"))


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
