"""Damage matrix: every kind of damage, done to a trace, and which checks see it.

Data damage: a field in the data of a row is another.  It takes a trace with data.

DamageTrial: a trace that is damaged again and again, and judged after each damage.

Damaged trace: a trace as files, of which one run is damaged.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from statemachines.kernel import ConfigurationError
from statemachines.trace import COLUMNS
from statemachines.trace.parquet import ROWS_PER_GROUP, SCHEMA, TEXTS, write_runs
from statemachines.trace.row import LOCAL
from statemachines.whole_file import make_folder, whole_file
from statemachines_reports.columns import STEPS, Columns, Segment, read_run
from statemachines_reports.damage import row_damage
from statemachines_reports.damage.damage_kind import DamagedRun, DamageKind, DamageTally, Edit, damage_run
from statemachines_reports.damage.damage_list import WITHOUT_DATA
from statemachines_reports.judge import Absent, Found, Judges, Unjudged
from statemachines_reports.trace_set import TraceSet


class DamageTrial:
    """A trace that is damaged again and again: `tables`: run -> its rows."""

    def __init__(self, trace: TraceSet) -> None:
        self.trace = trace
        self.judges = Judges(trace.protocols, trace.missing)
        self.waived = self.judges.list_waived_runs(trace)
        self.runs = {number: self._read(number) for number in sorted(trace.runs)}
        self.has_data = any("record" in table.column("kind").unique().to_pylist() for table in self.runs.values())
        self.run = cache(self._read_run)
        self.judge_undamaged = cache(lambda number: self.judge(self.runs[number]))

    def _read_run(self, number: int) -> DamagedRun:
        """One run, to be damaged."""
        others = [table for other, table in self.runs.items() if other != number]
        counted = tuple(self.trace.parameters[number].get("faults", ()))
        return DamagedRun(self.runs[number], self.judges, pa.concat_tables(others) if others else None, counted)

    def judge(self, table: pa.Table) -> dict[str, str]:
        """Check -> its verdict on a run."""
        columns = Columns(table)
        counted = {"rows": table.num_rows, "outcome": {}}  # the number of rows alone would tell of each that is missing
        segment = Segment(columns, self.judges.lookup, lambda run: self.trace.parameters[run] | counted)
        verdicts: dict[str, str] = {}
        absent: set[str] = set()
        unjudged = False
        for protocol, one in self.judges.judge(segment, self.waived):
            if isinstance(one, Found):
                verdicts[one.check] = "wrong" if one.wrong else "held"
            elif isinstance(one, Absent):
                absent.add(protocol)
            elif isinstance(one, Unjudged):
                unjudged = True
        for shown, protocol, check in self.judges.checks:
            lacks = check.whole and ("" in absent or protocol in absent)
            if verdicts[shown] == "held" and (lacks or (unjudged and check.level == "rows")):
                verdicts[shown] = "not judged"
        return verdicts

    def try_kind(self, kind: DamageKind, seeds: Iterable[int]) -> DamageTally | None:
        """Do it once with each seed, in a run that the seed draws; None: it can hit nothing."""
        counts: Counter[str] = Counter()
        tried = seen = 0
        unseen = []
        numbers = list(self.runs)
        for seed in seeds:
            number = numbers[seed % len(numbers)]
            damage = damage_run(self.run(number), kind, seed)
            if damage is None:
                continue
            tried += 1
            before = self.judge_undamaged(number)
            found = [check for check, said in self.judge(damage.table).items() if said != "held" == before[check]]
            seen += bool(found)
            if not found:
                unseen.append(damage.place)
            counts.update(found)
        return DamageTally(kind.name, tried, seen, counts, unseen) if tried else None

    def _read(self, number: int) -> pa.Table:
        for path in self.trace.files:
            table = read_run(path, COLUMNS, number, TEXTS)
            if table.num_rows:
                return table.cast(SCHEMA).combine_chunks()
        raise ConfigurationError("run", number, "is in no file of the trace")


@contextmanager
def open_trial(directory: Path) -> Iterator[DamageTrial]:
    """The trace of a directory; logs of a real run are merged first."""
    with tempfile.TemporaryDirectory(prefix="gapless-damage-") as merged:
        yield DamageTrial(TraceSet(directory, Path(merged)))


EFFECTS: Final = ("send", "ask", "tell")


def find_filled(*kinds: str) -> Any:
    """Rows of these kinds whose data has a number in it."""

    def find(run: DamagedRun) -> np.ndarray:
        if not len(run.columns.rows_of("record")):
            return np.zeros(0, np.int64)
        numbered = pc.match_substring_regex(run.table.column("data"), r'":-?\d')
        return np.intersect1d(run.columns.rows_of(*kinds), np.flatnonzero(numbered.fill_null(False).to_numpy()))

    return find


def change_field(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """A number in its data is another by one."""
    fields = msgspec.json.decode(run.table.column("data")[row].as_py(), type=dict[str, Any])
    numbers = sorted(name for name, value in fields.items() if type(value) is int and name != LOCAL)
    if not numbers:
        return None
    name = chance.choice(numbers)
    changed = {**fields, name: fields[name] + 1}
    return run.change(row, data=msgspec.json.encode(changed).decode())


KINDS: Final = (
    DamageKind("event-field", find_filled(*STEPS), change_field),
    DamageKind("effect-field", find_filled(*EFFECTS), change_field),
)


ALL_KINDS: Final = (
    *row_damage.KINDS,
    *KINDS,
)
BY_NAME: Final = {kind.name: kind for kind in ALL_KINDS}


def count_cells(found: Iterable[DamageTally]) -> tuple[int, int]:
    """How many kinds were tried, and how many of them were seen in most tries."""
    tallies = list(found)
    return len(tallies), sum(2 * one.seen > one.tried for one in tallies)


def list_left_out(trial: DamageTrial) -> dict[str, str]:
    """Kind -> why it is not tried in this trace."""
    own = [report.roles.left_out for report in trial.judges.reports.values()]
    return {**({} if trial.has_data else WITHOUT_DATA), **{kind: why for one in own for kind, why in one.items()}}


def try_all(trial: DamageTrial, seeds: Iterable[int], kinds: Iterable[DamageKind] = ALL_KINDS) -> Iterator[DamageTally]:
    """Every kind that is not left out, and that can hit something in the trace."""
    left_out, numbers = list_left_out(trial), list(seeds)
    for kind in kinds:
        if kind.name not in left_out:
            found = trial.try_kind(kind, numbers)
            if found is not None:
                yield found


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
