"""Granted progress: what a grant passes over was acknowledged, or dropped by the group (S6), and is there (S16).

A grant from N on says that everything before N is done: its borrower skips it, whatever became of it.  Logs of several
nodes are merged by their clocks, so a grant is held against what was acknowledged and published in the whole run.
"""

from __future__ import annotations

import numpy as np

from statemachines_reports.protocol import CheckVerdict, Segment, verdict
from statemachines_reports.shared_subscriptions.account import DROPPED, OffsetRanges
from statemachines_reports.shared_subscriptions.liars import of_liars


def judge_granted(segment: Segment) -> CheckVerdict:
    """S6, S16: no grant begins behind the first message that nobody acknowledged, or behind the last that is stored.

    A stream that nobody published to within the run is not judged: what lay there before is not known; nor is one that
    a liar was granted.
    """
    columns = segment.columns
    keys = len(columns.texts["key"]) + 1
    grants = columns.rows_of("send", event=("grant",))
    group = columns["run"][grants] * keys + columns["key"][grants]
    published, acknowledged = OffsetRanges.of(columns, "published"), OffsetRanges.of(columns, "acknowledged", DROPPED)
    stored, begins = published.find_reached(), published.least()
    done, done_from = acknowledged.find_reached(), acknowledged.least()

    def bounds(stream: int) -> tuple[int, int]:
        """As far as was acknowledged without a hole, and as far as something is stored."""
        begin = begins[stream]
        return (done[stream] if done_from.get(stream, begin + 1) <= begin else begin), stored[stream]

    streams, where = np.unique(group, return_inverse=True)
    lied = {*of_liars(columns).tolist()}
    known = np.array([stream in stored and stream not in lied for stream in streams.tolist()], bool)[where]
    grants, where = grants[known], where[known]
    limits = {place: bounds(int(streams[place])) for place in np.unique(where).tolist()}
    most = np.array([min(limits[place]) for place in where.tolist()], np.int64)
    wrong = np.flatnonzero(columns["first"][grants] > most)
    far = {int(grants[place]): limits[int(where[place])] for place in wrong.tolist()}

    def describe(row: int) -> str:
        acknowledged, stored = far[row]
        begin = columns["first"][row]
        why = f"only {stored} are stored" if begin > stored else f"{acknowledged} is not acknowledged"
        return f"{columns.text('key', row)}: granted to {columns.text('peer', row)} from {begin} on, and {why}"

    return verdict(columns, len(grants), grants[wrong], describe)
