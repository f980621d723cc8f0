"""SharedSpark: a session on the Spark of this process, which several share and the last one stops.

Start of Spark: the Java process begins quietly, ends if the start is broken off, and keeps what the user set.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypeVar
from uuid import uuid4

import pyarrow as pa

from statemachines.interrupts import defer_interrupts
from statemachines.kernel import GaplessError, Protocol
from statemachines.spark.code_archive import write_code
from statemachines.spark.spark_link import ConnectLink, DriverLink, SparkLink, find_client, open_client
from statemachines.spark.spark_settings import (
    NEEDED,
    NO_SETTINGS,
    SESSION_DEFAULTS,
    SHELL_NAMES,
    SparkSettings,
    describe_conflict,
    is_connect,
    is_local,
    list_defaults,
)
from statemachines.spark.spark_task import find_refusal, make_task

PROGRESS: Final = "spark.ui.showConsoleProgress"
DRIVER_PYTHON: Final = "PYSPARK_DRIVER_PYTHON"


@contextmanager
def quiet_start(log: Path) -> Iterator[None]:
    """What the Java process says while it starts goes to a file, and is shown only if it does not start."""
    kept = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    except GaplessError:
        raise
    except Exception as error:
        text = f"{log.read_text(errors='replace')}\n{error}"
        said = [line.strip() for line in text.splitlines() if line.strip()]
        why = next((line for line in said if re.search(r"(Exception|Error): ", line)), said[-1])
        mend = "install Java 17 or later" if "UnsupportedClassVersion" in text else "look at --master and --conf"
        raise GaplessError(f"Spark does not start: {why}; {mend}") from error
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


@contextmanager
def java_options(directory: str) -> Iterator[None]:
    """Options of the driver's Java process.  They stand in the environment, before what the user has there, so that
    `spark.driver.extraJavaOptions` stays the user's."""
    own = f"-XX:TieredStopAtLevel=1 -Dderby.system.home={directory}"
    before = os.environ.get("SPARK_SUBMIT_OPTS")
    os.environ["SPARK_SUBMIT_OPTS"] = own if before is None else f"{own} {before}"
    try:
        yield
    finally:
        if before is None:
            del os.environ["SPARK_SUBMIT_OPTS"]
        else:
            os.environ["SPARK_SUBMIT_OPTS"] = before


def check_java() -> None:
    """Java is there; raises `GaplessError` that says what to install."""
    if shutil.which("java") is None:
        raise GaplessError("Spark needs Java 17 or later: install default-jre-headless (Debian's name)")


