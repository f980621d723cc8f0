"""Campaign on Spark: a task runs the seeds of one file, and writes the file as a local campaign does, byte for byte."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from statemachines import registry
from statemachines.spark.spark_session import SharedSpark, raise_refusals
from statemachines_sim.campaign import check_sendable, list_jobs, run_job
from statemachines_sim.scenario import Scenario
from statemachines_sim.world import RunOutcome

TASKS_A_CORE: Final = 2
"""Tasks of one job of Spark, for each core.  What a job has done is told when it ends."""

SHAPE: Final = "job bigint, outcomes binary"


def run_units(batches: Iterator[pa.RecordBatch], given: bytes) -> Iterator[pa.RecordBatch]:
    """Run the jobs with these numbers; a task calls it."""
    jobs = pickle.loads(given)
    for batch in batches:
        for number in batch.column("job").to_pylist():
            outcomes = msgspec.json.encode(run_job(jobs[number]))
            columns = [pa.array([number], pa.int64()), pa.array([outcomes], pa.binary())]
            yield pa.record_batch(columns, ["job", "outcomes"])


def run_campaign(
    session: SharedSpark,
    scenario: Scenario,
    seeds: range,
    *,
    out: Path | None = None,
    first_run: int = 0,
    settings: tuple[str, ...] = (),
    is_resumed: bool = False,
) -> Iterator[list[RunOutcome]]:
    """As `campaign_parts`, in tasks of Spark, and in the order in which they end.

    `out` is a folder that every executor reaches by the same name.
    """
    place = None if out is None else out.resolve()
    jobs = list(list_jobs(scenario, seeds, place, first_run, settings, is_resumed))
    check_sendable(jobs[0])
    with raise_refusals():
        protocol = scenario.protocol
        session.ship_code([registry.protocol(protocol)] if isinstance(protocol, str) else [])
        size = TASKS_A_CORE * session.link.count_cores()
        parts = [range(begin, min(begin + size, len(jobs))) for begin in range(0, len(jobs), size)]
        for _, lines in session.run_jobs([_collect(session, {n: jobs[n] for n in part}) for part in parts]):
            for line in sorted(lines):
                yield msgspec.json.decode(line["outcomes"], type=list[RunOutcome])


def _collect(session: SharedSpark, jobs: dict[int, Any]) -> Callable[[], list[Any]]:
    """A job of Spark: a task for each of these."""
    units = [pa.table({"job": pa.array([number], pa.int64())}) for number in jobs]

    def collect() -> list[Any]:
        found = session.map_tasks(units, f"{__name__}:run_units", pickle.dumps(jobs), SHAPE).collect()
        return list(found)

    return collect
