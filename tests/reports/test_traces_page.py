"""docs/traces.md names every column of traces and results, with its type; its queries agree in three engines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from statemachines import registry
from statemachines.cli import run
from statemachines.trace.row import TRACE
from statemachines_reports import read_result, read_runs, read_trace
from statemachines_reports.judge import Judges
from statemachines_reports.pipeline import MACROS
from statemachines_reports.session import Session
from statemachines_reports.tables import Results, make_tables

PAGE = (Path(__file__).parents[2] / "docs" / "traces.md").read_text(encoding="utf-8")
TYPES = {"BIGINT": "int64", "HUGEINT": "int64", "INTEGER": "int64", "DOUBLE": "double", "VARCHAR": "string"}


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
