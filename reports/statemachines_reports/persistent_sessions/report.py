"""Report: everything that persistent sessions have for reports, as one value.

Checks: what must hold of the sessions of a run, each of them in words.

Page: what the page shows of persistent sessions besides what it shows of any protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from statemachines_reports.draw_histogram import format_ns
from statemachines_reports.persistent_sessions.histories import DEATHS, FLOW, RESUME, Resume, Takeover, histories_of
from statemachines_reports.persistent_sessions.session import AGED, CUT, EPOCHS, GAP, ORDER, OWNER, TWICE
from statemachines_reports.protocol import (
    Amount,
    Check,
    Measure,
    Parameters,
    ReportProtocol,
    Section,
    Segment,
    Story,
    Tables,
    Tally,
    TraceRoles,
    find_setting,
)


def _judged(name: str, claim: str, *, whole: bool = True) -> Check:
    """Of this name among what is wrong with the histories."""

    return Check(name, claim, lambda segment: histories_of(segment).findings.judge(segment.columns, name), whole=whole)


CHECKS = (
    _judged(GAP, "what is stored is taken and sent, none left out, none made up (GAP, COMPLETE, STRANGER)"),
    _judged(TWICE, "nothing is committed or sent twice, but as a repetition (TWICE)"),
    _judged(ORDER, "the messages of a writer are sent in the order of their numbers, and behind what their publisher "
            "stored elsewhere before (GAP, ORDER)"),
    _judged(CUT, "below a marker from the database, from it on what was kept, all of it (CUT)", whole=False),
    _judged(OWNER, "who has yielded or is superseded commits and sends nothing; what is sent is committed (SPLIT, "
            "UNCOMMITTED)"),
    _judged(AGED, "what is over when it is committed is not sent, and nothing else is left out for its age (AGED)"),
    _judged(EPOCHS, "epochs go up, numbers have no hole, nothing is stored under an epoch that was raised (PS-D4)"),
)  # fmt: skip


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


MS: Final = 1_000_000
UNLOGGED: Final = (
    "connect_wanted", "subscribe_wanted", "unsubscribe_wanted", "publish_wanted", "leave_wanted", "ping", "puback",
    "pubrec", "pubcomp", "publish", "pubrel",
)  # fmt: skip
"""What clients and publishers say, and what is sent to them."""

BUCKETS: Final = """
    CASE WHEN pending = 0 THEN 0 WHEN pending < 10 THEN 1 WHEN pending < 100 THEN 10 WHEN pending < 1000 THEN 100
         WHEN pending < 10000 THEN 1000 ELSE 10000 END"""
"""The least of the messages that were pending in the resumes that stand together."""


def find(segment: Segment) -> Iterator[msgspec.Struct]:
    """All that is measured."""
    histories = histories_of(segment)
    for (run, name), count in sorted(histories.sums.items()):
        yield Tally(run, name, count)
    yield from histories.measured


def absent(segment: Segment) -> Iterable[tuple[int, str]]:
    """Logs of writers whose rows somebody took, and of owners that a writer was told of."""
    return histories_of(segment).absent


def unit_ns(parameters: Parameters) -> int | None:
    """The time after which a silent writer is fenced."""
    marker_ms = find_setting(parameters, "settings", "times", "marker_ms")
    return marker_ms * MS if isinstance(marker_ms, int) else None


def sections(tables: Tables) -> Iterator[Section]:
    """The tables of the page."""
    yield from show_resumes(tables)
    yield from show_stores(tables)
    yield from show_takeovers(tables)


DATABASE_REQUESTS: Final = (
    "begin_epoch", "commit_state", "confirm_rows", "delete_page", "fence", "find_owner", "forget_client", "keep_alive",
    "leave_session", "load_session", "lock_client", "look_up", "mark_delivered", "open_session", "put_marker",
    "put_rows", "read_clients", "read_messages", "read_pending", "read_row", "read_rows", "subscribe_live",
    "unlock_client", "unsubscribe_live",
)  # fmt: skip


REPORTS: Final = ReportProtocol(
    checks=CHECKS,
    measures=(
        Measure("resume", "Resume", "from when the session of a client is known until it is in normal operation"),
        Measure("store", "Storing", "from when a message is handed to a session's writer until its row is stored"),
        Measure(
            "fail_over", "Fail-over",
            "from the death of the node of a session in normal operation until another node has it in normal operation",
        ),
    ),
    amounts=(
        Amount("stored", card="rows stored for sessions", compared="rows stored"),
        Amount("taken", compared="rows taken"),
        Amount("sent_new", card="messages sent to clients", compared="messages sent"),
        Amount("expired", card="messages that had expired unsent", faults="expired, a run", compared="expired"),
        Amount("sent_again", card="messages sent as repetitions", faults="sent again, a run", compared="sent again"),
        Amount("fences", card="writers fenced", faults="fences, a run", compared="fences"),
        Amount("waiting", card="rows that wait at the end", compared="waiting at the end"),
    ),
    find=find,
    results=(Resume, Takeover),
    absent=absent,
    unlogged=UNLOGGED,
    tables={
        "resumes": f"""
            WITH bucketed AS (
                SELECT setting.scenario, {BUCKETS} AS least, kept, took_ns
                FROM resume JOIN setting ON setting.run = resume.run
            )
            SELECT scenario, least, count(*) AS resumes, sum(kept) AS kept, percentile(took_ns, 0.5) AS p50_ns,
                   percentile(took_ns, 0.99) AS p99_ns, max(took_ns) AS max_ns
            FROM bucketed GROUP BY scenario, least ORDER BY scenario, least""",
        "stores": """
            SELECT setting.scenario, cause, count(*) AS rows, percentile(value_ns, 0.5) AS p50_ns,
                   percentile(value_ns, 0.99) AS p99_ns, max(value_ns) AS max_ns
            FROM latency JOIN setting ON setting.run = latency.run WHERE measure = 'store'
            GROUP BY setting.scenario, cause ORDER BY setting.scenario, cause""",
        "takeovers": """
            SELECT setting.scenario, why, count(*) AS takeovers
            FROM takeover JOIN setting ON setting.run = takeover.run
            GROUP BY setting.scenario, why ORDER BY setting.scenario, why""",
    },
    short=("resumes", "stores", "takeovers"),
    unit_ns=unit_ns,
    unit="the time after which a silent writer is fenced",
    sections=sections,
    story=Story(
        quiet=("live", "marker_wanted", "live_marker", "publish", "ping"),
        machines=(RESUME, FLOW),
        deaths=DEATHS,
        title="What came of {key}",
    ),
    roles=TraceRoles(
        deliveries=(("send", "publish"),),
        acknowledgements=(("step", "puback"), ("step", "pubcomp")),
        publications=(("ask", "put_rows"),),
        number=("first",),
        repeats=("hand", "live_known"),
        lies=("liar",),
        unsent=("begin_takeover",),  # to an owner on the same node, whose host hands it over
        partial_answers=("not_owner",),  # a commit beside the resume is asked by the process
        silent_losses=True,
        stream_end="/m",
        forwarded=("writer_down",),
        grant="",
        serial=("delete_page", "read_rows", "read_messages", "read_clients", "forget_client"),
        services={"database": DATABASE_REQUESTS},
        requests=(
            (("delete_page",), ("page_deleted",)),
            (("forget_client",), ("client_forgotten",)),
            (("commit_state",), ("state_committed",)),
            (("put_rows", "put_marker", "read_row"), ("row_stored", "row_fenced", "row_read")),
            (("read_rows",), ("rows_read",)),
            (("read_messages",), ("messages_read",)),
            (("read_clients",), ("clients_read",)),
            (("read_pending",), ("polled", "pending_read")),
            (("fence",), ("fenced_rows",)),
        ),
    ),
)  # fmt: skip
