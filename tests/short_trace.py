"""The trace of one simulated run, and the same trace with other rows."""

import pyarrow as pa
import pyarrow.parquet as pq

from statemachines.trace.parquet import TraceWriter
from statemachines_sim.campaign import run_row
from statemachines_sim.world import World


def write_run(folder, scenario, seed, schedule=None):
    """The file of a run that holds, and what its own watch has counted."""
    world = World(scenario, seed, schedule=schedule)
    outcome = world.run()
    assert outcome.is_held, outcome
    with TraceWriter(folder, "short") as writer:
        writer.add(run_row(world.scenario, outcome, 0, schedule=world.schedule), world.rows)
    return folder / "trace-short.parquet", outcome.tally


def write_rows(trace, folder, rows):
    """A file of these rows, numbered anew, in the layout of `trace`."""
    for number, row in enumerate(rows):
        row["seq"] = number
    path = folder / "trace-changed.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(trace)), path)
    return path
