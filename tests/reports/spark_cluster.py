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

import pyspark

HOME = Path(pyspark.__file__).parent
CLASSES = "org.apache.spark.deploy"
SMALL = ("-Xmx160m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1"}
PATIENCE_S = 120


class SparkCluster:
    """`master`: its URL.  Executors run a Python that finds the libraries of this one, and not our packages."""

    def __init__(self, folder, workers=2):
        self.folder = folder
        self.processes = []
        self.python = folder / "python"
        libraries = Path(pyspark.__file__).parents[1]
        self.python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec {sys.executable} -S "$@"\n')
        self.python.chmod(0o755)
        try:
            log = self.start("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self.master = wait_for(log, r"Starting Spark master at (spark://[\d.:]+)")
            for number in range(workers):
                self.add_worker(f"worker-{number}")
        except BaseException:
            self.stop()
            raise

    def start(self, name, kind, *options):
        """The log of a process that was started."""
        classes = [*SMALL, "-cp", f"{HOME}/jars/*", f"{CLASSES}.{kind}"]
        environment = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        log = self.folder / f"{name}.log"
        with log.open("wb") as file:
            command = [shutil.which("java"), *classes, *options]
            self.processes.append(
                subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True)
            )
        return log

    def add_worker(self, name):
        """One core, and as much memory as the smallest executor needs."""
        options = ("--cores", "1", "--memory", "600m", "--webui-port", "0", "--host", "127.0.0.1")
        log = self.start(name, "worker.Worker", *options, "--work-dir", str(self.folder / name), self.master)
        wait_for(log, r"Successfully registered with master")

    def options(self):
        """What the command line needs to run on it."""
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.pyspark.python": str(self.python),
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        return ["--engine", "spark", "--master", self.master, *conf]

    def stop(self):
        """Nothing of it is left."""
        for process in self.processes:
            kill_session(process.pid)
            process.wait()


def wait_for(log, pattern):
    """What a log says."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found[found.re.groups]
        time.sleep(0.1)
    raise AssertionError(f"{log.name} does not say {pattern}: {log.read_text(errors='replace')[-2000:]}")


def list_session(number):
    """The living processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
            if int(session) == number and state != "Z":
                found.append(int(path.parent.name))
    return found


def kill_session(number):
    """A worker ends with its executors, and with their processes of Python."""
    while processes := list_session(number):
        for one in processes:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        time.sleep(0.02)
