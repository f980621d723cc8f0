"""Alone: a measurement in a process of its own, so that nothing that ran before it is in its way.

What a process has measured once it keeps the traces of: memory in pieces, a heap that is slow to be collected, files
that are open.  Where a row does much that differs from the others, it is measured in a fresh process, both sides of it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import ParamSpec

P = ParamSpec("P")


def run_alone(measure: Callable[P, float], *given: P.args, **named: P.kwargs) -> float:
    """What `measure` says in a fresh process; making the process is not part of it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, *given, **named).result()
