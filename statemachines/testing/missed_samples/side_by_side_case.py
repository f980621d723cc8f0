"""One case of `side_by_side`, in a process of its own: one publisher, zenoh's or ours, and on the same session one
subscriber of ours and one of zenoh's, so that both meet the same losses."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec
import zenoh
import zenoh.ext

from statemachines.drivers.missed_samples import (
    Beats,
    LoopThread,
    declare_reliable_publisher,
    declare_reliable_subscriber,
    session_config,
)
from statemachines.kernel import GaplessError
from statemachines.testing.missed_samples.linked_sessions import link_sessions, put_until_heard
from statemachines.testing.missed_samples.lossy_link import LossyDatagrams, LossyLink
from statemachines.testing.missed_samples.tally import DeliveryOutcome, DeliveryTally
from statemachines.testing.process_harness import free_port

BEAT_S: Final = 0.05
PACE_S: Final = 0.001
"""Between two samples."""
OURS_S: Final = 25.0
"""Of ours we know how long it may be silent about what it misses, (1 + retries) queries with their pauses; it is waited
for, however little patience there is with the other."""
SEEN: Final = 5
"""Where no heartbeat is sent, so many of the last samples are not lost, that the end is seen."""
NUMBER: Final = re.compile(rb"#(\d+);")


class SideBySideCase(msgspec.Struct, frozen=True):
    """`loss`, `reply_loss`: chance of each first transmission, and of each batch of replies; `delay_ms` in each
    direction; `tail`: so many of the last are lost; `cut`: the link is down for the middle third; `restart`: the
    router between is killed, and started again as much later; `by_ours`: our publisher puts the samples, whose cache
    puts them again for zenoh's subscriber; `transport`: "tcp" or "udp". `promised`: ours delivers everything;
    otherwise it delivers or reports everything."""

    name: str
    samples: int
    loss: float = 0.0
    reply_loss: float = 0.0
    delay_ms: float = 0.0
    tail: int = 0
    cut: bool = False
    restart: bool = False
    by_ours: bool = False
    transport: str = "tcp"
    seed: int = 1

    @property
    def is_promised(self) -> bool:
        return not self.reply_loss

    @property
    def beats(self) -> bool:
        """Whether the publisher sends heartbeats: no other sample would tell of the loss."""
        return bool(self.tail or self.cut or self.restart)


class Figures(msgspec.Struct, frozen=True):
    """What became of one case; `lost_replies` batches."""

    case: SideBySideCase
    ours: DeliveryOutcome
    theirs: DeliveryOutcome
    lost_replies: int


class Course:
    """The samples as they are put: which are lost, and when each was put."""

    def __init__(self, case: SideBySideCase, put: Callable[[str], object], first: int) -> None:
        self.numbers = range(first, first + case.samples)
        self.lost: dict[int, float] = {}
        self._put = put
        self._put_at: dict[int, float] = {}
        chance = random.Random(case.seed)
        self._drop = {number for number in self.numbers if chance.random() < case.loss}
        if not case.beats:
            self._drop -= set(self.numbers[-SEEN:])
        self._drop |= set(self.numbers[len(self.numbers) - case.tail :])

    def put(self, number: int, is_down: bool = False) -> None:
        """The next, after a while."""
        time.sleep(PACE_S)
        self._put_at[number] = time.monotonic()
        if is_down:
            self.lost[number] = self._put_at[number]
        self._put(f"#{number};")

    def lose(self, batch: bytes) -> bool:
        """Whether a batch of samples is to be lost, of each the first alone: on the thread of the link."""
        found = [int(digits) for digits in NUMBER.findall(batch)]
        lost = any(number in self._drop for number in found)
        self._drop.difference_update(found)
        if lost:
            self.lost.update((number, self._put_at[number]) for number in found if number in self._put_at)
        return lost


def run(case: SideBySideCase, patience_s: float) -> Figures:
    """Put the samples, and wait until each is delivered or reported by both; not longer than `patience_s` seconds after
    zenoh's subscriber has last said anything, and `OURS_S` after ours has."""
    ours, theirs = DeliveryTally(), DeliveryTally()
    with ExitStack() as stack:
        net = stack.enter_context(open_network(case))
        put = our_publisher(net, case) if case.by_ours else stack.enter_context(publisher(net.near, case))
        net.thread.enter(
            declare_reliable_subscriber(
                net.far, "k/*", lambda sample: ours.deliver(number_of(sample)),
                on_missed=lambda missed: ours.miss(missed.first, missed.last),
            )
        )  # fmt: skip
        stack.enter_context(their_subscriber(net.far, theirs))
        course = Course(case, put, first_number(put, (ours, theirs)))
        if net.link is not None:
            net.link.lose = course.lose
            net.link.lose_reply = reply_loser(case)
        publish(case, course, net)
        await_the_end(course.numbers, ours, theirs, patience_s)
        return Figures(
            case,
            ours.outcome(course.numbers, course.lost),
            theirs.outcome(course.numbers, course.lost),
            0 if net.link is None else net.link.lost_replies,
        )


