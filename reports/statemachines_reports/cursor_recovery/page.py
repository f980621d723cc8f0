"""Page: what the page shows of cursor recovery besides what it shows of any protocol."""

from __future__ import annotations

from collections.abc import Iterator

from statemachines_reports.columns import Columns
from statemachines_reports.cursor_recovery.deaths import DEATHS
from statemachines_reports.cursor_recovery.draw_ring import draw_ring
from statemachines_reports.cursor_recovery.ring import ring_at
from statemachines_reports.protocol import PageDrawing, Parameters, Section, Tables

OUTCOMES = ("nothing", "delivered", "skipped", "lost", "unread")
MOMENTS = 2
"""So many deaths of a run are drawn, where no finding says which moment to look at."""


def show_deaths(tables: Tables) -> Iterator[Section]:
    """Crash point by outcome."""
    lines = tables["deaths"]
    points = sorted({(line["machine"], line["state"]) for line in lines})
    counts = {(line["machine"], line["state"], line["outcome"]): line["deaths"] for line in lines}
    rows = [
        (f"{machine.partition('/')[2]} {state}", *(f"{counts.get((machine, state, one), 0):,}" for one in OUTCOMES))
        for machine, state in points
    ]
    yield Section(
        "Where processes died, and what became of their blocks",
        ("amid", "no block yet", "delivered", "skipped", "lost with its reader", "unread"),
        rows,
        "The state is that of the access it was about to make. A writer's block is delivered if it was whole, and "
        "skipped if not; a reader's is lost once the read head is moved, at most one for each death.",
    )


def draw_moments(columns: Columns, parameters: Parameters, seq: int | None) -> Iterator[PageDrawing]:
    """The ring at the row `seq`, else when the first processes died, else in the end."""
    rows = [] if seq is None else [int(row) for row in (columns["seq"] == seq).nonzero()[0]]
    rows = rows or columns.rows_of("fault", event=DEATHS)[:MOMENTS].tolist() or [columns.rows - 1]
    for row in rows:
        ring = ring_at(columns, parameters, row)
        if ring is not None:
            yield PageDrawing(ring.title, ring.caption, draw_ring(ring))
