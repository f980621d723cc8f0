"""Spark task: what an executor runs.  It compares versions before it imports anything of ours, and says in one line
what does not fit."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any, Final

from statemachines.kernel import GaplessError

Batches = Iterator[Any]
"""Record batches of Arrow."""

SHIP: Final = "install it there, or ship an environment (gapless env-archive, spark.archives)"

REFUSAL: Final = "gapless refuses: "
"""Begins the line that a task raises."""


def make_task(place: str, given: bytes) -> Callable[[Batches], Batches]:
    """A function for `mapInArrow`: on an executor it calls the function at `place` (`module:FUNCTION`) with the batches
    and `given`.  Nothing of ours is imported to read the task itself, so an executor that lacks us can say so."""
    python, gapless, refusal, mend = sys.version_info[:2], version("gapless"), REFUSAL, SHIP

    def task(batches: Batches) -> Batches:
        import importlib
        import importlib.metadata
        import socket
        import sys

        where, there = f"the executor on {socket.gethostname()}", sys.version_info[:2]
        if there != python:
            rule = f"Python {there[0]}.{there[1]}, and the driver {python[0]}.{python[1]}: set PYSPARK_PYTHON"
            raise RuntimeError(f"{refusal}{where} runs {rule}")
        try:
            other = importlib.metadata.version("gapless")
            module, _, name = place.partition(":")
            function = getattr(importlib.import_module(module), name)
        except ImportError as error:
            lacking = error.name or str(error)
            raise RuntimeError(f"{refusal}{where} has no package {lacking}: {mend}") from error
        if other != gapless:
            raise RuntimeError(f"{refusal}{where} has gapless {other}, and the driver {gapless}: install the same")
        ours = importlib.import_module("statemachines.kernel").GaplessError
        try:
            yield from function(batches, given)
        except ours as error:
            raise RuntimeError(f"{refusal}{error}") from error
        except OSError as error:
            rule = f"cannot read or write {error.filename}: {error.strerror}; every executor needs the same files"
            raise RuntimeError(f"{refusal}{where} {rule}") from error

    return task


def find_refusal(error: Exception) -> GaplessError | None:
    """What a task refused, or Spark itself, in one line; None for any other failure.  It arrives as text, behind a
    traceback of its process."""
    said = re.findall(rf"(?:{REFUSAL}|ConfigurationError: |GaplessError: )(.*)", str(error))
    if said:
        return GaplessError(said[-1])
    said = re.findall(r"PYTHON_VERSION_MISMATCH\] (.*?), PySpark cannot", str(error))
    if said:
        return GaplessError(f"{said[-1]}: set PYSPARK_PYTHON to the same version")
    said = re.findall(r"ModuleNotFoundError: No module named '([\w.]+)'", str(error))
    if said:
        return GaplessError(f"the executors have no package {said[-1]}: {SHIP}")
    if "Cannot run program" in str(error):
        (program,) = re.findall(r'Cannot run program "([^"]*)"', str(error))[:1]
        return GaplessError(f"the executors have no Python {program!r}: set PYSPARK_PYTHON or spark.pyspark.python")
    return None