def publish(case: SideBySideCase, course: Course, net: SideBySideNetwork) -> None:
    """All of them; in the middle somebody goes away, and comes again."""
    third = case.samples // 3
    numbers = course.numbers
    for number in numbers[:third]:
        course.put(number)
    if case.cut:
        assert isinstance(net.link, LossyLink)
        assert net.of_link is not None
        net.of_link.call(net.link.down)
        for number in numbers[third : 2 * third]:
            course.put(number, True)
        net.of_link.call(net.link.up)
        for number in numbers[2 * third :]:
            course.put(number, not net.far.info.transports())
    elif net.router is not None:
        net.router.kill()
        for number in numbers[third : 2 * third]:
            course.put(number, True)
        net.router.start()
        for number in numbers[2 * third :]:
            course.put(number, not net.far.info.transports())
    else:
        for number in numbers[third:]:
            course.put(number)


def reply_loser(case: SideBySideCase) -> Callable[[bytes], bool]:
    """Whether the next batch of replies is to be lost; the first is, since there may be few."""
    chance = random.Random(case.seed + 1)
    drawn = chain((0.0,), iter(chance.random, None))
    return lambda batch: next(drawn) < case.reply_loss


def first_number(put: Callable[[str], object], tallies: tuple[DeliveryTally, ...]) -> int:
    """Put samples until everybody hears them.  The next number."""
    return put_until_heard(
        lambda number: put(f"#{number};"), lambda number: all(number in tally.came for tally in tallies)
    )


def await_the_end(numbers: range, ours: DeliveryTally, theirs: DeliveryTally, patience_s: float) -> None:
    """See `run`."""
    began = time.monotonic()
    for tally, quiet_s in ((ours, OURS_S), (theirs, patience_s)):
        while not tally.is_settled(numbers) and time.monotonic() - max(began, tally.changed) < quiet_s:
            time.sleep(0.01)


def number_of(sample: Any) -> int:
    """What a sample says of itself."""
    return int(sample.payload.to_string().strip("#;"))


# -- who takes part -------------------------------------------------------------------------------------------------


@contextmanager
def publisher(session: zenoh.Session, case: SideBySideCase) -> Iterator[Callable[[str], object]]:
    """zenoh's own, whose cache keeps every sample; they share no batch with replies, nor with each other."""
    beats = zenoh.ext.MissDetectionConfig(heartbeat=BEAT_S if case.beats else None, sporadic_heartbeat=None)
    with zenoh.ext.declare_advanced_publisher(
        session, "k/a", cache=zenoh.ext.CacheConfig(100_000), sample_miss_detection=beats, publisher_detection=True,
        congestion_control=zenoh.CongestionControl.BLOCK, priority=zenoh.Priority.DATA_HIGH, express=True,
    ) as one:  # fmt: skip
        yield one.put


def our_publisher(net: SideBySideNetwork, case: SideBySideCase) -> Callable[[str], object]:
    """The same of ours."""
    one = net.thread.enter(
        declare_reliable_publisher(
            net.near, "k/a", history=100_000, heartbeat=Beats.PERIODIC if case.beats else Beats.OFF,
            heartbeat_period_s=BEAT_S, congestion_control=zenoh.CongestionControl.BLOCK,
            priority=zenoh.Priority.DATA_HIGH, express=True,
        )
    )  # fmt: skip
    return lambda payload: net.thread.call(one.put, payload)


@contextmanager
def their_subscriber(session: zenoh.Session, tally: DeliveryTally) -> Iterator[None]:
    """zenoh's own, which says how many it has missed."""
    recovery = zenoh.ext.RecoveryConfig(periodic_queries=None, heartbeat=True)
    with zenoh.ext.declare_advanced_subscriber(
        session, "k/*", lambda sample: tally.deliver(number_of(sample)), recovery=recovery
    ) as subscriber:
        listener = subscriber.sample_miss_listener(lambda miss: tally.miss_some(miss.nb))
        try:
            yield
        finally:
            listener.undeclare()  # type: ignore[no-untyped-call]


class Router:
    """A router on `port` in a process of its own."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"tcp/127.0.0.1:{port}"
        self.start()

    def start(self) -> None:
        """Until it listens."""
        command = [sys.executable, "-m", "statemachines", "node", "zenoh-router", "--listen", self.endpoint]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        if b"listening" not in self._process.stdout.readline():
            self.kill()
            raise GaplessError(f"no router listens on {self.endpoint}")

    def kill(self) -> None:
        """At once."""
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()


class SideBySideNetwork(NamedTuple):
    """Two sessions, and what is between: a lossy link with its loop, or a router; `thread` has the loop of ours."""

    near: zenoh.Session
    far: zenoh.Session
    thread: LoopThread
    link: LossyLink | LossyDatagrams | None = None
    of_link: LoopThread | None = None
    router: Router | None = None


@contextmanager
def open_network(case: SideBySideCase) -> Iterator[SideBySideNetwork]:
    """Two sessions: with a lossy link between, or a router."""
    if not case.restart:
        with link_sessions(case.delay_ms / 1_000, case.transport) as linked:
            yield SideBySideNetwork(linked.near, linked.far, linked.thread, linked.link, linked.of_link)
        return
    with ExitStack() as stack:
        router = Router(free_port())
        stack.callback(lambda: router.kill())
        near, far = (
            stack.enter_context(zenoh.open(session_config("client", connect=[router.endpoint]))) for _ in range(2)
        )
        yield SideBySideNetwork(near, far, stack.enter_context(LoopThread()), router=router)


if __name__ == "__main__":
    figures = run(msgspec.json.decode(sys.argv[1], type=SideBySideCase), float(sys.argv[2]))
    sys.stdout.buffer.write(msgspec.json.encode(figures) + b"\n")
