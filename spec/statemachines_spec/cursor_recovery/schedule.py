"""Schedule: what a run of an explored system asks of real processes: who makes the next access, dies, or what time it
is.

    python -m statemachines_spec.cursor_recovery.schedule DIR

writes those of all counterexamples into a directory, one file each, for the tests over real shared memory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path as FilePath

import msgspec

from statemachines_spec.cursor_recovery.counterexamples import COUNTEREXAMPLES, QueueCounterexample
from statemachines_spec.cursor_recovery.process import Access, Begin, Cut
from statemachines_spec.explorer.actor import At, Crash
from statemachines_spec.explorer.explore import Result, explore
from statemachines_spec.explorer.path import Leg
from statemachines_spec.liveness.judge import LivenessVerdict, live

CLOCK = "clock"


class ScheduledTurn(msgspec.Struct, frozen=True, array_like=True):
    """`who` does what: `begin` an operation, make its next `access`, `crash`, or `cut` a copy after `number` cells and
    die; for the clock, it is `at` the instant `number`.  `status`: of the operation afterwards ("": it has ended)."""

    who: str
    does: str
    number: int = 0
    status: str = ""


class Schedule(msgspec.Struct, frozen=True):
    """What breaks at the end of `way`; or for ever, where `round` happens again and again after it."""

    breaks: str
    way: tuple[ScheduledTurn, ...]
    round: tuple[ScheduledTurn, ...] = ()


def schedule_of(found: Result | LivenessVerdict) -> Schedule:
    """Of the run that an exploration, or a judgement of liveness, has found; raises `ValueError` where none was."""
    if isinstance(found, LivenessVerdict):
        paths = (found.way, found.then)
        if found.way is None or found.round is None:
            raise ValueError(f"{found.name} holds")
        way = tuple(turn for path in paths if path is not None for turn in _turns(path.legs))
        return Schedule(found.name.partition(" ")[0], way, tuple(_turns(found.round.legs)))
    if found.path is None:
        raise ValueError(f"{found.system}: nothing breaks")
    return Schedule(found.path.broken.partition(" ")[0], tuple(_turns(found.path.legs)))


def find_schedule(one: QueueCounterexample) -> Schedule:
    """The shortest run that breaks what the counterexample says."""
    made = one.system()
    if made.obligations:
        return schedule_of(next(found for found in live(made, made.obligations) if not found.is_held))
    return schedule_of(explore(made))


def _turns(legs: Iterable[Leg]) -> Iterator[ScheduledTurn]:
    for leg in legs:
        first = leg.turns[0]
        name, event = first.actor, first.envelope.event
        steps = [step for turn in leg.turns if turn.actor == name for step in turn.steps]
        status = steps[-1].dest if steps and leg.turns[-1].local_after is not None else ""
        match event:
            case Begin():
                yield ScheduledTurn(name, "begin", 0, status)
            case Access():
                yield ScheduledTurn(name, "access", 0, status)
            case Crash():
                yield ScheduledTurn(name, "crash")
            case Cut(cells):
                yield ScheduledTurn(name, "cut", cells)
            case _:
                yield from _instants(leg)


def _instants(leg: Leg) -> Iterator[ScheduledTurn]:
    instants = {turn.envelope.event.now_ns for turn in leg.turns if isinstance(turn.envelope.event, At)}
    yield from (ScheduledTurn(CLOCK, "at", now_ns) for now_ns in instants)


def main(directory: FilePath) -> None:
    """Write the schedules of all counterexamples."""
    directory.mkdir(parents=True, exist_ok=True)
    for one in COUNTEREXAMPLES:
        path = directory / f"{one.name}.json"
        path.write_bytes(msgspec.json.encode(find_schedule(one)) + b"\n")
        print(path, flush=True)


if __name__ == "__main__":
    main(FilePath(sys.argv[1]))
