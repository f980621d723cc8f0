"""Conforming: how fast an implementation in another process is fed and judged."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

INPUTS: Final = 20_000
BORROWER: Final = Path(__file__).parents[2] / "tests" / "foreign" / "borrower.py"
ECHO: Final = """
import sys
for line in sys.stdin:
    sys.stdout.write('{"effects":[]}\\n')
    sys.stdout.flush()
"""
"""A child that answers every line with the same one."""

LINE: Final = (
    b'{"event":{"type":"ping_response","borrower":"consumer-1~1/1","epoch":2,"registration":1,"n":1},"now_ns":1,"n":1}'
)


def prepare(size: Size) -> TurnPair:
    from statemachines.testing.conformance.role import role_of
    from statemachines.testing.conformance.role_graph import RoleGraph
    from statemachines.testing.conformance.tour import Tour

    role = role_of("shared_subscriptions/borrower")
    tour = Tour(RoleGraph(role))
    inputs = size.pick(INPUTS, 200)

    def judged() -> float:
        """Inputs a second of the tour, again and again."""
        from statemachines.testing.conformance.child_process import ChildProcess
        from statemachines.testing.conformance.conformance_run import ConformanceRun

        with ChildProcess((sys.executable, str(BORROWER))) as child:
            run = ConformanceRun(role, child)
            run.make(tour.moves[0])
            begun, first = time.perf_counter(), run.inputs
            while run.inputs - first < inputs:
                for move in tour.moves:
                    run.make(move)
                    if run.inputs - first >= inputs:
                        break
            return (run.inputs - first) / (time.perf_counter() - begun)

    return TurnPair(judged, partial(measure_echo, inputs))


def measure_echo(inputs: int) -> float:
    """Lines a second of a child that answers each with a constant one."""
    from statemachines.testing.conformance.child_process import ChildProcess

    with ChildProcess((sys.executable, "-c", ECHO)) as child:
        child.say(LINE)
        child.hear()
        begun = time.perf_counter()
        for _ in range(inputs):
            child.say(LINE)
            child.hear()
        return inputs / (time.perf_counter() - begun)


ROWS = (
    BenchRow(
        name="conform-lockstep",
        about="inputs to a Borrower in plain Python, fed and judged, against a child that echoes a constant line",
        unit="inputs / s",
        baseline_name="echo over the same pipe",
        prepare=prepare,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=0.25,
        aim="5 000 inputs/s",
    ),
)
