"""Tables: what is made of the results, declared once, as SQL that Spark and DuckDB both understand.

Every result is a line of one wide table, `result`; a view for each type of result shows it, by its name in small
letters (`Latency` -> `latency`), and `setting` has a line for each run.  The tables of a protocol see its own results
only; `unit_ns` of a run is what the protocol says by its parameters.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, get_args

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from statemachines.kernel import ConfigurationError, name_of
from statemachines_reports.judge import FAULT, NEUTRAL, Judges, Result, RunPart
from statemachines_reports.protocol import Amount, Latency, Records, Tables, Tally
from statemachines_reports.trace_set import TraceSet

FINDINGS: Final = 40
"""So many findings of each check are kept; all are counted."""

ALL: Final = "*"
"""Stands for all scenarios together."""

Sql = Callable[[str], Records]
"""What an engine does: the lines of a query."""

_PERCENTS: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def _spread(value: str, suffix: str) -> str:
    """Percentiles and the greatest of a value."""
    shown = [f"percentile({value}, {share}) AS {name}_{suffix}" for name, share in _PERCENTS.items()]
    return ", ".join([*shown, f"max({value}) AS max_{suffix}"])


SPREAD: Final = f"{_spread('value_ns', 'ns')}, {_spread('value_ns / unit_ns', 'units')}"

IS_FAULT: Final = f"kind = '{FAULT}'"

BY_PROTOCOL: Final = {
    "latencies": f"""
        SELECT scenario, measure, count(*) AS measured, {SPREAD}
        FROM (
            SELECT setting.scenario, measure, value_ns, unit_ns FROM latency JOIN setting ON setting.run = latency.run
            UNION ALL
            SELECT '{ALL}', measure, value_ns, unit_ns FROM latency JOIN setting ON setting.run = latency.run
        ) AS measured
        GROUP BY scenario, measure ORDER BY scenario, measure""",
    "histograms": """
        SELECT measure, cast(floor(log10(greatest(value_ns, 1000)) * 8) AS int) AS bin, count(*) AS measured
        FROM latency GROUP BY 1, 2 ORDER BY 1, 2""",
}
"""Tables of each protocol by itself, put together afterwards."""

ONCE: Final = {
    "runs": 'SELECT run, "rows" FROM run_rows ORDER BY run',
    "verdicts": """
        SELECT "check", sum(checked) AS checked, sum(wrong) AS wrong, sum(waived) AS waived
        FROM found GROUP BY "check" ORDER BY "check" """,
    "findings": f"""
        SELECT "check", run, seq, detail, promised FROM (
            SELECT *, row_number() OVER (PARTITION BY "check", promised ORDER BY run, seq, detail) AS place FROM finding
        ) AS placed WHERE place <= {FINDINGS} ORDER BY "check", run, seq, detail""",
    "unjudged": "SELECT missing, sum(count) AS count FROM unjudged GROUP BY missing ORDER BY missing",
    "absent": "SELECT DISTINCT protocol, run, log FROM absent ORDER BY run, log, protocol",
    "coverage": """
        SELECT machine, "row", source, dest, sum(count) AS count FROM used
        GROUP BY machine, "row", source, dest ORDER BY machine, "row", source, dest""",
    "pairs": """
        SELECT machine, "first", second, sum(count) AS count FROM pair
        GROUP BY machine, "first", second ORDER BY machine, "first", second""",
    "totals": 'SELECT kind, event, sum(count) AS count FROM "count" GROUP BY kind, event ORDER BY kind, event',
    "scenarios": """
        WITH done AS (
            SELECT run, sum(if({is_fault}, count, 0)) AS faults, sum(if(kind = 'send', count, 0)) AS sent,
                   sum(if(kind = 'drop', count, 0)) AS dropped
            FROM "count" GROUP BY run
        ), amount AS (
            SELECT run{of_run} FROM tally GROUP BY run
        ), summed AS (
            SELECT setting.scenario, count(*) AS runs, sum(if(held, 1, 0)) AS held, sum(coalesce(faults, 0)) AS faults,
                   sum(coalesce(sent, 0)) AS sent, sum(coalesce(dropped, 0)) AS dropped{summed}
            FROM setting LEFT JOIN done ON done.run = setting.run LEFT JOIN amount ON amount.run = setting.run
            GROUP BY setting.scenario
        )
        SELECT *{ratios} FROM summed ORDER BY scenario""",
    "faults": """
        WITH fault AS (
            SELECT run, event, sum(count) AS count FROM "count" WHERE {is_fault} GROUP BY run, event
        ),
             broken AS (SELECT run FROM setting WHERE NOT held UNION SELECT run FROM finding WHERE promised),
             other AS (SELECT run, sum(if(kind = 'drop', count, 0)) AS dropped FROM "count" GROUP BY run),
             amount AS (SELECT run{of_run} FROM tally GROUP BY run)
        SELECT fault.event AS fault, count(*) AS runs, sum(if(broken.run IS NULL, 1, 0)) AS held,
               sum(fault.count) AS injected, sum(coalesce(other.dropped, 0)) AS dropped{summed}
        FROM fault LEFT JOIN other ON other.run = fault.run LEFT JOIN amount ON amount.run = fault.run
             LEFT JOIN broken ON broken.run = fault.run
        GROUP BY fault.event ORDER BY fault.event""",
}
"""Tables of all protocols together."""

LARGEST = 2**63 - 1
"""What a column of whole numbers has room for."""

MOST_TALLIED = 2**53
"""More than anything is counted; so many that a thousand of them can be added up."""


class Shape:
    """How values of one type stand in the wide table; `protocol` "": any protocol may give them."""

    def __init__(self, protocol: str, kind: type[msgspec.Struct]) -> None:
        self.kind = kind
        self.view = name_of(kind)
        self.what = f"{protocol}_{self.view}"
        self.fields = {field.name: _arrow(kind, field) for field in msgspec.structs.fields(kind)}

    def column(self, field: str) -> str:
        """The column of the wide table: two types may call other things by one name."""
        return f"{self.what}_{field}"

    def select(self, where: str = "true") -> str:
        """The values of this type."""
        fields = ", ".join(f'"{self.column(field)}" AS "{field}"' for field in self.fields)
        return f"SELECT protocol, {fields} FROM result WHERE what = '{self.what}' AND {where}"


def _arrow(kind: type[msgspec.Struct], field: Any) -> Any:
    hint = field.type
    if isinstance(hint, types.UnionType):
        (hint,) = (one for one in get_args(hint) if one is not type(None))
    found = {int: pa.int64(), str: pa.string(), bool: pa.bool_(), bytes: pa.binary()}.get(hint)
    if found is None:
        rule = "must be int, str, bytes or bool (or one of these or None), to stand in a table"
        raise ConfigurationError(f"result {kind.__name__}", field.name, rule)
    return found


class Results:
    """The wide table: what tasks give back, and the views of it."""

    def __init__(self, judges: Judges) -> None:
        self.neutral = [Shape("", kind) for kind in (*NEUTRAL, Latency, Tally)]
        self.own = {name: [Shape(name, kind) for kind in report.results] for name, report in judges.reports.items()}
        shapes = [*self.neutral, *(shape for some in self.own.values() for shape in some)]
        self._shapes = {shape.kind: shape for shape in shapes}
        fields = [(shape.column(name), kind) for shape in shapes for name, kind in shape.fields.items()]
        self.schema = pa.schema([("what", pa.string()), ("protocol", pa.string()), *fields])

    def batch(self, results: Iterable[Result]) -> pa.RecordBatch:
        """Results as lines of the wide table."""
        found = list(results)
        cells: dict[str, list[Any]] = {name: [None] * len(found) for name in self.schema.names}
        columns = {kind: self._cells_of(shape, cells) for kind, shape in self._shapes.items()}
        for place, (protocol, value) in enumerate(found):
            if type(value) is Tally and abs(value.value) > MOST_TALLIED:
                value = Tally(value.run, value.name, MOST_TALLIED if value.value > 0 else -MOST_TALLIED)
            shape = self._shapes.get(type(value))
            if shape is None:
                rule = "is found, and not among the `results` of the protocol's reports"
                raise ConfigurationError("result", type(value).__name__, rule)
            cells["what"][place], cells["protocol"][place] = shape.what, protocol
            for name, column in columns[shape.kind]:
                column[place] = getattr(value, name)
        arrays = [_make_array(cells[field.name], field.type) for field in self.schema]
        return pa.record_batch(arrays, schema=self.schema)

    @staticmethod
    def _cells_of(shape: Shape, cells: dict[str, list[Any]]) -> list[tuple[str, list[Any]]]:
        """The fields of a shape, each with the column that it stands in."""
        return [(name, cells[shape.column(name)]) for name in shape.fields]

    def shape(self, kind: type[msgspec.Struct]) -> Shape:
        """How results of a type stand in the table."""
        return self._shapes[kind]

    def parts(self, batches: Iterable[pa.RecordBatch]) -> Iterator[RunPart]:
        """The parts of runs in such batches."""
        shape = self._shapes[RunPart]
        names = {shape.column(name): name for name in shape.fields}
        for batch in batches:
            found = batch.filter(pc.equal(batch["what"], shape.what)).select([*names])
            yield from (RunPart(**{names[name]: value for name, value in line.items()}) for line in found.to_pylist())


def settings_of(trace: TraceSet, judges: Judges) -> pa.Table:
    """A line for each run; the unit of each protocol in a column of its own."""
    units = {
        name: {run: report.unit_ns(trace.parameters[run]) for run in trace.runs_of(name)}
        for name, report in judges.reports.items()
    }
    lines = [
        {"run": number, "scenario": run.scenario, "held": run.outcome == "held"}
        | {f"unit_{name}": unit.get(number) for name, unit in units.items()}
        for number, run in sorted(trace.runs.items())
    ]
    fields = [("run", pa.int64()), ("scenario", pa.string()), ("held", pa.bool_())]
    return pa.Table.from_pylist(lines, pa.schema([*fields, *((f"unit_{name}", pa.int64()) for name in units)]))


def make_tables(sql: Sql, judges: Judges) -> Tables:
    """Every table as a list of records; the engine knows `result` and `settings`."""
    results = Results(judges)

    def view(name: str, select: str) -> None:
        sql(f'CREATE OR REPLACE TEMPORARY VIEW "{name}" AS {select}')

    view("setting", "SELECT run, scenario, held FROM settings")
    for shape in results.neutral:
        view(shape.view, shape.select())
    tables = {
        name: sql(query.format(**_amounts(name, judges)) if "{" in query else query) for name, query in ONCE.items()
    }
    shown = judges.names(lambda report: (one.name for one in report.measures))
    own = name_tables(judges)
    tables |= {name: [] for name in BY_PROTOCOL}
    for protocol, report in judges.reports.items():
        view("setting", f'SELECT run, scenario, held, "unit_{protocol}" AS unit_ns FROM settings')
        for shape in (*results.neutral[-2:], *results.own[protocol]):
            view(shape.view, shape.select(f"protocol = '{protocol}'"))
        for name, query in BY_PROTOCOL.items():
            lines = sql(query)
            tables[name] += [
                line | {"measure": shown.get((protocol, line["measure"]), line["measure"])} for line in lines
            ]
        tables |= {own[protocol, name]: sql(query) for name, query in report.tables.items()}
    for name in BY_PROTOCOL:
        tables[name].sort(key=lambda line: (line.get("scenario", ""), line["measure"], line.get("bin", 0)))
    return tables


def name_tables(judges: Judges) -> dict[tuple[str, str], str]:
    """(protocol, table) -> the name as shown, of the tables of protocols' own."""
    return judges.names(lambda report: report.tables, taken=(*ONCE, *BY_PROTOCOL))


