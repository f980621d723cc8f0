"""What the rows about missed samples measure over real zenoh, in a process of its own, which is killed where it hangs:

    python -m statemachines_bench.zenoh_child WHAT '{"option": ...}'

prints one object of figures.  An AdvancedSubscriber that is left declared hangs the interpreter: everything is
undeclared where it was declared, by `with`.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import timeit
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from random import Random
from statistics import median, quantiles
from threading import Event
from time import perf_counter, process_time, sleep
from typing import Any, Final

import zenoh
import zenoh.ext

from gapless.zenoh import CacheConfig, declare_publisher, declare_subscriber
from statemachines.drivers.missed_samples import LoopThread, declare_reliable_publisher, declare_reliable_subscriber
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


SUBSCRIBERS: Final[dict[str, Callable[..., Any]]] = {"ours": declare_subscriber, "theirs": their_subscriber}


# -- recovery -------------------------------------------------------------------------------------------------------


class RecoveredSamples:
    """One of the two subscribers: numbers and times of what it delivers, in the order of delivery."""

    def __init__(self, publisher: Any) -> None:
        self.publisher = publisher
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
        between, near, far = stack.enter_context(link_processes(delay_ms))
        apart: dict[str, Any] = {"priority": zenoh.Priority.DATA_HIGH, "express": True}

        def publisher(whose: str) -> RecoveredSamples:
            kept = 4 * pairs + 20_000  # more than is put, the first samples included
            return RecoveredSamples(stack.enter_context(their_publisher(near, f"k/{whose}", kept, **apart)))

        ours, theirs = publisher("ours"), publisher("theirs")
        stack.enter_context(LoopThread()).enter(
            declare_reliable_subscriber(far, "k/ours", lambda sample: ours.hear(sample.payload.to_string()))
        )
        stack.enter_context(their_subscriber(far, "k/theirs", lambda sample: theirs.hear(sample.payload.to_string())))
        for one in (ours, theirs):
            put_until_heard(lambda number: one.put(), lambda number: number in one.came)  # noqa: B023
        patience_s = PATIENCE_S + 6 * delay_ms / 1_000
        for number in range(pairs):  # who is first takes turns, too
            for one in (ours, theirs) if number % 2 else (theirs, ours):
                one.lose_one(patience_s * (10 if one is ours else 1))
        lost = json.loads(between.communicate(timeout=PATIENCE_S * 10)[0])["lost"]
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


@contextmanager
def link_processes(delay_ms: float) -> Iterator[tuple[subprocess.Popen[str], zenoh.Session, zenoh.Session]]:
    """(link, its two peers): the lossy link has a process of its own, and is not measured."""
    port = free_port()
    command = [sys.executable, "-m", __spec__.name, "link", json.dumps({"port": port, "delay_ms": delay_ms})]
    with (
        zenoh.open(session_config(listen=[f"tcp/127.0.0.1:{port}"])) as near,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as between,
    ):
        try:
            assert between.stdout is not None
            endpoint = between.stdout.readline().strip()
            with zenoh.open(session_config(connect=[endpoint])) as far:
                await_that(lambda: bool(far.info.transports()), "the link")
                yield between, near, far
        finally:
            between.kill()


def link(port: int, delay_ms: float) -> dict[str, Any]:
    """A link to `port` that loses what is marked, until stdin ends, and a share of everything from when stdin says so;
    first it says where it listens, and at last what it lost."""
    seen: set[int] = set()
    gone: list[int] = []
    chance, share = Random(1), 0.0

    def lose_any(batch: bytes) -> bool:
        lost = chance.random() < share
        new = {int(one) for one in re.findall(rb"#(\d+);", batch)} - seen
        seen.update(new)
        gone.extend(new if lost else ())
        return lost

    async def work() -> int:
        nonlocal share
        async with LossyLink(("127.0.0.1", port), delay_s=delay_ms / 1_000) as between:
            between.lose, between.lose_any = lambda batch: LOST.encode() in batch, lose_any
            print(between.endpoint, flush=True)
            share = float(await asyncio.to_thread(sys.stdin.readline) or 0)
            await asyncio.to_thread(sys.stdin.read)
            return between.lost

    return {"lost": asyncio.run(work()), "numbers": gone}


# -- a link that loses any message ----------------------------------------------------------------------------------

EVERY_S: Final = 0.005
"""A sample is put so often."""
UNDELIVERED_S: Final = 20.0
"""As so late counts what was never delivered."""
EACH: Final[Any] = timedelta(milliseconds=200)
PERIODIC: Final = zenoh.ext.RecoveryConfig(periodic_queries=EACH, heartbeat=None)


def lossy(whose: str, samples: int, share: float, delay_ms: float) -> Figures:
    """Milliseconds from the put of a sample whose first transmission is lost to its delivery, the median and p99, where
    a `share` of all messages is lost, queries and answers too."""
    came: dict[int, float] = {}
    put: dict[int, float] = {}

    def hear(sample: Any) -> None:
        came.setdefault(int(sample.payload.to_string().strip("#;x")), perf_counter())

    def send(number: int) -> None:
        publisher.put(f"#{number};{BODY.decode()}")

    with ExitStack() as stack:
        between, near, far = stack.enter_context(link_processes(delay_ms))
        kept = 1_000 + samples
        if whose == "ours":
            publisher = stack.enter_context(declare_publisher(near, "k/a", cache=CacheConfig(kept)))
            stack.enter_context(declare_subscriber(far, "k/a", hear))
        else:
            publisher = stack.enter_context(their_publisher(near, "k/a", kept))
            stack.enter_context(zenoh.ext.declare_advanced_subscriber(far, "k/a", hear, recovery=PERIODIC))
        first = put_until_heard(send, lambda number: number in came)
        assert between.stdin is not None
        between.stdin.write(f"{share}\n")
        between.stdin.flush()
        for number in range(first, first + samples):
            put[number] = perf_counter()
            send(number)
            sleep(EVERY_S)
        with suppress(GaplessError):
            await_that(lambda: put.keys() <= came.keys(), "all samples", UNDELIVERED_S)
        gone = json.loads(between.communicate(timeout=PATIENCE_S * 10)[0])["numbers"]
    taken = sorted(1_000 * (came.get(one, put[one] + UNDELIVERED_S) - put[one]) for one in gone if one in put)
    return {"value": median(taken), "p99": taken[len(taken) * 99 // 100]}


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
        stack.enter_context(SUBSCRIBERS[whose](session, "k/*", getattr(counted, whose)))
        options = json.dumps({"endpoint": endpoint, "samples": samples})
        command = [sys.executable, "-m", __spec__.name, "publish", options]
        child = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        stack.callback(child.kill)
        return {"value": counted.per_second()}


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


# -- fan-out --------------------------------------------------------------------------------------------------------


def fan_out(whose: str, rounds: int, publishers: int = 20, subscribers: int = 50) -> Figures:
    """Seconds of processor time a delivery, and within how many 99 of 100 came; every publisher puts once a round."""
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    latencies: list[float] = []
    with ExitStack() as stack:
        near = stack.enter_context(zenoh.open(session_config(listen=[endpoint])))
        far = stack.enter_context(zenoh.open(session_config(connect=[endpoint])))
        ours = [stack.enter_context(their_publisher(near, f"k/{number}", 1_000)) for number in range(publishers)]

        def hear(sample: Any) -> None:
            latencies.append(perf_counter() - float(sample.payload.to_bytes()))

        for _ in range(subscribers):
            stack.enter_context(SUBSCRIBERS[whose](far, "k/*", hear))

        def put(count: int) -> None:
            latencies.clear()
            for _ in range(count):
                for publisher in ours:
                    publisher.put(str(perf_counter()))
                sleep(0.01)

        def is_there() -> bool:
            put(1)
            sleep(0.3)
            return len(latencies) == publishers * subscribers

        await_that(is_there, "samples of all publishers, at all subscribers")
        began, wanted = process_time(), rounds * publishers * subscribers
        put(rounds)
        await_that(lambda: len(latencies) == wanted, "all samples")
        spent = process_time() - began
    return {"seconds": spent / wanted, "p99_s": quantiles(latencies, n=100)[98]}


# -- put ------------------------------------------------------------------------------------------------------------


def put(whose: str, samples: int) -> Figures:
    """Microseconds of the processor for a put, with a cache of 1 000 samples and nobody who subscribes."""
    with zenoh.open(session_config()) as session:
        ours = declare_reliable_publisher(session, "k/a", history=1_000, congestion_control=SURE)
        with ours if whose == "ours" else their_publisher(session, "k/a", 1_000) as publisher:
            times = timeit.repeat(lambda: publisher.put(BODY), number=samples, repeat=20, timer=process_time)
            return {"value": min(times) / samples * 1e6}


WHAT: Final[dict[str, Callable[..., dict[str, Any]]]] = {
    "recovery": recovery,
    "lossy": lossy,
    "throughput": throughput,
    "fan_out": fan_out,
    "put": put,
    "publish": publish,
    "link": link,
}


if __name__ == "__main__":
    print(json.dumps(WHAT[sys.argv[1]](**json.loads(sys.argv[2]))))
