"""Drawing of latencies: a histogram over powers of ten, with its percentiles, as SVG."""

from __future__ import annotations

import math

from markupsafe import Markup, escape

BINS = 8
"""Bins to a power of ten."""

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 540, 210, 46, 30, 46


def draw(name: str, bins: dict[int, int], marks: dict[str, float]) -> Markup:
    """`bins`: bin number (of log10 nanoseconds) -> how many; `marks`: percentile -> nanoseconds."""
    low, high = min(bins) // BINS, max(bins) // BINS + 1
    most = max(bins.values())
    scale = (WIDTH - LEFT - 30) / ((high - low) * BINS)

    def x(place: float) -> float:
        return LEFT + (place - low * BINS) * scale

    def y(count: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * count / most

    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" style="max-width:{WIDTH}px" role="img">'
        f"<title>{escape(name)}</title>"
    ]
    for number, count in sorted(bins.items()):
        parts.append(
            f'<rect class="bar" x="{x(number):.1f}" y="{y(count):.1f}" width="{max(scale - 1.5, 1):.1f}" '
            f'height="{HEIGHT - BOTTOM - y(count):.1f}"><title>{count:,}</title></rect>'
        )
    for power in range(low, high + 1):
        place = x(power * BINS)
        parts.append(f'<line class="axis" x1="{place:.1f}" x2="{place:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text class="tick" x="{place:.0f}" y="{HEIGHT - 12}">{format_ns(10.0**power)}</text>')
    parts.append(f'<text class="tick" x="{LEFT - 8}" y="{TOP + 4}" text-anchor="end">{most:,}</text>')
    for number, (label, value) in enumerate(marks.items()):
        place = x(math.log10(max(value, 1)) * BINS)
        parts.append(f'<line class="mark" x1="{place:.1f}" x2="{place:.1f}" y1="{TOP - 6}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text class="mark" x="{place:.1f}" y="{11 + 12 * number}">{label} {format_ns(value)}</text>')
    return Markup("".join(parts) + "</svg>")


def format_ns(value_ns: float) -> str:
    """Nanoseconds as people read them."""
    if value_ns >= 999.5e9:
        return f"{value_ns / 1e9:,.0f} s"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if value_ns >= size:
            return f"{value_ns / size:.3g} {unit}"
    return f"{value_ns:.0f} ns" if value_ns else "0 s"
