"""What the rows about missed samples measure over real zenoh, in a process of its own, which is killed where it hangs:

    python -m statemachines_bench.zenoh_child WHAT '{"option": ...}'

prints one object of figures.  An AdvancedSubscriber that is left declared hangs the interpreter: everything is
undeclared where it was declared, by `with`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from threading import Event
from time import perf_counter
from typing import Any, Final, NamedTuple

import zenoh
import zenoh.ext

from statemachines.drivers.missed_samples import LoopThread, declare_reliable_subscriber
from statemachines.drivers.missed_samples.session import is_matched, session_config
from statemachines.kernel import GaplessError
from statemachines.testing.missed_samples.linked_sessions import await_that, put_until_heard
from statemachines.testing.missed_samples.lossy_link import LossyLink
from statemachines.testing.process_harness import free_port

Figures = dict[str, float]

PATIENCE_S: Final = 1.0
"""What is not delivered so long after its loss, besides six times the delay of the link, is not delivered at all.  Our
own subscriber is waited for ten times as long."""

LOST: Final = "!lost!"
"""Behind the number of a sample whose first transmission is lost."""

BODY: Final = b"x" * 64
QUIET: Final = zenoh.ext.MissDetectionConfig(heartbeat=None, sporadic_heartbeat=None)
"""Samples are numbered, and no heartbeat is sent."""

SURE: Final = zenoh.CongestionControl.BLOCK
"""zenoh loses nothing of its own accord."""


@contextmanager
def their_publisher(session: zenoh.Session, key: str, kept: int, **quality: Any) -> Iterator[Any]:
    """zenoh's own, with its cache."""
    cache = zenoh.ext.CacheConfig(kept)
    with zenoh.ext.declare_advanced_publisher(
        session, key, cache=cache, sample_miss_detection=QUIET, publisher_detection=True, congestion_control=SURE,
        **quality,
    ) as publisher:  # fmt: skip
        yield publisher


@contextmanager
def their_subscriber(session: zenoh.Session, key: str, handler: Callable[[zenoh.Sample], object]) -> Iterator[None]:
    """zenoh's own, as an application declares it: a plain callback."""
    recovery = zenoh.ext.RecoveryConfig(periodic_queries=None, heartbeat=True)
    with zenoh.ext.declare_advanced_subscriber(session, key, handler, recovery=recovery):
        yield


# -- recovery -------------------------------------------------------------------------------------------------------


class RecoveredSamples:
    """One of the two subscribers: numbers and times of what it delivers, in the order of delivery."""

    def __init__(self, publisher: Any, whose: str) -> None:
        self.publisher = publisher
        self.whose = whose
        self.came: dict[int, float] = {}
        self.wanted = -1
        self.last = -1
        self.next = 0
        self.disorder = 0
        self.undelivered = 0
        self.latencies: list[float] = []
        self._there = Event()

    def hear(self, payload: str) -> None:
        """A sample was delivered."""
        number = int(payload.removesuffix(LOST))
        self.disorder += number <= self.last
        self.last = max(number, self.last)
        self.came[number] = perf_counter()
        if number == self.wanted:
            self._there.set()

    def put(self, mark: str = "") -> int:
        """The next one; its number."""
        number = self.next
        self.next += 1
        self.publisher.put(f"{number}{mark}")
        return number

    def lose_one(self, patience_s: float) -> None:
        """One that is lost and one behind it, until both are delivered, or it is too late."""
        self.wanted = self.next + 1
        self._there.clear()
        began = perf_counter()
        number = self.put(LOST)
        self.put()
        self._there.wait(patience_s)
        came = self.came.get(number)
        self.undelivered += came is None
        self.latencies.append(patience_s if came is None else came - began)


def recovery(pairs: int, delay_ms: float) -> Figures:
    """Median seconds from the put of a lost sample to its delivery, ours and theirs in turns on one link."""
    with ExitStack() as stack:
        between, linked = stack.enter_context(link_processes(delay_ms))
        apart: dict[str, Any] = {"priority": zenoh.Priority.DATA_HIGH, "express": True}

        def publisher(whose: str) -> RecoveredSamples:
            kept = 4 * pairs + 20_000  # more than is put, the first samples included
            return RecoveredSamples(
                stack.enter_context(their_publisher(linked.near, f"k/{whose}", kept, **apart)), whose
            )

        ours, theirs = publisher("ours"), publisher("theirs")
        linked.thread.enter(
            declare_reliable_subscriber(linked.far, "k/ours", lambda sample: ours.hear(sample.payload.to_string()))
        )
        stack.enter_context(
            their_subscriber(linked.far, "k/theirs", lambda sample: theirs.hear(sample.payload.to_string()))
        )
        for one in (ours, theirs):
            warm_up(one)
        patience_s = PATIENCE_S + 6 * delay_ms / 1_000
        for number in range(pairs):  # who is first takes turns, too
            for one in (ours, theirs) if number % 2 else (theirs, ours):
                one.lose_one(patience_s * (10 if one is ours else 1))
        said, _ = between.communicate(timeout=PATIENCE_S * 10)
        lost = json.loads(said)["lost"]
        if lost != 2 * pairs:
            raise GaplessError(f"{lost} samples were lost, and not one of each pair: {2 * pairs}")
    if ours.undelivered or ours.disorder:
        raise GaplessError(f"ours left {ours.undelivered} of {pairs} undelivered, and {ours.disorder} out of order")
    return {
        "ours": median(ours.latencies),
        "theirs": median(theirs.latencies),
        "undelivered": ours.undelivered,
        "their_undelivered": theirs.undelivered,
    }


