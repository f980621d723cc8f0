"""Report: everything that missed samples have for reports, as one value.

Drawing of a stream: time from left to right, numbers upwards; what was told, and how long each hole was open.

Streams: the streams of a segment, read once from its rows.

Page: what the page shows of missed samples besides what it shows of any protocol.

Checks: what must hold of every stream, and of the numbers of publishers.

Stream: what came of one source to one life of a subscriber, what was asked for, and what its application was told.

It follows from the rows alone, without a record of a machine.  Numbers are those of the Source, which never come round.
A stream begins anew where a source was forgotten.

HeldNumbers: the numbers of a stream that have come and were not told yet, with the row in which each came.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec
import numpy as np
from markupsafe import Markup

from statemachines.missed_samples import source
from statemachines_reports.columns import STEPS, Columns, stable_order
from statemachines_reports.draw_histogram import format_ns
from statemachines_reports.protocol import (
    Amount,
    AmountRatio,
    Check,
    CheckVerdict,
    Findings,
    Latency,
    MadeValues,
    Measure,
    PageDrawing,
    Parameters,
    ReportProtocol,
    Section,
    Segment,
    Story,
    Tables,
    Tally,
    TraceRoles,
    find_setting,
    verdict,
)


class NumberRange(NamedTuple):
    """Numbers `first`..`last` came in `row`."""

    first: int
    last: int
    row: int


class HeldNumbers:
    """Parts that do not overlap, in order."""

    def __init__(self) -> None:
        self.parts: list[NumberRange] = []

    def __len__(self) -> int:
        return sum(part.last - part.first + 1 for part in self.parts)

    def add(self, first: int, last: int, row: int) -> int:
        """They came; how many of them are new."""
        parts = self.parts
        if not parts or parts[-1].last < first:
            parts.append(NumberRange(first, last, row))
            return last - first + 1
        at = max(bisect_right(parts, (first, first, row)) - 1, 0)
        new: list[NumberRange] = []
        begin = first
        for part in parts[at:]:
            if part.first > last:
                break
            if begin < part.first:
                new.append(NumberRange(begin, part.first - 1, row))
            begin = max(begin, part.last + 1)
        if begin <= last:
            new.append(NumberRange(begin, last, row))
        if new:
            self.parts = sorted([*parts, *new])
        return sum(part.last - part.first + 1 for part in new)

    def take(self, first: int, last: int) -> Iterator[NumberRange]:
        """Those of a range that have come; they and everything below are held no more."""
        kept: list[NumberRange] = []
        taken: list[NumberRange] = []
        for part in self.parts:
            if part.first > last:
                kept.append(part)
                continue
            if part.last >= first:
                taken.append(NumberRange(max(part.first, first), min(part.last, last), part.row))
            if part.last > last:
                kept.append(NumberRange(last + 1, part.last, part.row))
        self.parts = kept
        yield from taken

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.parts, (number, 1 << 63, 0)) - 1
        return at >= 0 and self.parts[at].last >= number


RECOVERED, MISSED, OPEN = "recovered", "missed", "open"
DELIVER, QUERY, GONE = "deliver", "query", "gone"
ENDS = ("query_ended", "overdue")
UNPROMPTED = "period_over"
"""After it a query is sent that nobody waits for."""
MET = ("appeared", "history_ended")
"""A source that is known by its token alone is asked for its newest samples."""


class Hole(NamedTuple):
    """Numbers that were missing: `size` of them from `first` on, since the row `since`, which was a `cause` (a sample
    or heartbeat ahead of them), until the row `until` (-1: to the end); `outcome`: recovered, missed, open."""

    first: int
    size: int
    since: int
    until: int
    cause: str
    outcome: str


class KnownTop(NamedTuple):
    """From this row on it is known that everything below `top` exists."""

    top: int
    row: int
    cause: str


class SampleStream:
    """`pending`: so many numbers that are ahead of a hole are held at most; where there are more, the oldest hole gives
    way, asked for or not (None: nobody knows, and every sample may be one too many).  `next`: the first number that was
    not told (-1: nothing is settled yet)."""

    def __init__(self, name: str, pending: int | None, findings: Findings) -> None:
        self.name = name
        self.pending = pending
        self.findings = findings
        self.next = -1
        self.delivered = self.again = self.queries = 0
        self.holes: list[Hole] = []
        self._held = HeldNumbers()
        self._known: list[KnownTop] = []
        self._ended = -1
        self._asked: list[tuple[int, int, int]] = []
        self._step = ""

    @property
    def top(self) -> int:
        """The first number never heard of; -1: none was."""
        return self._known[-1].top if self._known else -1

    def step(self, row: int, event: str, first: int, last: int) -> None:
        """A step of the Source."""
        self.settle()
        self._step = event
        if event == "sample":
            self._hear(row, last + 1, event)
            fresh = self._held.add(max(first, self.next), last, row) if last >= self.next else 0
            self.again += last - first + 1 - fresh
        elif event == "heartbeat" and last >= 0:
            self._hear(row, last + 1, event)
        elif event in ENDS:
            self._ended = row

    def _hear(self, row: int, top: int, cause: str) -> None:
        if top > self.top:
            self._known.append(KnownTop(top, row, cause))

    def ask(self, row: int, first: int, last: int) -> None:
        """A query for `first`..`last` (`last` below `first`: for the newest there are), as an effect of the last step;
        what it told besides stands beside it."""
        self.queries += 1
        self._asked.append((row, first, last))

    def settle(self) -> None:
        """The last step has had all its effects."""
        asked, self._asked = self._asked, []
        for row, first, last in asked:
            looks = last < first
            if looks and self._step in MET:
                continue  # of a source that nothing has come of
            if self.next < 0:
                self.next = first
            self.findings.looked["asked"] += 1
            if first < self.next or (first > self.next and looks):  # what is lower may be asked for already
                self._say("asked", row, f"asks from {first} on, and {self.next} is the first that was not told")
            elif not looks and (first >= self.top or first in self._held):
                self._say("asked", row, f"asks from {first} on, and nothing is missing")
            elif looks and self._step != UNPROMPTED:
                self._say("asked", row, f"asks for the newest from {first} on, and nobody waits for that")

    def tell_range(self, row: int, event: str, first: int, last: int) -> None:
        """The application was told of a range."""
        self._judge_order(row, event, first)
        if event == DELIVER:
            self._deliver(row, first, last)
        else:
            self._miss(row, first, last)
        self.next = max(self.next, last + 1)
        while len(self._known) > 1 and self._known[0].top <= self.next:
            del self._known[0]

    def _judge_order(self, row: int, event: str, first: int) -> None:
        self.findings.looked["once"] += 1
        self.findings.looked["reported"] += 1
        if self.next < 0:
            return
        if first < self.next:
            self._say("once", row, f"{event} {first}, and everything below {self.next} was told")
        elif first > self.next:
            self._say("reported", row, f"{event} {first}, and nothing was said of {self.next}")

    def _deliver(self, row: int, first: int, last: int) -> None:
        count = last - first + 1
        self.delivered += count
        self.findings.looked["came"] += 1
        parts = list(self._held.take(first, last))
        if sum(part.last - part.first + 1 for part in parts) < count:
            self._say("came", row, f"delivers {first}..{last}, and not all of it has come")
        for part in parts:
            self._note(part.first, part.last, row, RECOVERED, came=part.row)

    def _miss(self, row: int, first: int, last: int) -> None:
        self.findings.looked["given_up"] += 1
        crowded = self._step == "sample" if self.pending is None else len(self._held) > self.pending
        if list(self._held.take(first, last)):
            self._say("given_up", row, f"reports {first}..{last} as missed, and some of it has come")
        if last >= self.top:
            self._say("given_up", row, f"reports {first}..{last} as missed, which was never heard of")
        elif self._ended < self._known_since(last).row and not crowded:
            self._say("given_up", row, f"reports {first}..{last} as missed, and no query for it has ended")
        self._note(first, min(last, self.top - 1), row, MISSED)

    def _known_since(self, number: int) -> KnownTop:
        return self._known[bisect_right(self._known, number, key=lambda known: known.top)]

    def _note(self, first: int, last: int, until: int, outcome: str, came: int = 1 << 63) -> None:
        """Holes, apart where they were known apart; what `came` in the row in which it was first heard of is none."""
        while first <= last:
            known = self._known_since(first)
            end = min(known.top - 1, last)
            if known.row < came:
                self.holes.append(Hole(first, end - first + 1, known.row, until, known.cause, outcome))
            first = end + 1

    def _say(self, check: str, row: int, detail: str) -> None:
        self.findings.wrong[check][row] = f"{self.name} {detail}"

    def end(self) -> None:
        """Nothing more of it comes: what is missing stays so."""
        self.settle()
        begin = self.next
        for part in [*self._held.parts, None]:
            if begin >= 0:
                self._note(begin, (self.top if part is None else part.first) - 1, -1, OPEN)
            begin = begin if part is None else part.last + 1


WIDTH, HEIGHT, LEFT, BELOW, LINE = 560, 220, 60, 22, 15
HOLES = 400
"""So many holes are drawn at most: the first."""
COLOURS = {RECOVERED: "var(--green)", MISSED: "var(--red)", OPEN: "var(--grey)"}
WORDS = {RECOVERED: "came later, delivered", MISSED: "reported as missed", OPEN: "missing at the end"}


def draw(stream: SampleStream, t_ns: np.ndarray) -> Markup:
    """Its holes; `t_ns`: the times of the rows."""
    holes = stream.holes[:HOLES]
    ends = [hole.until if hole.until >= 0 else len(t_ns) - 1 for hole in holes]
    begin = int(min(t_ns[hole.since] for hole in holes))
    span = max(int(max(t_ns[end] for end in ends)) - begin, 1)
    low = min(hole.first for hole in holes)
    high = max(hole.first + hole.size for hole in holes)

    def x(row: int) -> float:
        return LEFT + (WIDTH - LEFT - 8) * (int(t_ns[row]) - begin) / span

    def y(number: int) -> float:
        return 8 + (HEIGHT - 8) * (1 - (number - low) / max(high - low, 1))

    parts = [
        f'<svg class="stream" viewBox="0 0 {WIDTH} {HEIGHT + BELOW + LINE * len(COLOURS)}" '
        f'style="max-width:{WIDTH}px" role="img"><title>A stream with holes</title>'
    ]
    for hole, end in zip(holes, ends, strict=True):
        parts.append(_bar(hole, x(hole.since), x(end), y(hole.first), y(hole.first + hole.size)))
    return Markup("".join([*parts, *_legend(low, high - 1, span)]) + "</svg>")


def _bar(hole: Hole, x1: float, x2: float, y1: float, y2: float) -> str:
    return (
        f'<rect x="{x1:.1f}" y="{y2:.1f}" width="{max(x2 - x1, 2):.1f}" height="{max(y1 - y2, 3):.1f}" '
        f'style="fill:{COLOURS[hole.outcome]}"><title>{hole.first}..{hole.first + hole.size - 1}: '
        f"{WORDS[hole.outcome]}</title></rect>"
    )


def _legend(low: int, high: int, span: int) -> list[str]:
    def text(x: float, y: float, words: str, anchor: str = "start") -> str:
        return f'<text x="{x}" y="{y}" style="text-anchor:{anchor};font-size:10px">{words}</text>'

    parts = [
        text(LEFT - 6, 16, str(high), "end"),
        text(LEFT - 6, HEIGHT, str(low), "end"),
        text(LEFT, HEIGHT + 14, "0 s"),
        text(WIDTH, HEIGHT + 14, format_ns(span), "end"),
    ]
    for number, (outcome, colour) in enumerate(COLOURS.items()):
        y = HEIGHT + BELOW + LINE * number
        parts.append(f'<rect x="{LEFT}" y="{y}" width="10" height="10" style="fill:{colour}"/>')
        parts.append(text(LEFT + 16, y + 9, WORDS[outcome]))
    return parts


SUBSCRIBER, SOURCE = "missed_samples/subscriber", "missed_samples/source"
DOUBTS = frozenset(number for number, line in enumerate(source.SOURCE.lines) if line.clause == "MS-70")
"""The rows of the table of a Source by which a number counts for nothing, being too far ahead."""


def pending_of(parameters: Parameters) -> int | None:
    """How many numbers a subscriber of the run holds, by its settings (`Recovery.pending`); None: nobody tells, as of a
    real run."""
    pending = find_setting(parameters, "settings", "recovery", "pending")
    return pending if isinstance(pending, int) else None


class SampleStreams:
    """`found`: (run, stream), in the order in which they end; `findings` of all of them."""

    def __init__(self, columns: Columns, parameters: Callable[[int], Parameters]) -> None:
        self.columns = columns
        self._parameters = parameters
        self.found: list[tuple[int, SampleStream]] = []
        self.findings = Findings()
        self._run = -1
        self._pending: int | None = None
        texts = [*columns.texts["instance"], ""]
        self._open: MadeValues[int, SampleStream] = MadeValues(
            lambda code: SampleStream(texts[code], self._pending, self.findings)
        )
        self._codes = {text: code for code, text in enumerate(columns.texts["instance"])}
        self._pairs: MadeValues[tuple[int, int], int] = MadeValues(self._find_source)
        self._read()

    def _read(self) -> None:
        columns = self.columns
        self._rows_taken = columns["row"]
        steps, asks = columns.rows_of(*STEPS, machine=(SOURCE,)), columns.rows_of("ask", event=(QUERY,))
        tells = columns.rows_of("tell", event=(DELIVER, MISSED), machine=(SUBSCRIBER,))
        rows = np.sort(np.concatenate((steps, tells, asks)))
        wanted = ("run", "instance", "key", "first", "last")
        cells = (columns[name][rows].tolist() for name in wanted)
        for row, run, instance, key, first, last in zip(rows.tolist(), *cells, strict=True):
            if run != self._run:
                self._end()
                self._run, self._pending = run, pending_of(self._parameters(run))
            self._take(row, instance, key, first, last)
        self._end()

    def _take(self, row: int, instance: int, key: int, first: int, last: int) -> None:
        kind, event = self.columns.text("kind", row), self.columns.text("event", row)
        if kind in STEPS:
            stream = self._open[instance]
            if self._rows_taken[row] not in DOUBTS:
                stream.step(row, event, first, last)
            if self.columns.text("dest", row) == GONE:
                self._close(instance)
            return
        code = self._pairs[instance, key]
        if code < 0:
            return  # a query about every source: what there is to know of it
        if kind == "ask":
            self._open[code].ask(row, first, last)
        else:
            self._open[code].tell_range(row, event, first, last)

    def _find_source(self, pair: tuple[int, int]) -> int:
        """The code of the Source of this name (key) at a subscriber (party); -1: it has none."""
        (party, key), keys = pair, self.columns.texts["key"]
        parties = self.columns.texts["instance"]
        name = f"{parties[party]}:{keys[key]}" if party < len(parties) and key < len(keys) else ""
        return self._codes.get(name, -1)

    def _close(self, instance: int) -> None:
        stream = self._open.pop(instance)
        stream.end()
        self.found.append((self._run, stream))

    def _end(self) -> None:
        for instance in list(self._open):
            self._close(instance)


def streams_of(segment: Segment) -> SampleStreams:
    """Those of a segment, read once."""
    return streams_in(segment.columns, segment.parameters)


def streams_in(columns: Columns, parameters: Callable[[int], Parameters]) -> SampleStreams:
    """Those of columns, read once; `parameters` of each run."""
    return columns.keep((SampleStreams,), lambda: SampleStreams(columns, parameters))


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


PUBLISHER = "missed_samples/publisher"


def judge_numbers(segment: Segment) -> CheckVerdict:
    """A life of a publisher numbers its samples without a gap."""
    columns = segment.columns
    rows = columns.rows_of("tell", event=("stamped",), machine=(PUBLISHER,))
    rows = rows[stable_order(columns["instance"][rows], len(columns.texts["instance"]) + 1)]
    same = np.ones(max(len(rows) - 1, 0), bool)
    for name in ("run", "instance"):
        same &= columns[name][rows][1:] == columns[name][rows][:-1]
    first, last = columns["first"][rows], columns["last"][rows]
    wrapped = first[1:] == 0  # the numbers of the wire come round
    wrong = rows[1:][same & ~wrapped & (first[1:] != last[:-1] + 1)]

    def describe(row: int) -> str:
        return f"{columns.text('instance', row)} numbers {columns['first'][row]}, which is not the next"

    return verdict(columns, len(rows), np.sort(wrong), describe)


def _judged(name: str, claim: str) -> Check:
    """Of this name among what is wrong with the streams."""

    return Check(name, claim, lambda segment: streams_of(segment).findings.judge(segment.columns, name))


CHECKS = (
    Check("numbers", "a publisher numbers its samples without a gap (NUMBERED)", judge_numbers),
    _judged("once", "of each source, numbers are told in order, and none twice (ORDER, ONCE)"),
    _judged("reported", "between two that are told no number is left out (REPORT)"),
    _judged("came", "what is delivered has come (INVENTED)"),
    _judged("given_up", "what is reported missed was asked for, and has not come (NOGAP, HASTY)"),
    _judged("asked", "who asks asks for what is missing, the first number first (ASKED, QUIET)"),
)


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
    rows = columns.rows_of("tell", event=("turned_away",), machine=(SUBSCRIBER,))
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
