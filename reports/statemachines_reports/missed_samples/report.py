"""Report: everything that missed samples have for reports, as one value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

from statemachines_reports.columns import Columns
from statemachines_reports.missed_samples.checks import CHECKS
from statemachines_reports.missed_samples.page import draw_stream, show_holes
from statemachines_reports.missed_samples.stream import MISSED, OPEN, RECOVERED, Hole
from statemachines_reports.missed_samples.streams import SOURCE, SUBSCRIBER, streams_of
from statemachines_reports.protocol import Amount, AmountRatio, Latency, Measure, ReportProtocol, Segment, Story, Tally
from statemachines_reports.trace_roles import TraceRoles


class Filled(msgspec.Struct, frozen=True):
    """So many samples of a run were missing, as a `cause` showed (a later sample, a heartbeat), and what became of
    them: recovered, missed, open."""

    run: int
    cause: str
    outcome: str
    count: int


def find(segment: Segment) -> Iterator[msgspec.Struct]:
    """All that is measured."""
    columns = segment.columns
    sums: Counter[tuple[int, str]] = Counter()
    filled: Counter[tuple[int, str, str]] = Counter()
    for run, stream in streams_of(segment).found:
        sums[run, "delivered"] += stream.delivered
        sums[run, "again"] += stream.again
        sums[run, "queries"] += stream.queries
        for hole in stream.holes:
            filled[run, hole.cause, hole.outcome] += hole.size
            sums[run, hole.outcome] += hole.size
            sums[run, "brought"] += hole.size * (hole.outcome == RECOVERED)
            if hole.outcome != OPEN:
                yield _latency(columns, run, hole)
        sums[run, "brought"] += stream.again
    for run, count in _turned_away(columns):
        sums[run, "turned_away"] += count
    for (run, name), count in sorted(sums.items()):
        yield Tally(run, name, count)
    for key, count in sorted(filled.items()):
        yield Filled(*key, count)


def _latency(columns: Columns, run: int, hole: Hole) -> Latency:
    waited = int(columns["t_ns"][hole.until] - columns["t_ns"][hole.since])
    return Latency("recovery" if hole.outcome == RECOVERED else "report", run, waited, hole.cause)


def _turned_away(columns: Columns) -> Iterator[tuple[int, int]]:
    rows = columns.rows_of("tell", event=("turned_away",))
    rows = rows[columns.is_one_of("machine", (SUBSCRIBER,), rows)]
    for run in np.unique(columns["run"][rows]).tolist():
        some = rows[columns["run"][rows] == run]
        yield run, int((columns["last"][some] - columns["first"][some] + 1).sum())


REPORTS: Final = ReportProtocol(
    checks=CHECKS,
    measures=(
        Measure("recovery", "Recovery", "from when a sample or heartbeat showed a hole until what was missing is told"),
        Measure("report", "Giving up", "from when a sample or heartbeat showed a hole until it is reported as missed"),
    ),
    amounts=(
        Amount("delivered", card="samples delivered", compared="samples delivered"),
        Amount(RECOVERED, card="of them recovered", faults="recovered, a run", compared="recovered"),
        Amount(MISSED, card="reported as missed", faults="reported, a run", compared="reported as missed"),
        Amount(OPEN, card="missing at the end", compared="missing at the end"),
        Amount("queries", card="queries", compared="queries"),
        Amount("again", compared="came again"),
        Amount("brought"),
        Amount("turned_away", compared="turned away"),
    ),
    ratios=(AmountRatio("amplification", ("brought",), RECOVERED),),
    find=find,
    results=(Filled,),
    tables={
        "holes": """
            SELECT setting.scenario, cause, outcome, sum(count) AS samples
            FROM filled JOIN setting ON setting.run = filled.run
            GROUP BY setting.scenario, cause, outcome ORDER BY setting.scenario, cause, outcome"""
    },
    short=("holes",),
    sections=show_holes,
    pictures=draw_stream,
    story=Story(
        quiet=("heartbeat", "sample"),
        machines=(SOURCE,),
        told={"missed": "is told of a miss"},
        title="What came of {key}",
    ),
    roles=TraceRoles(
        deliveries=(("tell", "deliver"),),
        publications=(("tell", "stamped"),),
        partial_answers=("query_goes_on",),
        services={"query": ("query",)},
        unsent=("reply", "reply_ended"),  # they go the way of their query
        unstepped=("unnumbered",),  # of publishers that number nothing
        left_out={
            "tell-never": "no application acknowledges a sample",
            "ack-early": "no application acknowledges a sample",
        },
    ),
)
