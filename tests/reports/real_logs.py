"""Real logs: small runs of every protocol over real stores, sockets and shared memory, each with a death in it.

    python real_logs.py PROTOCOL FOLDER

Nodes share a process where they can.  A node that is killed stops as `abort` does, and its log is left as a SIGKILL
leaves it: without an end.  The demos kill processes.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from statemachines.drivers.lives import begin_life, begin_log
from statemachines.trace.log import End, kill_row
from tests.waiting import pause_async, read_clock_ns, turns, until_async

PATIENCE_S = 60


def leave_as_killed(folder, node):
    """Take the end off the log of the node's last life: its process had no time to write it.  The row of its kill."""
    path = max(folder.glob(f"{node}~*.ndjson"), key=lambda one: one.stat().st_mtime_ns)
    lines = path.read_bytes().splitlines(keepends=True)
    assert b'{"end":' in lines[-1], End
    path.write_bytes(b"".join(lines[:-1]))
    return kill_row(time.time_ns(), node, folder)


# -- sessions ----------------------------------------------------------------------------------------------------------


async def persistent_sessions(folder):
    """A client whose node is killed, and comes back, while another takes over."""
    from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode, SessionPublisher
    from statemachines.persistent_sessions.times import Times

    def node(name):
        return SessionNode(
            folder.parent / "sessions.db", name=name, listen=("127.0.0.1", 0), lease_ms=1_000, look_ms=100,
            times=Times(marker_ms=400, repeat_ms=100), trace=folder,
        )  # fmt: skip

    with begin_log(folder, "nemesis~1") as nemesis:
        a = await node("a").__aenter__()
        async with node("b") as b:
            at = ["{}:{}".format(*one.address) for one in (a, b)]
            async with (
                SessionPublisher(nodes=at[1:]) as publisher,
                PersistentSession("c", nodes=at, receive_maximum=20) as session,
            ):
                await session.subscribe("t/#")
                for number in range(6):
                    await publisher.publish("t/1", b"%d" % number)
                await read(session, 6)
                await a.abort()
                nemesis.write([leave_as_killed(folder, "a")])
                for number in range(6, 12):
                    await publisher.publish("t/1", b"%d" % number)
                await read(session, 6)
                async with node("a"):
                    await pause_async(0.2, "it lives for a while")


async def read(session, count):
    """So many messages, each acknowledged."""
    for _ in range(count):
        (await anext(session)).acknowledge()


# -- groups ------------------------------------------------------------------------------------------------------------


async def shared_subscriptions(folder):
    """Two consumers; one is killed, and the other takes its streams over."""
    from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
    from statemachines.drivers.shared_subscriptions.publisher import Publisher
    from statemachines.drivers.shared_subscriptions.shared_session import SharedSubscription
    from statemachines.shared_subscriptions.configuration import Configuration

    times = {
        field: getattr(Configuration(), field) // 10
        for field in Configuration.__struct_fields__
        if field.endswith("_ms")
    }
    given = {"store": folder.parent / "messages.db", "configuration": Configuration(**times), "trace": folder}

    got = {}

    async def read_all(session):
        async for message in session:
            got.setdefault(message.payload, []).append(session.node)
            await message.ack()

    def consumer(name):
        return SharedSubscription("$shared/g/#", leader=leader, node=name, start="beginning", **given)

    with begin_log(folder, "nemesis~1") as nemesis:
        async with LeaderNode(listen=("127.0.0.1", 0), node="leader-1", **given) as node:
            leader = "{}:{}".format(*node.address)
            publisher = Publisher(given["store"], node="publisher-1", trace=folder)
            async with publisher, consumer("consumer-1") as first:
                reading = [asyncio.ensure_future(read_all(first))]
                second = await consumer("consumer-2").__aenter__()
                reading.append(asyncio.ensure_future(read_all(second)))
                count = 0
                while not any("consumer-2" in names for names in got.values()):
                    await publisher.publish(f"t{count % 4}", [b"%d" % count])
                    count += 1
                    await pause_async(0.05, "the pace of the publisher")
                reading.pop().cancel()
                await second.abort()
                nemesis.write([leave_as_killed(folder, "consumer-2")])
                for topic in range(4):
                    await publisher.publish(f"t{topic}", [b"last %d" % topic])
                await until_async(lambda: len(got) == count + 4)
                reading.pop().cancel()


# -- samples -----------------------------------------------------------------------------------------------------------


