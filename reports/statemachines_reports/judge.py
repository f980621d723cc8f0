"""Judge: everything that can be found out about whole runs by themselves, file by file.

Every step against the tables of its machine, whatever protocol it is of (level `rows`); then the checks and measures of
the protocols.  Nothing here looks at single rows in Python except those that are wrong.

Absent logs: nodes that sent what came to somebody, and of which no row or not all rows are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec
import numpy as np

from statemachines import catalogue, registry
from statemachines.kernel import Protocol, node_of
from statemachines_reports.columns import STEPS, Columns, Segment, Steps
from statemachines_reports.lookup import Lookup
from statemachines_reports.neutral.message_check import messages_check
from statemachines_reports.neutral.replay_check import replay_check
from statemachines_reports.neutral.run_checks import CLOCKS, faults_check
from statemachines_reports.neutral.step_checks import CONTINUITY, ROWS
from statemachines_reports.neutral.turn_check import turns_check
from statemachines_reports.protocol import Check, CheckVerdict, Finding, ReportProtocol, reports_of
from statemachines_reports.trace_set import TraceSet

HOLED: Final = ("part of ", "the end of ")
"""What is said of a log that is there, and not all of it."""


def find_lacking_logs(segment: Segment, unlogged: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """(run, log) of logs that are missing, or a part of which is, as the merged logs of a real run say."""
    for run, _ in segment.columns.runs():
        for log, event in segment.parameters(run).get("lacking", ()):
            if event not in unlogged:
                yield run, log


def find_holed_nodes(segment: Segment) -> set[tuple[int, str]]:
    """(run, node) of nodes whose logs may lack rows anywhere: a part is missing, or nothing says where it ends."""
    return {
        (run, node_of(log.removeprefix(said)))
        for run, log in find_lacking_logs(segment, ())
        for said in HOLED
        if log.startswith(said)
    }


def find_silent_nodes(columns: Columns, unlogged: tuple[str, ...] = ()) -> Iterator[tuple[int, str]]:
    """(run, node) of nodes whose messages came to somebody, and who have no row of their own: one that says what was
    done to a node is not its own.  Messages that are `unlogged` come from those who keep no log.  A peer that is no
    life of a node is none of ours: a source of zenoh, say."""
    rows = columns.rows_of("deliver")
    rows = rows[~columns.is_one_of("event", unlogged, rows)]
    number = {name: place for place, name in enumerate(columns.texts["node"])}
    nodes = [node_of(text) if "~" in text else "" for text in columns.texts["peer"]] + [""]
    rows = rows[np.array([bool(name) for name in nodes])[columns["peer"][rows]]]
    ends, faults = np.cumsum([count for _, count in columns.runs()]), columns.rows_of("fault")
    begins = [0, *ends[:-1].tolist()]
    limit = len(number) + 1
    own = [np.bincount(columns["node"][slice(*one)], minlength=limit) for one in zip(begins, ends, strict=True)]
    of_faults = np.searchsorted(ends, faults, "right") * limit + columns["node"][faults]
    counts = np.concatenate(own) - np.bincount(of_faults, minlength=len(ends) * limit)
    is_known = counts.reshape(len(ends), limit) > 0
    is_known[:, -1] = False
    sender = np.array([number.get(name, -1) for name in nodes])[columns["peer"][rows]]
    unknown = rows[~is_known[np.searchsorted(ends, rows, "right"), sender]]
    pairs = zip(columns["run"][unknown].tolist(), columns["peer"][unknown].tolist(), strict=True)
    yield from sorted({(run, nodes[code]) for run, code in pairs})


def find_speakers(columns: Columns, unlogged: tuple[str, ...]) -> np.ndarray:
    """Of a run the first row of each node, the first delivery of each peer, the first row and the last: they decide
    what `find_silent_nodes` finds in the whole run."""
    own = np.setdiff1d(np.arange(columns.rows), columns.rows_of("fault"))
    came = columns.rows_of("deliver")
    came = came[~columns.is_one_of("event", unlogged, came)]
    firsts = [
        rows[np.unique(columns[name][rows], return_index=True)[1]] for name, rows in (("node", own), ("peer", came))
    ]
    return np.concatenate((*firsts, [0, columns.rows - 1]))


FAULT, NOTE = "fault", "note"
NO_FAULTS = ("heal", "restart", "resume", "join")
"""What rows of kind fault say that is none; and what begins with `end_`."""

SHOWN: Final = 40
"""Of each kind of violation, so many are described in a segment, those of the first rows; all are counted."""
MOST_EQUAL: Final = 1_000
"""Of those that are about the same row, or the same whole run, at most so many are described."""


class RunRows(msgspec.Struct, frozen=True):
    """How many rows a run has."""

    run: int
    rows: int


class Found(msgspec.Struct, frozen=True):
    """What a check came to in a segment: `waived` counts what would be wrong, had the configuration of its run promised
    it, or were the log whole that it rests on."""

    check: str
    checked: int
    wrong: int
    waived: int


class Unjudged(msgspec.Struct, frozen=True):
    """Steps of machines of a protocol that is not installed here."""

    missing: str
    count: int


class Absent(msgspec.Struct, frozen=True):
    """A run of which a log is missing, and whose."""

    run: int
    log: str


class Used(msgspec.Struct, frozen=True):
    """How often a row of a machine was taken (`row` -1: none was), leading from `source` to `dest`."""

    machine: str
    row: int
    source: str
    dest: str
    count: int


class Pair(msgspec.Struct, frozen=True):
    """How often an instance of a machine took row `second` next after row `first`."""

    machine: str
    first: int
    second: int
    count: int


class Count(msgspec.Struct, frozen=True):
    """Rows of a kind and event in a run: packets sent, faults, messages delivered."""

    run: int
    kind: str
    event: str
    count: int


class RunPart(msgspec.Struct, frozen=True):
    """What a piece of a trace file has of a run that goes on before it or behind it: from which row of the file on, and
    its summary."""

    run: int
    file: str
    begin: int
    summary: bytes


NEUTRAL: Final = (RunRows, Found, Finding, Unjudged, Absent, Used, Pair, Count, RunPart)
"""What is found in a trace of any protocol."""

Result = tuple[str, msgspec.Struct]
"""The protocol that it is of ("": of none), and what was found."""


NEUTRAL_CHECKS: Final = ("rows", "continuity", "messages", "turns", "clocks", "faults", "replay")
"""Checks of any trace."""

MONITORS: Final = "nothing was violated while the run was made"


class Judges:
    """All that judges a trace: the protocols that are installed here, by name, and the names of those that are not.

    `checks`: (name as shown, protocol, check), neutral ones first.  A name that two protocols use is shown as
    PROTOCOL/NAME.
    """

    def __init__(self, protocols: Iterable[Protocol], missing: Iterable[str] = ()) -> None:
        self.protocols = {protocol.name: registry.register(protocol) for protocol in protocols}
        self.missing = tuple(missing)
        self.reports = {name: reports_of(protocol) for name, protocol in self.protocols.items()}
        machines = (machine for name in self.protocols for machine in catalogue.machines(name))
        self.lookup = Lookup(tuple(machines), self.missing)
        roles = [report.roles for report in self.reports.values()]
        neutral = [ROWS, CONTINUITY, messages_check(roles), turns_check(roles), CLOCKS, faults_check(roles)]
        neutral.append(replay_check(roles))
        self.checks = [(check.name, "", check) for check in neutral]
        shown = self.names(lambda report: (one.name for one in report.checks), taken=(*NEUTRAL_CHECKS, "monitors"))
        self.checks += [
            (shown[name, one.name], name, one) for name, report in self.reports.items() for one in report.checks
        ]

    def names(
        self, of: Callable[[ReportProtocol], Iterable[str]], taken: tuple[str, ...] = ()
    ) -> dict[tuple[str, str], str]:
        """(protocol, name) -> the name as shown, of something that each protocol names."""
        own = [(protocol, name) for protocol, report in self.reports.items() for name in of(report)]
        used = [*taken, *(name for _, name in own)]
        return {(protocol, name): name if used.count(name) == 1 else f"{protocol}/{name}" for protocol, name in own}

    def list_waived_runs(self, trace: TraceSet) -> dict[str, frozenset[int]]:
        """Check, as shown -> the runs of its protocol that do not promise it."""
        return {
            shown: frozenset(run for run in trace.runs_of(protocol) if not check.promised(trace.parameters[run]))
            for shown, protocol, check in self.checks
        }

    def judge(self, segment: Segment, waived: Mapping[str, frozenset[int]]) -> Iterator[Result]:
        """All results of a segment; `waived`: check as shown -> runs that do not promise it."""
        yield from self.conclude(segment, waived, lambda shown, check: check.judge(segment))
        yield from (("", one) for one in count_rows(segment))
        yield from (("", one) for one in list_used_pairs(segment.steps, segment.lookup))
        yield from (("", one) for one in count_events(row_counts(segment.columns), segment))

    def conclude(
        self,
        segment: Segment,
        waived: Mapping[str, frozenset[int]],
        verdict_of: Callable[[str, Check], CheckVerdict],
        read_rows: Callable[[], Columns] | None = None,
    ) -> Iterator[Result]:
        """What is found in a segment, but for what is counted; `verdict_of`: that of a check, by its name as shown;
        `read_rows`: all rows, where the segment has only some."""
        absent = self._absent(segment)
        holed = find_holed_nodes(segment)
        for shown, protocol, check in self.checks:
            verdict = verdict_of(shown, check)
            partial = [one.run for name, one in absent if name in ("", protocol)]
            if check.whole and partial:
                verdict = _without(verdict, np.isin(verdict.run, partial))
            is_unclear = np.zeros(len(verdict.run), bool)
            if holed and len(verdict.run) and check is not ROWS:
                is_unclear = _is_of_nodes(verdict, read_rows() if read_rows else segment.columns, holed)
            unclear, verdict = int(is_unclear.sum()), _without(verdict, is_unclear)
            yield from (("", one) for one in _split(shown, verdict, waived.get(shown, frozenset()), unclear))
        yield from absent
        for name, report in self.reports.items():
            yield from ((name, one) for one in report.find(segment))

    def _absent(self, segment: Segment) -> list[tuple[str, Absent]]:
        """Whose logs are missing, and for the checks of which protocol ("": of all)."""
        silent = tuple(find_silent_nodes(segment.columns, self.unlogged))
        cut = (one for one in find_lacking_logs(segment, self.unlogged) if (one[0], node_of(one[1])) not in silent)
        told = [(name, one) for name, report in self.reports.items() for one in report.absent(segment)]
        found = dict.fromkeys([*(("", one) for one in (*silent, *cut)), *told])
        return [(name, Absent(run, log)) for name, (run, log) in found]

    @property
    def unlogged(self) -> tuple[str, ...]:
        """Messages of those who keep no log."""
        return tuple(event for report in self.reports.values() for event in report.unlogged)


def _is_of_nodes(verdict: CheckVerdict, columns: Columns, nodes: set[tuple[int, str]]) -> np.ndarray:
    """Which places of a verdict are rows of these (run, node), or the whole of a run that one of them is in."""
    runs = {run for run, _ in nodes}
    bounds = np.cumsum([0, *(count for _, count in columns.runs())])
    begins = {run: slice(*bounds[place : place + 2]) for place, (run, _) in enumerate(columns.runs())}
    found = np.zeros(len(verdict.run), bool)
    for place, (run, seq) in enumerate(zip(verdict.run.tolist(), verdict.seq.tolist(), strict=True)):
        if run in runs:
            row = begins[run].start + int(np.searchsorted(columns["seq"][begins[run]], seq))
            found[place] = seq < 0 or (run, columns.text("node", row)) in nodes
    return found


def _without(verdict: CheckVerdict, is_out: np.ndarray) -> CheckVerdict:
    """The verdict, but for some of its places."""
    places = np.flatnonzero(~is_out)
    describe = verdict.describe
    return CheckVerdict(verdict.checked, verdict.run[places], verdict.seq[places], lambda n: describe(int(places[n])))


def _split(check: str, verdict: CheckVerdict, waived: frozenset[int], unclear: int) -> Iterator[msgspec.Struct]:
    """A verdict, and findings: some of those that are wrong, and some of those that nobody promised."""
    promised = ~np.isin(verdict.run, list(waived)) if waived else np.ones(len(verdict.run), bool)
    yield Found(check, verdict.checked, int(promised.sum()), int((~promised).sum()) + unclear)
    for kept in (True, False):
        for place in _first_places(verdict, np.flatnonzero(promised == kept)):
            yield Finding(check, int(verdict.run[place]), int(verdict.seq[place]), verdict.describe(place), kept)


def _first_places(verdict: CheckVerdict, places: np.ndarray) -> list[int]:
    """The places of the first rows, and all that are about the row of the last of these: however a trace is cut into
    segments, the first findings of all are among them."""
    run, seq = verdict.run[places], verdict.seq[places]
    order = np.lexsort((seq, run))
    last = order[min(SHOWN, len(order)) - 1 : len(order)]
    equal = (run[last] == run[last[:1]]) & (seq[last] == seq[last[:1]])
    return [int(place) for place in places[order[: min(SHOWN - 1 + int(equal.sum()), SHOWN + MOST_EQUAL)]]]


def list_used_rows(steps: Steps, lookup: Lookup) -> list[Used]:
    """Every (machine, row, source, dest) that occurs; a row that no table can have is left out (`rows` says so)."""
    states = len(lookup.states) + 1
    code = ((steps.machine * 1_024 + steps.row + 1) * states + steps.source) * states + steps.dest
    code = code[(steps.row >= -1) & (steps.row < 1_023)]
    codes, counts = np.unique(code, return_counts=True)
    machines, names = [*lookup.machines, "?"], [*lookup.states, "?"]
    return [
        Used(
            machines[value // states // states // 1_024],
            value // states // states % 1_024 - 1,
            names[value // states % states],
            names[value % states],
            int(count),
        )
        for value, count in zip(codes.tolist(), counts, strict=True)
    ]


def list_used_pairs(steps: Steps, lookup: Lookup) -> list[Pair]:
    """Every pair of consecutive rows of an instance that occurs; steps that took no row change nothing and are
    skipped."""
    order = steps.order[steps.row[steps.order] >= 0]
    if len(order) < 2:
        return []
    same = (steps.instance[order][1:] == steps.instance[order][:-1]) & (steps.run[order][1:] == steps.run[order][:-1])
    machine, row = steps.machine[order].astype(np.int64), np.minimum(steps.row[order], lookup.width - 1)
    code = (machine[:-1] * lookup.width + row[:-1]) * lookup.width + row[1:]
    found = np.bincount(code[same])
    machines = [*lookup.machines, "?"]
    return [
        Pair(
            machines[place // lookup.width // lookup.width],
            place // lookup.width % lookup.width,
            place % lookup.width,
            int(found[place]),
        )
        for place in np.flatnonzero(found).tolist()
    ]


def count_rows(segment: Segment) -> Iterator[msgspec.Struct]:
    """What adds up: rows of each run, rows of machines that were taken, steps that cannot be judged."""
    yield from (RunRows(run, rows) for run, rows in segment.columns.runs())
    yield from (Unjudged(missing, count) for missing, count in segment.steps.unjudged.items() if count)
    yield from list_used_rows(segment.steps, segment.lookup)


def count_events(found: Iterable[Count], segment: Segment) -> Iterator[Count]:
    """How many rows of each kind and event each run has (`found`), steps and questions to stores left out.

    How many faults a simulated run had its parameters say, as they took effect: what its rows note besides (a node that
    joins, a subscription that its load changes) is none.
    """
    runs = [run for run, _ in segment.columns.runs()]
    said = {run: faults for run in runs if isinstance(faults := segment.parameters(run).get("faults"), dict)}
    for run, faults in said.items():
        yield from (Count(run, FAULT, str(kind), count) for kind, count in faults.items() if isinstance(count, int))
    for one in found:
        is_fault = one.kind == FAULT and one.run not in said and not one.event.startswith("end_")
        is_fault = is_fault and one.event not in NO_FAULTS
        yield one if is_fault or one.kind != FAULT else msgspec.structs.replace(one, kind=NOTE)


def row_counts(columns: Columns) -> Iterator[Count]:
    """How many rows of each kind and event each run has, as its rows say."""
    events = [*columns.texts["event"], ""]
    others = np.flatnonzero(~columns.is_one_of("kind", (*STEPS, "ask")))
    yield from count_of(
        columns["run"][others],
        columns["kind"][others] * len(events) + columns["event"][others],
        [(kind, event) for kind in [*columns.texts["kind"], ""] for event in events],
    )


def count_of(run: np.ndarray, code: np.ndarray, names: list[tuple[str, str]]) -> Iterator[Count]:
    """How often each code occurs in each run; `names` of the codes: (kind, event)."""
    numbers, place = np.unique(run, return_inverse=True)
    found = np.bincount(place * len(names) + code)
    for value in np.flatnonzero(found).tolist():
        kind, event = names[value % len(names)]
        yield Count(int(numbers[value // len(names)]), kind, event, int(found[value]))
