"""Rows about timed systems: what a tick costs the explorer, against a system without one.

Entries are made before, once; they are a row of their own, since a timed one is made again a tick later.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from time import process_time
from typing import TYPE_CHECKING

from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair
from statemachines_bench.shared_runs import SharedRuns

if TYPE_CHECKING:
    from statemachines_spec.explorer.entries import Entries
    from statemachines_spec.explorer.explore import Result

TIMED = ("timed-grace", "large")
"""25.6 million states."""
UNTIMED = ("borrower-crash", "ci")
"""2.6 million."""
LITTLE = (("timed-renewal", "small"), ("answered", "small"))

System = tuple[str, str]


@cache
def fill_entries(name: str, size: str) -> Entries:
    """The entries of a system that was explored."""
    from statemachines_spec.explorer.entries import Entries
    from statemachines_spec.explorer.explore import explore
    from statemachines_spec.shared_subscriptions.timed import any_system

    entries = Entries(any_system(name, size).in_full())
    explore(entries.system, engine="compiled", hashing=False, entries=entries)
    return entries


def measure_entries(system: System) -> float:
    """Entries made anew in a second of processor time, in the order in which the walk asked for them."""
    from statemachines_spec.explorer.entries import Entries

    known = fill_entries(*system)
    began = process_time()
    entries = Entries(known.system)
    for event, local in known.pairs:
        entries.make(event, local)
    spent = process_time() - began
    assert entries.entries == known.entries
    return len(entries.entries) / spent


def walk(system: System) -> Result:
    """The whole system, over entries that are there."""
    from statemachines_spec.explorer.explore import COMPLETE, explore

    entries = fill_entries(*system)
    result = explore(entries.system, engine="compiled", hashing=False, entries=entries)
    assert result.ended == COMPLETE
    return result


def both(size: Size) -> tuple[System, System]:
    return size.pick((TIMED, UNTIMED), LITTLE)


@cache
def share_walks(size: Size) -> SharedRuns[tuple[Result, Result]]:
    """Both systems, one behind the other."""
    timed, untimed = both(size)
    fill_entries(*timed), fill_entries(*untimed)
    return SharedRuns(lambda: (walk(timed), walk(untimed)))


def prepare_walk(count: Callable[[Result], int], size: Size) -> TurnPair:
    """Of what is counted, a second of processor time."""
    shared = share_walks(size)
    return TurnPair(
        shared.read(lambda results: count(results[0]) / results[0].seconds),
        shared.read(lambda results: count(results[1]) / results[1].seconds),
    )


def prepare_entries(size: Size) -> TurnPair:
    timed, untimed = both(size)
    fill_entries(*timed), fill_entries(*untimed)
    return TurnPair(lambda: measure_entries(timed), lambda: measure_entries(untimed))


def states(result: Result) -> int:
    return result.states


def lookups(result: Result) -> int:
    return result.lookups


_NAMES = f"{TIMED[0]} ({TIMED[1]})", f"{UNTIMED[0]} ({UNTIMED[1]}), which has no tick"

ROWS = (
    BenchRow(
        name="explore-timed",
        about=f"walking {_NAMES[0]}, 25.6 million states, over entries that were made before",
        unit="states / s",
        baseline_name=_NAMES[1],
        prepare=partial(prepare_walk, states),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=0.5,
    ),
    BenchRow(
        name="explore-timed-lookups",
        about=f"the same: look-ups of entries, one a transition and one a call (a tick makes many), of {_NAMES[0]}",
        unit="lookups / s",
        baseline_name=_NAMES[1],
        prepare=partial(prepare_walk, lookups),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=0.9,
    ),
    BenchRow(
        name="explore-timed-entries",
        about=f"making the entries of {_NAMES[0]}: each is made again a tick later",
        unit="entries / s",
        baseline_name=_NAMES[1],
        prepare=prepare_entries,
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
)
