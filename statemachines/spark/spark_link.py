"""Spark link: what a driver of its own and a client of Spark Connect do in different ways."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from statemachines.kernel import GaplessError
from statemachines.spark.spark_settings import NEEDED, SESSION_DEFAULTS, SparkSettings, describe_conflict, is_local

T = TypeVar("T")

ASKED_ROWS = 1_000_000
"""A range of so many rows has a partition for each core."""


class SparkLink(Protocol):
    """A session, as far as driver and client differ."""

    @property
    def is_local(self) -> bool:
        """Tasks run in the environment of this process."""

    def count_cores(self) -> int:
        """How many tasks run at a time."""

    def send_code(self, path: Path) -> None:
        """Let executors import from a zip."""

    def run_job(self, tag: str, job: Callable[[], T]) -> T:
        """Run a job under a tag."""

    def cancel_jobs(self, tag: str) -> None:
        """Cancel what runs under the tag."""


class DriverLink:
    """Spark's driver is in this process."""

    def __init__(self, spark: Any) -> None:
        self._context = spark.sparkContext

    @property
    def is_local(self) -> bool:
        """As `SparkLink`."""
        return is_local(self._context.master)

    def count_cores(self) -> int:
        """As `SparkLink`."""
        return int(self._context.defaultParallelism)

    def send_code(self, path: Path) -> None:
        """As `SparkLink`."""
        before = list(sys.path)
        self._context.addPyFile(str(path))
        sys.path[:] = before  # the driver goes on with what it has

    def run_job(self, tag: str, job: Callable[[], T]) -> T:
        """As `SparkLink`."""
        self._context.addJobTag(tag)
        return job()

    def cancel_jobs(self, tag: str) -> None:
        """As `SparkLink`."""
        self._context.cancelJobsWithTag(tag)


class ConnectLink:
    """Spark's driver is at a server of Spark Connect."""

    is_local = False

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def count_cores(self) -> int:
        """As `SparkLink`."""
        parts = self._spark.range(ASKED_ROWS).selectExpr("spark_partition_id() AS part").distinct()
        return max(1, int(parts.count()))

    def send_code(self, path: Path) -> None:
        """As `SparkLink`."""
        self._spark.addArtifacts(str(path), pyfile=True)

    def run_job(self, tag: str, job: Callable[[], T]) -> T:
        """As `SparkLink`."""
        self._spark.addTag(tag)
        return job()

    def cancel_jobs(self, tag: str) -> None:
        """As `SparkLink`."""
        self._spark.interruptTag(tag)


def find_client() -> Any:
    """The session of Spark Connect that this program has begun, or None."""
    module = sys.modules.get("pyspark.sql.connect.session")
    return None if module is None else module.SparkSession.getActiveSession()


def open_client(settings: SparkSettings) -> Any:
    """A session of our own at the server of Spark Connect that is named, or that the program is connected with; raises
    `GaplessError` where its packages are not installed, or the server does not answer."""
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql.connect.session import SparkSession
    except ImportError as error:
        rule = f"Spark Connect needs {error.name or 'grpcio'}: install gapless[connect]"
        raise GaplessError(rule) from error
    there = find_client()
    if not settings.master and not hasattr(there, "newSession"):
        raise GaplessError("a session of Spark Connect that is open is used from PySpark 4.3 on: name its --master")
    try:
        builder = SparkSession.builder
        spark = builder.remote(settings.master).create() if settings.master else there.newSession()
        for key, value in {**SESSION_DEFAULTS, **NEEDED, **settings.conf}.items():
            set_value(spark, key, value, is_needed=key not in SESSION_DEFAULTS)
    except PySparkException as error:
        raise GaplessError(f"{settings.master or 'Spark Connect'}: {str(error).strip().splitlines()[0]}") from error
    return spark


def set_value(spark: Any, key: str, value: str, *, is_needed: bool) -> None:
    """Set a setting of the session; raises `ConfigurationError` for one that only the server can set."""
    from pyspark.errors import PySparkException

    try:
        spark.conf.set(key, value)
    except PySparkException as error:
        if is_needed and spark.conf.get(key, None) != value:
            raise describe_conflict(key, value, "a setting of its server") from error
