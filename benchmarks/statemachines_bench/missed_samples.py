"""The rows about missed samples: over real zenoh against zenoh's own, in processes of their own; and without zenoh."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from statemachines.kernel import GaplessError, Node
from statemachines.missed_samples.message import Sample
from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines.missed_samples.subscriber_record import Subscribe, SubscriberRecord
from statemachines.testing.missed_samples.own_process import run_apart
from statemachines_bench.measure import ns_per_event
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

PATIENCE_S: Final = 100.0
"""A process that measures has ended by then, or hangs."""


def run_child(what: str, **options: object) -> dict[str, float]:
    """What a process of its own has measured; raises `GaplessError` if it fails, hangs, or says nothing."""
    command = [sys.executable, "-m", "statemachines_bench.zenoh_child", what, json.dumps(options)]
    figures: dict[str, float] = json.loads(run_apart(command, f"{what} over zenoh", PATIENCE_S))
    return figures


class TurnValues:
    """Both values of one run, in which ours and theirs took turns on the same link."""

    def __init__(self, run: Callable[[], dict[str, float]]) -> None:
        self._run = run
        self._theirs: list[float] = []

    def ours(self) -> float:
        """Run, and keep theirs."""
        figures = self._run()
        self._theirs.append(figures["theirs"])
        return figures["ours"] * 1_000

    def theirs(self) -> float:
        """Of the run before; there is none for two calls."""
        return self._theirs.pop() * 1_000


def recovery(delay_ms: float, pairs: int, size: Size) -> TurnPair:
    """Milliseconds from the put of a sample that is lost to its delivery."""
    turns = TurnValues(partial(run_child, "recovery", pairs=size.pick(pairs, 5), delay_ms=delay_ms))
    return TurnPair(turns.ours, turns.theirs)


def throughput(size: Size) -> TurnPair:
    """In-order samples a second."""
    samples = size.pick(100_000, 1_000)

    def measured(whose: str) -> float:
        return run_child("throughput", whose=whose, samples=samples)["per_second"]

    return TurnPair(partial(measured, "ours"), partial(measured, "theirs"))


# -- the machine alone ----------------------------------------------------------------------------------------------


def names(count: int) -> list[str]:
    """So many sources, called as zenoh's are."""
    chance = Random(5)
    return [f"{chance.getrandbits(128):032x}/{number}" for number in range(count)]


def subscriber(sources: list[str]) -> Node[Any]:
    """One that knows each by its sample 0."""
    node: Node[Any] = Node(SUBSCRIBER, SubscriberRecord(Recovery(sources=max(1, len(sources)))), name="s", now_ns=0)
    node.feed(Subscribe(), 0)
    for source in sources:
        node.feed(Sample(source, 0, 0), 0)
    return node


def sample_ns(count: int, samples: int) -> float:
    """Nanoseconds of one more sample, of a source drawn by chance; all of them are delivered."""
    sources = names(count)
    node, chance, last = subscriber(sources), Random(6), dict.fromkeys(sources, 0)
    arriving = []
    for source in chance.choices(sources, k=samples):
        last[source] += 1
        arriving.append(Sample(source, last[source], last[source]))

    def run() -> None:
        for sample in arriving:
            node.feed(sample, 0)

    cost = ns_per_event(run, samples)
    if any(node.record.sources[source].expected != number + 1 for source, number in last.items()):
        raise GaplessError("a sample was not delivered")
    return cost


def sources(size: Size) -> TurnPair:
    """Of many sources and of few."""
    many, samples = size.pick((10_000, 50_000), (100, 200))
    return TurnPair(partial(sample_ns, many, samples), partial(sample_ns, 10, samples))


ROWS = (
    *(
        BenchRow(
            name,
            f"put of a sample that is lost to its delivery, a link of {delay_ms} ms, {pairs} pairs in turns",
            "ms",
            "zenoh's own AdvancedSubscriber",
            partial(recovery, delay_ms, pairs),
            RatioKind.OURS_OVER_BASELINE,
            at_most=at_most,
        )
        for name, delay_ms, pairs, at_most in (
            ("zenoh-recovery", 0, 500, 2.0),
            ("zenoh-recovery-10ms", 10, 100, 1.05),
        )
    ),
    BenchRow(
        "zenoh-throughput",
        "samples in order from zenoh's own publisher in another process, to a callback",
        "samples/s",
        "zenoh's own AdvancedSubscriber",
        throughput,
        RatioKind.OURS_OVER_BASELINE,
        at_least=0.6,
        aim="0.8",
    ),
    BenchRow(
        "sources",
        "a sample in order of one of 10 000 sources, the machine alone",
        "ns / sample",
        "of 10 sources",
        sources,
        RatioKind.OURS_OVER_BASELINE,
        at_most=1.5,
    ),
)
