"""side_by_side: our subscriber and zenoh's own AdvancedSubscriber on zenoh's own AdvancedPublisher, and on ours, over
lossy links.

python -m statemachines.testing.missed_samples.side_by_side

Tally: what one subscriber made of the samples that were put: what it delivered, when, and what it called missed.

One case of `side_by_side`, in a process of its own: one publisher, zenoh's or ours, and on the same session one
subscriber of ours and one of zenoh's, so that both meet the same losses.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from statistics import quantiles
from typing import Any, Final, NamedTuple

import msgspec
import zenoh
import zenoh.ext
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from statemachines.drivers.missed_samples import (
    Beats,
    LoopThread,
    declare_reliable_publisher,
    declare_reliable_subscriber,
    session_config,
)
from statemachines.interrupts import end_on_sigterm
from statemachines.kernel import ConfigurationError, GaplessError
from statemachines.testing.missed_samples.linked_sessions import link_sessions, put_until_heard
from statemachines.testing.missed_samples.lossy_link import LossyDatagrams, LossyLink
from statemachines.testing.missed_samples.own_process import run_apart
from statemachines.testing.process_harness import free_port


class DeliveryOutcome(msgspec.Struct, frozen=True):
    """`undelivered` of the samples; `reported`: numbers it called missed; all are in the cache, so that each is one too
    many; `silent`: neither delivered nor reported; `disorder`: delivered behind a higher number; `duplicates`;
    `recovered` of the `lost`; milliseconds from the put of a lost one to its delivery, median and 99th percentile
    (None: nothing was recovered)."""

    undelivered: int
    reported: int
    silent: int
    disorder: int
    duplicates: int
    lost: int
    recovered: int
    median_ms: float | None
    p99_ms: float | None


class DeliveryTally:
    """`came`: number to the time of its delivery; `changed`: when it was last told anything."""

    def __init__(self) -> None:
        self.came: dict[int, float] = {}
        self.changed = time.monotonic()
        self._missed: set[int] = set()
        self._unnamed = 0
        self._highest = -1
        self._disorder: list[int] = []
        self._duplicates: list[int] = []

    def deliver(self, number: int) -> None:
        """A sample came."""
        self.changed = time.monotonic()
        if number in self.came:
            self._duplicates.append(number)
            return
        if number < self._highest:
            self._disorder.append(number)
        self._highest = max(self._highest, number)
        self.came[number] = self.changed

    def miss(self, first: int, last: int) -> None:
        """It said that these are missed."""
        self._missed.update(range(first, last + 1))
        self.changed = time.monotonic()

    def miss_some(self, count: int) -> None:
        """It said that so many are missed, and not which."""
        self._unnamed += count
        self.changed = time.monotonic()

    def is_settled(self, numbers: range) -> bool:
        """Whether each is delivered or called missed."""
        return not self._silent(numbers)

    def _silent(self, numbers: range) -> int:
        """How many are neither; of those that were missed without a name any may be meant."""
        unsaid = sum(number not in self.came and number not in self._missed for number in numbers)
        return max(0, unsaid - self._unnamed)

    def outcome(self, numbers: range, lost: dict[int, float]) -> DeliveryOutcome:
        """About these numbers; `lost`: those whose first transmission was lost, and when each was put."""
        undelivered = [number for number in numbers if number not in self.came]
        spent = sorted(1_000 * (self.came[number] - put) for number, put in lost.items() if number in self.came)
        hundredths = quantiles(spent, n=100, method="inclusive") if len(spent) > 1 else spent * 99
        return DeliveryOutcome(
            undelivered=len(undelivered),
            reported=len(self._missed) + self._unnamed,
            silent=self._silent(numbers),
            disorder=sum(number in numbers for number in self._disorder),
            duplicates=sum(number in numbers for number in self._duplicates),
            lost=len(lost),
            recovered=len(spent),
            median_ms=hundredths[49] if spent else None,
            p99_ms=hundredths[98] if spent else None,
        )


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


SAMPLES: Final = 600
PATIENCE_S: Final = 12.0
"""Longer than zenoh waits for a query, 10 s."""
AT_MOST_S: Final = 120.0
"""Besides a hundredth of a second a sample: a case that takes longer hangs."""

WIDTH: Final = 140
"""Of the table, in characters, wherever it goes to."""

HELP: Final = """\
Compares two subscribers of zenoh over links that lose: ours, and zenoh's own AdvancedSubscriber.

Both are on one session and hear one publisher, zenoh's own AdvancedPublisher (last, ours), whose cache keeps every
sample; a proxy between the two sessions drops samples, so that both meet the same losses.  Each case runs in a process
of its own.

columns:
  undelivered   samples that never came
  reported      samples called missed; all are in the cache, so that each is one too many
  silent        neither delivered nor reported
  disorder      delivered behind a sample with a higher number
  duplicates    delivered again
  lost          first transmissions that were lost; median and p99: from their put to their delivery

