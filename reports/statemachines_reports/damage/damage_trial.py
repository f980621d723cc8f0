"""DamageTrial: a trace that is damaged again and again, and judged after each damage."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pyarrow as pa

from statemachines.kernel import ConfigurationError
from statemachines.trace import COLUMNS
from statemachines.trace.parquet import SCHEMA, TEXTS
from statemachines_reports.columns import Columns, Segment, read_run
from statemachines_reports.damage.damage_kind import DamageKind, DamageTally, damage_run
from statemachines_reports.damage.damaged_run import DamagedRun
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
        self.judge_undamaged = cache(self._judge_undamaged)

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
        counts: dict[str, int] = {}
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
            for check in found:
                counts[check] = counts.get(check, 0) + 1
        return DamageTally(kind.name, tried, seen, counts, unseen) if tried else None

    def _judge_undamaged(self, number: int) -> dict[str, str]:
        """The verdicts on a run as it is."""
        return self.judge(self.runs[number])

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
