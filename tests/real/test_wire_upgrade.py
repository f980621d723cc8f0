"""Nodes of two adjacent versions of the wire as processes: each is upgraded alone, and clients go on beside them."""

import asyncio
import random

import pytest
from carried_judge import judge_of_sessions_judge, must_come
from mqtt_subscribers import NEXT, make_next_version
from node_processes import nodes_of
from outside import PROGRAM
from sessions_workload import Publisher, Subscriber, copies_in

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.wire import VERSION
from tests.waiting import run_async, until_async

COUNT = 40
SPOKEN = "speaks version {} of the wire; " + f"{VERSION} is spoken with it"


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory):
    """The words that begin a command of the next version."""
    return make_next_version(tmp_path_factory.mktemp("next"))


async def exchange(reader, writer, *payloads):
    """Publish at one node; whoever has the session at the other gets these, and acknowledges them."""
    async with (
        PersistentSession("tablet", nodes=[reader.address]) as session,
        SessionPublisher(nodes=[writer.address]) as publisher,
    ):
        await session.subscribe("t")
        for payload in payloads:
            await publisher.publish("t", payload)
        for payload in payloads:
            message = await anext(session)
            assert message.payload == payload, "what was acknowledged before does not come again"
            message.acknowledge()


def list_payloads(stage):
    return [f"{stage}:{number}".encode() for number in range(4)]


@pytest.mark.parametrize("is_upgrade", [True, False], ids=["upgrade", "return"])
def test_PS_720_nodes_of_sessions_are_replaced_one_by_one_beside_a_client(tmp_path, upgraded, is_upgrade):
    """`return`: from the next version to this one; the client is of this version both times."""
    before, behind = (PROGRAM, upgraded) if is_upgrade else (upgraded, PROGRAM)

    async def main():
        store = str(tmp_path / "s.db")
        async with nodes_of(tmp_path, store, ("a", "b"), "--no-collect", program=before) as (a, b):
            addresses, chance = [a.address, b.address], random.Random(7)
            subscriber, publisher = Subscriber("one", addresses, chance, 2), Publisher("w", addresses[::-1], chance)
            tasks = [asyncio.ensure_future(subscriber.run())]
            await subscriber.subscribed.wait()
            tasks.append(asyncio.ensure_future(publisher.run()))
            await exchange(a, b, *list_payloads("both before"))
            for node, other in ((a, b), (b, a)):
                assert await node.end() == 0, node.said()
                node.program = behind
                await node.start([a, b])
                await exchange(node, other, *list_payloads(f"from {other.name}"))
                await exchange(other, node, *list_payloads(f"from {node.name}"))
            count = len(publisher.answered)
            await until_async(lambda: len(publisher.answered) >= count + 20)
            publisher.over.set()
            await tasks[1]
            await until_async(lambda: must_come(publisher.answered) <= subscriber.seen)
            tasks[0].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert judge_of_sessions_judge(copies_in(store), publisher.answered, subscriber.got) == []
            said = a.said() + b.said()
            assert SPOKEN.format(NEXT) in said
            assert SPOKEN.format(VERSION) in said
            assert "is cut off" not in said
            assert "Traceback" not in said

    run_async(main(), hangs=5)
