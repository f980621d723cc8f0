"""Exclusivity: a stream is delivered by one session at a time (S5)."""

from __future__ import annotations

import numpy as np

from statemachines_reports.columns import STEPS, Columns
from statemachines_reports.intervals import find_overlaps
from statemachines_reports.protocol import CheckVerdict, Segment, verdict
from statemachines_reports.shared_subscriptions.liars import of_liars
from statemachines_reports.shared_subscriptions.names import SESSION


def judge_exclusivity(segment: Segment) -> CheckVerdict:
    """S5: the deliveries of a stream by one owner lie before or after those by another.

    An owner is a session from one install of the stream to the next.  What a liar was granted is not judged: it may
    have said that it let a stream go, and gone on.
    """
    columns = segment.columns
    told = columns.rows_of("tell", event=("deliver",))
    installed = columns.rows_of(*STEPS, event=("install",))
    index = np.concatenate((told, installed))
    index = index[columns.is_one_of("machine", (SESSION,), index)]
    keys = len(columns.texts["key"]) + 1
    stream = columns["run"][index] * keys + columns["key"][index]
    instance = columns["instance"][index]
    order = np.lexsort((index, instance, stream))
    index, stream, instance = index[order], stream[order], instance[order]
    deliveries = columns.is_one_of("kind", ("tell",), index)
    changed = np.concatenate(([True], (stream[1:] != stream[:-1]) | (instance[1:] != instance[:-1])))[: len(index)]
    owner = np.cumsum(changed | ~deliveries)[deliveries]
    index, stream = index[deliveries], stream[deliveries]
    if not len(index):
        return verdict(columns, 0, index, str)
    begins = np.flatnonzero(np.concatenate(([True], owner[1:] != owner[:-1])))
    stream, first, last = stream[begins], index[begins], index[np.concatenate((begins[1:] - 1, [len(index) - 1]))]
    amid = find_overlaps(stream, first, last)
    amid = amid[~np.isin(stream[amid], of_liars(columns))]

    def describe(place: int) -> str:
        return _describe_overlap(columns, stream, first, last, int(amid[place]))

    return CheckVerdict(len(index), columns["run"][first[amid]], columns["seq"][first[amid]], describe)


def _describe_overlap(columns: Columns, stream: np.ndarray, first: np.ndarray, last: np.ndarray, place: int) -> str:
    """Who delivers, and who else still does."""
    row = first[place]
    others = np.flatnonzero((stream == stream[place]) & (first < row) & (last >= row))
    end = last[others[np.argmax(last[others])]]
    names = [columns.text("instance", one) for one in (row, end)]
    return (
        f"{names[0]} delivers {columns['first'][row]} to {columns['last'][row]} of {columns.text('key', row)}"
        f" amid {names[1]}, which goes on to deliver {columns['first'][end]} at seq {columns['seq'][end]}"
    )
