"""Finding: how fast Hypothesis drives whole groups, and how soon planted bugs are found."""

from __future__ import annotations

from functools import cache, partial
from statistics import mean
from typing import Final

from statemachines_bench.measure import ns_per_event
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

EXAMPLES: Final = 20
MOVES: Final = 20_000

PROTOCOL: Final = "shared_subscriptions"

BUGS: Final = (
    "duplicate-connect-response",
    "renewed-claim-lost",
    "unlisted-assignments-kept",
    "nothing-taken-back",
    "progress-not-loaded",
)
"""Bugs that all three methods find soon; the table of all is what `tools/planted.py` prints."""

CPU_S_MAX: Final = 20.0


def measure_groups(examples: int) -> float:
    """Nanoseconds a move of whole groups, draws, monitors and the liveness phase included."""
    from statemachines.testing.shared_subscriptions.group import GroupTest, run_group

    before = GroupTest.moves
    spent = ns_per_event(lambda: run_group(examples), 1)
    return spent / (GroupTest.moves - before)


def time_move(moves: int) -> float:
    """Nanoseconds a move of one group that nobody disturbs."""
    from statemachines.testing.shared_subscriptions.system import GroupSystem

    system = GroupSystem()
    for number in (1, 2, 3):
        system.subscribe(f"consumer-{number}")
    for topic in "abc":
        system.publish(topic, 5)
    return ns_per_event(lambda: system.run(moves), moves)


@cache
def seconds_to_find(method: str, bugs: tuple[str, ...]) -> float:
    """Mean processor time until the first violation, over `bugs`; at most `CPU_S_MAX` for each.  The seeds are the same
    each time, so it is found once."""
    from statemachines.testing.bug_search import find
    from statemachines_spec.bug import find_bug

    return mean(find(PROTOCOL, find_bug(name), method, cpu_s=CPU_S_MAX).cpu_s for name in bugs)


def prepare_steps(size: Size) -> TurnPair:
    examples, moves = size.pick((EXAMPLES, MOVES), (2, 500))
    return TurnPair(lambda: measure_groups(examples), lambda: time_move(moves))


def against_simulation(method: str, size: Size) -> TurnPair:
    bugs = size.pick(BUGS, BUGS[2:3])  # the soonest found of them
    return TurnPair(lambda: seconds_to_find(method, bugs), lambda: seconds_to_find("simulation", bugs))


ROWS = (
    BenchRow(
        name="hypothesis-steps",
        about="a move of a whole group as Hypothesis drives it, against the same group left alone",
        unit="ns / move",
        baseline_name="System.run",
        prepare=prepare_steps,
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
    BenchRow(
        name="bug-time",
        about="processor time until a planted bug is found, mean of five: exploration against simulation",
        unit="CPU s / bug",
        baseline_name="simulation",
        prepare=partial(against_simulation, "exploration"),
        ratio=RatioKind.BASELINE_OVER_OURS,
    ),
    BenchRow(
        name="bug-time-hypothesis",
        about="processor time until a planted bug is found, mean of five: Hypothesis against simulation",
        unit="CPU s / bug",
        baseline_name="simulation",
        prepare=partial(against_simulation, "hypothesis"),
        ratio=RatioKind.BASELINE_OVER_OURS,
    ),
)
