"""Checks: what must hold of every stream, and of the numbers of publishers."""

from __future__ import annotations

import numpy as np

from statemachines_reports.columns import stable_order
from statemachines_reports.missed_samples.streams import streams_of
from statemachines_reports.protocol import Check, CheckVerdict, Segment, verdict

PUBLISHER = "missed_samples/publisher"


def judge_numbers(segment: Segment) -> CheckVerdict:
    """A life of a publisher numbers its samples without a gap."""
    columns = segment.columns
    rows = columns.rows_of("tell", event=("stamped",))
    rows = rows[columns.is_one_of("machine", (PUBLISHER,), rows)]
    rows = rows[stable_order(columns["instance"][rows], len(columns.texts["instance"]) + 1)]
    same = np.ones(max(len(rows) - 1, 0), bool)
    for name in ("run", "instance"):
        same &= columns[name][rows][1:] == columns[name][rows][:-1]
    first, last = columns["first"][rows], columns["last"][rows]
    wrapped = first[1:] == 0  # the numbers of the wire come round
    wrong = rows[1:][same & ~wrapped & (first[1:] != last[:-1] + 1)]

    def describe(row: int) -> str:
        return f"{columns.text('instance', row)} numbers {columns['first'][row]}, which is not the next"

    return verdict(columns, len(rows), np.sort(wrong), describe)


def _judged(name: str, claim: str) -> Check:
    """Of this name among what is wrong with the streams."""

    def judge(segment: Segment) -> CheckVerdict:
        streams = [stream for _, stream in streams_of(segment).found]
        wrong = {one.row: one.detail for stream in streams for one in stream.wrong if one.check == name}
        looked = sum(stream.looked[name] for stream in streams)
        return verdict(segment.columns, looked, np.array(sorted(wrong), np.int64), lambda row: wrong[row])

    return Check(name, claim, judge)


CHECKS = (
    Check("numbers", "a publisher numbers its samples without a gap (NUMBERED)", judge_numbers),
    _judged("once", "of each source, numbers are told in order, and none twice (ORDER, ONCE)"),
    _judged("reported", "between two that are told no number is left out (REPORT)"),
    _judged("came", "what is delivered has come (INVENTED)"),
    _judged("given_up", "what is reported missed was asked for, and has not come (NOGAP, HASTY)"),
    _judged("asked", "who asks asks for what is missing, the first number first (ASKED, QUIET)"),
)
