"""Page: what the page shows of persistent sessions besides what it shows of any protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from statemachines_reports.draw_histogram import format_ns
from statemachines_reports.protocol import Section, Tables

PENDING = {
    0: "none",
    1: "1 to 9",
    10: "10 to 99",
    100: "100 to 999",
    1_000: "1 000 to 9 999",
    10_000: "10 000 and more",
}
WHYS = {
    "handed": "the owner of before handed over what it had",
    "refused": "there was none, or it did not yield",
    "silent": "it did not answer in time",
}


def show_resumes(tables: Tables) -> Iterator[Section]:
    """How long resumes took, by how much was pending."""
    lines = [
        (one["scenario"], PENDING[one["least"]], f"{one['resumes']:,}", f"{one['kept']:,}", *_times(one))
        for one in tables["resumes"]
    ]
    if lines:
        yield Section(
            "How long a resume takes",
            ("scenario", "messages pending", "resumes", "kept behind markers", "p50", "p99", "max"),
            lines,
            "Pending: what an owner took from the database on its way to normal operation, or was handed over. Resumes "
            "that did not come to normal operation are not in it.",
        )


def show_stores(tables: Tables) -> Iterator[Section]:
    """How long publishers wait."""
    lines = [(one["scenario"], one["cause"], f"{one['rows']:,}", *_times(one)) for one in tables["stores"]]
    if lines:
        yield Section(
            "How long a message takes to be stored",
            ("scenario", "session", "rows", "p50", "p99", "max"),
            lines,
            "From when a message is handed to the session's writer until its row is stored; its publisher waits for "
            "the last of its rows.",
        )


def show_takeovers(tables: Tables) -> Iterator[Section]:
    """How takeovers ended."""
    lines: list[tuple[str, ...]] = [
        (one["scenario"], str(WHYS.get(one["why"], one["why"])), f"{one['takeovers']:,}") for one in tables["takeovers"]
    ]
    if lines:
        yield Section("Takeovers", ("scenario", "how they ended", "takeovers"), lines)


def _times(line: dict[str, Any]) -> tuple[str, ...]:
    return tuple(format_ns(line[f"{name}_ns"]) for name in ("p50", "p99", "max"))
