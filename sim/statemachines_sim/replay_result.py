"""Replay result: what came of following a script, in whichever runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from statemachines import catalogue
from statemachines.kernel import Fsm, InvariantViolated
from statemachines.trace import TraceRow
from statemachines_spec.explorer.property import NO_ERROR
from statemachines_spec.script.conductor import Conductor, FollowedScript
from statemachines_spec.script.script import Script
from statemachines_spec.script.stage import PartyStage

Refusals = Sequence[Exception]


class ReplayedScript(msgspec.Struct, frozen=True):
    """`followed` so far; `breaks`: the property that the script says, `name`: what it is called here; `broken`:
    property -> what happened first, `name` among them where it is `reached`."""

    followed: FollowedScript
    breaks: str
    name: str
    broken: dict[str, str]
    reached: bool
    ended: str = ""
    """The property by which a step raised, which ended the run: nothing was judged after it."""


class SimulatedReplay(msgspec.Struct, frozen=True):
    """What came of it in the simulator, the rows of its trace, and the run's `parameters` for the table of runs."""

    replayed: ReplayedScript
    rows: list[TraceRow]
    parameters: dict[str, Any]


def carry_out(
    stage: PartyStage,
    conductor: Conductor,
    broken: Mapping[str, str],
    check: Callable[[], None],
    refused: Refusals = (),
) -> ReplayedScript:
    """The whole script, `check` after each step, then what the stage does at its end.  What any step raises ends the
    run.  `broken`: what judges have noted; `refused`: what a table did not take, where nothing was raised for it."""
    error: Exception | None = None
    try:
        followed = conductor.follow(stage, check)
        if not followed.stopped:
            stage.end(conductor.release)
            followed = conductor.list_followed("")
    except Exception as raised:  # that no step raises is a property, too
        error, followed = raised, conductor.list_followed(str(raised))
    return make_verdict(conductor.script, followed, broken, error or next(iter(refused), None))


def make_verdict(
    script: Script, followed: FollowedScript, noted: Mapping[str, str], error: Exception | None
) -> ReplayedScript:
    """What judges noted, and what a step raised."""
    broken = dict(noted)
    ended = ""
    if isinstance(error, InvariantViolated):
        ended = f"{error.machine}:{error.invariant}"
        broken[ended] = str(error)
    elif error is not None:
        ended = NO_ERROR
        broken[ended] = f"{type(error).__name__}: {error}"
    return ReplayedScript(followed, script.breaks, script.breaks, broken, script.breaks in broken, ended)


def parameters_of(
    script: Script, replayed: ReplayedScript, variant: str, machines: Iterable[Fsm[Any]] = ()
) -> dict[str, Any]:
    """What the table of runs says of the run; `other_rules`: some of its `machines` are not
    those of a protocol."""
    return {
        "followed": replayed.followed,
        "broken": replayed.broken,
        "script": script,
        "variant": variant or script.variant,
        "other_rules": any(map(has_other_rows, machines)),
    }


def has_other_rows(fsm: Fsm[Any]) -> bool:
    """Whether it is of no protocol, or a shipped machine of its name has other rows."""
    if fsm.full_name not in catalogue.names():
        return not fsm.protocol
    ours, theirs = (
        [(line.event, line.kind, line.sources, line.dest) for line in one.lines]
        for one in (fsm, catalogue.machine(fsm.full_name))
    )
    return ours != theirs
