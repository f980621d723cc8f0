"""Nodes of two adjacent versions of the wire as processes: each is upgraded alone, and clients go on beside them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess

import msgspec
import pytest
from next_version import ADDED, NEXT, make_next_version
from node_processes import PATIENCE_S, nodes_of
from outside import PROGRAM, LeaderHost, Stranger, read_all
from sessions_judge import judge, must_come
from sessions_workload import Publisher, Subscriber, copies_in
from stored_group import declare_group, publish_lines

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.persistent_sessions.message import Delivered, Live, Queued
from statemachines.shared_subscriptions.message import Grant, Ping, Report
from statemachines.testing.process_harness import free_port
from statemachines.wire import VERSION, Packet, PacketCodec

COUNT = 40
SPOKEN = "speaks version {} of the wire; " + f"{VERSION} is spoken with it"
MESSAGES = (
    Live("s", "w", 1, Queued(2, "m"), 3),
    Delivered(1, "t", b"p", "t", 1, False, None, b"head"),
    Ping("c~1/1", 1, 2, 3, (Report("s", 1, 2, True, 0, False, (), "why"),)),
    Grant("c~1/1", 1, 2, "s", 3, 4),
)
CODEC = PacketCodec(Live | Delivered | Grant | Ping)
"""The fields behind `head` and `reason` are known to the next version alone."""
READ_AND_WRITE = """
import sys
from msgspec import structs
from statemachines.persistent_sessions.message import Delivered
from statemachines.persistent_sessions.message import Live
from statemachines.shared_subscriptions.message import Grant, Ping
from statemachines.wire import VERSION, PacketCodec, Packet

codec = PacketCodec(Live | Delivered | Grant | Ping)
for line in sys.stdin:
    packet = codec.decode(bytes.fromhex(line))
    message = packet.message
    reports = [structs.replace(one, added="carried") for one in getattr(message, "reports", ())]
    more = {"reports": tuple(reports)} if reports else {}
    told = [message.added, *(one.added for one in getattr(message, "reports", ()))]
    written = Packet(packet.sender, packet.to, packet.msg, structs.replace(message, added="carried", **more))
    print(VERSION, ",".join(told), codec.encode(written)[4:].hex())
"""


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory):
    """The words that begin a command of the next version."""
    return make_next_version(tmp_path_factory.mktemp("next"))


def test_PS_721_each_version_reads_what_the_other_writes(upgraded):
    packets = [Packet("c~1/1", "leader", number, message) for number, message in enumerate(MESSAGES)]
    lines = "\n".join(CODEC.encode(one)[4:].hex() for one in packets)
    command = [*upgraded[:-2], "-c", READ_AND_WRITE]
    said = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=300, check=True).stdout
    for packet, line in zip(packets, said.splitlines(), strict=True):
        version, told, data = line.split()
        assert version == str(NEXT)
        assert set(told.split(",")) == {ADDED}, "what this version does not say has its default"
        body = bytes.fromhex(data)
        assert msgspec.msgpack.decode(body)[3][-1] == "carried"
        assert CODEC.decode(body) == packet, "what this version does not know is ignored"


def run(body):
    async def bounded():
        async with asyncio.timeout(PATIENCE_S):
            await body

    asyncio.run(bounded())


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
        async with nodes_of(tmp_path, store, program=before) as (a, b):
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
            while len(publisher.answered) < count + 20:
                await asyncio.sleep(0.01)
            publisher.over.set()
            await tasks[1]
            while not must_come(publisher.answered) <= subscriber.seen:
                await asyncio.sleep(0.01)
            tasks[0].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert judge(copies_in(store), publisher.answered, subscriber.got) == []
            said = a.said() + b.said()
            assert SPOKEN.format(NEXT) in said
            assert SPOKEN.format(VERSION) in said
            assert "is cut off" not in said
            assert "Traceback" not in said

    run(main())


CLIENT = """
import asyncio, sys
from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.wire import VERSION

