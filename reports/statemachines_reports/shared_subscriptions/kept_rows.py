"""Kept rows: those of a part of a run that the checks and measures of shared subscriptions look at."""

from __future__ import annotations

import numpy as np

from statemachines_reports.columns import STEPS
from statemachines_reports.neutral.step_checks import keep_ends
from statemachines_reports.protocol import Segment
from statemachines_reports.shared_subscriptions.account import DROPPED, PARKED
from statemachines_reports.shared_subscriptions.names import ASSIGNMENT
from statemachines_reports.shared_subscriptions.resends import find_resends

ENDS = ("destroyed", "lapsed", "gone", "resigned")
"""States in which a borrower, a member or a leader ends."""


def keep_rows(segment: Segment) -> np.ndarray:
    """What is published, delivered and acknowledged; installs, grants and changes of assignments; the first and last
    step of each instance, and those that end it or send again; faults."""
    columns, steps = segment.columns, segment.steps
    all_steps = columns.rows_of(*STEPS)
    ends = keep_ends(segment)
    changes = steps.index[steps.source != steps.dest]
    return np.concatenate(
        (
            columns.rows_of("tell", event=("published", "deliver", "acknowledged", DROPPED, PARKED)),
            columns.rows_of(*STEPS, event=("install", "nack")),
            columns.rows_of("send", event=("grant",)),
            columns.rows_of("fault"),
            changes[columns.is_one_of("machine", (ASSIGNMENT,), changes)],
            all_steps[columns.is_one_of("dest", ENDS, all_steps)],
            steps.index[find_resends(segment)],
            ends.open,
            ends.context,
        )
    )
