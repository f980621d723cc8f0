"""Drawing of a stream: time from left to right, numbers upwards; what was told, and how long each hole was open."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from statemachines_reports.draw_histogram import format_ns
from statemachines_reports.missed_samples.stream import MISSED, OPEN, RECOVERED, Hole, SampleStream

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
