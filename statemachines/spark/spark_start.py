"""Start of Spark: the Java process begins quietly, ends if the start is broken off, and keeps what the user set."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from statemachines.interrupts import defer_interrupts
from statemachines.kernel import GaplessError
from statemachines.spark.spark_settings import NEEDED, SHELL_NAMES, SparkSettings, is_local, list_defaults

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
