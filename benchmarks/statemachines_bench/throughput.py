"""The row about throughput: a consumer group empties its streams, against a Redis group.

Each consumer is a process of its own: `python -m statemachines_bench.throughput KIND ...`.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from time import monotonic, monotonic_ns, sleep
from typing import Any, Final

import redis

from statemachines.drivers.shared_subscriptions import SharedSubscription
from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore, SqliteStreamStore
from statemachines.kernel import GaplessError
from statemachines.shared_subscriptions.group_store import Scan, Scanned
from statemachines.shared_subscriptions.names import record_name
from statemachines.testing.mqtt_connections.mqtt_broker import find_program
from statemachines.testing.process_harness import free_port
from statemachines_bench.harness import copy_store, fill_store, make_folder, run_node
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

MESSAGES: Final = 200_000
SIZE: Final = 64
STREAMS: Final = 8
CONSUMERS: Final = 2
LOADED: Final = 1_000
"""Messages of one append when the streams are filled."""

BATCH: Final = 100
"""Messages of one stream handed over at a time."""

SAID: Final = 1_000
"""A consumer speaks after at least so many messages."""

QUIET_MS: Final = 20
"""It speaks after so long without a message."""

PATIENCE_S: Final = 120.0


def per_second(children: list[subprocess.Popen[str]], wanted: int) -> float:
    """Messages a second, from the first that was handed over to anybody until all are acknowledged."""
    counts = [0] * len(children)
    first_ns, last_ns = [0] * len(children), [0] * len(children)
    complete = Event()

    def hear(number: int, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            count, ns = map(int, line.split())
            first_ns[number] = first_ns[number] or ns
            last_ns[number] = ns
            counts[number] = count
            if sum(counts) == wanted:
                complete.set()

    for pair in enumerate(children):
        Thread(target=hear, args=pair, daemon=True).start()
    deadline = monotonic() + PATIENCE_S
    while not complete.wait(0.1):
        if monotonic() > deadline or any(child.poll() is not None for child in children):
            raise GaplessError(f"only {sum(counts)} of {wanted} messages were acknowledged; a consumer ended or waits")
    return wanted * 1e9 / (max(last_ns) - min(ns for ns in first_ns if ns))


def list_parts(messages: int) -> Iterator[list[bytes]]:
    """The payloads of one stream, LOADED at a time."""
    for begin in range(0, messages, LOADED):
        yield [b"%0*d" % (SIZE, number) for number in range(begin, min(begin + LOADED, messages))]


@contextmanager
def start_consumers(*arguments: str) -> Iterator[list[subprocess.Popen[str]]]:
    """The consumers, told to begin."""
    children = []
    try:
        for number in range(CONSUMERS):
            command = [sys.executable, "-m", "statemachines_bench.throughput", *arguments, f"consumer-{number + 1}"]
            children.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        yield children
    finally:
        for child in children:
            child.kill()
            child.communicate()


# -- ours -----------------------------------------------------------------------------------------------------------


async def fill(path: Path, messages: int, streams: int) -> None:
    """Put messages into a stream store, as many into each stream."""
    store = SqliteStreamStore(path)
    for payloads in list_parts(messages // streams):
        for stream in range(streams):
            await store.append(f"s{stream}", payloads)
    await store.close()


def run_ours(filled: Path, messages: int) -> float:
    """A new group on a copy of the store."""
    with (
        copy_store(filled) as store,
        run_node("leader", "leader", store) as (_, address),
        start_consumers("ours", address, str(store)) as children,
    ):
        value = per_second(children, messages)
        check_committed(store, messages)
        return value


def check_committed(store: Path, wanted: int) -> None:
    """The leader has it all, and keeps it: what the consumers acknowledged is committed soon after."""

    async def committed() -> int:
        groups = SqliteGroupStore(store)
        (scanned,) = await groups.ask(Scan(1, "", "", 1_000))
        await groups.close()
        assert isinstance(scanned, Scanned)
        return sum(
            int(one.value) for key, one in scanned.records if record_name(key).stream and isinstance(one.value, int)
        )

    deadline = monotonic() + PATIENCE_S
    while (found := asyncio.run(committed())) != wanted:
        if monotonic() > deadline:
            raise GaplessError(f"the leader has committed {found} of {wanted} messages")
        sleep(0.1)


# -- redis ----------------------------------------------------------------------------------------------------------


class RedisServer:
    """Debian's redis-server with its data in a temporary directory, as it is set up to keep what it has: appendonly."""

    def __init__(self) -> None:
        binary = find_program("redis-server")
        self.directory = str(make_folder())
        self.port = free_port()
        options = {"port": str(self.port), "bind": "127.0.0.1", "dir": self.directory, "save": ""}
        options |= {"appendonly": "yes", "appendfsync": "everysec"}
        command = [binary, *[part for name, value in options.items() for part in (f"--{name}", value)]]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        atexit.register(self.stop)

    def client(self) -> Any:
        """A client, as soon as the server answers."""
        client: Any = redis.Redis(port=self.port)
        deadline = monotonic() + PATIENCE_S
        while monotonic() < deadline:
            with suppress(redis.exceptions.ConnectionError):
                client.ping()
                return client
            sleep(0.02)
        raise GaplessError("redis-server did not start")

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


