"""Report: everything that cursor recovery has for reports, as one value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

from statemachines_reports.cursor_recovery.cursors import judge_exclusive
from statemachines_reports.cursor_recovery.deaths import DEATHS, Death, find_deaths
from statemachines_reports.cursor_recovery.messages import judge_acknowledged, judge_contents, judge_deliveries
from statemachines_reports.cursor_recovery.operations import READER, WRITER, tells_of
from statemachines_reports.cursor_recovery.page import draw_moments, show_deaths
from statemachines_reports.cursor_recovery.positions import find_absent, judge_distance, judge_passed, judge_reserved
from statemachines_reports.cursor_recovery.requests import judge_requests
from statemachines_reports.cursor_recovery.words import find_unwritten, judge_words
from statemachines_reports.protocol import (
    Amount,
    Check,
    Measure,
    Parameters,
    ReportProtocol,
    Segment,
    Story,
    Tally,
)
from statemachines_reports.trace_roles import TraceRoles

MS: Final = 1_000_000
COUNTED: Final = {
    ("write_done", "written"): "written",
    ("write_done", "full"): "full",
    ("write_done", "no_cursor"): "no_cursor",
    ("read_done", "no_cursor"): "no_cursor",
    ("write_done", "fenced"): "fenced",
    ("read_done", "fenced"): "fenced",
    ("read_done", "delivered"): "delivered",
    ("read_done", "discarded"): "discarded",
}


def settings_of(parameters: Parameters) -> Parameters:
    """The section of the scenario; of a real run its plan."""
    settings = parameters.get("settings", parameters)
    return settings if isinstance(settings, dict) else {}


def knows_the_dead(parameters: Parameters) -> bool:
    """By age alone a slow process is taken for dead, and may break what is promised otherwise (CR-D2)."""
    return not settings_of(parameters).get("threshold_only", False)


def unit_ns(parameters: Parameters) -> int | None:
    """The threshold."""
    threshold_ms = settings_of(parameters).get("threshold_ms")
    return int(threshold_ms * MS) if isinstance(threshold_ms, int | float) else None


def find(segment: Segment) -> Iterator[msgspec.Struct]:
    """All that is measured."""
    columns = segment.columns
    for (event, outcome), name in COUNTED.items():
        rows = tells_of(columns, event)
        yield from _tallies(name, columns["run"][rows[columns.is_one_of("key", (outcome,), rows)]])
    skipped = tells_of(columns, "skipped")
    for run in np.unique(columns["run"][skipped]).tolist():
        some = skipped[columns["run"][skipped] == run]
        yield Tally(run, "skipped_bytes", int((columns["last"][some] - columns["first"][some] + 1).sum()))
    for found in find_deaths(segment):
        if isinstance(found, Death) and found.machine == READER and found.outcome == "lost":
            yield Tally(found.run, "lost_blocks", 1)
        yield found


def _tallies(name: str, runs: np.ndarray) -> Iterator[Tally]:
    for run, count in zip(*np.unique(runs, return_counts=True), strict=True):
        yield Tally(int(run), name, int(count))


def find_missing(segment: Segment) -> Iterator[tuple[int, str]]:
    """Of merged logs, which may not be all: (run, who) of what no log accounts for."""
    yield from find_absent(segment)
    yield from find_unwritten(segment)


REPORTS: Final = ReportProtocol(
    checks=(
        Check("reserved", "each block begins where the one before it ends (conservation)", judge_reserved, whole=True),
        Check("passed", "every byte is taken once, or skipped once (ONCE)", judge_passed, whole=True),
        Check(
            "distance", "no block is more than the capacity beyond the read head (BOUND)", judge_distance, whole=True
        ),
        Check(
            "exclusive", "a cursor has one owner at a time (EXCL)", judge_exclusive,
            promised=knows_the_dead, whole=True,
        ),
        Check(
            "kept", "no reader moves over what was acknowledged without taking it (ACK)", judge_acknowledged,
            promised=knows_the_dead, whole=True,
        ),
        Check("order", "nothing comes twice, and to a reader in order (ONCE, ORDER)", judge_deliveries, whole=True),
        Check(
            "contents", "what comes is what was written there (INTEG, KEPT)", judge_contents,
            promised=knows_the_dead, whole=True,
        ),
        Check("requests", "an operation asks for what its state asks for, of its own cursor", judge_requests),
        Check("words", "what is read from the memory is what was written there last", judge_words, whole=True),
    ),
    measures=(
        Measure("reclaim", "Recovery", "from the death of a process with a cursor until somebody freed that cursor"),
    ),
    amounts=(
        Amount("written", card="blocks written", compared="blocks written"),
        Amount("delivered", card="blocks delivered", compared="blocks delivered"),
        Amount("lost_blocks", card="blocks lost with a reader", faults="blocks lost with a reader, a run"),
        Amount("skipped_bytes", card="bytes skipped", compared="bytes skipped"),
        Amount("full"),
        Amount("no_cursor"),
        Amount("fenced", compared="fenced"),
        Amount("discarded", compared="discarded"),
    ),
    find=find,
    results=(Death,),
    absent=find_missing,
    tables={
        "deaths": """
            SELECT machine, state, outcome, count(*) AS deaths FROM death
            GROUP BY machine, state, outcome ORDER BY machine, state, outcome"""
    },
    short=("deaths",),
    unit_ns=unit_ns,
    unit="the threshold, by the settings of each run",
    sections=show_deaths,
    pictures=draw_moments,
    story=Story(machines=(WRITER, READER), deaths=DEATHS, title="The operations around {key}"),
    roles=TraceRoles(
        deliveries=(("tell", "taken"),),
        publications=(("tell", "reserved"),),
        epoch="",
        grant="",
        planned_faults=("cut",),
        serial=("load", "store", "compare_and_swap", "copy_in", "copy_out"),
        services={"memory": ("load", "store", "compare_and_swap", "copy_in", "copy_out")},
        requests=(
            (("load",), ("loaded",)),
            (("store", "copy_in"), ("stored",)),
            (("compare_and_swap",), ("swapped",)),
            (("copy_out",), ("copied",)),
        ),
        left_out={
            "tell-never": "a reader that dies with a block loses it, and no row says that it acknowledges one",
            "ack-early": "no reader acknowledges a block",
        },
    ),
)  # fmt: skip
