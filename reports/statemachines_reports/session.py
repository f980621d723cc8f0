"""Session: Spark on all cores of this machine; tasks judge whole-run files, SQL makes tables of what they found."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa

from statemachines.interrupts import defer_interrupts
from statemachines.kernel import GaplessError
from statemachines.registry import check_importable
from statemachines.whole_file import whole_file
from statemachines_reports.judge import Judges
from statemachines_reports.protocol import Records, Tables
from statemachines_reports.tables import Results, make_tables, settings_of
from statemachines_reports.trace_set import TraceSet

LOCAL: Final = "local[*]"
HERE: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""A master elsewhere has to reach the driver, which nobody has to reach here."""


@contextmanager
def quiet_start(log: Path) -> Iterator[None]:
    """What the Java process says while it starts goes to a file, and is shown only if it does not start."""
    kept = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    except Exception as error:
        text = log.read_text(errors="replace").strip().splitlines()
        raise GaplessError(f"Spark does not start: {text[-1] if text else error}; it needs Java 17 or later") from error
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def whole_start() -> Iterator[None]:
    """Where the start is broken off (Ctrl-C, SIGTERM), the Java process that was begun for it ends: nobody else knows
    of it yet."""
    from pyspark import java_gateway

    module: Any = java_gateway
    begin, begun = module.Popen, []

    def begin_known(*arguments: Any, **options: Any) -> Any:
        with defer_interrupts():
            begun.append(begin(*arguments, **options))
        return begun[-1]

    module.Popen = begin_known
    try:
        yield
    except BaseException:
        for process in begun:
            process.kill()
            process.wait()
        raise
    finally:
        module.Popen = begin


def keep(path: Path, batch: pa.RecordBatch) -> None:
    """A batch as a file, which appears whole."""
    with whole_file(path) as unfinished, pa.ipc.new_file(str(unfinished), batch.schema) as writer:
        writer.write_batch(batch)


class Session:
    """A Spark session, on all cores of this machine unless a `master` is named; its files go to a temporary directory.

    A process has one Spark: sessions that are open at the same time share it, and the last of them stops it.  One that
    an application has started before is used as it is, and goes on.
    """

    _open: ClassVar[list[Session]] = []
    _directories: ClassVar[list[str]] = []
    _started: ClassVar[bool] = False

    def __init__(self, master: str = LOCAL) -> None:
        self._master = master

    @property
    def spark(self) -> Any:
        """The session as Spark has it."""
        return self._spark

    def __enter__(self) -> Session:
        if shutil.which("java") is None:
            raise GaplessError("Spark needs Java 17 or later: install default-jre-headless (Debian's name)")
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        there = SparkContext._active_spark_context is not None
        self._directory = tempfile.mkdtemp(prefix="gapless-spark-")
        try:
            with quiet_start(Path(self._directory) / "start.log"), whole_start():
                self._spark = self._beside(SparkSession) if there else self._begun(SparkSession)
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        if not Session._open:
            Session._started = not there
        Session._open.append(self)
        Session._directories.append(self._directory)
        return self

    def _begun(self, kind: Any) -> Any:
        """The Spark of this process."""
        builder = kind.builder.master(self._master).appName("gapless")
        for key, value in self._settings().items():
            builder = builder.config(key, value)
        begun = builder.getOrCreate()
        begun.sparkContext.setLogLevel("ERROR")
        return begun

    def _beside(self, kind: Any) -> Any:
        """The Spark that is there, with settings and names of our own."""
        beside = kind.builder.getOrCreate().newSession()
        for key, value in self._settings().items():
            if beside.conf.isModifiable(key):
                beside.conf.set(key, value)
        return beside

    def __exit__(self, *_: object) -> None:
        Session._open.remove(self)
        if Session._open:
            return
        if Session._started:
            self._spark.stop()
        while Session._directories:
            shutil.rmtree(Session._directories.pop(), ignore_errors=True)

    def tables(self, trace: TraceSet, judges: Judges, *, partly: bool = False) -> Tables:
        """Judge the trace; every table as a list of records.  Where Ctrl-C comes and some of its files are judged, of
        those alone (`partly`)."""
        from pyspark.errors import PySparkException

        kept = Path(tempfile.mkdtemp(dir=self._directory)) if partly else None
        try:
            self.judge(trace, judges, kept).cache().createOrReplaceTempView("result")
            return self._made(trace, judges)
        except KeyboardInterrupt:
            self._spark.sparkContext.cancelAllJobs()
            judged = sorted(kept.glob("*.arrow")) if kept is not None else []
            if not judged:
                raise
            trace.stop_at([path.stem for path in judged])
            found = pa.concat_tables([pa.ipc.open_file(path).read_all() for path in judged])
            self._spark.createDataFrame(found).createOrReplaceTempView("result")
            return self._made(trace, judges)
        except PySparkException as error:
            # What a task raises on purpose arrives as text, behind a traceback of its process.
            said = re.findall(r"ConfigurationError: (.*)", str(error))
            if not said:
                raise
            raise GaplessError(said[-1]) from error

    def _made(self, trace: TraceSet, judges: Judges) -> Tables:
        self._spark.createDataFrame(settings_of(trace, judges)).createOrReplaceTempView("settings")
        return make_tables(self.sql, judges)

    def judge(self, trace: TraceSet, judges: Judges, kept: Path | None = None) -> Any:
        """A DataFrame of results, a task a file; what is found of each is put into `kept`, too, as soon as it is.  A
        task may run where nothing of a protocol is registered: it is given what registers it."""
        for one in judges.protocols.values():
            check_importable(one, "analyze without Spark (spark=False, --no-spark)")
        waived, protocols, missing = judges.list_waived_runs(trace), list(judges.protocols.values()), judges.missing

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            here = Judges(protocols, missing)
            results = Results(here)
            for batch in batches:
                for path in batch.column(0).to_pylist():
                    found = results.batch(here.judge_path(Path(path), waived))
                    if kept is not None:
                        keep(kept / f"{Path(path).name}.arrow", found)
                    yield found

        types = {pa.int64(): "bigint", pa.string(): "string", pa.bool_(): "boolean"}
        shape = ", ".join(f"`{field.name}` {types[field.type]}" for field in Results(judges).schema)
        # The largest first, each in a partition of its own: the tasks end at about the same time.
        paths = sorted(trace.files, key=lambda path: -path.stat().st_size)
        names = self._spark.sparkContext.parallelize([(str(path.resolve()),) for path in paths], len(paths))
        return self._spark.createDataFrame(names, "path string").mapInArrow(task, shape)

    def sql(self, query: str) -> Records:
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
            **(HERE if self._master.startswith("local") else {}),
            # The results of all tasks are few: planning, and making code, would cost more than going through them.
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.session.timeZone": "UTC",
            # Names in double quotes, as everywhere but in Spark.
            "spark.sql.ansi.enabled": "true",
            "spark.sql.ansi.doubleQuotedIdentifiers": "true",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
        }
