"""Random simulation: many instances of an adopted machine, triggers at random times, and two faults.

A callback raises, or the process ends between two callbacks and goes on from the model that was saved last (after the
last trigger that ended).  The same seed is the same simulation.
"""

from __future__ import annotations

from collections import Counter
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.adoption.adopted_machine import AdoptedMachine
from statemachines.adoption.model_step import StepOutcome, name_action
from statemachines.adoption.model_value import ModelValue
from statemachines.adoption.production_log import RowMaker
from statemachines.adoption.state_search import FoundViolation, SearchStep
from statemachines.trace import TraceRow, fault_row

MEAN_NS: Final = 1_000_000_000
"""Nanoseconds between two triggers of an instance, on average."""

FAULT_PROBABILITY: Final = 0.05
"""Of each of the two faults, at each trigger."""

MISFIT_PROBABILITY: Final = 0.1
"""Of a trigger that is drawn from all, whether a row takes it in this state or not."""

NODE: Final = "node-1"


class Simulation(msgspec.Struct):
    """What a simulation came to.  `broken` is what did not hold first, with the run of its instance."""

    instances: int
    seed: int
    steps: int = 0
    kinds: Counter[str] = msgspec.field(default_factory=Counter)
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    beyond: int = 0
    """Instances that ended, since their next value would have been beyond `within`."""
    ended: int = 0
    """Instances that ended, since no row leaves their state."""
    taken: set[int] = msgspec.field(default_factory=set)
    broken: FoundViolation | None = None
    instance: str = ""
    rows: list[TraceRow] = msgspec.field(default_factory=list)


class _Instance(msgspec.Struct):
    name: str
    value: ModelValue
    legs: list[SearchStep]


def simulate(
    adopted: AdoptedMachine,
    instances: int,
    *,
    seed: int = 0,
    triggers: int = 50,
    faults: bool = True,
    traced: bool = False,
) -> Simulation:
    """Simulate so many instances for so many triggers each; ends where something breaks.

    Raises `NotRepeatable` as a search does.
    """
    stepper, chance = adopted.stepper, Random(seed)
    found = Simulation(instances, seed)
    maker = RowMaker(stepper.first, adopted.place, NODE) if traced else None
    with stepper.install():
        some = [_Instance(f"{NODE}~1/{number + 1}", stepper.initial, []) for number in range(instances)]
        queue = [(_pause(chance), number, triggers) for number in range(instances)]
        heapify(queue)
        while queue and found.broken is None:
            now, number, left = heappop(queue)
            if _step(adopted, found, some[number], chance, now, faults, maker) and left > 1:
                heappush(queue, (now + _pause(chance), number, left - 1))
    return found


def _pause(chance: Random) -> int:
    return int(chance.expovariate(1 / MEAN_NS))


def _step(
    adopted: AdoptedMachine,
    found: Simulation,
    one: _Instance,
    chance: Random,
    now: int,
    faults: bool,
    maker: RowMaker | None,
) -> bool:
    """One trigger of one instance; whether it goes on."""
    stepper = adopted.stepper
    actions = list(stepper.actions_in(one.value, adopted.request.calls))
    fitting = [action for action in actions if action.timeout or stepper.has_row(one.value, action)]
    if not fitting:
        found.ended += 1
        return False
    action = chance.choice(actions if chance.random() < MISFIT_PROBABILITY else fitting)
    crash_at, fail_at = _draw_faults(chance) if faults else (None, None)
    outcome = stepper.step(one.value, action, crash_at, fail_at)
    failed = outcome.error_type == "CallbackFailure"
    fault = ""
    if outcome.kind == "crashed":
        fault = f"the process ends before {outcome.error} runs, and goes on from the saved model"
    elif stepper.recorder.failed:
        fault = f"{stepper.recorder.failed} raises"
    kept = replace(outcome, value=stepper.detach(outcome.value))
    leg = SearchStep(action, one.value, kept, fault)
    one.legs.append(leg)
    found.steps += 1
    found.kinds[outcome.kind] += 1
    if maker is not None:
        found.rows += _rows(maker, now, one, stepper, leg)
    if fault:
        found.faults["crash" if outcome.kind == "crashed" else "callback that raises"] += 1
    if outcome.kind == "crashed":
        return True
    if any(limit.find_broken(outcome.value.origin) is not None for limit in adopted.within):
        found.beyond += 1
        return False
    found.taken.update(row for row, *_ in outcome.rows if row >= 0)
    one.value = kept.value
    _judge(adopted, found, one, outcome, failed)
    return True


def _judge(adopted: AdoptedMachine, found: Simulation, one: _Instance, outcome: StepOutcome, failed: bool) -> None:
    legs = tuple(one.legs)
    if outcome.kind == "raised" and not failed and outcome.error_type not in adopted.request.raises:
        found.broken = FoundViolation(f"raises {outcome.error_type}", outcome.error.partition(": ")[2], legs)
    for promise in adopted.properties:
        with adopted.stepper.sandbox.enclose():
            broken = promise.find_broken(outcome.value.origin) is not None
        if broken and found.broken is None:
            found.broken = FoundViolation(promise.name, "does not hold", legs)
    found.instance = one.name if found.broken is not None else ""


def _draw_faults(chance: Random) -> tuple[int | None, int | None]:
    drawn, place = chance.random(), chance.randrange(3)
    if drawn < FAULT_PROBABILITY:
        return place, None
    return None, place if drawn < 2 * FAULT_PROBABILITY else None


def _rows(maker: RowMaker, now: int, one: _Instance, stepper: Any, leg: SearchStep) -> list[TraceRow]:
    """The rows of a step; of one that a crash cut, nothing was saved."""
    rows = [fault_row(now, NODE, "crash" if leg.outcome.kind == "crashed" else "raise")] if leg.fault else []
    if leg.outcome.kind == "crashed":
        return rows
    return rows + maker.rows_of(now, one.name, stepper, leg.action, leg.outcome)


def list_simulation(adopted: AdoptedMachine, found: Simulation) -> dict[str, Any]:
    """The same for programs."""
    broken = found.broken
    return {
        "machine": adopted.place,
        "held": broken is None,
        "instances": found.instances,
        "seed": found.seed,
        "steps": found.steps,
        "kinds": dict(found.kinds),
        "faults": dict(found.faults),
        "broken": None if broken is None else broken.name,
        "run": [] if broken is None else [name_action(adopted.stepper, leg.action) for leg in broken.legs],
    }


def describe_simulation(adopted: AdoptedMachine, found: Simulation) -> str:
    """The simulation in lines."""
    from statemachines.adoption.run_text import describe_run
    from statemachines.adoption.verdict_text import describe_head

    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(found.kinds.items()))
    faults = ", ".join(f"{count:,} {kind}" for kind, count in sorted(found.faults.items())) or "none"
    lines = [
        describe_head(adopted),
        f"  simulated: {found.instances:,} instances, seed {found.seed}: {found.steps:,} triggers ({kinds})",
        f"  faults: {faults}",
        f"  instances that ended: {found.ended:,} where no row leaves their state, {found.beyond:,} at --within",
    ]
    lines += [f"  not called: {one}" for one in adopted.unexplored]
    broken = found.broken
    if broken is not None:
        lines.append(f"  VIOLATED {broken.name}: {broken.why}; {found.instance}, {len(broken.legs)} steps:")
        lines.append(describe_run(adopted.stepper, broken))
    else:
        names = ", ".join([*(one.name for one in adopted.properties), "no exception"])
        lines.append(f"  nothing broke in these runs: {names}")
    return "\n".join(lines)
