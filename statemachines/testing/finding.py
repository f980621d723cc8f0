"""Finding: how long it takes until a check finds a planted bug, by simulation or by Hypothesis over whole groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from time import process_time
from typing import Final

import msgspec
from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test

from statemachines.testing.group import GROUP, GroupTest, PropertyBroken
from statemachines_sim.scenario import named
from statemachines_sim.world import World
from statemachines_spec.planted import Bug, planted

SCENARIOS: Final = ("quiet", "joins", "network", "kills", "pauses", "partitions", "storm")
"""Simulated in turn, each with seed 0, then each with seed 1, and so on."""

EXAMPLES: Final = 10
"""Runs of a group under one seed of Hypothesis."""


class Found(msgspec.Struct, frozen=True):
    """`what` broke ("" = nothing did) after so many `runs` and `cpu_s` seconds of processor time."""

    what: str
    runs: int
    cpu_s: float


Tries = Iterator[str]
"""What each run breaks ("" = nothing), one after the other, without an end."""


def simulated() -> Tries:
    """Runs of the simulator."""
    for number in count():
        for name in SCENARIOS:
            yield World(named(name), number).run().monitor


def grouped() -> Tries:
    """Runs of whole groups, `EXAMPLES` at a time."""
    for number in count():
        kind = seed(number)(type("Seeded", (GroupTest,), {"explain": False}))
        try:
            run_state_machine_as_test(kind, settings=ONE_BATCH)
        except PropertyBroken as broken:
            yield broken.what
        else:
            yield ""


ONE_BATCH = settings(GROUP, derandomize=False, max_examples=EXAMPLES, stateful_step_count=40)

METHODS: Final[dict[str, Callable[[], Tries]]] = {"simulation": simulated, "hypothesis": grouped}


def find(bug: Bug, method: str, *, cpu_s: float = 60.0, tries: int = 10**9) -> Found:
    """Plant the bug and try until something breaks, the processor time is used up, or there were so many tries."""
    began = process_time()
    number = 0
    with planted(bug.name):
        for what in METHODS[method]():
            number += 1
            spent = process_time() - began
            if what or spent > cpu_s or number >= tries:
                return Found(what, number, spent)
    raise AssertionError("tries have no end")
