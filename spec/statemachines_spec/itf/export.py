"""Export: a run of the explorer as an ITF trace."""

from __future__ import annotations

from pathlib import Path

from statemachines.trace.itf import write_itf
from statemachines_spec.explorer.counterexample import describe_event
from statemachines_spec.explorer.explore import ExploredPath as Run
from statemachines_spec.explorer.system import System
from statemachines_spec.itf.state_values import StateValues


def export_run(path: Path, system: System, run: Run) -> None:
    """Write the states of `run`, one for each transition and one before the first.

    A step that raises leads to no state: it stands in the description alone.
    """
    values = StateValues(system)
    states = [values.of(state) for state in values.along(run.script)]
    actions = ["", *(f"{leg.kind.name.lower()} {leg.envelope.to}: {describe_event(leg.envelope)}" for leg in run.legs)][
        : len(states)
    ]
    about = f"{system.name}: {run.broken} breaks: {run.why}" if run.broken else system.name
    write_itf(path, values.names, states, about, actions)
