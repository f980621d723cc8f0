"""Finding: how long it takes until a check finds a planted bug.

Three methods, none of which knows which bug it looks for: exploration of small systems, one after the other, the same
for every bug; simulation of scenarios under one seed after the other; Hypothesis over whole groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count
from time import process_time
from typing import Final

import msgspec
from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test

from statemachines.testing.fixed_draws import fixed_draws
from statemachines.testing.shared_subscriptions.group import GROUP, GroupTest, PropertyBroken
from statemachines_sim.scenario import named
from statemachines_sim.world import World
from statemachines_spec.bug import Bug, planted
from statemachines_spec.hunt import look
from statemachines_spec.shared_subscriptions.hunts import HUNTS

SCENARIOS: Final = (
    "quiet", "joins", "network", "kills", "pauses", "partitions", "storm", "generations", "queues", "leaving", "halts",
    "kicks", "lossy",
)  # fmt: skip
"""Simulated in turn, each with seed 0, then each with seed 1, and so on."""

EXAMPLES: Final = 10
"""Runs of a group under one seed of Hypothesis."""


class Try(msgspec.Struct, frozen=True):
    """One run: `what` broke ("" = nothing), `where`: what was run; of an exploration the `steps` of a shortest run and
    the `states` explored."""

    what: str
    where: str
    steps: int = 0
    states: int = 0


class Found(msgspec.Struct, frozen=True):
    """`what` broke ("" = nothing did) after so many `runs` and `cpu_s` seconds of processor time; `last`: the run."""

    what: str
    runs: int
    cpu_s: float
    last: Try


Tries = Iterator[Try]
"""Runs, one after the other; those of simulation and Hypothesis have no end."""


def explored() -> Tries:
    """Small systems, explored exhaustively."""
    for hunt in HUNTS:
        catch = look(hunt)
        yield Try(catch.what, hunt.name, catch.steps, catch.states)


def simulated() -> Tries:
    """Runs of the simulator."""
    for number in count():
        for name in SCENARIOS:
            yield simulation_run(f"{name}, seed {number}")


def simulation_run(where: str) -> Try:
    """One of them."""
    name, _, number = where.partition(", seed ")
    return Try(World(named(name), int(number), trace=False).run().monitor, where)


def grouped() -> Tries:
    """Runs of whole groups, `EXAMPLES` at a time."""
    for number in count():
        yield group_run(f"groups, seed {number}")


def group_run(where: str) -> Try:
    """One such batch; the same in every process."""
    number = int(where.partition(", seed ")[2])
    kind = seed(number)(type("Seeded", (GroupTest,), {"explain": False}))
    try:
        with fixed_draws():
            run_state_machine_as_test(kind, settings=ONE_BATCH)
    except PropertyBroken as broken:
        return Try(broken.what, where)
    return Try("", where)


ONE_BATCH = settings(GROUP, derandomize=False, max_examples=EXAMPLES, stateful_step_count=40)

METHODS: Final[dict[str, Callable[[], Tries]]] = {
    "exploration": explored,
    "simulation": simulated,
    "hypothesis": grouped,
}


def find(bug: Bug | None, method: str, *, cpu_s: float = 60.0, tries: int = 10**9) -> Found:
    """Plant the bug (None: none, to see that nothing breaks) and try until something breaks, the processor time is used
    up, there were so many tries, or there are no more."""
    began = process_time()
    number, last = 0, Try("", "nothing")
    with planted(bug.name) if bug is not None else nullcontext():
        for last in METHODS[method]():
            number += 1
            if last.what or process_time() - began > cpu_s or number >= tries:
                break
    return Found(last.what, number, process_time() - began, last)
