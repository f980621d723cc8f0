"""Shrink: the smallest fault schedule we find that still makes a run fail in the same way.

Delta debugging over the entries of the schedule, then each remaining fault is made shorter and less.  A candidate
counts when the run breaks the same property; every candidate is a whole run, and their number is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from statemachines_sim.fault import Fault
from statemachines_sim.scenario import Scenario
from statemachines_sim.world import RunOutcome, World

RUNS_MAX = 400
"""At most so many runs are spent on one failure."""

T = TypeVar("T")


def shrink(
    scenario: Scenario,
    failed: RunOutcome,
    schedule: tuple[Fault, ...],
    progress: Callable[[int, int], None] | None = None,
) -> tuple[tuple[Fault, ...], RunOutcome]:
    """A smaller schedule and the outcome of its run; `progress(runs, faults left)` is called after each run."""
    attempts = 0
    best = failed

    def fails(candidate: tuple[Fault, ...]) -> bool:
        nonlocal attempts, best
        if attempts >= RUNS_MAX:
            return False
        attempts += 1
        outcome = World(scenario, failed.seed, schedule=candidate).run()
        if progress is not None:
            progress(attempts, len(candidate))
        if outcome.monitor == failed.monitor:
            best = outcome
            return True
        return False

    schedule = leave_out(schedule, fails)
    schedule = weaken(schedule, fails, frozenset(name for name, kind in scenario.kinds.items() if kind.from_start))
    return schedule, best


def leave_out(items: tuple[T, ...], fails: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """Leave out as many items as possible while `fails` stays true: halves first, then smaller and smaller parts, at
    last one by one until none can be left out."""
    if fails(()):
        return ()
    size = max(len(items) // 2, 1)
    while True:
        before, begin = len(items), 0
        while begin < len(items):
            candidate = items[:begin] + items[begin + size :]
            if candidate and fails(candidate):
                items = candidate
            else:
                begin += size
        if size == 1 and len(items) == before:
            return items
        size = max(size // 2, 1)


def weaken(
    schedule: tuple[Fault, ...],
    fails: Callable[[tuple[Fault, ...]], bool],
    always: frozenset[str] = frozenset(),
) -> tuple[Fault, ...]:
    """Each fault for half as long, and half as much, again and again, as long as the run still fails; those of a kind
    that is `always` there are never shorter."""
    for position in range(len(schedule)):
        halves = (half_as_much,) if schedule[position].kind in always else (half_as_long, half_as_much)
        for half in halves:
            while (weaker := half(schedule[position])) is not None:
                candidate = (*schedule[:position], weaker, *schedule[position + 1 :])
                if not fails(candidate):
                    break
                schedule = candidate
    return schedule


def half_as_long(fault: Fault) -> Fault | None:
    """None: it lasts a millisecond at most."""
    if fault.for_ns <= 1_000_000:
        return None
    return replace(fault, for_ns=fault.for_ns // 2)


def half_as_much(fault: Fault) -> Fault | None:
    """None: it has no amount, or the least."""
    return None if abs(fault.amount) <= 1 else replace(fault, amount=int(fault.amount / 2))
