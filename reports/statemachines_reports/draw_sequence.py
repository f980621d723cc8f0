"""Drawing of a run: a sequence diagram of a few messages around a fault, as SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
from markupsafe import Markup, escape

from statemachines_reports.draw_histogram import duration

ARROWS = 60
"""At most so many messages are drawn."""

QUIET = ("ping", "ping_response", "update_progress")
"""Left out: they would fill the picture."""

DEATHS = ("kill", "crash", "leader_crash")
COLUMN, LINE, TOP = 190, 15, 58


class Mark(msgspec.Struct):
    """Something on the picture, at a line: an arrow (from, to), or a note on one node."""

    line: int
    kind: str
    text: str
    node: str
    peer: str = ""
    until: int = 0


class Picture(msgspec.Struct):
    """The diagram, and what it shows in words."""

    svg: Markup
    caption: str


def draw(path: Path, run: int) -> Picture | None:
    """The run around its first death, else its first fault, else its beginning; None without messages."""
    columns = ["seq", "t_ns", "node", "machine", "instance", "kind", "event", "source", "dest", "peer", "msg", "key"]
    rows = pq.read_table(path, columns=columns, filters=[("run", "=", run)]).to_pylist()
    shown = [row for row in rows if _is_shown(row)]
    if not shown:
        return None
    begin = _begin(shown)
    marks, nodes, end = _marks(shown, begin)
    first, last = shown[begin]["t_ns"], shown[end - 1]["t_ns"]
    start = rows[0]["t_ns"]
    caption = (
        f"run {run}, {duration(max(first - start, 0))} to {duration(last - start)} after its beginning; "
        "pings and progress are left out"
    )
    return Picture(_svg(marks, sorted(nodes)), caption)


def _is_shown(row: dict[str, Any]) -> bool:
    if row["kind"] in ("send", "deliver", "drop"):
        return row["event"] not in QUIET
    if row["kind"] == "fault":
        return True
    changed = row["kind"] in ("step", "timer") and row["source"] != row["dest"]
    return changed and row["machine"] in ("borrower", "leader", "member")


def _begin(rows: list[dict[str, Any]]) -> int:
    """A little before the first death (or fault): there the story begins."""
    for wanted in (DEATHS, None):
        for number, row in enumerate(rows):
            if row["kind"] == "fault" and (wanted is None or row["event"] in wanted):
                return max(0, number - 6)
    return 0


def _marks(rows: list[dict[str, Any]], begin: int) -> tuple[list[Mark], set[str], int]:
    marks: list[Mark] = []
    open_arrows: dict[int, Mark] = {}
    nodes: set[str] = set()
    line = arrows = 0
    number = begin
    for number in range(begin, len(rows)):
        row = rows[number]
        node, kind = row["node"], row["kind"]
        peer = (row["peer"] or "").partition("~")[0]
        if kind == "send":
            if arrows >= ARROWS:
                break
            arrows += 1
            line += 1
            label = f"{row['event']} {(row['key'] or '').rpartition('/')[2]}".strip()
            mark = Mark(line, "arrow", label, node, peer, line)
            open_arrows[row["msg"]] = mark
            marks.append(mark)
            nodes |= {node, peer}
        elif kind in ("deliver", "drop") and row["msg"] in open_arrows:
            line += 1
            mark = open_arrows.pop(row["msg"])
            mark.until = line
            mark.kind = "arrow" if kind == "deliver" else "lost"
        elif kind == "fault" or kind in ("step", "timer"):
            line += 1
            text = row["event"] if kind == "fault" else f"{row['machine']} {row['source']} → {row['dest']}"
            marks.append(Mark(line, "fault" if kind == "fault" else "note", text, node or "network"))
            nodes.add(node or "network")
    for mark in open_arrows.values():
        mark.kind = "lost"
    return marks, nodes, number + 1


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
    if mark.kind in ("note", "fault"):
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
    lost = " ✕" if mark.kind == "lost" else ""
    return (
        f'<g class="{mark.kind}"><path d="M{here},{y} L{there - side // 4},{end}" marker-end="url(#{tip})"/>'
        f'<text x="{here + side}" y="{y - 3}" style="text-anchor:{anchor}">{escape(mark.text)}{lost}</text></g>'
    )
