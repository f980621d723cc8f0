"""Page: what the page shows of missed samples besides what it shows of any protocol."""

from __future__ import annotations

from collections.abc import Iterator

from statemachines_reports.columns import Columns
from statemachines_reports.missed_samples.draw_stream import draw
from statemachines_reports.missed_samples.stream import MISSED, OPEN, RECOVERED
from statemachines_reports.missed_samples.streams import streams_in
from statemachines_reports.protocol import PageDrawing, Parameters, Section, Tables

OUTCOMES = (RECOVERED, MISSED, OPEN)
CAUSES = {"sample": "a later sample", "heartbeat": "a heartbeat"}


def show_holes(tables: Tables) -> Iterator[Section]:
    """What became of what was missing."""
    if not tables["holes"]:
        return
    sums = {(line["scenario"], line["cause"], line["outcome"]): line["samples"] for line in tables["holes"]}
    places = sorted({(scenario, cause) for scenario, cause, _ in sums})
    lines = [
        (scenario, CAUSES.get(cause, cause), *(f"{sums.get((scenario, cause, one), 0):,}" for one in OUTCOMES))
        for scenario, cause in places
    ]
    yield Section(
        "What became of missing samples",
        ("scenario", "shown by", "came later, and was delivered", "reported as missed", "missing at the end"),
        lines,
        "Each sample counts for each subscriber that missed it. At the end of a log, or where a subscriber has died, "
        "some are still asked for.",
    )


def draw_stream(columns: Columns, parameters: Parameters, seq: int | None) -> Iterator[PageDrawing]:
    """The stream with most holes of the run that the page tells of."""
    found = [stream for _, stream in streams_in(columns, lambda run: parameters).found if stream.holes]
    if found:
        stream = max(found, key=lambda one: (len(one.holes), one.name))
        caption = (
            f"{stream.name}. A bar goes from the moment in which a hole showed to the one in which what was missing "
            "was told."
        )
        yield PageDrawing("A stream with holes", caption, draw(stream, columns["t_ns"]))