def fill_redis(client: Any, messages: int, streams: int) -> None:
    """The same messages."""
    for payloads in list_parts(messages // streams):
        pipeline = client.pipeline(transaction=False)
        for stream in range(streams):
            for payload in payloads:
                pipeline.xadd(f"s{stream}", {"p": payload})
        pipeline.execute()


def run_redis(server: RedisServer, messages: int) -> float:
    """A new group on the same streams."""
    with server.client() as client:
        for stream in range(STREAMS):
            client.xgroup_destroy(f"s{stream}", "bench")
            client.xgroup_create(f"s{stream}", "bench", id="0")
    with start_consumers("redis", str(server.port), str(STREAMS)) as children:
        return per_second(children, messages)


def prepare(size: Size) -> TurnPair:
    messages = size.pick(MESSAGES, 2_400)
    filled = fill_store(fill, messages, STREAMS)
    server = RedisServer()
    with server.client() as client:
        fill_redis(client, messages, STREAMS)
    return TurnPair(lambda: run_ours(filled, messages), lambda: run_redis(server, messages))


# -- a consumer -----------------------------------------------------------------------------------------------------


class AcknowledgedCount:
    """What was acknowledged, and what of it was said."""

    def __init__(self) -> None:
        self.done = 0
        self.said = -1
        self.size = 0

    def got(self, payloads: list[bytes]) -> None:
        """Messages came: the application's work is to add up their sizes."""
        if self.said < 0:
            self.say()
        self.size += sum(map(len, payloads))

    def count_acknowledged(self, count: int) -> None:
        """They were acknowledged."""
        self.done += count
        if self.done - self.said >= SAID:
            self.say()

    def say(self) -> None:
        """Say it, unless nothing is new."""
        if self.done != self.said:
            self.said = self.done
            os.write(1, b"%d %d\n" % (self.done, monotonic_ns()))


async def consume_ours(leader: str, store: str, name: str) -> None:
    """A member of our group."""
    count = AcknowledgedCount()
    async with SharedSubscription(
        "$shared/bench/#", leader=leader, start="beginning", store=store, node=name
    ) as messages:
        batches = messages.batches(BATCH)
        while True:
            following = asyncio.ensure_future(anext(batches))
            done, _ = await asyncio.wait([following], timeout=QUIET_MS / 1000) if count.done else ([1], None)
            if not done:
                count.say()
            batch = await following
            count.got([message.payload for message in batch])
            await batch.ack()
            count.count_acknowledged(len(batch))


def consume_redis(port: str, streams: str, name: str) -> None:
    """A consumer of a Redis group."""
    client: Any = redis.Redis(port=int(port))
    wanted = dict.fromkeys([f"s{number}" for number in range(int(streams))], ">")
    count = AcknowledgedCount()
    while True:
        answer = client.xreadgroup("bench", name, wanted, count=BATCH, block=QUIET_MS)
        if not answer:
            count.say()
        for stream, entries in answer:
            count.got([fields[b"p"] for _, fields in entries])
            client.xack(stream, "bench", *[entry for entry, _ in entries])
            count.count_acknowledged(len(entries))


def main() -> None:
    """`ours LEADER STORE NAME` or `redis PORT STREAMS NAME`: a consumer.

    It says `ready`, waits for a line, takes part, and says now and then, and when nothing more comes, how many messages
    it has acknowledged: `COUNT NANOSECONDS` (monotonic, the same clock in all processes), first before it acknowledges
    anything: `0 NANOSECONDS`.
    """
    os.write(1, b"ready\n")
    sys.stdin.readline()
    kind, *arguments = sys.argv[1:]
    if kind == "redis":
        consume_redis(*arguments)
    else:
        asyncio.run(consume_ours(*arguments))


ROWS = (
    BenchRow(
        name="group-throughput",
        about="a group empties 8 streams: 200 000 stored messages of 64 bytes, 2 consumer processes, batches of 100",
        unit="messages / s",
        baseline_name="Redis group, redis-py (AOF everysec)",
        prepare=prepare,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=1,
    ),
)


if __name__ == "__main__":
    main()
