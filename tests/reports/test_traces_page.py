"""docs/traces.md names every column of traces and results, with its type; its queries agree in three engines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from statemachines import catalogue, registry
from statemachines.cli import run
from statemachines.trace import KINDS
from statemachines.trace.parquet import RUN_SCHEMA
from statemachines.trace.row import ABOUT_RUNS, TRACE
from statemachines_reports import read_result, read_runs, read_trace
from statemachines_reports.coverage import list_untaken
from statemachines_reports.judge import Judges
from statemachines_reports.local_engine import MACROS
from statemachines_reports.pipeline import unit_of
from statemachines_reports.session import Session
from statemachines_reports.tables import ONCE, Results, make_tables

PAGE = (Path(__file__).parents[2] / "docs" / "traces.md").read_text(encoding="utf-8")
TYPES = {"BIGINT": "int64", "HUGEINT": "int64", "INTEGER": "int64", "DOUBLE": "double", "VARCHAR": "string"}
AMOUNTS = re.compile(r"^\| (\w+) \| `(\w+)` \| (\w+) \| ([`a-z, ]+) \| .+ \|$", re.M)


def columns_on_page(name):
    """Column -> type, of the table under the heading."""
    section = PAGE.split(f"### `{name}`\n", 1)[1].split("\n#", 1)[0]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| [^|]* \| ([^|]+) \| `([^|]+)` \|$", section, re.M)
    return {column: kind for column, kind, meaning, _ in rows if meaning.strip()}


def about_on_page(name):
    """Column -> unit and meaning, of the table under the heading."""
    section = PAGE.split(f"### `{name}`\n", 1)[1].split("\n#", 1)[0]
    rows = re.findall(r"^\| `(\w+)` \| \w+ \| ([^|]*) \| ([^|]+) \| `[^|]+` \|$", section, re.M)
    return {column: (unit.strip(), meaning) for column, unit, meaning in rows}


class Lines(list):
    """Lines of a query, with the types of its columns."""

    def __init__(self, columns):
        super().__init__()
        self.columns = columns


@pytest.fixture(scope="module")
def declared():
    """Table -> its columns with their types, as the queries declare them; no line is needed for that."""
    found = {}
    for protocol in registry.names():
        judges = Judges([registry.protocol(protocol)])
        results = Results(judges)
        with duckdb.connect() as connection:
            connection.register("result", pa.Table.from_batches([], results.schema))
            units = [(f"unit_{protocol}", pa.int64())]
            fields = [("run", pa.int64()), ("scenario", pa.string()), ("held", pa.bool_()), *units]
            connection.register("settings", pa.Table.from_pylist([], pa.schema(fields)))
            for macro in MACROS:
                connection.execute(f"CREATE MACRO {macro}")
            found[protocol] = tables_of(connection, judges)
    return found


def tables_of(connection, judges):
    by_query = {}

    def sql(query):
        done = connection.execute(query)
        by_query[query] = {name: TYPES.get(str(kind), str(kind).lower()) for name, kind, *_ in done.description or ()}
        return Lines({name: "bool" if kind == "boolean" else kind for name, kind in by_query[query].items()})

    tables = make_tables(sql, judges)
    return {name: lines.columns for name, lines in tables.items() if isinstance(lines, Lines)} | {
        name: next(columns for query, columns in by_query.items() if marker in query)
        for name, marker in (("latencies", "AS measured\n        GROUP BY scenario"), ("histograms", "log10"))
    }


def test_every_column_of_a_trace_is_on_the_page():
    assert columns_on_page("trace") == {column.name: column.kind for column in TRACE}
    kinds = PAGE.split("| kind | meaning |\n", 1)[1].split("\n\n", 1)[0]
    assert set(re.findall(r"^\| `(\w+)` \|", kinds, re.M)) == set(KINDS)


def test_every_column_of_the_table_of_runs_is_on_the_page():
    assert columns_on_page("runs of a trace") == {field.name: str(field.type) for field in RUN_SCHEMA}


def test_a_file_says_the_units_and_meanings_that_are_on_the_page():
    assert about_on_page("trace") == {column.name: (column.unit, column.about) for column in TRACE}
    assert about_on_page("runs of a trace") == {name: ("", about) for name, about in ABOUT_RUNS.items()}


def test_units_of_results_are_those_on_the_page(declared):
    measured = {"ns", "units"}
    for name in {name for tables in declared.values() for name in tables}:
        on_page = {column: unit if unit in measured else "" for column, (unit, _) in about_on_page(name).items()}
        assert on_page == {column: unit_of(column) for column in on_page}, name


def test_every_column_of_a_result_is_on_the_page(declared):
    amounts = AMOUNTS.findall(PAGE)
    for protocol, tables in declared.items():
        for name, columns in tables.items():
            added = {column: kind for one, column, kind, where in amounts if one == protocol and f"`{name}`" in where}
            assert columns_on_page(name) | added == columns, (protocol, name)


def test_every_column_of_rows_never_taken_is_on_the_page():
    (line, *_) = list_untaken([], list(catalogue.machines("cursor_recovery")))
    kinds = {int: "int64", str: "string"}
    assert columns_on_page("never") == {name: kinds[type(value)] for name, value in line.items()}


def test_the_page_has_no_table_that_is_not_there(declared):
    there = {name for tables in declared.values() for name in tables}
    assert set(re.findall(r"^### `([\w ]+)`$", PAGE, re.M)) == there | {"trace", "runs of a trace", "never"}
    assert set(ONCE) <= there


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which the commands of the page were run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("traces"))
        for command in re.findall(r"^\$ gapless (.+)$", PAGE, re.M):
            assert run(command.split()) == 0
        yield Path.cwd()


def answers(folder, *engines):
    """What the listings for these engines came to, in lists of tuples.  The Java of Spark may have begun elsewhere."""
    names = {}
    for engine in engines:
        listing = re.search(rf"^```python {engine}\n(.*?)^```$", PAGE, re.M | re.S)[1]
        exec(listing.replace("out/", f"{folder}/out/"), names)
    return [[tuple(line) for line in names[one]] for one in ("transit", "lost", "never")]


@pytest.mark.long
def test_duckdb_and_pandas_give_the_same_answers(folder):
    found = answers(folder, "duckdb")
    assert all(found)
    assert answers(folder, "pandas") == found


def test_spark_gives_the_same_answers(folder):
    with Session():
        assert answers(folder, "duckdb", "spark") == answers(folder, "duckdb")


def test_columns_of_data_frames_say_their_units(folder):
    with Session() as session:
        rows = read_trace(session.spark, f"{folder}/out/sim")
        assert {one.name: one.metadata for one in rows.schema} == {
            one.name: {"comment": one.about} | ({"unit": one.unit} if one.unit else {}) for one in TRACE
        }
        runs = read_runs(session.spark, f"{folder}/out/sim")
        assert [tuple(line) for line in runs.select("run", "scenario", "seed").collect()] == [(0, "lossy", 1)]
        assert rows.where("run = 0").count() == json.loads(runs.first()["parameters"])["rows"]
        latencies = read_result(session.spark, f"{folder}/out/report", "latencies")
        assert latencies.schema["p50_ns"].metadata == {"unit": "ns"}
        assert latencies.schema["measure"].metadata == {}