class Sessions(NamedTuple):
    """Who publishes is at `near`, who subscribes at `far`; `thread` has the loop of what is ours."""

    near: zenoh.Session
    far: zenoh.Session
    thread: LoopThread


@contextmanager
def link_processes(delay_ms: float) -> Iterator[tuple[subprocess.Popen[str], Sessions]]:
    """Two peers with a lossy link between, which has a process of its own: it is no part of what is measured."""
    port = free_port()
    command = [sys.executable, "-m", __spec__.name, "link", json.dumps({"port": port, "delay_ms": delay_ms})]
    with (
        zenoh.open(session_config(listen=[f"tcp/127.0.0.1:{port}"])) as near,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as between,
    ):
        try:
            assert between.stdout is not None
            endpoint = between.stdout.readline().strip()
            with zenoh.open(session_config(connect=[endpoint])) as far, LoopThread() as thread:
                await_that(lambda: bool(far.info.transports()), "the link")
                yield between, Sessions(near, far, thread)
        finally:
            between.kill()


def link(port: int, delay_ms: float) -> Figures:
    """A link to `port` that loses what is marked, until stdin ends; first it says where it listens."""

    async def work() -> int:
        async with LossyLink(("127.0.0.1", port), delay_s=delay_ms / 1_000) as between:
            between.lose = lambda batch: LOST.encode() in batch
            print(between.endpoint, flush=True)
            await asyncio.to_thread(sys.stdin.read)
            return between.lost

    return {"lost": asyncio.run(work())}


def warm_up(one: RecoveredSamples) -> None:
    """Until samples arrive."""
    put_until_heard(lambda number: one.put(), lambda number: number in one.came)


# -- throughput -----------------------------------------------------------------------------------------------------


class SampleCounter:
    """Samples as they are delivered, the first and the last with their times; each must be the next."""

    def __init__(self, wanted: int) -> None:
        self.done = Event()
        self._wanted = wanted
        self._count = 0
        self._began = self._ended = 0.0

    def ours(self, sample: Any) -> None:
        """What our subscriber delivers."""
        self._take(sample.number)

    def theirs(self, sample: zenoh.Sample) -> None:
        """What zenoh's delivers."""
        info = sample.source_info
        assert info is not None
        self._take(info.source_sn)

    def _take(self, number: int) -> None:
        if number != self._count:
            raise GaplessError(f"sample {number} came as number {self._count}")
        if not number:
            self._began = perf_counter()
        self._count += 1
        if self._count == self._wanted:
            self._ended = perf_counter()
            self.done.set()

    def per_second(self) -> float:
        """Samples a second between the first and the last; raises `GaplessError` if they do not come."""
        if not self.done.wait(60):
            raise GaplessError(f"only {self._count} of {self._wanted} samples were delivered, in order")
        return (self._wanted - 1) / (self._ended - self._began)


def throughput(whose: str, samples: int) -> Figures:
    """In-order samples a second from zenoh's own publisher in another process."""
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    counted = SampleCounter(samples)
    with ExitStack() as stack:
        session = stack.enter_context(zenoh.open(session_config(listen=[endpoint])))
        thread = stack.enter_context(LoopThread())
        if whose == "ours":
            thread.enter(declare_reliable_subscriber(session, "k/*", counted.ours, queue_max=samples + 1_000))
        else:
            stack.enter_context(their_subscriber(session, "k/*", counted.theirs))
        command = [sys.executable, "-m", __spec__.name, "publish"]
        options = json.dumps({"endpoint": endpoint, "samples": samples})
        child = stack.enter_context(
            subprocess.Popen([*command, options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(child.kill)
        return {"per_second": counted.per_second()}


def publish(endpoint: str, samples: int) -> Figures:
    """As fast as it goes, once a subscriber is there, until stdin ends."""
    with (
        zenoh.open(session_config(connect=[endpoint])) as session,
        their_publisher(session, "k/a", samples) as publisher,
    ):
        matching = session.declare_publisher("k/a")
        await_that(lambda: is_matched(matching), "a subscriber")
        for _ in range(samples):
            publisher.put(BODY)
        sys.stdin.read()
    return {}


WHAT: Final[dict[str, Callable[..., Figures]]] = {
    "recovery": recovery,
    "throughput": throughput,
    "publish": publish,
    "link": link,
}


if __name__ == "__main__":
    print(json.dumps(WHAT[sys.argv[1]](**json.loads(sys.argv[2]))))
