"""Measure: ours and the baseline in turns, so that whatever else the machine does meets both."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter, process_time_ns
from tracemalloc import get_traced_memory, start, stop
from typing import Final

from statemachines_bench.result import RowResult
from statemachines_bench.row import BenchRow, Size, TurnPair

Progress = Callable[[str], None]

ROUNDS_ENOUGH: Final = 3
"""So many rounds decide, where each of them says the same of the target."""

ROUNDS_MAX: Final = 5
SMALL_SPREAD: Final = 1.1
"""Two rounds are enough if the greater ratio is at most so many times the lesser."""


def measure_all(rows: Iterable[BenchRow], progress: Progress) -> Iterator[RowResult]:
    """Measure each row, and give its result as soon as it is there; `progress` is told what is being done.  A row that
    fails is a result that says so: the others are measured all the same."""
    for row in rows:
        progress(f"{row.name}: {row.about}")
        try:
            result = measure(row)
        except Exception as error:
            result = make_failed_result(row, error)
        yield result


def make_failed_result(row: BenchRow, error: Exception) -> RowResult:
    """What became of a row that did not come to an end: the error, and where it was raised."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{where.filename.rpartition('/')[2]}:{where.lineno}"
    return RowResult(row, (), (), f"{type(error).__name__}: {error} ({place})")


def measure(row: BenchRow, clock: Callable[[], float] = perf_counter) -> RowResult:
    """Ours, baseline, ours, ...: as many rounds as the first one, timed by `clock` in seconds, leaves time for; fewer
    where the rounds agree about the target."""
    began = clock()
    pair = row.prepare(Size.FULL)
    prepared = clock()
    values = [run_round(pair)]
    rounds = rounds_for(clock() - prepared)
    while len(values) < rounds and not is_decided(row, values):
        values.append(run_round(pair))
    ours, baseline = zip(*values, strict=True)
    return RowResult(row, ours, baseline, seconds=clock() - began)


def is_decided(row: BenchRow, rounds: Sequence[tuple[float, float]]) -> bool:
    """Whether the rounds are enough: each says the same of the target, and there are three, or two with a small
    spread."""
    ratios = [row.ratio.of(*values) for values in rounds]
    if len({row.holds(ratio) for ratio in ratios}) > 1:
        return False
    return len(ratios) >= ROUNDS_ENOUGH or (len(ratios) > 1 and max(ratios) <= SMALL_SPREAD * min(ratios))


def run_round(pair: TurnPair) -> tuple[float, float]:
    """One value of each."""
    return pair.ours(), pair.baseline()


def rounds_for(seconds: float) -> int:
    """At most five rounds of a row that takes less than 10 seconds a round, three below 30, else one."""
    if seconds < 10:
        return ROUNDS_MAX
    return ROUNDS_ENOUGH if seconds < 30 else 1


def ns_per_event(run: Callable[[], object], events: int) -> float:
    """Nanoseconds of processor time per event of one run over so many, since other processes may take turns with it;
    what earlier runs left behind is collected first."""
    gc.collect()
    began = process_time_ns()
    run()
    return (process_time_ns() - began) / events


def bytes_each(make: Callable[[int], object], count: int) -> float:
    """Bytes that each of `count` things holds, as `make(number)` makes them."""
    gc.collect()
    start()
    before, _ = get_traced_memory()
    kept = [make(number) for number in range(count)]
    gc.collect()
    after, _ = get_traced_memory()
    stop()
    return (after - before) / len(kept)