exit code: 1 if ours leaves anything undelivered where only first transmissions are lost, leaves anything silent where
replies are lost too, or ever delivers out of order or twice.  What zenoh's own does is shown, and decides nothing.
"""


def list_cases(samples: int) -> tuple[SideBySideCase, ...]:
    """All of them."""
    lossy = [
        SideBySideCase(
            f"{loss:.0%} of {'samples and replies' if replies else 'samples'}, {delay} ms",
            samples, loss, loss if replies else 0.0, delay,
        )
        for replies in (False, True)
        for loss in (0.05, 0.3)
        for delay in (0.0, 10.0)
    ]  # fmt: skip
    return (
        *(msgspec.structs.replace(case, name=case.name.replace(".0 ms", " ms")) for case in lossy),
        SideBySideCase("the last 10, heartbeats", samples, 0.05, tail=min(10, samples)),
        SideBySideCase("link cut, heartbeats", samples, cut=True),
        SideBySideCase("router restarted, heartbeats", samples, restart=True),
        SideBySideCase("30% of samples, our publisher", samples, 0.3, by_ours=True),
        SideBySideCase("5% of datagrams, UDP", samples, 0.05, 0.05, transport="udp"),
        SideBySideCase("30% of datagrams, UDP", samples, 0.3, 0.3, transport="udp"),
    )


def run_case(case: SideBySideCase, patience_s: float) -> Figures:
    """In a process of its own, which is killed where it hangs; raises `GaplessError` where it fails."""
    command = [sys.executable, "-m", "statemachines.testing.missed_samples.side_by_side"]
    given = [msgspec.json.encode(case).decode(), str(patience_s)]
    at_most_s = AT_MOST_S + case.samples / 100 + patience_s
    return msgspec.json.decode(run_apart([*command, *given], case.name, at_most_s), type=Figures)


def list_broken(figures: Figures) -> list[str]:
    """What ours promises in such a case and has not kept; and whether the case was one at all."""
    case, ours = figures.case, figures.ours
    wrong = {
        "undelivered": ours.undelivered if case.is_promised else 0,
        "silent": ours.silent,
        "out of order": ours.disorder,
        "duplicates": ours.duplicates,
    }
    found = [f"{case.name}: ours: {count} {what}" for what, count in wrong.items() if count]
    if not ours.lost:
        found.append(f"{case.name}: nothing was lost, so that nothing is shown")
    if case.reply_loss and not figures.lost_replies:
        found.append(f"{case.name}: no reply was lost, so that nothing is shown")
    return found


def make_table(all_figures: Sequence[Figures]) -> Table:
    """A line for each subscriber of each case."""
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    shown.add_column("link", no_wrap=True)
    shown.add_column("whose", no_wrap=True)
    for head in ("undelivered", "reported", "silent", "disorder", "duplicates", "lost", "median ms", "p99 ms"):
        shown.add_column(head, justify="right", no_wrap=True)
    for figures in all_figures:
        shown.add_row(figures.case.name, "ours", *list_cells(figures.ours))
        shown.add_row("", "zenoh's", *list_cells(figures.theirs))
    return shown


def list_cells(one: DeliveryOutcome) -> list[str]:
    """The figures of one subscriber."""
    counts = (one.undelivered, one.reported, one.silent, one.disorder, one.duplicates, one.lost)
    times = ("-" if value is None else f"{value:,.1f}" for value in (one.median_ms, one.p99_ms))
    return [*map(str, counts), *times]


def measure_cases(
    wanted: Sequence[SideBySideCase], patience_s: float, progress: Callable[[str], None]
) -> list[Figures]:
    """One after the other."""
    found = []
    for number, case in enumerate(wanted, 1):
        progress(f"{number}/{len(wanted)}: {case.name}")
        found.append(run_case(case, patience_s))
    return found


def choose_cases(samples: int, pattern: str) -> list[SideBySideCase]:
    """The cases whose names contain `pattern`; raises `ConfigurationError` if there are none, or too few samples."""
    if samples < 10:
        raise ConfigurationError("samples", samples, "at least 10")
    found = [case for case in list_cases(samples) if pattern in case.name]
    if not found:
        raise ConfigurationError(
            "case", pattern, f"part of one of: {'; '.join(case.name for case in list_cases(samples))}"
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    end_on_sigterm()  # a case is in a session of its own, and would go on
    parser = argparse.ArgumentParser(
        prog="side_by_side", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=SAMPLES, metavar="N", help=f"of each case, default {SAMPLES}")
    parser.add_argument("--case", default="", metavar="TEXT", help="only cases whose names contain it")
    text = f"a case waits so long after zenoh's subscriber has last said anything; default {PATIENCE_S:g}"
    parser.add_argument("--patience", type=float, default=PATIENCE_S, metavar="SECONDS", help=text)
    parser.add_argument("--json", action="store_true", help="a list of objects instead of the table")
    given = parser.parse_args(arguments)
    try:
        wanted = choose_cases(given.samples, given.case)
    except ConfigurationError as error:
        parser.error(str(error))
    say = Console(stderr=True)
    figures = measure_cases(wanted, given.patience, lambda text: say.print(text) if say.is_terminal else None)
    if given.json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n")
    else:
        Console(width=WIDTH).print(make_table(figures))
    wrong = [text for one in figures for text in list_broken(one)]
    for text in wrong:
        print(text, file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
