"""The rows about change of owner: a consumer is killed, a leader host is killed, a consumer leaves; how soon the
streams flow again.

Who is killed is a process of its own, the others run here, on one loop, over TCP and SQLite.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from time import monotonic
from typing import Any, Final

import msgspec

from statemachines.drivers.shared_subscriptions import SharedSubscription
from statemachines.drivers.shared_subscriptions.leader_node import LeaderNode
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.kernel.identity import node_of
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines_bench.harness import compare, open_folder, run_node
from statemachines_bench.row import BenchRow, RatioKind

TOPICS: Final = tuple(f"t{number}" for number in range(8))
FASTER: Final = 10
"""The times of the group are the defaults divided by this."""

NAMES: Final = ("leader-1", "leader-2")

PUBLISH_S: Final = 0.01
STEADY_S: Final = 0.5
"""How long both must have served their halves before something happens."""

DELAY_S: Final = 0.02
"""What the relay keeps each piece back, in each direction."""

PATIENCE_S: Final = 60.0
SLACK_S: Final = 2.0
"""The next leader host looks at the claim, members ask it, and streams are listed and granted."""

Address = tuple[str, int]


def list_times(times: Configuration) -> dict[str, int]:
    """Its times, by name."""
    return {name: getattr(times, name) for name in times.__struct_fields__ if name.endswith("_ms")}


def configuration() -> Configuration:
    """The defaults, faster."""
    plain = Configuration()
    times = {name: value // FASTER for name, value in list_times(plain).items()}
    return msgspec.structs.replace(plain, **times).check()


class DeliveryTimes:
    """When a consumer got its last message of each topic."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}

    def got(self, topic: str) -> None:
        """One came."""
        self.at[topic] = monotonic()

    def since(self, moment: float) -> set[str]:
        """The topics of which something came after it."""
        return {topic for topic, at in self.at.items() if at > moment}


async def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for it; a minute at most."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.001)


async def publish(publisher: Publisher) -> None:
    """A message to every topic, again and again."""
    while True:
        for topic in TOPICS:
            await publisher.publish(topic, [b"x" * 64])
        await asyncio.sleep(PUBLISH_S)


@asynccontextmanager
async def run_meanwhile(work: Any) -> AsyncIterator[None]:
    """A task for as long as this is open; its failure is ours."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        if task.done():
            task.result()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def wait_for_halves(one: DeliveryTimes, other: DeliveryTimes) -> set[str]:
    """Wait until each serves its half, and nobody the other's; the topics of `one`."""

    def steady() -> bool:
        moment = monotonic() - STEADY_S
        mine, theirs = one.since(moment), other.since(moment)
        return len(mine) == len(theirs) == len(TOPICS) // 2 and not mine & theirs

    await wait_until(steady)
    return one.since(monotonic() - STEADY_S)


class BenchGroup:
    """A group over a store in a folder, for one turn."""

    def __init__(self, stack: AsyncExitStack, times: Configuration) -> None:
        self.stack = stack
        self.times = times
        folder = stack.enter_context(open_folder())
        self.store = folder / "messages.db"
        self.config = folder / "times.toml"
        self.config.write_text("".join(f"{name} = {value}\n" for name, value in list_times(times).items()))

    async def lead(self) -> Address:
        """A leader host in this process; where it listens."""
        node = LeaderNode(listen=("127.0.0.1", 0), store=self.store, configuration=self.times)
        await self.stack.enter_async_context(node)
        return node.address

    async def join(self, leader: Any, seen: DeliveryTimes, **more: Any) -> SharedSubscription:
        """A member that acknowledges what comes."""
        messages = SharedSubscription(
            "$shared/bench/#", leader=leader, store=self.store, configuration=self.times, start="beginning", **more
        )
        await self.stack.enter_async_context(messages)

        async def read() -> None:
            async for batch in messages.batches(100):
                seen.got(batch[0].topic)
                await batch.ack()

        await self.stack.enter_async_context(run_meanwhile(read()))
        return messages


# -- a consumer is killed -------------------------------------------------------------------------------------------


async def failover_s() -> float:
    """Seconds from SIGKILL until the other one has got something of each stream that the dead one had."""
    victim, survivor = DeliveryTimes(), DeliveryTimes()
    async with AsyncExitStack() as stack:
        group = BenchGroup(stack, configuration())
        leader = "{}:{}".format(*await group.lead())
        publisher = await stack.enter_async_context(Publisher(group.store))
        await stack.enter_async_context(run_meanwhile(publish(publisher)))
        await group.join(leader, survivor)
        arguments = ["node", "consumer", "$shared/bench/#", "--name", "victim", "--leader", leader]
        arguments += ["--store", str(group.store), "--start", "beginning", "--config", str(group.config)]
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "statemachines", *arguments, stdout=asyncio.subprocess.PIPE
        )
        await stack.enter_async_context(run_meanwhile(listen(child, victim)))
        try:
            streams = await wait_for_halves(victim, survivor)
            child.kill()
            killed = monotonic()
            await wait_until(lambda: streams <= survivor.since(killed))
            return monotonic() - killed
        finally:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()


async def listen(child: asyncio.subprocess.Process, seen: DeliveryTimes) -> None:
    """What the consumer prints: a line for each message, its topic first."""
    assert child.stdout is not None
    async for line in child.stdout:
        seen.got(line.partition(b"\t")[0].decode())


