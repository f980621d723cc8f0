"""slow_link_run: a link is cut while samples are put into a cache, and comes back slow.

It says what our subscriber gives up, and zenoh's own beside it; and what late joiners get of the history.

python -m statemachines.testing.missed_samples.slow_link_run --samples 3000 --rate 200000

It prints a line of JSON for each of the two, and exits with 1 if ours gives anything up.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec
import zenoh
import zenoh.ext

from statemachines.drivers.missed_samples import History, Missed, declare_reliable_subscriber, session_config
from statemachines.testing.fault_proxy import BOTH, DOWN, FaultProxy, run_in_thread
from statemachines.testing.process_harness import free_port

KEY: Final = "slow/link"
PAYLOAD: Final = b"x" * 1_000
STILL_S: Final = 45.0
"""When nothing has come for so long, nothing more is waited for."""


class SlowLinkFigures(msgspec.Struct, frozen=True):
    """What became of `samples` in `seconds`: `delivered` and `missed` by ours, the same by zenoh's own."""

    what: str
    samples: int
    delivered: int
    missed: int
    their_delivered: int
    their_missed: int
    seconds: float


class Readers:
    """Our subscriber and zenoh's own, on one session."""

    def __init__(self) -> None:
        self.ours: list[int] = []
        self.missed = 0
        self.theirs = 0
        self.their_missed = 0
        self.before = (0, 0)
        self._entities: list[Any] = []

    async def begin(self, stack: AsyncExitStack, session: zenoh.Session, newest: int) -> None:
        """Subscribe, with so much history (0: none)."""
        history = History(newest) if newest else None
        receive = declare_reliable_subscriber(session, KEY, self._take, history=history, on_missed=self._miss)
        await stack.enter_async_context(receive)
        theirs = zenoh.ext.HistoryConfig(max_samples=newest) if newest else None
        recovery = zenoh.ext.RecoveryConfig(heartbeat=True, periodic_queries=None)
        their = zenoh.ext.declare_advanced_subscriber(
            session, KEY, self._take_theirs, history=theirs, recovery=recovery
        )
        self._entities = [their.sample_miss_listener(self._miss_theirs), their]

    def end(self) -> None:
        """zenoh's own, left declared, would keep the interpreter from ending."""
        self._entities[1].undeclare()

    def _take(self, sample: Any) -> None:
        self.ours.append(sample.number)

    def _miss(self, missed: Missed) -> None:
        self.missed += missed.last - missed.first + 1

    def _take_theirs(self, sample: zenoh.Sample) -> None:
        self.theirs += 1

    def _miss_theirs(self, miss: Any) -> None:
        self.their_missed += miss.nb

    async def until(self, count: int) -> float:
        """Wait until both have told of so many samples, or nothing comes any more; the seconds it took."""
        began = moved = time.monotonic()
        told = (-1, -1)
        while told != (count, count) and time.monotonic() - moved < STILL_S:
            ours, theirs = self.before
            now = (len(self.ours) + self.missed - ours, self.theirs + self.their_missed - theirs)
            if now != told:
                told, moved = now, time.monotonic()
            await asyncio.sleep(0.05)
        return moved - began

    def begin_count(self) -> None:
        """Samples count from here on; of those before each subscriber may have met another first one."""
        self.before = (len(self.ours), self.theirs)

    def figures(self, what: str, samples: int, seconds: float) -> SlowLinkFigures:
        """Of what came since `begin_count`."""
        ours, theirs = len(self.ours) - self.before[0], self.theirs - self.before[1]
        return SlowLinkFigures(what, samples, ours, self.missed, theirs, self.their_missed, round(seconds, 1))


def configure_zenoh(**given: Any) -> zenoh.Config:
    """With timestamps, as zenoh's own caches want them."""
    config = session_config(**given)
    config.insert_json5("timestamping/enabled", "true")
    return config


async def play(proxy: FaultProxy, port: int, samples: int, rate: int) -> list[SlowLinkFigures]:
    """Cut, fill, come back at `rate` bytes a second; then somebody joins late."""
    near = await asyncio.to_thread(zenoh.open, configure_zenoh(listen=[f"tcp/127.0.0.1:{port}"]))
    far = await asyncio.to_thread(zenoh.open, configure_zenoh(connect=["tcp/{}:{}".format(*proxy.address)]))
    publisher = zenoh.ext.declare_advanced_publisher(
        near, KEY, cache=zenoh.ext.CacheConfig(samples + 100), publisher_detection=True,
        sample_miss_detection=zenoh.ext.MissDetectionConfig(heartbeat=0.5, sporadic_heartbeat=None),
        congestion_control=zenoh.CongestionControl.BLOCK,
    )  # fmt: skip
    found = []
    async with AsyncExitStack() as stack:
        readers, late = Readers(), Readers()
        await readers.begin(stack, far, 0)
        while min(len(readers.ours), readers.theirs) < 2:
            publisher.put(PAYLOAD)
            await asyncio.sleep(0.3)
        readers.begin_count()
        proxy.block(BOTH)
        proxy.cut()
        while near.info.transports():
            await asyncio.sleep(0.01)
        for _ in range(samples):
            publisher.put(PAYLOAD)
        proxy.throttle(DOWN, rate)
        proxy.unblock(BOTH)
        seconds = await readers.until(samples)
        found.append(readers.figures("a link that was cut", samples, seconds))
        newest = samples * 2 // 5
        await late.begin(stack, far, newest)
        found.append(late.figures("a late joiner", newest, await late.until(newest)))
        readers.end()
        late.end()
    publisher.undeclare()  # type: ignore[no-untyped-call]
    return found


def main() -> int:
    """Play it, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=3_000)
    parser.add_argument("--rate", type=int, default=200_000, help="bytes a second")
    options = parser.parse_args()
    port = free_port()
    with run_in_thread(("127.0.0.1", port)) as proxy:
        found = asyncio.run(play(proxy, port, options.samples, options.rate))
    for one in found:
        sys.stdout.buffer.write(msgspec.json.encode(one) + b"\n")
    sys.stdout.flush()
    return int(any(one.delivered < one.samples for one in found))


if __name__ == "__main__":
    os._exit(main())
