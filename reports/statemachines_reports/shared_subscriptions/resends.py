"""Resends: what was sent again because nobody had answered, and how often a stream was assigned."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from statemachines.kernel import Delegate, name_of
from statemachines_reports.judge import Count, count_of
from statemachines_reports.lookup import Lookup
from statemachines_reports.protocol import Segment
from statemachines_reports.shared_subscriptions.names import ASSIGNMENT, PROTOCOL


def count_resends(segment: Segment) -> Iterator[Count]:
    """Steps that send something again (kind `resend`, event: the state in which nobody had answered), and those that
    assign a stream (kind `assign`), of each run."""
    steps, lookup = segment.steps, segment.lookup
    states = [*lookup.states, ""]
    again = find_resends(segment)
    yield from count_of(steps.run[again], steps.source[again], [("resend", state) for state in states])
    given = (
        (steps.machine == lookup.machines.get(ASSIGNMENT, -1))
        & (steps.dest == lookup.states.get("granting", -1))
        & (steps.source != steps.dest)
    )
    run = steps.run[given]
    yield from count_of(run, np.zeros(len(run), np.int64), [("assign", "")])


def find_resends(segment: Segment) -> np.ndarray:
    """The steps that send something again."""
    steps, lookup = segment.steps, segment.lookup
    return np.flatnonzero(_resending(lookup)[lookup.line_of(steps.machine, steps.row)])


def _resending(lookup: Lookup) -> np.ndarray:
    """The lines of the tables that send again; a parent that only hands the timer on to its child sends nothing."""
    found = np.zeros((len(lookup.machines) + 1) * lookup.width, bool)
    for fsm in lookup.family:
        for line in fsm.lines if fsm.protocol == PROTOCOL else ():
            sends = line.kind == "row" and not isinstance(line.do, Delegate)
            found[lookup.machines[fsm.full_name] * lookup.width + line.number] = sends and "resend" in name_of(
                line.event
            )
    return found
