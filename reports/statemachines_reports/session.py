"""Session: Spark on all cores of this machine; tasks judge whole-run files, SQL makes tables of what they found."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from statemachines.kernel import GaplessError
from statemachines_reports.queries import FIELDS, SETTING, SHAPES, TABLES
from statemachines_reports.runs import Result, judge_path, lookup_of
from statemachines_reports.trace_set import TraceSet

Tables = dict[str, list[dict[str, Any]]]


def register(results: Any) -> None:
    """A view per kind of result."""
    results.createOrReplaceTempView("result")
    for what, shape in SHAPES.items():
        fields = [field.split()[0] for field in shape.split(", ")]
        results.filter(results.what == what).select(*fields).createOrReplaceTempView(what)


def in_columns(results: Iterable[Result]) -> pa.RecordBatch:
    """Results as a wide table."""
    rows = [{"what": what, **msgspec.to_builtins(result, enc_hook=int)} for what, result in results]
    types = {"bigint": pa.int64(), "int": pa.int32(), "string": pa.string(), "boolean": pa.bool_()}
    fields = {"what": pa.string()} | {name: types[kind] for name, kind in FIELDS.items()}
    columns = [pa.array([row.get(name) for row in rows], kind) for name, kind in fields.items()]
    return pa.record_batch(columns, names=list(fields))


@contextmanager
def quiet_start(log: Path) -> Iterator[None]:
    """What the Java process says while it starts goes to a file, and is shown only if it does not start."""
    kept = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    except BaseException as error:
        text = log.read_text(errors="replace").strip().splitlines()
        raise GaplessError(f"Spark does not start: {text[-1] if text else error}; it needs Java 17 or later") from error
    finally:
        os.dup2(kept, 2)
        os.close(kept)


class Session:
    """A Spark session on all cores of this machine, whose files go to a temporary directory."""

    def __enter__(self) -> Session:
        if shutil.which("java") is None:
            raise GaplessError("Spark needs Java 17 or later: install openjdk-17-jre-headless (Debian's name)")
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        self._directory = tempfile.mkdtemp(prefix="gapless-spark-")
        builder = SparkSession.builder.master("local[*]").appName("gapless")
        for key, value in self._settings().items():
            builder = builder.config(key, value)
        with quiet_start(Path(self._directory) / "start.log"):
            self._spark = builder.getOrCreate()
            self._spark.sparkContext.setLogLevel("ERROR")
        return self

    def __exit__(self, *_: object) -> None:
        self._spark.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def tables(self, trace: TraceSet, protocol: str) -> Tables:
        """Judge the trace; every table as a list of records."""
        from pyspark.errors import PySparkException

        results = self.judge(trace, protocol).cache()
        register(results)
        settings = [msgspec.structs.astuple(setting) for setting in trace.settings]
        self._spark.createDataFrame(settings, SETTING).createOrReplaceTempView("setting")
        try:
            return {name: self.sql(query) for name, query in TABLES.items()}
        except PySparkException as error:
            # What a task raises on purpose arrives as text, behind a traceback of its process.
            said = re.findall(r"ConfigurationError: (.*)", str(error))
            if not said:
                raise
            raise GaplessError(said[-1]) from error

    def judge(self, trace: TraceSet, protocol: str) -> Any:
        """A DataFrame of results, a task a file."""
        exclusive = trace.exclusive

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            lookup = lookup_of(protocol)
            for batch in batches:
                for path in batch.column(0).to_pylist():
                    yield in_columns(judge_path(Path(path), lookup, exclusive))

        shape = ", ".join(f"{name} {kind}" for name, kind in {"what": "string", **FIELDS}.items())
        # The largest first, each in a partition of its own: the tasks end at about the same time.
        paths = sorted(trace.files, key=lambda path: -path.stat().st_size)
        names = self._spark.sparkContext.parallelize([(str(path.resolve()),) for path in paths], len(paths))
        return self._spark.createDataFrame(names, "path string").mapInArrow(task, shape)

    def sql(self, query: str) -> list[dict[str, Any]]:
        """The lines of a query."""
        return [line.asDict() for line in self._spark.sql(query).collect()]

    def _settings(self) -> dict[str, str]:
        return {
            "spark.ui.enabled": "false",
            "spark.sql.warehouse.dir": f"{self._directory}/warehouse",
            "spark.local.dir": self._directory,
            # The work is done by Python: what Java does is little, and over before its optimiser would pay.
            "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dderby.system.home={self._directory}",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.adaptive.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
        }
