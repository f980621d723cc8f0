"""A standalone cluster of Spark on this machine: a master and workers, each in a session of processes of its own; and a
server of Spark Connect."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from statemachines.kernel import GaplessError

CLASSES: Final = "org.apache.spark.deploy"
SMALL: Final = ("-Xmx160m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
CONNECT: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
OPENED: Final = (
    "java.lang",
    "java.lang.invoke",
    "java.net",
    "java.nio",
    "java.util",
    "sun.nio.ch",
    "sun.util.calendar",
)
LOOPBACK: Final = {"SPARK_LOCAL_IP": "127.0.0.1"}
START_S: Final = 120
"""So long a process may take to start, on however busy a machine."""


class SparkCluster:
    """`master`: its URL; `workers`: the session of the processes of each.

    Executors run a Python that finds the libraries of this one, and not our packages: those come from the driver.
    """

    def __init__(self, folder: Path, workers: int = 2) -> None:
        import pyspark

        self.folder = folder
        self.home = Path(pyspark.__file__).parent
        self.processes: list[subprocess.Popen[bytes]] = []
        self.python = write_python(folder, self.home.parent)
        try:
            log = self._start("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self.master = wait_for(log, r"Starting Spark master at (spark://[\d.:]+)")
            for number in range(workers):
                self.add_worker(f"worker-{number}")
        except BaseException:
            self.stop()
            raise

    @property
    def workers(self) -> list[int]:
        """The sessions of the workers, in the order of their start."""
        return [process.pid for process in self.processes[1:]]

    def add_worker(self, name: str) -> None:
        """One core, and as much memory as the smallest executor needs."""
        options = ("--cores", "1", "--memory", "600m", "--webui-port", "0", "--host", "127.0.0.1")
        log = self._start(name, "worker.Worker", *options, "--work-dir", str(self.folder / name), self.master)
        wait_for(log, "Successfully registered with master")

    def list_options(self, archive: Path | None = None) -> list[str]:
        """What the command line needs to run on it; `archive`: of an environment, with the Python of the executors."""
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.pyspark.python": str(self.python),
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        if archive is not None:
            settings |= {"spark.archives": f"{archive}#environment", "spark.pyspark.python": "./environment/bin/python"}
        conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        return ["--engine", "spark", "--master", self.master, *conf]

    def stop(self) -> None:
        """Nothing of it is left."""
        for process in self.processes:
            kill_session(process.pid)
            process.wait()

    def _start(self, name: str, kind: str, *options: str) -> Path:
        """The log of a process that was started."""
        log = self.folder / f"{name}.log"
        self.processes.append(start_java(self.home, log, [*SMALL], [f"{CLASSES}.{kind}", *options]))
        return log


class SparkConnectServer:
    """A server of Spark Connect with one core; `address`: its URL.  Its tasks find no package of ours here."""

    def __init__(self, folder: Path) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.ui.enabled": "false",
            "spark.local.dir": str(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
        conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        options = ["-Xmx512m", *SMALL[1:], *(f"--add-opens=java.base/{one}=ALL-UNNAMED" for one in OPENED)]
        what = [f"{CLASSES}.SparkSubmit", "--master", "local[1]", *conf, "--class", CONNECT, "spark-internal"]
        log = folder / "connect.log"
        self.process = start_java(home, log, options, what, {"PYSPARK_PYTHON": str(write_python(folder, home.parent))})
        try:
            self.address = f"sc://127.0.0.1:{wait_for(log, r'server started at: .*?:([0-9]+)')}"
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Nothing of it is left.  Sessions end first: a client whose server is gone waits for it."""
        kill_session(self.process.pid)
        self.process.wait()


def write_python(folder: Path, libraries: Path) -> Path:
    """A Python that finds the libraries of this one, and not our packages."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec {sys.executable} -S "$@"\n')
    path.chmod(0o755)
    return path


def start_java(
    home: Path, log: Path, options: list[str], what: list[str], given: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[bytes]:
    """A process of Spark, in a session of its own; what it says goes to the log."""
    java = shutil.which("java")
    if java is None:
        raise GaplessError("Spark needs Java 17 or later: install default-jre-headless (Debian's name)")
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13", **LOOPBACK, **given}
    with log.open("wb") as file:
        command = [java, *options, "-cp", f"{home}/jars/*", *what]
        return subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True)


def wait_for(log: Path, pattern: str) -> str:
    """What a log says: the last group of the pattern, or all of it."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return str(found[found.re.groups])
        time.sleep(0.1)
    raise GaplessError(f"{log.name} does not say {pattern}: {log.read_text(errors='replace')[-2000:]}")


def list_session(number: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
            if int(session) == number and state != "Z":
                found.append(int(path.parent.name))
    return found


def kill_session(number: int) -> None:
    """A worker ends with its executors, and with their processes of Python."""
    while processes := list_session(number):
        for one in processes:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        time.sleep(0.02)
