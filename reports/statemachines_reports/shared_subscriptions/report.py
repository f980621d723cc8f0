"""Report: everything that shared subscriptions has for reports, as one value.

Tables of shared subscriptions: accounts, fail-overs by their cause, recoveries by the kind of fault.

Latencies: from assigning a stream until its borrower answered, and from taking it back until it is free.

Resends: what was sent again because nobody had answered, and how often a stream was assigned.

Kept rows: those of a part of a run that the checks and measures of shared subscriptions look at.

Granted progress: what a grant passes over was acknowledged, or dropped by the group (S6), and is there (S16).

A grant from N on says that everything before N is done: its borrower skips it, whatever became of it.  Logs of several
nodes are merged by their clocks, so a grant is held against what was acknowledged and published in the whole run.

Duplicates: nothing is delivered twice without a reason (S13).

Delivery order: a session delivers a stream in order, under its grant, and acknowledges what it has delivered.

A session owns a stream from one install to the next.  What it delivers begins where the install says, and goes on
without a hole.  Where an application gives a message back (`nack`) the session goes back to it, and passes over what is
acknowledged behind it.  Where the order of the group is relaxed (an install says up to where something may be
acknowledged already) the session goes on, and hands that message over alone, later.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

from statemachines.kernel import Delegate, name_of
from statemachines_reports.columns import STEPS, Columns
from statemachines_reports.judge import Count, count_of
from statemachines_reports.lookup import Lookup
from statemachines_reports.neutral.row_groups import RowGroups, group_rows
from statemachines_reports.neutral.step_checks import keep_ends
from statemachines_reports.protocol import (
    Amount,
    AmountRatio,
    Check,
    CheckVerdict,
    Companion,
    Latency,
    Measure,
    Parameters,
    ReportProtocol,
    Segment,
    Tally,
    TraceRoles,
    verdict,
)
from statemachines_reports.shared_subscriptions.account import (
    ASSIGNMENT,
    BORROWER,
    DROPPED,
    LEADER,
    MEMBER,
    PARKED,
    PROTOCOL,
    SESSION,
    OffsetRanges,
    Stream,
    absent_publishers,
    account_for,
    judge_acknowledged,
    judge_assignments,
    judge_exclusivity,
    latest_before,
    of_liars,
)
from statemachines_reports.shared_subscriptions.recovery import (
    CHARTS,
    SILENCE,
    STORY,
    Recovery,
    follow,
    show_recovery,
    show_resends,
)
from statemachines_reports.tables import SPREAD

EXCUSES = ("crash", "lost_disk", "leader_crash", "kill", "unsubscribe")
"""Faults after which what was not reported may be delivered again."""


def judge_duplicates(segment: Segment) -> CheckVerdict:
    """S13: between two deliveries of a message somebody was reset, expired, left or died, or gave it back, or one
    before it.

    Where hand-over is not exclusive the old owner may go on after the expiry that made the new one, so nothing promises
    it there; nor of what a liar was granted.
    """
    columns = segment.columns
    delivered = OffsetRanges.of(columns, "deliver")
    again = delivered.first <= latest_before(delivered.group, delivered.last)
    excuses = _excuses(columns)
    returned = _returned(columns)
    wrong: list[int] = []
    for group in np.setdiff1d(delivered.group[again], of_liars(columns)):
        begin, end = np.searchsorted(delivered.group, [group, group + 1])
        part = slice(int(begin), int(end))
        wrong += _unexcused(delivered, part, excuses, returned.get(int(group), []))

    def describe(row: int) -> str:
        return f"{columns.text('key', row)}: {columns['first'][row]} delivered again, without a reason"

    return verdict(columns, len(delivered.row), delivered.row[np.array(wrong, np.int64)], describe)


def _excuses(columns: Columns) -> np.ndarray:
    """The rows of what may lead to a second delivery, in order."""
    ends = {BORROWER: ("destroyed",), MEMBER: ("lapsed", "gone"), LEADER: ("resigned",)}
    ended = [columns.rows_of(*STEPS, machine=(machine,), dest=states) for machine, states in ends.items()]
    return np.sort(np.concatenate((*ended, columns.rows_of("fault", event=EXCUSES))))


def _returned(columns: Columns) -> dict[int, list[tuple[int, int]]]:
    """Group -> (row, offset) of the messages of the stream that were given back, in order."""
    rows = columns.rows_of("step", event=("nack",), machine=(SESSION,))
    groups = columns.groups("key", rows)
    found: dict[int, list[tuple[int, int]]] = {}
    for group, row, offset in zip(groups.tolist(), rows.tolist(), columns["first"][rows].tolist(), strict=True):
        found.setdefault(group, []).append((row, offset))
    return found


def _is_returned(returned: list[tuple[int, int]], since: int, until: int, offset: int) -> bool:
    """A message no further than `offset` was given back between these rows: it comes again, with what is behind it."""
    between = returned[bisect_right(returned, (since, -1)) : bisect_right(returned, (until, -1))]
    return any(one <= offset for _, one in between)


def _unexcused(ranges: OffsetRanges, part: slice, excuses: np.ndarray, returned: list[tuple[int, int]]) -> list[int]:
    """Positions of deliveries of a group that repeat an earlier one with no excuse in between.

    `known` holds, for every offset delivered so far, when that was last: ranges (first, last, row), sorted.
    """
    known: list[tuple[int, int, int]] = []
    wrong = []
    numbers = zip(ranges.first[part].tolist(), ranges.last[part].tolist(), ranges.row[part].tolist(), strict=True)
    for position, (first, last, row) in enumerate(numbers, part.start):
        above: list[tuple[int, int, int]] = []
        latest = -1
        while known and known[-1][1] >= first:
            begin, end, earlier = known.pop()
            if begin <= last:
                latest = max(latest, earlier)
            if end > last:
                above.append((max(begin, last + 1), end, earlier))
            if begin < first:
                known.append((begin, first - 1, earlier))
                break
        known.append((first, last, row))
        known.extend(reversed(above))
        is_excused = latest < 0 or np.searchsorted(excuses, latest) != np.searchsorted(excuses, row)
        if not is_excused and not _is_returned(returned, latest, row, first):
            wrong.append(position)
    return wrong


WORDS: Final = {
    1: "is delivered, and was never installed",
    2: "is delivered out of order",
    3: "is of another grant than was installed",
    4: "is acknowledged before it is delivered",
}


def judge_order(segment: Segment) -> CheckVerdict:
    """What sessions deliver and acknowledge, against what was installed."""
    columns = segment.columns
    rows = np.sort(
        np.concatenate(
            (
                columns.rows_of("step", event=("install", "nack"), machine=(SESSION,)),
                columns.rows_of("tell", event=("deliver", "acknowledged"), machine=(SESSION,)),
            )
        )
    )
    rows = rows[np.isin(columns["run"][rows], columns["run"][columns.rows_of(*STEPS)])]
    groups = group_rows(columns, rows, ("key", "instance", "run"))
    rows = groups.rows
    installs = columns.is_one_of("event", ("install",), rows)
    delivers = columns.is_one_of("event", ("deliver",), rows)
    nacks = columns.is_one_of("event", ("nack",), rows)
    first, last, grant = (columns[name][rows] for name in ("first", "last", "grant"))
    install = groups.find_latest(installs)
    reached = np.where(installs, first - 1, last)
    latest = groups.find_latest(installs | delivers)
    before = np.full(len(rows), -1)
    before[1:] = np.where(groups.same[1:], latest[:-1], -1)
    wrong = np.zeros(len(rows), np.int64)
    wrong[delivers & (first != reached[before] + 1)] = 2
    early = (first < first[install]) | (last > reached[latest])
    wrong[~installs & ~delivers & early] = 4
    wrong[~installs & (grant != grant[install])] = 3
    wrong[~installs & (install < 0)] = 1
    for begin, end in _with_returned(groups, nacks | (installs & (last >= 0))):
        wrong[begin:end] = _follow(columns, rows[begin:end])
    words = dict(zip(rows[wrong > 0].tolist(), wrong[wrong > 0].tolist(), strict=True))

    def describe(row: int) -> str:
        span = f"{columns['first'][row]} to {columns['last'][row]}"
        return f"{columns.text('instance', row)}: {span} of {columns.text('key', row)} {WORDS[words[row]]}"

    return verdict(columns, int((~installs & ~nacks).sum()), np.array(sorted(words), np.int64), describe)


def _with_returned(groups: RowGroups, nacks: np.ndarray) -> list[tuple[int, int]]:
    """Where groups in which something was given back begin and end."""
    begins = np.flatnonzero(np.concatenate(([True], ~groups.same[1:]))) if len(nacks) else np.zeros(0, np.int64)
    ends = np.append(begins[1:], len(nacks))
    places = np.unique(np.searchsorted(begins, np.flatnonzero(nacks), side="right") - 1)
    return list(zip(begins[places].tolist(), ends[places].tolist(), strict=True))


def _follow(columns: Columns, rows: np.ndarray) -> list[int]:
    """What is wrong with each row (0: nothing) of a stream of a session whose application gave something back."""
    wrong: list[int] = []
    reading: _Reading | None = None
    events = [columns.text("event", row) for row in rows.tolist()]
    numbers = (columns[name][rows].tolist() for name in ("grant", "first", "last"))
    for event, grant, first, last in zip(events, *numbers, strict=True):
        if event == "install":
            reading = _Reading(grant, first) if last < 0 else _RelaxedReading(grant, first, last)
            wrong.append(0)
        elif event == "nack":
            if reading is not None and reading.grant == grant:
                reading.give_back(first)
            wrong.append(0)
        elif reading is None:
            wrong.append(1)
        elif event == "deliver":
            in_order = reading.deliver(first, last)
            wrong.append(3 if grant != reading.grant else 0 if in_order else 2)
        else:
            was_delivered = reading.acknowledge(first, last)
            wrong.append(3 if grant != reading.grant else 0 if was_delivered else 4)
    return wrong


class _Reading:
    """A stream under one grant: `next` is delivered next, all below `handed` was delivered."""

    def __init__(self, grant: int, begin: int) -> None:
        self.grant = grant
        self.begin = self.next = self.handed = begin
        self._acked: list[tuple[int, int]] = []

    def give_back(self, offset: int) -> None:
        """The stream goes back to it."""
        self.next = min(self.next, offset)

    def deliver(self, first: int, last: int) -> bool:
        """Whether it is next: what is passed over was delivered before, and acknowledged."""
        is_next = first == self.next or (self.next < first <= self.handed and self._is_acked(self.next, first))
        self.next = last + 1
        self.handed = max(self.handed, self.next)
        return is_next

    def acknowledge(self, first: int, last: int) -> bool:
        """Whether it was delivered."""
        insort(self._acked, (first, last))
        return first >= self.begin and last < self.handed

    def _is_acked(self, begin: int, end: int) -> bool:
        """All from `begin` up to `end`, without that."""
        for first, last in self._acked:
            if first <= begin <= last:
                begin = last + 1
        return begin >= end


class _RelaxedReading(_Reading):
    """The same in relaxed order: before `known` anything may have been acknowledged already; `returned`: what was given
    back, and comes alone."""

    def __init__(self, grant: int, begin: int, known: int) -> None:
        super().__init__(grant, begin)
        self._known = known
        self._returned: set[int] = set()

    def give_back(self, offset: int) -> None:
        self._returned.add(offset)

    def deliver(self, first: int, last: int) -> bool:
        if first == last and first in self._returned:
            self._returned.discard(first)
            return True
        is_next = first == self.next or self.next < first <= self._known
        self.next = self.handed = last + 1
        return is_next


TABLES: Final = {
    "accounts": """
        SELECT run, key, published, delivered, duplicates, acknowledged, missing, unknown FROM stream
        ORDER BY run, key""",
    "fail_overs": f"""
        SELECT cause AS fault, count(*) AS measured, {SPREAD}
        FROM latency JOIN setting ON setting.run = latency.run
        WHERE measure = 'failover' GROUP BY cause ORDER BY cause""",
    "recoveries": f"""
        SELECT fault, count(*) AS faults, sum(if(disturbed, 1, 0)) AS disturbed, count(value_ns) AS recovered, {SPREAD}
        FROM recovery JOIN setting ON setting.run = recovery.run GROUP BY fault ORDER BY fault""",
}


def list_latencies(segment: Segment) -> list[Latency]:
    """Grants and revokes of a segment."""
    found = _between(segment, "grant", "granting", "granted")
    return found + _between(segment, "revoke", "revoking", "none")


def _between(segment: Segment, measure: str, entered: str, reached: str) -> list[Latency]:
    """Per assignment: from entering one state until it first reaches another."""
    columns, steps, lookup = segment.columns, segment.steps, segment.lookup
    machine = lookup.machines.get(ASSIGNMENT, -1)
    order = steps.order[steps.machine[steps.order] == machine]
    source, dest = steps.source[order], steps.dest[order]
    group = steps.run[order] * (len(columns.texts["instance"]) + 1) + steps.instance[order]
    t_ns = columns["t_ns"][steps.index[order]]
    begin = np.flatnonzero((dest == lookup.states[entered]) & (source != dest))
    end = np.flatnonzero((dest == lookup.states[reached]) & (source != dest))
    after = np.searchsorted(end, begin)
    paired = after < len(end)
    begin, end = begin[paired], end[after[paired]] if len(end) else end
    same = group[begin] == group[end] if len(begin) else np.zeros(0, bool)
    runs, lasted_ns = steps.run[order][begin[same]].tolist(), (t_ns[end] - t_ns[begin])[same].tolist()
    return [Latency(measure, run, value) for run, value in zip(runs, lasted_ns, strict=True)]


def count_resends(segment: Segment) -> Iterator[Count]:
    """Steps that send something again (kind `resend`, event: the state in which nobody had answered), and those that
    assign a stream (kind `assign`), of each run."""
    steps, lookup = segment.steps, segment.lookup
    states = [*lookup.states, ""]
    again = find_resends(segment)
    yield from count_of(steps.run[again], steps.source[again], [("resend", state) for state in states])
    given = (
        (steps.machine == lookup.machines.get(ASSIGNMENT, -1))
        & (steps.dest == lookup.states.get("granting", -1))
        & (steps.source != steps.dest)
    )
    run = steps.run[given]
    yield from count_of(run, np.zeros(len(run), np.int64), [("assign", "")])


def find_resends(segment: Segment) -> np.ndarray:
    """The steps that send something again."""
    steps, lookup = segment.steps, segment.lookup
    return np.flatnonzero(_resending(lookup)[lookup.line_of(steps.machine, steps.row)])


def _resending(lookup: Lookup) -> np.ndarray:
    """The lines of the tables that send again; a parent that only hands the timer on to its child sends nothing."""
    found = np.zeros((len(lookup.machines) + 1) * lookup.width, bool)
    for fsm in lookup.family:
        for line in fsm.lines if fsm.protocol == PROTOCOL else ():
            sends = line.kind == "row" and not isinstance(line.do, Delegate)
            found[lookup.machines[fsm.full_name] * lookup.width + line.number] = sends and "resend" in name_of(
                line.event
            )
    return found


ENDS = ("destroyed", "lapsed", "gone", "resigned")
"""States in which a borrower, a member or a leader ends."""


def keep_rows(segment: Segment) -> np.ndarray:
    """What is published, delivered and acknowledged; installs, grants and changes of assignments; the first and last
    step of each instance, and those that end it or send again; faults."""
    columns, steps = segment.columns, segment.steps
    ends = keep_ends(segment)
    changes = steps.index[steps.source != steps.dest]
    return np.concatenate(
        (
            columns.rows_of("tell", event=("published", "deliver", "acknowledged", DROPPED, PARKED)),
            columns.rows_of(*STEPS, event=("install", "nack")),
            columns.rows_of("send", event=("grant",)),
            columns.rows_of("fault"),
            changes[columns.is_one_of("machine", (ASSIGNMENT,), changes)],
            columns.rows_of(*STEPS, dest=ENDS),
            steps.index[find_resends(segment)],
            ends.open,
            ends.context,
        )
    )


def judge_granted(segment: Segment) -> CheckVerdict:
    """S6, S16: no grant begins behind the first message that nobody acknowledged, or behind the last that is stored.

    A stream that nobody published to within the run is not judged: what lay there before is not known; nor is one that
    a liar was granted.
    """
    columns = segment.columns
    keys = len(columns.texts["key"]) + 1
    grants = columns.rows_of("send", event=("grant",))
    group = columns["run"][grants] * keys + columns["key"][grants]
    published, acknowledged = OffsetRanges.of(columns, "published"), OffsetRanges.of(columns, "acknowledged", DROPPED)
    stored, begins = published.find_reached(), published.least()
    done, done_from = acknowledged.find_reached(), acknowledged.least()

    def bounds(stream: int) -> tuple[int, int]:
        """As far as was acknowledged without a hole, and as far as something is stored."""
        begin = begins[stream]
        return (done[stream] if done_from.get(stream, begin + 1) <= begin else begin), stored[stream]

    streams, where = np.unique(group, return_inverse=True)
    lied = {*of_liars(columns).tolist()}
    known = np.array([stream in stored and stream not in lied for stream in streams.tolist()], bool)[where]
    grants, where = grants[known], where[known]
    limits = {place: bounds(int(streams[place])) for place in np.unique(where).tolist()}
    most = np.array([min(limits[place]) for place in where.tolist()], np.int64)
    wrong = np.flatnonzero(columns["first"][grants] > most)
    far = {int(grants[place]): limits[int(where[place])] for place in wrong.tolist()}

    def describe(row: int) -> str:
        acknowledged, stored = far[row]
        begin = columns["first"][row]
        why = f"only {stored} are stored" if begin > stored else f"{acknowledged} is not acknowledged"
        return f"{columns.text('key', row)}: granted to {columns.text('peer', row)} from {begin} on, and {why}"

    return verdict(columns, len(grants), grants[wrong], describe)


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
