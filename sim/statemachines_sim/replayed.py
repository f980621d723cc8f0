"""Replayed: what came of following a schedule, in whichever runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import msgspec
from msgspec.structs import replace

from statemachines.kernel import InvariantViolated
from statemachines_sim.shared_subscriptions.watch import Watch
from statemachines_spec.bug import planted
from statemachines_spec.conductor import Conductor, Followed, Stage
from statemachines_spec.explorer.property import NO_ERROR
from statemachines_spec.schedule import Schedule
from statemachines_spec.shared_subscriptions.variants import configuration, in_place

Refusals = Sequence[Exception]

SERVES, SERVE_NS = 1_200, 250_000_000
"""How often, and after what time each, applications deal with what there is, once a schedule is over."""

RAISED, INVARIANT = "no-error", "invariants"


class Replayed(msgspec.Struct, frozen=True):
    """`followed` so far; `breaks`: the property that the schedule says, `name`: what it is called here; `broken`:
    property -> what happened first, `name` among them where it is `reached`."""

    followed: Followed
    breaks: str
    name: str
    broken: dict[str, str]
    reached: bool


@contextmanager
def installed(schedule: Schedule, variant: str = "") -> Iterator[None]:
    """The shipped machines have the rules of `variant`, or of the schedule (and its bug), until the block ends."""
    with ExitStack() as stack:
        stack.enter_context(in_place(variant or schedule.variant))
        if schedule.bug and not variant:
            stack.enter_context(planted(schedule.bug))
        yield


def ruled_by(schedule: Schedule, variant: str) -> Schedule:
    """The schedule with the configuration of `variant` ("" = its own)."""
    if not variant:
        return schedule
    exclusive = configuration(variant).exclusive
    return replace(schedule, configuration=replace(schedule.configuration, exclusive=exclusive))


def carry_out(
    stage: Stage, conductor: Conductor, monitors: Watch, check: Callable[[], None], refused: Refusals = ()
) -> Replayed:
    """The whole schedule, `check` after each step; then all applications take messages in turn; where nothing broke,
    the network is whole from then on, and everything must be acknowledged.  What any step raises ends the run;
    `refused`: what a table did not take, where nothing was raised for it."""
    error: Exception | None = None
    try:
        followed = conductor.follow(stage, check)
        if not followed.stopped:
            stage.take_turns()
            if not monitors.judge.first:
                serve_all(stage, conductor, monitors)
            followed = conductor.followed("")
    except Exception as raised:  # that no step raises is a property, too
        error, followed = raised, conductor.followed(str(raised))
    return verdict(conductor.schedule, followed, monitors, error or next(iter(refused), None))


def serve_all(stage: Stage, conductor: Conductor, monitors: Watch) -> None:
    """L5, after the schedule: while somebody is left to deliver to, everything published is acknowledged in time."""
    conductor.release()
    for _ in range(SERVES):
        if not stage.serve(SERVE_NS) or not monitors.unacknowledged():
            return
    monitors.judge.broken("L5", f"{monitors.unacknowledged()[0]}: published and never acknowledged")


def verdict(schedule: Schedule, followed: Followed, monitors: Watch, error: Exception | None) -> Replayed:
    """What the monitors noted, and what a step raised."""
    broken = dict(monitors.judge.first)
    if isinstance(error, InvariantViolated):
        broken[INVARIANT] = str(error)
    elif error is not None:
        broken[RAISED] = f"{type(error).__name__}: {error}"
    name = named(schedule.breaks)
    return Replayed(followed, schedule.breaks, name, broken, name in broken)


def named(breaks: str) -> str:
    """The explorer's property by the name that it has here."""
    if breaks.startswith(f"{INVARIANT} of "):
        return INVARIANT
    return RAISED if breaks == NO_ERROR else breaks