def find_unit_s() -> float:
    """What a fail-over may take: validity and resend interval."""
    times = configuration()
    return (times.validity_ms + times.resend_interval_ms) / 1000


# -- a leader host is gone ------------------------------------------------------------------------------------------


async def next_leader_s() -> float:
    """Seconds from SIGKILL of the host that leads until all streams flow again, granted by the other one.

    The hosts have no peers: a member that asks one is led by it or by nobody."""
    seen = DeliveryTimes()
    async with AsyncExitStack() as stack:
        group = BenchGroup(stack, Configuration())
        options = ("--config", str(group.config))
        hosts = [stack.enter_context(run_node("leader", name, group.store, *options)) for name in NAMES]
        publisher = await stack.enter_async_context(Publisher(group.store))
        await stack.enter_async_context(run_meanwhile(publish(publisher)))
        messages = await group.join([address for _, address in hosts], seen)
        await wait_until(lambda: len(seen.since(monotonic() - STEADY_S)) == len(TOPICS))
        await asyncio.sleep(STEADY_S)
        ((borrower, epoch, leader),) = list_links(messages)
        child, _ = hosts[NAMES.index(node_of(leader))]
        child.kill()
        struck = monotonic()
        await wait_until(lambda: any(now > epoch and other != borrower for other, now, _ in list_links(messages)))
        granted = monotonic()
        await wait_until(lambda: len(seen.since(granted)) == len(TOPICS))
        return monotonic() - struck


def list_links(messages: Any) -> list[tuple[str, int, str]]:
    """Each borrower that is connected, with the epoch of its leader, and its leader."""
    links = ((name, getattr(node.record, "link", None)) for name, node in messages.machines.nodes.items())
    return [(name, link.epoch, link.leader) for name, link in links if link is not None]


def find_bound_s() -> float:
    """What a claim and the leases under it last, and two seconds."""
    times = Configuration()
    return times.claim_ttl_ms / 1_000 + times.lease_by_other_clock_ns() / MS / 1_000 + SLACK_S


# -- a consumer leaves ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def relay(to: Address) -> AsyncIterator[Address]:
    """A way to `to` on which everything takes DELAY_S longer, in both directions."""
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []
    writers: list[asyncio.StreamWriter] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            loop.call_later(DELAY_S, writer.write, data)
        loop.call_later(DELAY_S, writer.close)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(*to)
        writers.extend((writer, there_writer))
        tasks.append(loop.create_task(pump(reader, there_writer)))
        tasks.append(loop.create_task(pump(there_reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()[:2]
        yield host, port
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        for writer in writers:
            writer.close()
        await asyncio.gather(*tasks, *(writer.wait_closed() for writer in writers), return_exceptions=True)


async def leave_ms() -> float:
    """Milliseconds from `unsubscribe` until the other one has got something of each stream of the leaver.

    Both speak with the leader through the relay; nothing is unfinished when one leaves, and a message is put into each
    of its streams right then.
    """
    leaver, stayer = DeliveryTimes(), DeliveryTimes()
    async with AsyncExitStack() as stack:
        group = BenchGroup(stack, configuration())
        leader = "{}:{}".format(*await stack.enter_async_context(relay(await group.lead())))
        publisher = await stack.enter_async_context(Publisher(group.store))
        leaving = await group.join(leader, leaver, node="leaver")
        await group.join(leader, stayer, node="stayer")
        async with run_meanwhile(publish(publisher)):
            streams = await wait_for_halves(leaver, stayer)
        await asyncio.sleep(STEADY_S)
        left = monotonic()
        await leaving.unsubscribe()
        for topic in streams:
            await publisher.publish(topic, [b"x" * 64])
        await wait_until(lambda: streams <= stayer.since(left))
        return (max(stayer.at[topic] for topic in streams) - left) * 1000


async def round_trip_ms() -> float:
    """Milliseconds of a piece there and back through the relay."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(1))
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    async with relay((host, port)) as address:
        reader, writer = await asyncio.open_connection(*address)
        began = monotonic()
        writer.write(b"x")
        await reader.readexactly(1)
        spent = monotonic() - began
        writer.close()
        await writer.wait_closed()
    server.close()
    return spent * 1000


ROWS = (
    BenchRow(
        name="failover",
        about="SIGKILL of one of two consumers, until all its streams flow again; a tenth of the default times",
        unit="s",
        baseline_name="validity + resend interval",
        prepare=compare(failover_s, find_unit_s),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.2,
    ),
    BenchRow(
        name="failover-leader",
        about="SIGKILL of the leading one of two hosts, until all streams flow; the default times",
        unit="s",
        baseline_name="claim TTL + lease grace + 2 s",
        prepare=compare(next_leader_s, find_bound_s),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.0,
        aim="8 s",
    ),
    BenchRow(
        name="graceful-leave",
        about="unsubscribe of one of two consumers, until all its streams flow elsewhere; the ratio counts round trips",
        unit="ms",
        baseline_name="a round trip to the leader, 20 ms each way",
        prepare=compare(leave_ms, round_trip_ms),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=4.5,
        aim="2 round trips + resend interval, which makes 4.5",
    ),
)
