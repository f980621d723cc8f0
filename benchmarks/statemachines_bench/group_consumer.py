"""A consumer as a process of its own, ours or of a Redis group, for the row about groups.

It says `ready`, waits for a line, takes part, and says now and then, and when nothing more comes, how many messages
it has acknowledged: `COUNT NANOSECONDS` (monotonic, the same clock in all processes), first before it acknowledges
anything: `0 NANOSECONDS`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from time import monotonic_ns
from typing import Any

BATCH = 100
"""Messages of one stream handed over at a time."""

SAID = 1_000
"""It speaks after at least so many messages."""

QUIET_MS = 20
"""It speaks after so long without a message."""


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


def main() -> None:
    """`ours LEADER STORE NAME` or `redis PORT STREAMS NAME`."""
    os.write(1, b"ready\n")
    sys.stdin.readline()
    kind, *arguments = sys.argv[1:]
    if kind == "redis":
        redis_group(*arguments)
    else:
        asyncio.run(ours(*arguments))


if __name__ == "__main__":
    main()