def start_spark(settings: SparkSettings, directory: str) -> Any:
    """A Spark session.  What `settings` names wins over what Spark finds (spark-defaults.conf, spark-submit), and that
    wins over our defaults."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    for key, name in (("spark.pyspark.python", "PYSPARK_PYTHON"), ("spark.pyspark.driver.python", DRIVER_PYTHON)):
        if key in settings.conf:
            os.environ[name] = settings.conf[key]
    launching = SparkConf(loadDefaults=False).setAll([(PROGRESS, "false"), *settings.all_settings.items()])
    with java_options(directory):
        module: Any = SparkContext
        module._ensure_initialized(conf=launching)
    conf = SparkConf(loadDefaults=True).setAll([(PROGRESS, "false"), *settings.all_settings.items()])
    if conf.get("spark.app.name", SHELL_NAMES[0]) in SHELL_NAMES:
        conf.setAppName("gapless")
    master = str(conf.get("spark.master", "local[*]"))
    for key, value in list_defaults(master, directory).items():
        conf.setIfMissing(key, value)
    if is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault(DRIVER_PYTHON, sys.executable)
    begun = SparkSession.builder.config(conf=conf.setMaster(master).setAll(list(NEEDED.items()))).getOrCreate()
    begun.sparkContext.setLogLevel("ERROR")
    return begun


T = TypeVar("T")

JOBS_AT_ONCE: Final = 2
"""So that cores whose job has no more tasks have those of the next."""


class SharedSpark:
    """A Spark session on the master that `settings` names; its files on this machine go to a temporary directory.

    A process has one Spark: sessions that are open at the same time share it, and the last of them stops it.  One that
    an application has started before is used as it is, and goes on.
    """

    _open: ClassVar[list[SharedSpark]] = []
    _directories: ClassVar[list[str]] = []
    _started: ClassVar[bool] = False

    def __init__(self, settings: SparkSettings = NO_SETTINGS) -> None:
        self._settings = settings
        self._sent: set[str] = set()
        self._link: SparkLink

    @property
    def spark(self) -> Any:
        """The session as Spark has it."""
        return self._spark

    @property
    def link(self) -> SparkLink:
        """What differs between a driver of its own and Spark Connect."""
        return self._link

    def __enter__(self) -> Self:
        if is_connect(self._settings.master) or (not self._settings.master and find_client() is not None):
            self._spark = open_client(self._settings)
            self._link = ConnectLink(self._spark)
            self._directory = tempfile.mkdtemp(prefix="gapless-spark-")
            return self
        check_java()
        from pyspark import SparkContext

        there = SparkContext._active_spark_context is not None
        self._directory = tempfile.mkdtemp(prefix="gapless-spark-")
        try:
            with quiet_start(Path(self._directory) / "start.log"), whole_start():
                self._spark = self._join_spark() if there else start_spark(self._settings, self._directory)
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        if not SharedSpark._open:
            SharedSpark._started = not there
        self._link = DriverLink(self._spark)
        SharedSpark._open.append(self)
        SharedSpark._directories.append(self._directory)
        return self

    def _join_spark(self) -> Any:
        """The Spark that is there, with settings and names of our own."""
        from pyspark.sql import SparkSession

        running = SparkSession.builder.getOrCreate()
        conf = running.sparkContext.getConf()
        for key, value in self._settings.all_settings.items():
            if not running.conf.isModifiable(key) and conf.get(key) != value:
                raise describe_conflict(key, value, f"{key}={conf.get(key)}")
        beside = running.newSession()
        for key, value in {**SESSION_DEFAULTS, **NEEDED, **self._settings.conf}.items():
            if beside.conf.isModifiable(key) and (key not in SESSION_DEFAULTS or not conf.contains(key)):
                beside.conf.set(key, value)
        return beside

    def __exit__(self, *_: object) -> None:
        if self not in SharedSpark._open:
            self._spark.stop()
            shutil.rmtree(self._directory, ignore_errors=True)
            return
        SharedSpark._open.remove(self)
        if SharedSpark._open:
            return
        if SharedSpark._started:
            self._spark.stop()
        while SharedSpark._directories:
            shutil.rmtree(SharedSpark._directories.pop(), ignore_errors=True)

    def ship_code(self, protocols: Iterable[Protocol]) -> None:
        """Executors elsewhere import our packages, and those of the protocols, as they are here."""
        if self._link.is_local:
            return
        code = write_code(Path(tempfile.mkdtemp(dir=self._directory)), protocols)
        if code.name not in self._sent:
            self._link.send_code(code)
            self._sent.add(code.name)

    def map_tasks(self, units: Sequence[pa.Table], place: str, given: bytes, shape: str) -> Any:
        """A DataFrame: what the function at `place` (`module:FUNCTION`) makes of each table of units, a task a table.

        A task is what a partition of the range is, and the units come to it by a join without a shuffle.
        """
        parts = [
            one.append_column("task", pa.repeat(pa.scalar(n, pa.int64()), len(one))) for n, one in enumerate(units)
        ]
        named = self._spark.createDataFrame(pa.concat_tables(parts)).withColumnRenamed("task", "of")
        tasks = self._spark.range(0, len(units), 1, len(units)).withColumnRenamed("id", "task")
        joined = tasks.join(named.hint("broadcast"), tasks.task == named.of).drop("task", "of")
        return joined.mapInArrow(make_task(place, given), shape)

    def run_jobs(self, jobs: Sequence[Callable[[], T]]) -> Iterator[tuple[int, T]]:
        """What the jobs give, each with its number, as they end.  Who leaves early cancels the others."""
        link, tag = self._link, f"gapless-{uuid4().hex}"
        with ThreadPoolExecutor(JOBS_AT_ONCE) as pool:
            numbers: dict[Future[T], int] = {
                pool.submit(link.run_job, tag, job): number for number, job in enumerate(jobs)
            }
            try:
                for future in as_completed(numbers):
                    yield numbers[future], future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                link.cancel_jobs(tag)
                raise


@contextmanager
def raise_refusals() -> Iterator[None]:
    """What a task refuses is raised as `GaplessError`, in one line."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        refused = find_refusal(error)
        if refused is None:
            raise
        raise refused from error
