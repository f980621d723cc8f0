"""Drawing of a run over time: which node delivered each stream, deliveries a second, faults, and what broke, as SVG.

Run story: one run in the order in which it happened: deliveries, faults, and why something came twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
from markupsafe import Markup, escape

from statemachines_reports.columns import Columns
from statemachines_reports.draw_histogram import format_ns
from statemachines_reports.protocol import PageDrawing, TraceRoles

MOST_NUMBERS: Final = 300_000
"""Deliveries of a run that are looked at for repetitions: beyond, the page does not count them."""

NO_FAULT: Final = "no fault between the two"

MENDS: Final = ("join", "restart", "resume", "heal", "subscribe")
"""What is done to a process, or to all, that harms nothing."""


class DeliveredRange(NamedTuple):
    """A row that gives something to an application; `numbers`: first to last, (-1, -1) for one without a number."""

    row: int
    t_ns: int
    stream: str
    node: str
    first: int
    last: int
    is_keyed: bool = True

    @property
    def messages(self) -> int:
        """How many messages it is."""
        return 1 if self.first < 0 else max(1, self.last - self.first + 1)


class FaultMark(NamedTuple):
    """A fault of the run, or something that was done to a process."""

    row: int
    t_ns: int
    kind: str
    node: str

    @property
    def is_harm(self) -> bool:
        """It is no end of a fault, and nothing that mends one."""
        return self.kind not in MENDS and not self.kind.startswith("end_")


class RunStory(NamedTuple):
    """`begin_ns` to `end_ns`: the run; `repeated`: cause -> messages that were delivered again (None: not counted)."""

    begin_ns: int
    end_ns: int
    deliveries: list[DeliveredRange]
    faults: list[FaultMark]
    repeated: dict[str, int] | None


def read_story(columns: Columns, roles: Iterable[TraceRoles]) -> RunStory:
    """The story of a run of these protocols."""
    deliveries = [one for each in roles for one in _deliveries(columns, each)]
    deliveries.sort()
    times = columns["t_ns"]
    faults = [
        FaultMark(row, int(times[row]), columns.text("event", row), columns.text("node", row))
        for row in columns.rows_of("fault").tolist()
    ]
    begin, end = (int(times.min()), int(times.max())) if columns.rows else (0, 0)
    # Without a key a protocol's deliveries say what became of messages, and no second one of the same number is again.
    return RunStory(begin, end, deliveries, faults, _repeated([one for one in deliveries if one.is_keyed], faults))


def _deliveries(columns: Columns, roles: TraceRoles) -> Iterable[DeliveredRange]:
    """Each row that the protocol declares to be a delivery."""
    numbered = "last" if "last" in roles.number else "first"
    for kind, event in roles.deliveries:
        rows = columns.rows_of(kind, event=(event,))
        firsts, lasts = columns["first"][rows].tolist(), columns[numbered][rows].tolist()
        for row, first, last in zip(rows.tolist(), firsts, lasts, strict=True):
            stream = columns.text(roles.key, row) if roles.key else columns.text("instance", row)
            stream = (
                stream.rpartition(roles.stream_end)[0] if roles.stream_end in stream and roles.stream_end else stream
            )
            yield DeliveredRange(
                row, int(columns["t_ns"][row]), stream, columns.text("node", row), first, last, bool(roles.key)
            )


def _repeated(deliveries: list[DeliveredRange], faults: list[FaultMark]) -> dict[str, int] | None:
    """The last fault between two deliveries of a message is what the second is counted under."""
    if sum(one.messages for one in deliveries) > MOST_NUMBERS:
        return None
    faults = [fault for fault in faults if fault.is_harm]
    rows = [fault.row for fault in faults]
    latest: dict[tuple[str, int], int] = {}
    found: dict[str, int] = {}
    for one in deliveries:
        if one.first < 0:
            continue
        for number in range(one.first, max(one.first, one.last) + 1):
            before = latest.get((one.stream, number))
            if before is not None:
                place = bisect_right(rows, one.row)
                fault = faults[place - 1] if place and rows[place - 1] > before else None
                cause = NO_FAULT if fault is None else f"{fault.kind}{f' of {fault.node}' if fault.node else ''}"
                found[cause] = found.get(cause, 0) + 1
            latest[one.stream, number] = one.row
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def time_of(columns: Columns, seq: int) -> int | None:
    """When the row of this number was written, in nanoseconds; None where the run has no such row."""
    places = np.flatnonzero(columns["seq"] == seq)
    return int(columns["t_ns"][places[0]]) if len(places) else None


WIDTH, LEFT, RIGHT, LANE, RATE, ROWS = 1060, 200, 14, 18, 70, 3
"""Of the picture; `ROWS` of names of faults."""

NAME: Final = 7.0
"""So wide is a letter of a name."""

LABEL: Final = 30
"""Letters of the name of a stream."""

MOST_STREAMS: Final = 14
"""The streams with the most deliveries are drawn."""

MOST_COLUMNS: Final = 1_500
"""Of all lanes together: within a column only one mark of a node is drawn, so that the picture stays small."""

PAUSE: Final = 0.01
"""A bar ends where a node delivers nothing of a stream for this share of the run."""

MOST_FAULTS: Final = 300

COLOURS: Final = 8
"""Nodes beyond share colours."""

PIXELS: Final = WIDTH - LEFT - RIGHT


def draw(story: RunStory, broken_ns: int | None = None) -> PageDrawing | None:
    """None where nothing is delivered and no fault happens; `broken_ns`: when the first violation was."""
    if not story.deliveries and not story.faults:
        return None
    streams = Counter[str]()
    for one in story.deliveries:
        streams[one.stream] += one.messages
    shown = sorted(name for name, _ in streams.most_common(MOST_STREAMS))
    nodes = sorted({one.node for one in story.deliveries})
    picture = _Timeline(story, nodes, len(streams))
    picture.draw_faults()
    for name in shown:
        picture.draw_stream(name)
    picture.draw_rate()
    if broken_ns is not None:
        picture.mark_violation(broken_ns)
    left = (
        f"; {len(streams) - len(shown)} streams with fewer deliveries are left out" if len(streams) > len(shown) else ""
    )
    caption = (
        f"{format_ns(story.end_ns - story.begin_ns)} from left to right. A lane is a stream, and its colour the node "
        f"that delivered it; the bars are deliveries a second. A mark is a fault, a pale one its end{left}."
    )
    return PageDrawing("Who delivered what, and when", caption, picture.finish())


END: Final = ' style="text-anchor:end"'


class _Timeline:
    """The picture so far; `y`: where the next lane begins."""

    def __init__(self, story: RunStory, nodes: list[str], streams: int) -> None:
        self.story = story
        self.nodes = nodes
        self.span = max(1, story.end_ns - story.begin_ns)
        self.parts: list[str] = []
        """What stays where it is when a reader zooms."""
        self.plot: list[str] = []
        self.y = 16 + ROWS * 13 + 6
        self.top = self.y
        self.marks: list[str] = []
        self.column = max(1.0, PIXELS * min(MOST_STREAMS, streams) / MOST_COLUMNS)
        self._legend()

    def x(self, t_ns: int) -> float:
        """Where an instant is."""
        return LEFT + PIXELS * (t_ns - self.story.begin_ns) / self.span

    def _legend(self) -> None:
        x = float(LEFT)
        for number, node in enumerate(self.nodes[: 2 * COLOURS]):
            self.parts.append(
                f'<rect class="node-{number % COLOURS}" x="{x:.0f}" y="3" width="10" height="10" rx="2"/>'
            )
            self.parts.append(f'<text class="name" x="{x + 14:.0f}" y="12">{escape(node)}</text>')
            x += 28 + 7 * len(node)
            if x > WIDTH - 60:
                break

    def draw_faults(self) -> None:
        """A mark for each, and its name where there is room."""
        ends = [0.0] * ROWS
        for fault in self.story.faults[:MOST_FAULTS]:
            x = self.x(fault.t_ns)
            text = f"{fault.kind} {fault.node}".strip()
            at = format_ns(fault.t_ns - self.story.begin_ns)
            width = NAME * len(text) + 5
            left = x - width if x + width > WIDTH - RIGHT else x  # at the right edge the name stands before its mark
            row = next((number for number, end in enumerate(ends) if end <= left), None)
            self.marks.append(f'<line class="when" x1="{x:.1f}" x2="{x:.1f}" y1="{self.top - 4}" y2="BOTTOM"/>')
            pale = "" if fault.is_harm else ' opacity="0.4"'
            self.marks.append(
                f'<g class="fault"{pale}><circle cx="{x:.1f}" cy="{self.top - 4}" r="3.5"/>'
                f"<title>{escape(text)} at {at}</title>"
            )
            if row is not None and fault.is_harm:
                ends[row] = max(x, left + width) + 7
                place, end = (x + 5, "") if left == x else (x - 5, END)
                self.marks.append(f'<text class="name" x="{place:.1f}" y="{28 + 13 * row}"{end}>{escape(text)}</text>')
            self.marks.append("</g>")

    def draw_stream(self, name: str) -> None:
        """A lane: runs of columns in which the same node delivered last."""
        mine = [one for one in self.story.deliveries if one.stream == name]
        label = name if len(name) <= LABEL else f"{name[: LABEL // 3]}…{name[1 - 2 * LABEL // 3 :]}"
        self.parts.append(f'<text class="lane" x="{LEFT - 8}" y="{self.y + 12}">{escape(label)}</text>')
        self.parts.append(
            f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{self.y + LANE - 1}" y2="{self.y + LANE - 1}"/>'
        )
        by_pixel: dict[tuple[int, str], list[DeliveredRange]] = {}
        for one in mine:
            by_pixel.setdefault((int(self.x(one.t_ns) / self.column), one.node), []).append(one)
        for run in self._split_at_pauses(sorted(by_pixel)):
            node = run[0][1]
            first, last = by_pixel[run[0]][0], by_pixel[run[-1]][-1]
            count = sum(one.messages for place in run for one in by_pixel[place])
            begin, end = self.x(first.t_ns), self.x(last.t_ns)
            colour = self.nodes.index(node) % COLOURS
            said = f"{name}: {node}, {count:,} deliveries from {self._since(first)} to {self._since(last)}"
            self.plot.append(
                f'<rect class="node-{colour}" x="{begin:.1f}" y="{self.y + 2}" width="{max(end - begin, 2):.1f}" '
                f'height="{LANE - 6}"><title>{escape(said)}</title></rect>'
            )
        self.y += LANE

    def _split_at_pauses(self, places: list[tuple[int, str]]) -> list[list[tuple[int, str]]]:
        """(column, node) of deliveries, in runs of one node without a long pause."""
        runs: list[list[tuple[int, str]]] = []
        for place in places:
            goes_on = runs and runs[-1][-1][1] == place[1]
            if goes_on and (place[0] - runs[-1][-1][0]) * self.column <= PAUSE * PIXELS:
                runs[-1].append(place)
            else:
                runs.append([place])
        return runs

    def _since(self, one: DeliveredRange) -> str:
        return format_ns(one.t_ns - self.story.begin_ns)

    def draw_rate(self) -> None:
        """Deliveries a second, in a hundred bars."""
        if not self.story.deliveries:
            return
        bars = 100
        counts = [0] * bars
        for one in self.story.deliveries:
            counts[min(bars - 1, (one.t_ns - self.story.begin_ns) * bars // self.span)] += one.messages
        seconds = self.span / 1e9 / bars
        most = max(counts)
        self.y += 8
        self.parts.append(f'<text class="lane" x="{LEFT - 8}" y="{self.y + 12}">{most / seconds:,.0f} a second</text>')
        width = PIXELS / bars
        for number, count in enumerate(counts):
            height = RATE * count / most
            self.plot.append(
                f'<rect class="bar" x="{LEFT + number * width:.1f}" y="{self.y + RATE - height:.1f}" '
                f'width="{width - 1:.1f}" height="{height:.1f}"><title>{count / seconds:,.0f} a second</title></rect>'
            )
        self.y += RATE

    def mark_violation(self, t_ns: int) -> None:
        """A line from top to bottom."""
        x = self.x(min(max(t_ns, self.story.begin_ns), self.story.end_ns))
        at = format_ns(max(0, t_ns - self.story.begin_ns))
        end = "end" if x > WIDTH - 200 else "start"
        self.marks.append(
            f'<g class="first"><line x1="{x:.1f}" x2="{x:.1f}" y1="{self.top - 8}" y2="BOTTOM"/>'
            f'<text x="{x + (-6 if end == "end" else 6):.1f}" y="{self.y + 12}" style="text-anchor:{end}">'
            f"first violation, {at}</text></g>"
        )

    def finish(self) -> Markup:
        """All of it."""
        bottom = self.y + 18
        ticks = "".join(
            f'<text class="tick" x="{LEFT + PIXELS * part / 5:.0f}" y="{bottom + 12}"{END if part == 5 else ""}>'
            f"{format_ns(self.span * part / 5)}</text>"
            for part in range(6)
        )
        marks = "".join(self.marks).replace('"BOTTOM"', f'"{self.y}"')
        box = f'x="{LEFT}" y="0" width="{PIXELS}" height="{bottom}" viewBox="{LEFT} 0 {PIXELS} {bottom}"'
        return Markup(
            f'<svg class="timeline" data-span-ns="{self.span}" viewBox="0 0 {WIDTH} {bottom + 18}" role="img">'
            f"<title>the run over time</title>{''.join(self.parts)}"
            f'<svg class="plot" {box}><rect class="ground" width="{WIDTH}" height="{bottom}"/>'
            f"{''.join(self.plot)}{marks}</svg>{ticks}</svg>"
        )
