"""Measure: ours and the baseline in turns, so that whatever else the machine does meets both."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter, perf_counter_ns
from tracemalloc import get_traced_memory, start, stop

from statemachines_bench.result import Result
from statemachines_bench.row import Pair, Row, Size

Progress = Callable[[str], None]


def measure_all(rows: Iterable[Row], progress: Progress) -> Iterator[Result]:
    """Measure each row, and give its result as soon as it is there; `progress` is told what is being done.  A row that
    fails is a result that says so: the others are measured all the same."""
    for row in rows:
        progress(f"{row.name}: {row.about}")
        try:
            result = measure(row)
        except Exception as error:
            result = make_failed_result(row, error)
        yield result


def make_failed_result(row: Row, error: Exception) -> Result:
    """What became of a row that did not come to an end: the error, and where it was raised."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{where.filename.rpartition('/')[2]}:{where.lineno}"
    return Result(row, (), (), f"{type(error).__name__}: {error} ({place})")


def measure(row: Row, clock: Callable[[], float] = perf_counter) -> Result:
    """Ours, baseline, ours, ...: as many rounds as the first one, timed by `clock` in seconds, leaves time for."""
    pair = row.prepare(Size.FULL)
    began = clock()
    values = [one_round(pair)]
    values += [one_round(pair) for _ in range(rounds_for(clock() - began) - 1)]
    return Result(row, tuple(ours for ours, _ in values), tuple(baseline for _, baseline in values))


def one_round(pair: Pair) -> tuple[float, float]:
    """One value of each."""
    return pair.ours(), pair.baseline()


def rounds_for(seconds: float) -> int:
    """Five rounds of a row that takes less than 10 seconds a round, three below 60, else one."""
    if seconds < 10:
        return 5
    return 3 if seconds < 60 else 1


def ns_per_event(run: Callable[[], object], events: int) -> float:
    """Nanoseconds per event of one run over so many; what earlier runs left behind is collected first."""
    gc.collect()
    began = perf_counter_ns()
    run()
    return (perf_counter_ns() - began) / events


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
