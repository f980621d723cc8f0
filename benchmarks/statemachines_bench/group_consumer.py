"""A consumer as a process of its own, ours, of a Redis group or of JetStream, for the rows about groups.

It says `ready`, waits for a line, takes part, and says now and then, and when nothing more comes, how many messages
it has acknowledged: `COUNT NANOSECONDS` (monotonic, the same clock in all processes), first before it acknowledges
anything: `0 NANOSECONDS`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from time import monotonic_ns
from typing import Any

BATCH = 100
"""Messages of one stream handed over at a time."""

SAID = 1_000
"""It speaks after at least so many messages."""

QUIET_MS = 20
"""It speaks after so long without a message."""


LONG_S = 60.0
"""A pull of JetStream waits so long for a message."""


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


async def ours(leader: str, store: str, name: str) -> None:
    """A member of our group."""
    from statemachines.drivers.shared_subscriptions import SharedSubscription

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


def redis_group(port: str, streams: str, name: str) -> None:
    """A consumer of a Redis group."""
    import redis

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


async def jetstream_consumer(url: str, name: str) -> None:
    """One of those that share a consumer of JetStream."""
    import nats

    connection: Any = await nats.connect(url, name=name)
    pull = await connection.jetstream().pull_subscribe_bind("bench", "bench")
    count = AcknowledgedCount()
    while True:
        try:
            batch = await pull.fetch(BATCH, timeout=LONG_S)
        except nats.errors.TimeoutError:
            continue
        count.got([message.data for message in batch])
        for message in batch:
            await message.ack()
        count.count_acknowledged(len(batch))
        count.say()


async def jetstream_holder(url: str, name: str) -> None:
    """It has a batch in hand, and acknowledges nothing."""
    import nats

    connection: Any = await nats.connect(url, name=name)
    pull = await connection.jetstream().pull_subscribe_bind("bench", "bench")
    found: list[Any] = []
    while len(found) < BATCH:
        found += await pull.fetch(BATCH - len(found), timeout=LONG_S)
    os.write(1, b"%d %d\n" % (len(found), monotonic_ns()))
    await asyncio.Event().wait()


def main() -> None:
    """`ours LEADER STORE NAME`, `redis PORT STREAMS NAME`, `jetstream URL NAME` or `jetstream-hold URL NAME`."""
    os.write(1, b"ready\n")
    sys.stdin.readline()
    kind, *arguments = sys.argv[1:]
    kinds: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
        "ours": ours,
        "jetstream": jetstream_consumer,
        "jetstream-hold": jetstream_holder,
    }
    if kind == "redis":
        redis_group(*arguments)
    else:
        asyncio.run(kinds[kind](*arguments))


if __name__ == "__main__":
    main()
