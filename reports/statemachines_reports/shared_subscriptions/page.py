"""Page: what the page shows of shared subscriptions besides what it shows of any protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from statemachines_reports.draw_histogram import format_ns
from statemachines_reports.protocol import Chart, FaultColumns, Section, Story, Tables
from statemachines_reports.shared_subscriptions.names import BORROWER, LEADER, MEMBER

NOTHING: Final = "\N{EN DASH}"
"""Stands where nothing was measured."""

CHARTS: Final = (
    Chart("Delivered again, of 1000 deliveries", "duplicates_per_delivered", lambda value: f"{1000 * value:.1f}"),
    Chart("Deliveries amid another's (S5)", "exclusivity", lambda value: f"{value:,.0f}"),
    Chart("Fail-over, p50", "failover_p50_ns", format_ns),
    Chart("Fail-over, p99", "failover_p99_ns", format_ns),
)

STORY: Final = Story(
    quiet=("ping", "ping_response", "update_progress"),
    machines=(BORROWER, LEADER, MEMBER),
    begins=(("the first member that lapsed", MEMBER, "lapsed"),),
    deaths=("leader_crash",),
    told={"deliver": "delivers"},
    title="What was delivered of {key}",
)

_HEADS: Final = (
    "scenario", "runs", "grants", "grant again", "revoke again", "revoked again", "again a grant",
    "messages delivered", "of them again", "delivered / acknowledged",
)  # fmt: skip


def show_resends(tables: Tables) -> Iterator[Section]:
    """What was sent again because nobody had answered, and delivered again because somebody was gone."""
    yield Section("What was sent again", _HEADS, [_resends(line) for line in tables["scenarios"]])


def _resends(line: dict[str, Any]) -> tuple[str, ...]:
    counted = [f"{line[name]:,}" for name in ("grants", "grant_again", "revoke_again", "revoked_again")]
    return (
        line["scenario"],
        str(line["runs"]),
        *counted,
        _ratio(line["again_per_grant"], "{:.3f}"),
        f"{line['delivered']:,}",
        _ratio(line["duplicates_per_delivered"], "{:.2%}"),
        _ratio(line["delivered_per_acknowledged"], "{:.4f}"),
    )


def _ratio(value: float | None, form: str) -> str:
    return NOTHING if value is None else form.format(value)


def show_recovery(tables: Tables) -> FaultColumns:
    """How many faults disturbed, how many were recovered from, and how long that took."""
    return FaultColumns(
        ("disturbed", "recovered", "p50", "p90", "p99", "max"),
        {line["fault"]: _recovery(line) for line in tables["recoveries"]},
        "Disturbed: while the fault lasted some stream had no living owner. Recovered: every stream had one again "
        "before the run ended; the times are from the fault to then, whatever other faults came in between.",
    )


def _recovery(line: dict[str, Any]) -> tuple[str, ...]:
    times = [line[f"{name}_ns"] for name in ("p50", "p90", "p99", "max")]
    counted = [f"{line[name]:,}" for name in ("disturbed", "recovered")]
    return (*counted, *(NOTHING if time is None else format_ns(time) for time in times))
