"""A standalone cluster of Spark on this machine: a master and workers, each in a session of processes of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from statemachines.kernel import GaplessError

CLASSES: Final = "org.apache.spark.deploy"
SMALL: Final = ("-Xmx160m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
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
        self.python = folder / "python"
        script = f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{self.home.parent}" exec {sys.executable} -S "$@"\n'
        self.python.write_text(script)
        self.python.chmod(0o755)
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
        java = shutil.which("java")
        if java is None:
            raise GaplessError("Spark needs Java 17 or later: install default-jre-headless (Debian's name)")
        command = [java, *SMALL, "-cp", f"{self.home}/jars/*", f"{CLASSES}.{kind}", *options]
        environment = {**os.environ, "SPARK_HOME": str(self.home), "SPARK_SCALA_VERSION": "2.13", **LOOPBACK}
        log = self.folder / f"{name}.log"
        with log.open("wb") as file:
            self.processes.append(
                subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True)
            )
        return log


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