async def main(nodes):
    async with PersistentSession("tablet", nodes=nodes) as session, SessionPublisher(nodes=nodes[::-1]) as publisher:
        await session.subscribe("t", qos=2)
        for payload in (b"1", b"2", b"3"):
            await publisher.publish("t", payload, qos=2)
            message = await anext(session)
            message.acknowledge()
            print(VERSION, message.payload.decode())

asyncio.run(main(sys.argv[1:]))
"""


def test_PS_720_a_client_of_the_next_version_talks_to_nodes_of_this_one(tmp_path, upgraded):
    async def main():
        async with nodes_of(tmp_path, str(tmp_path / "s.db")) as nodes:
            command = [*upgraded[:-2], "-c", CLIENT, *(node.address for node in nodes)]
            child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
            said, _ = await child.communicate()
            assert said.decode().splitlines() == [f"{NEXT} {number}" for number in (1, 2, 3)]

    run(main())


@pytest.mark.parametrize("is_leader_next", [True, False])
def test_PS_720_a_leader_and_a_consumer_of_two_versions_serve_a_group(tmp_path, upgraded, is_leader_next):
    programs = (upgraded, PROGRAM) if is_leader_next else (PROGRAM, upgraded)
    store = tmp_path / "g.db"
    publish_lines(store, ["line"] * COUNT)
    with LeaderHost(tmp_path, store, program=programs[0]) as leader:
        got = read_all(tmp_path, store, leader.port, COUNT, "--start", "beginning", program=programs[1])
        assert got == set(range(COUNT))
        consumer_said = (tmp_path / "consumer.log").read_text()
        assert SPOKEN.format(NEXT if is_leader_next else VERSION) in consumer_said
        assert "is cut off" not in leader.said + consumer_said


@pytest.mark.parametrize("is_leader_next", [True, False])
def test_PS_720_a_leader_serves_a_consumer_through_a_follower_of_another_version(tmp_path, upgraded, is_leader_next):
    """The consumer reaches the follower alone, and is of the version of the leader."""
    programs = (upgraded, PROGRAM) if is_leader_next else (PROGRAM, upgraded)
    store = tmp_path / "g.db"
    publish_lines(store, ["line"] * COUNT)
    declare_group(store)
    ports = [free_port(), free_port()]
    with contextlib.ExitStack() as stack:
        hosts = []
        for place, program in enumerate(programs):
            address, peer = (f"127.0.0.1:{ports[one]}" for one in (place, 1 - place))
            folder = tmp_path / f"host-{place}"
            folder.mkdir()
            options = ("--listen", address, "--peers", peer, "--name", f"host-{place}")
            hosts.append(stack.enter_context(LeaderHost(folder, store, *options, program=program)))
            if not place:
                with Stranger(ports[0], "asks~1", store=store) as one:
                    one.register("asks~1/1", "g", "#")  # so that this host leads
        got = read_all(tmp_path, store, ports[1], COUNT, "--start", "beginning", program=programs[0])
        assert got == set(range(COUNT))
        assert "leads it" in hosts[0].said
        said = hosts[0].said + hosts[1].said
        assert SPOKEN.format(NEXT) in said
        assert SPOKEN.format(VERSION) in said
        assert "is cut off" not in said


def test_PS_722_versions_that_do_not_overlap_say_both_ranges_and_which_side_to_upgrade(tmp_path):
    """The next version understands this one no more."""
    program = make_next_version(tmp_path / "next", oldest=NEXT)

    async def main():
        async with nodes_of(tmp_path, str(tmp_path / "s.db"), ("a", "b")) as (a, b):
            assert await b.end() == 0
            b.program = program
            await b.start([a, b])
            ours = f"speaks version {NEXT} of the wire, and this node speaks {VERSION}; upgrade this node"
            theirs = f"speaks version {VERSION} of the wire, and this node speaks {NEXT}; upgrade that one"
            while ours not in a.said() or theirs not in b.said():
                await asyncio.sleep(0.05)

    run(main())
