"""Drawing of a run: a sequence diagram of a few messages around a fault, as SVG."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from markupsafe import Markup, escape

from statemachines.trace.parquet import TEXTS
from statemachines_reports.columns import read_run
from statemachines_reports.draw_histogram import format_ns
from statemachines_reports.protocol import Story

ARROWS = 60
"""At most so many messages are drawn."""

MARKS = 150
"""At most so many arrows and notes together: the picture ends behind them."""

BEFORE, AFTER = 40, 12
"""So many rows before a counterexample the picture begins, and after it it ends."""

DEATHS = ("kill", "crash", "lost_disk")
COLUMN, LINE, TOP = 190, 15, 58
READ = (
    "seq", "t_ns", "node", "machine", "instance", "kind", "event", "source", "dest", "peer", "msg", "key", "first",
    "last",
)  # fmt: skip


class Mark(msgspec.Struct):
    """Something on the picture, at a line: an arrow (from, to), or a note on one node."""

    line: int
    kind: str
    text: str
    node: str
    peer: str = ""
    until: int = 0
    times: int = 1
    first: int = -1


class Picture(msgspec.Struct):
    """The diagram, and what it shows in words."""

    svg: Markup
    title: str
    caption: str


def draw(path: Path, run: int, story: Story, seq: int | None = None) -> Picture | None:
    """The run around its first death, else where its story begins, else its first fault, else its beginning; None
    where there is no message, step or fault to draw.

    `seq`: around that row instead, with what concerns its key: messages about it, and what applications were told.
    """
    rows = [
        row | {name: row[name] or "" for name in TEXTS if name in row} for row in read_run(path, READ, run).to_pylist()
    ]
    key = next((row["key"] for row in rows if row["seq"] == seq), None)
    shown = [row for row in rows if (_is_shown(row, story) if key is None else _concerns(row, key, story))]
    if not shown:
        return None
    if key is None:
        begin, title = _begin(shown, story)
        left = f"without {', '.join(story.quiet)}" if story.quiet else "all messages"
    else:
        place = next((number for number, row in enumerate(shown) if row["seq"] >= (seq or 0)), len(shown) - 1)
        begin, shown = max(0, place - BEFORE), shown[: place + AFTER]
        title, left = story.title.format(key=key), f"only what concerns {key}, and faults"
    marks, nodes, end = _marks(shown, begin, seq, story)
    first, last = shown[begin]["t_ns"], shown[end - 1]["t_ns"]
    start = rows[0]["t_ns"]
    caption = f"run {run}, {format_ns(max(first - start, 0))} to {format_ns(last - start)} after its beginning; {left}"
    return Picture(_svg(marks, sorted(nodes)), title, caption) if marks else None


def _is_shown(row: dict[str, Any], story: Story) -> bool:
    if row["kind"] in ("send", "deliver", "drop"):
        return row["event"] not in story.quiet
    if row["kind"] == "fault":
        return True
    changed = row["kind"] in ("step", "timer") and row["source"] != row["dest"]
    if story.machines is None:
        return changed and ":" not in row["instance"]
    return changed and row["machine"] in story.machines


def _concerns(row: dict[str, Any], key: str, story: Story) -> bool:
    """What has to do with one key, besides what happened to processes."""
    if row["kind"] in ("send", "deliver", "drop"):
        return row["key"] == key and row["event"] not in story.quiet
    told = row["kind"] == "tell" and row["key"] == key and (not story.told or row["event"] in story.told)
    return told or _is_shown(row, story)


def _begin(rows: list[dict[str, Any]], story: Story) -> tuple[int, str]:
    """A little before the first death (or what else begins a story, or fault); and what it is called."""
    wanted: list[tuple[str, Callable[[dict[str, Any]], bool]]] = [
        ("its first death", lambda row: row["kind"] == "fault" and row["event"] in (*DEATHS, *story.deaths)),
        *((words, partial(_enters, machine=machine, state=state)) for words, machine, state in story.begins),
        ("its first fault", lambda row: row["kind"] == "fault"),
    ]
    for name, is_it in wanted:
        for number, row in enumerate(rows):
            if is_it(row):
                return max(0, number - 6), f"One run, around {name}"
    return 0, "One run, from its beginning"


def _enters(row: dict[str, Any], *, machine: str, state: str) -> bool:
    return bool(row["machine"] == machine and row["dest"] == state)


def _marks(rows: list[dict[str, Any]], begin: int, seq: int | None, story: Story) -> tuple[list[Mark], set[str], int]:
    """The marks from row `begin` on, the nodes they are on, and where the picture ends."""
    window = SequenceMarks(seq, story)
    number = begin
    for number in range(begin, len(rows)):
        if not window.add(rows[number]):
            break
    return window.marks, window.nodes, number + 1


class SequenceMarks:
    """The marks so far.  A message that a node sends again because nobody answered is counted on its first arrow,
    which ends where the first of them arrives; a copy made by the network is an arrow of its own.  `seq`: the row that
    is a counterexample."""

    def __init__(self, seq: int | None, story: Story) -> None:
        self._seq = seq
        self._story = story
        self.marks: list[Mark] = []
        self.nodes: set[str] = set()
        self._line = self._arrows = 0
        self._under_way: dict[int, Mark] = {}
        self._unanswered: dict[tuple[str, str, str], Mark] = {}
        self._arrived: dict[int, Mark] = {}

    def add(self, row: dict[str, Any]) -> bool:
        """Draw a row; False: the picture is full."""
        if len(self.marks) >= MARKS:
            return False
        if row["kind"] == "send":
            return self._send(row)
        if row["kind"] in ("deliver", "drop"):
            self._arrive(row)
        elif row["kind"] == "tell":
            return self._tell(row)
        else:
            self._note(row)
        return True

    def _send(self, row: dict[str, Any]) -> bool:
        node, peer = row["node"], (row["peer"] or "").partition("~")[0]
        label = f"{row['event']} {(row['key'] or '').rpartition('/')[2]}".strip()
        before = self._unanswered.get((node, peer, label))
        if before is not None:
            before.times += 1
            self._under_way[row["msg"]] = before
            return True
        if self._arrows >= ARROWS:
            return False
        self._arrows += 1
        self._line += 1
        mark = Mark(self._line, "lost", label, node, peer, self._line)
        self._under_way[row["msg"]] = self._unanswered[node, peer, label] = mark
        self.marks.append(mark)
        self.nodes |= {node, peer}
        return True

    def _arrive(self, row: dict[str, Any]) -> None:
        mark = self._under_way.pop(row["msg"], None)
        if row["kind"] == "deliver":
            if mark is not None:
                self._arrived[row["msg"]] = mark
            elif row["msg"] in self._arrived:
                self._copy(self._arrived[row["msg"]])
        if mark is not None and row["kind"] == "deliver" and mark.kind == "lost":
            self._line += 1
            mark.until = self._line
            mark.kind = "arrow"
        if row["kind"] == "deliver":  # an answer, perhaps: what the node sends to that one now is new
            sender = (row["peer"] or "").partition("~")[0]
            for known in [one for one in self._unanswered if one[:2] == (row["node"], sender)]:
                del self._unanswered[known]

    def _copy(self, first: Mark) -> None:
        """A message that has arrived before arrives once more."""
        if self._arrows < ARROWS:
            self._arrows += 1
            self._line += 2
            text = f"copy of {first.text}"
            self.marks.append(Mark(self._line - 1, "arrow", text, first.node, first.peer, self._line))

    def _tell(self, row: dict[str, Any]) -> bool:
        """Something for the application; ranges that go on where the last one ended are one."""
        last = self.marks[-1] if self.marks else None
        amid = row["seq"] == self._seq
        kind = "fault" if amid else "told"
        if last is None or (last.kind, last.peer) != (kind, row["instance"]):
            if self._arrows >= ARROWS:
                return False
            self._line += 1
            last = Mark(
                self._line, kind, "", row["node"], row["instance"], first=-1 if row["first"] is None else row["first"]
            )
            self.marks.append(last)
            self._arrows += 1
            self.nodes.add(row["node"])
        life = row["instance"].partition("~")[2].partition("/")[0]
        words = self._story.told.get(row["event"], row["event"])
        range_ = "" if row["last"] is None else f" {last.first} to {row['last']}"
        last.text = f"life {life} {words}{range_}{', amid another' if amid else ''}"
        return True

    def _note(self, row: dict[str, Any]) -> None:
        fault = row["kind"] == "fault"
        text = row["event"] if fault else f"{row['machine'].rpartition('/')[2]} {row['source']} → {row['dest']}"
        self._line += 1
        self.marks.append(Mark(self._line, "fault" if fault else "note", text, row["node"] or "network"))
        self.nodes.add(row["node"] or "network")


def _svg(marks: list[Mark], nodes: list[str]) -> Markup:
    x = {node: 100 + number * COLUMN for number, node in enumerate(nodes)}
    bottom = TOP + (max(mark.until or mark.line for mark in marks) + 2) * LINE
    width = 330 + (len(nodes) - 1) * COLUMN
    parts = [f'<svg class="sequence" viewBox="0 0 {width} {bottom + 10}" style="max-width:{width}px" role="img">']
    parts.append("<title>sequence of messages</title>")
    for node in nodes:
        parts.append(f'<line class="life" x1="{x[node]}" x2="{x[node]}" y1="{TOP - 16}" y2="{bottom}"/>')
        parts.append(f'<rect class="head" x="{x[node] - 62}" y="14" width="124" height="26" rx="6"/>')
        parts.append(f'<text class="head" x="{x[node]}" y="31">{escape(node)}</text>')
    parts += [_mark(mark, x) for mark in marks]
    return Markup("".join(parts) + "</svg>")


def _mark(mark: Mark, x: dict[str, int]) -> str:
    y = TOP + mark.line * LINE
    here = x[mark.node]
    if mark.kind in ("note", "fault", "told"):
        return (
            f'<g class="{mark.kind}"><circle cx="{here}" cy="{y}" r="4"/>'
            f'<text x="{here + 9}" y="{y + 4}" style="text-anchor:start">{escape(mark.text)}</text></g>'
        )
    there, end = x[mark.peer], TOP + mark.until * LINE
    if mark.kind == "lost":
        there, end = here + (there - here) // 2, y + LINE // 2
    tip = "tip" if mark.kind == "arrow" else "tip-lost"
    side = 8 if there > here else -8
    anchor = "start" if there > here else "end"
    lost = (f" ({mark.times} times)" if mark.times > 1 else "") + (" ✕" if mark.kind == "lost" else "")
    return (
        f'<g class="{mark.kind}"><path d="M{here},{y} L{there - side // 4},{end}" marker-end="url(#{tip})"/>'
        f'<text x="{here + side}" y="{y - 3}" style="text-anchor:{anchor}">{escape(mark.text)}{lost}</text></g>'
    )
