"""Rows about judging: Spark tasks on whole-run files against Polars and DuckDB on the same files, 20 million steps; and
foreign logs.

All sides read the same Parquet files and give the same counts.  What Spark needs to start is not in it: that is paid
once a command.

A foreign log has events without states, and is judged by carried sets, against Polars that is told the states.  It is
drawn from a declared machine: so many instances walk at random, and only their events are judged by us.  Polars joins
event, state before and state after with the table of what may be: it has two columns more to go by.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from statemachines import catalogue
from statemachines.kernel import GaplessError
from statemachines_bench.harness import compare, make_folder
from statemachines_bench.judge_baselines import Counts, duckdb_judge, our_judge, polars_judge
from statemachines_bench.repeat import repeat
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair
from statemachines_reports.foreign_log import judge_files
from statemachines_reports.foreign_log.log_mapping import parse_mapping
from statemachines_reports.foreign_log.machine_table import Symbol, load_machine
from statemachines_reports.session import Session
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import find_scenario

SEEDS: Final = 35
"""Stormy runs, some 0.7 million steps."""

COPIES: Final = 30
"""The same under new run numbers: 20 million."""

FILES: Final = 10


@cache
def trace(size: Size) -> tuple[Path, ...]:
    """The files, made once and removed at the end."""
    directory = make_folder()
    seeds, copies, files = size.pick((SEEDS, COPIES, FILES), (1, 2, 2))
    campaign(find_scenario("storm"), range(seeds), out=directory / "once")
    repeat(directory / "once", directory / "many", copies=copies, files=files)
    return tuple(sorted((directory / "many").glob("trace-*.parquet")))


KEPT: Final = ExitStack()
"""What is kept from one measurement to the next."""


@cache
def session(size: Size) -> Any:
    """A Spark session that has run something before: its start is not measured."""
    opened = Session().__enter__()
    KEPT.callback(opened.__exit__)
    atexit.register(end_session)
    spark_judge(opened, trace(size)[:2])
    return opened


def end_session() -> None:
    """Nobody measures any more: a session that was kept ends."""
    session.cache_clear()
    KEPT.close()


def spark_judge(opened: Any, files: tuple[Path, ...]) -> Counts:
    """Every file judged in a Spark task of its own."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column(0).to_pylist():
                wrong = our_judge([Path(path)], catalogue.machines("shared_subscriptions"))
                yield pa.record_batch([pa.array(list(wrong)), pa.array(wrong.values(), pa.int64())], ["check", "wrong"])

    names = opened._spark.sparkContext.parallelize([(str(path),) for path in files], len(files))
    judged = opened._spark.createDataFrame(names, "path string").mapInArrow(task, "check string, wrong bigint")
    return {line["check"]: line["sum(wrong)"] for line in judged.groupBy("check").sum("wrong").collect()}


def measure_seconds(judge: Callable[[], Counts]) -> float:
    """How long it takes; the trace is right, and a judge that says otherwise is not measured."""
    began = perf_counter()
    wrong = judge()
    spent = perf_counter() - began
    if any(wrong.values()):
        raise GaplessError(f"a judge finds {wrong} in a trace where nothing is wrong")
    return spent


def prepare(baseline: Callable[[list[Path], Any], Counts], size: Size) -> TurnPair:
    """Ours by Spark, the baseline in this process, which also has all cores."""
    files, opened = trace(size), session(size)
    return TurnPair(
        lambda: measure_seconds(lambda: spark_judge(opened, files)),
        lambda: measure_seconds(lambda: baseline(list(files), catalogue.machines("shared_subscriptions"))),
    )


# -- foreign logs ---------------------------------------------------------------------------------------------------

MACHINE: Final = "shared_subscriptions/borrower"
STEPS: Final = 200
"""Rows of an instance."""
GROUP: Final = 1 << 20
MAPPING: Final = {
    "level": "events",
    "machine": MACHINE,
    "columns": {"event": "event", "instance": "instance"},
    "from_start": True,
}


def make_log(instances: int) -> tuple[Path, int]:
    """A log of so many instances, whose rows alternate, and how many rows."""
    path = make_folder() / "log.parquet"
    pq.write_table(draw_log(instances), path, row_group_size=GROUP)
    return path, instances * STEPS


