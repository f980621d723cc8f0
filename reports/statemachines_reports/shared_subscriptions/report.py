"""Report: everything that shared subscriptions has for reports, as one value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from statemachines_reports.judge import Count
from statemachines_reports.protocol import (
    Amount,
    AmountRatio,
    Check,
    Latency,
    Measure,
    Parameters,
    ReportProtocol,
    Segment,
    Tally,
)
from statemachines_reports.shared_subscriptions.account import (
    Stream,
    absent_publishers,
    account_for,
    judge_acknowledged,
)
from statemachines_reports.shared_subscriptions.assignments import judge_assignments
from statemachines_reports.shared_subscriptions.delivery_order import judge_order
from statemachines_reports.shared_subscriptions.duplicates import judge_duplicates
from statemachines_reports.shared_subscriptions.exclusivity import judge_exclusivity
from statemachines_reports.shared_subscriptions.granted_progress import judge_granted
from statemachines_reports.shared_subscriptions.kept_rows import keep_rows
from statemachines_reports.shared_subscriptions.latencies import list_latencies
from statemachines_reports.shared_subscriptions.page import CHARTS, STORY, show_recovery, show_resends
from statemachines_reports.shared_subscriptions.recovery import SILENCE, Recovery, follow
from statemachines_reports.shared_subscriptions.resends import count_resends
from statemachines_reports.shared_subscriptions.tables import TABLES
from statemachines_reports.trace_roles import Companion, TraceRoles

MS: Final = 1_000_000
"""Nanoseconds in a millisecond."""

AGAIN: Final = {"granting": "grant_again", "revoking": "revoke_again", "revoked": "revoked_again"}
"""The state in which nobody had answered -> what counts the sending again."""


def is_exclusive(parameters: Parameters) -> bool:
    """Hand-over is exclusive (real runs do not say, and are)."""
    return bool(parameters.get("exclusive", True))


def unit_ns(parameters: Parameters) -> int | None:
    """Validity and one resend interval: what a fail-over may take by the configuration; None: it is not known."""
    configuration = parameters.get("settings", {}).get("configuration", {})
    try:
        return int(configuration["validity_ms"] + configuration["resend_interval_ms"]) * MS
    except KeyError:
        return None


def find(segment: Segment) -> Iterator[msgspec.Struct]:
    """All that is measured."""
    for stream in account_for(segment.columns):
        yield stream
        for name in ("published", "delivered", "duplicates", "acknowledged"):
            yield Tally(stream.run, name, getattr(stream, name))
    yield from list_latencies(segment)
    for followed in follow(segment):
        for over in followed.fail_overs:
            yield Latency("failover", over.run, over.value_ns, over.cause)
        for recovery in followed.recoveries:
            yield recovery
            if recovery.fault == SILENCE:  # no row tells of it
                yield Count(recovery.run, "fault", SILENCE, 1)
    for count in count_resends(segment):
        yield count
        if count.kind == "assign":
            yield Tally(count.run, "grants", count.count)
        else:
            yield Tally(count.run, "resent", count.count)
            if count.event in AGAIN:
                yield Tally(count.run, AGAIN[count.event], count.count)


REPORTS: Final = ReportProtocol(
    checks=(
        Check("assignments", "a leader gives a stream to one borrower at a time (S2)", judge_assignments),
        Check(
            "exclusivity",
            "a stream is delivered by one session at a time (S5)",
            judge_exclusivity,
            promised=is_exclusive,
            whole=True,
        ),
        Check(
            "duplicates",
            "nothing is delivered twice without a reason (S13)",
            judge_duplicates,
            promised=is_exclusive,
            whole=True,
        ),
        Check(
            "order",
            "a session delivers a stream in order, under its grant, and acknowledges nothing before (S14)",
            judge_order,
        ),
        Check(
            "acknowledged", "every published message is acknowledged, and no other (L5)", judge_acknowledged, whole=True
        ),
        Check(
            "granted",
            "a stream is granted from no further than what is acknowledged (S6) and stored (S16)",
            judge_granted,
            whole=True,
        ),
    ),
    measures=(
        Measure("grant", "Grant", "from assigning a stream until its borrower answered"),
        Measure("revoke", "Revoke", "from taking a stream back until it is free"),
        Measure("failover", "Fail-over", "from the fault of a consumer until another was granted a stream of its"),
    ),
    amounts=(
        Amount("published", card="messages published", compared="messages published"),
        Amount("acknowledged", compared="acknowledged"),
        Amount("delivered", card="delivered"),
        Amount(
            "duplicates", card="delivered again", compared="delivered again", faults="messages delivered again, a run"
        ),
        Amount("grants"),
        Amount("grant_again"),
        Amount("revoke_again"),
        Amount("revoked_again"),
        Amount("resent", scenarios=False, faults="sent again, a run"),
    ),
    ratios=(
        AmountRatio("again_per_grant", ("grant_again", "revoke_again", "revoked_again"), "grants"),
        AmountRatio("duplicates_per_delivered", ("duplicates",), "delivered"),
        AmountRatio("delivered_per_acknowledged", ("delivered",), "acknowledged"),
    ),
    find=find,
    results=(Stream, Recovery),
    rows=keep_rows,
    absent=absent_publishers,
    tables=TABLES,
    short=("fail_overs", "recoveries"),
    unit_ns=unit_ns,
    unit="the validity of a member and one resend interval, by the configuration of each run",
    sections=show_resends,
    fault_columns=show_recovery,
    charts=CHARTS,
    story=STORY,
    roles=TraceRoles(
        deliveries=(("tell", "deliver"),),
        acknowledgements=(("tell", "acknowledged"),),
        publications=(("tell", "published"),),
        unsent=("disconnect",),  # the process of a member that unsubscribes says it, once
        unstepped=("disconnect",),
        envelopes=("relayed_to_borrower", "relayed_to_leader"),
        repeats=("doubt", "poll_timer", "leader_connect_response"),
        lies=("lie", "forge"),
        serial=("fetch",),
        services={
            "group_store": ("read", "scan", "commit"),
            "stream_store": ("list_streams", "measure", "fetch", "store_letter"),
        },
        answers=(
            (("read",), ("read_done",)),
            (("scan",), ("scanned",)),
            (("commit",), ("committed", "refused")),
            (("fetch",), ("fetched",)),
            (("list_streams",), ("streams_listed",)),
            (("measure",), ("measured",)),
        ),
        forwarded=("update_progress",),
        companions=(
            Companion(("tell", "acknowledged"), (("step", "ack"),), ("instance", "key", "grant", "first", "last")),
        ),
    ),
)
