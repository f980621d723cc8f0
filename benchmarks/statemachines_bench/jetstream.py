"""The rows about groups beside a JetStream consumer with explicit acknowledgements: how many messages, how late a
message, and how soon another gets what a dead consumer had in hand.

nats-server keeps the stream in files, as it is set up to; the client is nats-py.
"""

from __future__ import annotations

import asyncio
import atexit
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, Final

from statemachines.kernel import ConfigurationError, GaplessError
from statemachines.testing.process_harness import free_port
from statemachines_bench.failover import FASTER, run_failover
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair
from statemachines_bench.throughput import (
    MESSAGES,
    PATIENCE_S,
    STREAMS,
    fill,
    leader_host,
    list_parts,
    per_second,
    run_ours,
    start_consumers,
)

ACK_WAIT_S: Final = 30.0
"""After so long JetStream hands out again what was not acknowledged, by default."""

PACED: Final = 200
"""Messages of which each is published when the one before was handled."""

IN_HAND: Final = 100

BASELINE: Final = "JetStream, nats-py"


class NatsServer:
    """Debian's nats-server with a file store in a temporary directory."""

    def __init__(self) -> None:
        binary = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")
        if binary is None:
            rule = "is not there; install the package 'nats-server' (Debian's name)"
            raise ConfigurationError("JetStream", "nats-server", rule)
        self.directory = tempfile.mkdtemp(prefix="gapless-nats-")
        self.url = f"nats://127.0.0.1:{(port := free_port())}"
        command = [binary, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", self.directory]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        atexit.register(self.stop)

    def stop(self) -> None:
        """End it; its data goes too."""
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[tuple[Any, Any]]:
        """A connection and its JetStream, as soon as the server answers."""
        import nats

        deadline = monotonic() + PATIENCE_S
        while True:
            try:
                connection: Any = await nats.connect(self.url, allow_reconnect=False)
                break
            except (OSError, nats.errors.Error) as error:
                if monotonic() > deadline:
                    raise GaplessError("nats-server did not start") from error
                await asyncio.sleep(0.02)
        try:
            yield connection, connection.jetstream()
        finally:
            await connection.close()


async def fill_stream(server: NatsServer, messages: int, streams: int) -> None:
    """The same messages in one stream of as many subjects."""
    async with server.client() as (connection, jetstream):
        await jetstream.add_stream(name="bench", subjects=["bench.*"])
        for payloads in list_parts(messages // streams):
            for stream in range(streams):
                for payload in payloads:
                    await connection.publish(f"bench.s{stream}", payload)
            await connection.flush()
        await until_count(lambda: count_stored(jetstream), messages)


async def count_stored(jetstream: Any) -> int:
    """Messages of the stream."""
    return int((await jetstream.stream_info("bench")).state.messages)


async def until_count(count: Any, wanted: int) -> None:
    """Wait until there are so many."""
    deadline = monotonic() + PATIENCE_S
    while (found := await count()) != wanted:
        if monotonic() > deadline:
            raise GaplessError(f"JetStream has {found} of {wanted} messages")
        await asyncio.sleep(0.02)


async def declare(jetstream: Any, *, ack_wait_s: float = ACK_WAIT_S) -> None:
    """A new consumer of the stream, from its first message."""
    import nats

    with_name = nats.js.api.ConsumerConfig(
        durable_name="bench", ack_policy=nats.js.api.AckPolicy.EXPLICIT, ack_wait=ack_wait_s
    )
    if any(one.name == "bench" for one in await jetstream.consumers_info("bench")):
        await jetstream.delete_consumer("bench", "bench")
    await jetstream.add_consumer("bench", with_name)


def run_jetstream(server: NatsServer, messages: int) -> float:
    """A new consumer group on the same stream; the server has every acknowledgement in the end."""

    async def begin() -> None:
        async with server.client() as (_, jetstream):
            await declare(jetstream)

    async def check() -> None:
        async def acknowledged() -> int:
            return int((await jetstream.consumer_info("bench", "bench")).ack_floor.stream_seq)

        async with server.client() as (_, jetstream):
            await until_count(acknowledged, messages)

    asyncio.run(begin())
    with start_consumers("jetstream", server.url) as children:
        value = per_second(children, messages)
        asyncio.run(check())
        return value


def prepare_throughput(size: Size) -> TurnPair:
    messages = size.pick(MESSAGES, 2_400)
    directory = Path(tempfile.mkdtemp(prefix="gapless-bench-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    filled = directory / "messages.db"
    fill(filled, messages, STREAMS)
    server = NatsServer()
    asyncio.run(fill_stream(server, messages, STREAMS))
    return TurnPair(lambda: run_ours(filled, messages), lambda: run_jetstream(server, messages))


# -- latency --------------------------------------------------------------------------------------------------------


def find_median_ms(seconds: list[float]) -> float:
    """The median, in milliseconds."""
    return sorted(seconds)[len(seconds) // 2] * 1e3


async def latency_of_ours(count: int) -> float:
    """Milliseconds from `publish` until the message is in the hands of its member."""
    from statemachines.drivers.shared_subscriptions import Publisher, SharedSubscription

    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "messages.db"
        async with Publisher(store) as publisher:
            await publisher.publish("t", [b"first"])
            with leader_host(store) as address:
                group = SharedSubscription("$shared/bench/#", leader=address, store=store, start="beginning")
                async with group as messages:
                    each = aiter(messages)
                    await (await anext(each)).ack()
                    found = []
                    for _ in range(count):
                        began = perf_counter()
                        await publisher.publish("t", [b"x" * 64])
                        message = await anext(each)
                        found.append(perf_counter() - began)
                        await message.ack()
    return find_median_ms(found)


async def latency_of_jetstream(server: NatsServer, count: int) -> float:
    """The same."""
    async with server.client() as (_, jetstream):
        await jetstream.add_stream(name="bench", subjects=["bench.*"])
        await declare(jetstream)
        pull = await jetstream.pull_subscribe_bind("bench", "bench")
        found = []
        for _ in range(count):
            began = perf_counter()
            await jetstream.publish("bench.t", b"x" * 64)
            (message,) = await pull.fetch(1)
            found.append(perf_counter() - began)
            await message.ack()
        await jetstream.delete_stream("bench")
    return find_median_ms(found)


def prepare_latency(size: Size) -> TurnPair:
    count = size.pick(PACED, 3)
    server = NatsServer()
    return TurnPair(
        lambda: asyncio.run(latency_of_ours(count)), lambda: asyncio.run(latency_of_jetstream(server, count))
    )


# -- fail-over ------------------------------------------------------------------------------------------------------


async def redelivery_s(server: NatsServer, ack_wait_s: float) -> float:
    """Seconds from SIGKILL of a consumer until another has got everything that it had in hand."""
    async with server.client() as (_, jetstream):
        await jetstream.add_stream(name="bench", subjects=["bench.*"])
        await declare(jetstream, ack_wait_s=ack_wait_s)
        for number in range(IN_HAND):
            await jetstream.publish("bench.t", b"%d" % number)
        command = [sys.executable, "-m", "statemachines_bench.group_consumer", "jetstream-hold", server.url, "victim"]
        child = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(b"\n")
            await child.stdout.readline()  # ready
            await child.stdout.readline()  # it has them
            child.kill()
            killed, left = monotonic(), IN_HAND
            pull = await jetstream.pull_subscribe_bind("bench", "bench")
            while left:
                for message in await pull.fetch(left, timeout=PATIENCE_S):
                    left -= 1
                    await message.ack()
            return monotonic() - killed
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()
            await jetstream.delete_stream("bench")


def prepare_failover(size: Size) -> TurnPair:
    server, ack_wait_s = NatsServer(), size.pick(ACK_WAIT_S / FASTER, 0.3)
    return TurnPair(run_failover, lambda: asyncio.run(redelivery_s(server, ack_wait_s)))


ROWS = (
    BenchRow(
        name="group-jetstream",
        about="a group empties 8 streams: 200 000 stored messages of 64 bytes, 2 consumer processes, batches of 100",
        unit="messages / s",
        baseline_name=f"{BASELINE}, explicit acknowledgements",
        prepare=prepare_throughput,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=1,
    ),
    BenchRow(
        name="group-jetstream-latency",
        about="a message of 64 bytes from its publish to a member that waits for it, median of 200",
        unit="ms",
        baseline_name=BASELINE,
        prepare=prepare_latency,
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
    BenchRow(
        name="group-jetstream-failover",
        about="SIGKILL of one of two consumers, until another gets what it had in hand; a tenth of both default times",
        unit="s",
        baseline_name=f"{BASELINE}, ack_wait 3 s",
        prepare=prepare_failover,
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
)