def draw_log(instances: int) -> pa.Table:
    """Random walks that never end: columns instance, event, source, dest."""
    names, events, states, moves = _list_moves()
    chance = np.random.default_rng(7)
    size = max(map(len, moves))
    table = np.array([[one[place % len(one)] for place in range(size)] for one in moves])
    now = np.zeros(instances, np.int64)
    parts = []
    for _ in range(STEPS):
        taken = table[now, chance.integers(0, size, instances)]
        parts.append((taken[:, 0], now, taken[:, 1]))
        now = taken[:, 1]
    event, source, dest = (np.concatenate(one) for one in zip(*parts, strict=True))
    instance = np.tile(np.arange(instances), STEPS)
    columns = (
        ("instance", instance, [f"instance-{one}" for one in range(instances)]),
        ("event", event, events),
        ("source", source, states),
        ("dest", dest, states),
    )
    assert names == MACHINE
    return pa.table({name: _make_texts(codes, texts) for name, codes, texts in columns})


def _make_texts(codes: np.ndarray, texts: list[str]) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(texts))


def _list_moves() -> tuple[str, list[str], list[str], list[list[tuple[int, int]]]]:
    """The moves of each state that can go on for ever, the first state first; an end of the machine is left out."""
    table = load_machine(MACHINE)
    symbols = [Symbol(event) for event in range(len(table.events))]
    steps = table.fill_steps(symbols)
    order = [table.initial, *(one for one in range(len(table.states)) if one != table.initial and steps[:, one].any())]
    place = {state: number for number, state in enumerate(order)}
    moves = [
        [(event, place[dest]) for event, dest in np.argwhere(steps[:, state]).tolist() if dest in place]
        for state in order
    ]
    return table.name, list(table.events), [table.states[one] for one in order], moves


def rate_ours(path: Path, rows: int) -> float:
    """Rows a second: events alone, the sets of possible states carried along."""
    began = perf_counter()
    verdict = judge_files([path], parse_mapping(MAPPING, "bench"))
    spent = perf_counter() - began
    if verdict.verdict != "held" or verdict.rows != rows:
        raise GaplessError(f"a log where nothing is wrong is {verdict.verdict}: {verdict.checks}")
    return rows / spent


def rate_polars(path: Path, rows: int) -> float:
    """Rows a second: each step, its states known, is looked up by a join."""
    table = load_machine(MACHINE)
    began = perf_counter()
    found = np.argwhere(table.fill_steps([Symbol(event) for event in range(len(table.events))])).tolist()
    scanned = pl.scan_parquet(path)
    kinds = dict(scanned.collect_schema())
    legal = pl.DataFrame(
        {
            "event": [table.events[event] for event, _, _ in found],
            "source": [table.states[source] for _, source, _ in found],
            "dest": [table.states[dest] for _, _, dest in found],
        }
    ).cast({name: kinds[name] for name in ("event", "source", "dest")})
    wrong = scanned.join(legal.lazy(), on=["event", "source", "dest"], how="anti").select(pl.len()).collect().item()
    spent = perf_counter() - began
    if wrong:
        raise GaplessError(f"Polars finds {wrong} steps that the table does not have")
    return rows / spent


ROWS: Final = (
    BenchRow(
        name="judge-steps",
        about="conformance, continuity, exclusivity and messages of 20 million steps: Spark tasks against Polars",
        unit="s",
        baseline_name="Polars",
        prepare=partial(prepare, polars_judge),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.0,
        aim="5 M steps/s",
    ),
    BenchRow(
        name="judge-steps-duckdb",
        about="conformance, continuity, exclusivity and messages of 20 million steps: Spark tasks against DuckDB's SQL",
        unit="s",
        baseline_name="DuckDB SQL",
        prepare=partial(prepare, duckdb_judge),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.0,
        aim="5 M steps/s",
    ),
    BenchRow(
        name="judge-foreign",
        about="8 million events of a foreign log in Parquet, judged by the sets of states that are possible",
        unit="rows / s",
        baseline_name="Polars, the same look-up with the states known",
        prepare=compare(rate_ours, rate_polars, (40_000,), (20,), make_log),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=0.5,
        aim="2 M rows/s on two cores",
    ),
)