def amounts_of(judges: Judges) -> list[tuple[str, str, Amount]]:
    """(name as shown, protocol, amount) of all protocols."""
    shown = judges.names(lambda report: (one.name for one in report.amounts))
    return [
        (shown[protocol, one.name], protocol, one)
        for protocol, report in judges.reports.items()
        for one in report.amounts
    ]


def _amounts(table: str, judges: Judges) -> dict[str, str]:
    """What the amounts of the protocols add to a query."""
    found = amounts_of(judges)
    shown = [name for name, _, one in found if (one.scenarios if table == "scenarios" else one.faults)]
    of_run = [
        f", sum(if(protocol = '{protocol}' AND name = '{one.name}', value, 0)) AS \"{name}\""
        for name, protocol, one in found
    ]
    known = {(protocol, one.name): name for name, protocol, one in found}
    ratios = [
        f", ({' + '.join(_quoted(known, protocol, name) for name in ratio.above)}) "
        f'/ nullif({_quoted(known, protocol, ratio.below)}, 0) AS "{ratio.name}"'
        for protocol, report in judges.reports.items()
        for ratio in report.ratios
    ]
    return {
        "is_fault": IS_FAULT,
        "of_run": "".join(of_run),
        "summed": "".join(f', sum(coalesce(amount."{name}", 0)) AS "{name}"' for name in shown),
        "ratios": "".join(ratios),
    }


def _quoted(known: dict[tuple[str, str], str], protocol: str, amount: str) -> str:
    return f'"{known[protocol, amount]}"'


def _make_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The values; of a wrong trace some may have no room."""
    try:
        return pa.array(values, kind)
    except OverflowError:
        return pa.array([fit_number(one) for one in values], kind)


def fit_number(value: Any) -> Any:
    """A number that has no room becomes the greatest, or the least, that has; anything else stays."""
    return min(max(value, -LARGEST - 1), LARGEST) if type(value) is int else value