async def missed_samples(folder):
    """A publisher is killed, and a cache of another origin answers for it; the link loses samples."""
    from statemachines.drivers.missed_samples import (
        Recovery,
        declare_reliability_cache,
        declare_reliable_publisher,
        declare_reliable_subscriber,
        zenoh_session,
    )
    from statemachines.testing.missed_samples.lossy_link import LossyLink
    from statemachines.testing.process_harness import free_port

    def life(name):
        return begin_life(name, folder.parent, folder, None, "missed_samples")

    got = {}

    def take(sample):
        got.setdefault(sample.source, []).append(sample.number)

    port = free_port()
    with begin_log(folder, "nemesis~1") as nemesis:
        async with (
            zenoh_session("peer", listen=[f"tcp/127.0.0.1:{port}"]) as near,
            LossyLink(("127.0.0.1", port)) as link,
            zenoh_session("peer", connect=[link.endpoint]) as far,
        ):
            lives = {name: life(name) for name in ("cache-1", "subscriber-1", "publisher-1", "publisher-2")}
            async with (
                declare_reliability_cache(near, "k/**", history=100, life=lives["cache-1"]),
                declare_reliable_subscriber(
                    far, "k/**", take, life=lives["subscriber-1"], recovery=Recovery(retries=50)
                ),
                declare_reliable_publisher(near, "k/b", history=100, life=lives["publisher-2"]) as other,
            ):
                killed = declare_reliable_publisher(near, "k/a", history=100, life=lives["publisher-1"])
                await killed.__aenter__()
                await until_async(lambda: killed.is_heard and other.is_heard)
                for number in range(12):
                    link.lose = lambda batch, number=number: number in (4, 5)
                    killed.put(b"a%d" % number)
                    other.put(b"b%d" % number)
                    await pause_async(0.02, "the pace of the publishers")
                await until_async(lambda: all(len(numbers) == 12 for numbers in got.values()) and len(got) == 2)
                killed._trace.is_on = False
                await asyncio.to_thread(killed.close)
                lives["publisher-1"].close()
                nemesis.write([leave_as_killed(folder, "publisher-1")])
            for name, one in lives.items():
                if name != "publisher-1":
                    one.close()


# -- losses ------------------------------------------------------------------------------------------------------------


async def sequence_windows(folder):
    """A forwarder loses and repeats messages of two publishers; one is killed, and comes back."""
    from statemachines.commands.sequence_windows.node_parts import SubscriberNode, publisher_of
    from statemachines.demo.sequence_windows.forwarder import Forwarder
    from statemachines.drivers.sequence_windows.multicast import Group, MulticastReceiver, MulticastSender
    from statemachines.sequence_windows.windows import Windows

    pid = os.getpid()
    address = f"239.{87 + pid % 100}.{pid // 100 % 256}.{1 + pid // 25_600 % 250}"
    source, to = Group(address, 7600), Group(address, 7601)

    def life(name):
        return begin_life(name, folder.parent, folder, None, "sequence_windows")

    forwarder = Forwarder(source, to, folder, lambda number: number in (6, 7), lambda number: number == 9)
    with MulticastReceiver(to) as receiver, MulticastSender(source) as sender:
        subscriber = life("subscriber-1")
        node = SubscriberNode(receiver, subscriber, "subscriber-1", Windows(), ())
        running = asyncio.ensure_future(node.run(None))
        lives = [life("publisher-1"), life("publisher-2")]
        publishers = [publisher_of(one, sender.send, Windows()) for one in lives]

        async def publish(count):
            for number in range(count):
                passed = len(forwarder.passed)
                publishers[number % 2].publish(f"s{number % 2}", b"x")
                await until_async(lambda passed=passed: forwarder.forward() or len(forwarder.passed) > passed)

        await turns()
        await publish(20)
        await pause_async(1.1, "what is late counts as lost")
        lives[0].close()
        forwarder._log.write([leave_as_killed(folder, "publisher-1")])
        lives[0] = life("publisher-1")
        publishers[0] = publisher_of(lives[0], sender.send, Windows())
        await publish(6)
        await pause_async(1.1, "what is late counts as lost")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for one in (subscriber, *lives, forwarder):
            one.close()


# -- the queue ---------------------------------------------------------------------------------------------------------


async def cursor_recovery(folder):
    """Two writers and a reader, processes of their own; a writer is killed within a write, and comes back."""
    from statemachines.drivers.cursor_recovery import CircularQueue, GetTimeout, Instruments
    from statemachines.drivers.cursor_recovery.operation_log import OperationLog
    from statemachines.testing.cursor_recovery.crash_run import fork

    name = f"damaged-{os.getpid()}"

    def join(node, life, work, fatal=0):
        accesses = 0

        def hook(request):
            nonlocal accesses
            accesses += 1
            if accesses == fatal:
                os.kill(os.getpid(), signal.SIGKILL)

        with OperationLog(folder, node, life) as log:
            instruments = Instruments(hook=hook, observe=log.observe, attached=log.note_attached)
            with CircularQueue.attach(name, instruments=instruments) as queue:
                work(queue)

    def write(queue):
        for number in range(4):
            queue.put_many([b"%d" % number, b"x"], timeout=PATIENCE_S)

    def read_all(queue):
        try:
            while True:
                queue.get_many(timeout=0.3)
        except GetTimeout:
            return

    with (
        begin_log(folder, "nemesis~1") as nemesis,
        CircularQueue.create(name, capacity=8_192, threshold=0.05) as queue,
    ):

        def play(node, life, work, fatal=0):
            status = os.waitpid(fork(lambda: join(node, life, work, fatal)), 0)[1]
            assert status == (signal.SIGKILL if fatal else 0)

        play("writer-0", 1, write, fatal=60)
        nemesis.write([kill_row(read_clock_ns(), "writer-0", folder)])
        play("writer-0", 2, write)
        play("reader-0", 1, read_all)
        play("writer-1", 1, write)
        play("reader-1", 1, read_all)
        assert queue.stats().used == 0
        CircularQueue.unlink(name)


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](Path(sys.argv[2])))
