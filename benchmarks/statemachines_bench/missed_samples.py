"""The rows about missed samples: over real zenoh against zenoh's own, in processes of their own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Final

from statemachines.testing.missed_samples.own_process import run_apart
from statemachines_bench.harness import compare
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


def measure(what: str, whose: str, samples: int, **options: float) -> float:
    """The one value of a process that measures one side."""
    return run_child(what, whose=whose, samples=samples, **options)["value"]


def measure_fan_out(whose: str, rounds: int) -> float:
    """Microseconds of processor time a delivery."""
    return run_child("fan_out", whose=whose, rounds=rounds)["seconds"] * 1_000_000


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
    *(
        BenchRow(
            f"zenoh-lossy-{share}-{delay_ms}ms",
            f"put of a sample that is lost to its delivery, median; {share} % of all messages are lost, {delay_ms} ms",
            "ms",
            "zenoh's own AdvancedSubscriber, a query each 0.2 s",
            compare(
                partial(measure, "lossy", "ours", share=share / 100, delay_ms=delay_ms),
                partial(measure, "lossy", "theirs", share=share / 100, delay_ms=delay_ms),
                (1_500,),
                (100,),
            ),
            RatioKind.OURS_OVER_BASELINE,
            at_most=1.0,
        )
        for share in (5, 25)
        for delay_ms in (0, 10, 50)
    ),
    BenchRow(
        "zenoh-throughput",
        "samples in order from zenoh's own publisher in another process, to a callback",
        "samples/s",
        "zenoh's own AdvancedSubscriber",
        compare(partial(measure, "throughput", "ours"), partial(measure, "throughput", "theirs"), (100_000,), (1_000,)),
        RatioKind.OURS_OVER_BASELINE,
        at_least=0.6,
        aim="0.8",
    ),
    BenchRow(
        "zenoh-fan-out",
        "processor time a delivery, 20 of zenoh's own publishers and 50 subscribers of one process",
        "us",
        "zenoh's own AdvancedSubscriber",
        compare(partial(measure_fan_out, "ours"), partial(measure_fan_out, "theirs"), (50,), (2,)),
        RatioKind.OURS_OVER_BASELINE,
        at_most=1.5,
    ),
    BenchRow(
        "zenoh-put",
        "processor time of a put of 64 bytes into a cache of 1 000 samples; the best of 20 times 2 000",
        "us",
        "zenoh's own AdvancedPublisher with a cache",
        compare(partial(measure, "put", "ours"), partial(measure, "put", "theirs"), (2_000,), (100,)),
        RatioKind.OURS_OVER_BASELINE,
        at_most=12.0,
        aim="6 us",
    ),
)
