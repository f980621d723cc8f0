"""Bug search: how long it takes until a check finds a planted bug of a protocol.

No method knows which bug it looks for: exploration of the protocol's small systems, one after the other, the same for
every bug; simulation of its scenarios under one seed after the other; Hypothesis over whole groups, or over the closed
systems where the protocol has no groups; and real processes that are killed, where the protocol has a harness for them.

Fixed draws: what Hypothesis draws under a seed, whatever else the process has loaded.

Hypothesis (since 6.131) now and then draws a constant that it has read in the source of a local module that is loaded.
So `derandomize` and `seed` alone do not give the same run everywhere: in a suite the draws change with the tests that
ran before, and with the worker.  A search that must find something, or a count that must be reached, runs in here.

There is no setting for it; what is replaced is named here and nowhere else, and a test sees that it is the right thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from resource import RUSAGE_CHILDREN, getrusage
from time import process_time
from typing import Any, Final
from unittest.mock import patch

import msgspec
from hypothesis import Phase, seed, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from statemachines import registry
from statemachines.kernel import ConfigurationError
from statemachines.testing.closed_run import PropertyBroken
from statemachines.testing.protocol import testing_of
from statemachines.testing.system_test import CLOSED, SystemTest
from statemachines_sim.scenario import find_scenario, list_shipped_with
from statemachines_sim.world import World
from statemachines_spec.bug import Bug, plant_bug
from statemachines_spec.directed_system import explore_directed
from statemachines_spec.explorer.shift import TellsTime
from statemachines_spec.protocol import of_protocol

NO_CONSTANTS = Constants()


@contextmanager
def fix_draws() -> Iterator[None]:
    """In the block, draws rest on the strategies and the seed alone; blocks may be nested."""
    with patch.object(providers, "_get_local_constants", lambda: NO_CONSTANTS):
        _forget()  # what may be drawn is remembered by the bounds of a draw, and not by where constants came from
        try:
            yield
        finally:
            _forget()


def _forget() -> None:
    providers.CONSTANTS_CACHE.cache.clear()


EXAMPLES: Final = 10
"""Runs under one seed of Hypothesis."""
PHASES: Final = (Phase.generate,)


class DrivenTest(msgspec.Struct, frozen=True):
    """What Hypothesis drives: `name`, and `make()` gives a test of it, anew where a bug may be planted."""

    name: str
    make: Callable[[], type[RuleBasedStateMachine]]
    bounds: Any = CLOSED


class Searches(msgspec.Struct, frozen=True):
    """Where planted bugs of a protocol are looked for, beside the directed systems that the explorer knows.

    `scenarios`, simulated in turn: each with seed 0, then each with seed 1, and so on (none: all that come with the
    protocol); `driven` by Hypothesis in the same way (none: every closed system at its first size).  `processes`, given
    a seed, lets real processes run under its plan, and says what broke ("" = nothing).
    """

    scenarios: tuple[str, ...] = ()
    driven: tuple[DrivenTest, ...] = ()
    processes: Callable[[int], str] | None = None


class BugSearchRun(msgspec.Struct, frozen=True):
    """One run: `what` broke ("" = nothing), `where`: what was run; of an exploration the `steps` of a shortest run and
    the `states` explored."""

    what: str
    where: str
    steps: int = 0
    states: int = 0


class BugSearchResult(msgspec.Struct, frozen=True):
    """`what` broke ("" = nothing did) after so many `runs` and `cpu_s` seconds of processor time, children
    included; `last`: the run."""

    what: str
    runs: int
    cpu_s: float
    last: BugSearchRun


Tries = Iterator[BugSearchRun]
"""Runs, one after the other; those of simulation and Hypothesis have no end."""


def searches_of(protocol: str) -> Searches:
    """What the protocol says, or the defaults.  Raises `ConfigurationError` for an unknown protocol."""
    place = testing_of(registry.protocol(protocol).name).searches
    said = registry.load(place, Searches, f"{protocol}, searches") if place else Searches()
    simulated = "sim" in registry.protocol(protocol).areas
    scenarios = said.scenarios or (tuple(list_shipped_with(protocol)) if simulated else ())
    return Searches(scenarios, said.driven or _systems(protocol), said.processes)


def _systems(protocol: str) -> tuple[DrivenTest, ...]:
    part = of_protocol(protocol)

    def driven(name: str) -> DrivenTest:
        return DrivenTest(name, lambda: SystemTest.of(part.system(name)))

    return tuple(driven(name) for name in part.systems)


# -- the methods ----------------------------------------------------------------------------------------------------


def explore_systems(protocol: str) -> Tries:
    """Small systems, explored exhaustively."""
    for directed in of_protocol(protocol).list_directed():
        try:
            catch = explore_directed(directed)
        except TellsTime:  # a bug that reads the clock has no verdict in a timed system
            yield BugSearchRun("", directed.name)
        else:
            yield BugSearchRun(catch.what, directed.name, catch.steps, catch.states)


def simulate_runs(protocol: str) -> Tries:
    """Runs of the simulator."""
    scenarios = searches_of(protocol).scenarios
    for number in count() if scenarios else ():
        for name in scenarios:
            yield simulation_run(protocol, f"{name}, seed {number}")


def simulation_run(protocol: str, where: str) -> BugSearchRun:
    """One of them."""
    name, _, number = where.partition(", seed ")
    return BugSearchRun(World(find_scenario(f"{protocol}/{name}"), int(number), trace=False).run().monitor, where)


def drive_runs(protocol: str) -> Tries:
    """Runs under Hypothesis, `EXAMPLES` at a time."""
    kinds = searches_of(protocol).driven
    for number in count() if kinds else ():
        for one in kinds:
            yield driven_run(protocol, f"{one.name}, seed {number}")


def driven_run(protocol: str, where: str) -> BugSearchRun:
    """One such batch; the same in every process."""
    name, _, number = where.partition(", seed ")
    for one in searches_of(protocol).driven:
        if one.name == name:
            return BugSearchRun(_batch(one, int(number)), where)
    raise ConfigurationError("search", name, "is none of what Hypothesis drives for this protocol")


def _batch(one: DrivenTest, number: int) -> str:
    """What broke in it first: it need not be shrunk, which takes minutes."""
    kind = seed(number)(type("Seeded", (one.make(),), {"explain": False}))
    bounds = settings(one.bounds, derandomize=False, max_examples=EXAMPLES, stateful_step_count=40, phases=PHASES)
    try:
        with fix_draws():
            run_state_machine_as_test(kind, settings=bounds)
    except PropertyBroken as broken:
        return broken.what
    return ""


def play_processes(protocol: str) -> Tries:
    """Runs of real processes; no two are the same, whatever the seed."""
    run = searches_of(protocol).processes
    if run is not None:
        yield from (BugSearchRun(run(number), f"plan {number}") for number in count())


METHODS: Final[dict[str, Callable[[str], Tries]]] = {
    "exploration": explore_systems,
    "simulation": simulate_runs,
    "hypothesis": drive_runs,
    "processes": play_processes,
}


def methods_of(protocol: str) -> tuple[str, ...]:
    """Those that the protocol has something for: the first three, and processes where it has a harness."""
    return tuple(name for name in METHODS if name != "processes" or searches_of(protocol).processes is not None)


def _spent_s() -> float:
    """Processor time of this process, and of those that it has waited for."""
    children = getrusage(RUSAGE_CHILDREN)
    return process_time() + children.ru_utime + children.ru_stime


def search(protocol: str, method: str, *, cpu_s: float = 60.0, tries: int = 10**9) -> BugSearchResult:
    """Try, with whatever is planted, until something breaks, the processor time is used up, there were so many tries,
    or there are no more."""
    began = _spent_s()
    number, last = 0, BugSearchRun("", "nothing")
    for last in METHODS[method](protocol):
        number += 1
        if last.what or _spent_s() - began > cpu_s or number >= tries:
            break
    return BugSearchResult(last.what, number, _spent_s() - began, last)


def find(protocol: str, bug: Bug | None, method: str, *, cpu_s: float = 60.0, tries: int = 10**9) -> BugSearchResult:
    """Plant a bug of the protocol (None: none, to see that nothing breaks), and search."""
    with plant_bug(f"{protocol}/{bug.name}") if bug is not None else nullcontext():
        return search(protocol, method, cpu_s=cpu_s, tries=tries)
