"""Damaged trace: a trace as files, of which one run is damaged."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from statemachines.kernel import ConfigurationError
from statemachines.trace.parquet import ROWS_PER_GROUP, write_runs
from statemachines.whole_file import make_folder, whole_file
from statemachines_reports.damage.damage_kind import damage_run
from statemachines_reports.damage.damage_matrix import BY_NAME
from statemachines_reports.damage.damage_trial import open_trial


def write_damaged(directory: Path, kind: str, seed: int, out: Path) -> str:
    """Write the trace of `directory` to `out`, damaged at a place that the seed draws; where, in words.

    Raises `ConfigurationError` where there is nothing that the damage can hit.
    """
    with open_trial(directory) as trial:
        numbers = list(trial.runs)
        number = numbers[seed % len(numbers)]
        damage = damage_run(trial.run(number), BY_NAME[kind], seed)
        if damage is None:
            raise ConfigurationError(
                "--kind", kind, f"finds nothing to hit in run {number}: name another kind or --seed"
            )
        tables = trial.runs | {number: damage.table}
        make_folder(out, "--out")
        with (
            whole_file(out / "trace-damaged.parquet") as unfinished,
            pq.ParquetWriter(unfinished, damage.table.schema, compression="zstd", write_page_checksum=True) as writer,
        ):
            for table in tables.values():
                writer.write_table(table, row_group_size=ROWS_PER_GROUP)
        write_runs(out / "runs-damaged.parquet", [trial.trace.runs[one] for one in tables])
        return damage.place
