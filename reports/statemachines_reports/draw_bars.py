"""Drawing of a comparison: one measure of several sides, as horizontal bars, as SVG."""

from __future__ import annotations

from collections.abc import Callable

from markupsafe import Markup, escape

WIDTH, LINE, TOP = 540, 26, 10
LABEL, VALUE = 190, 90


def draw(name: str, bars: list[tuple[str, float | None]], shown: Callable[[float], str]) -> Markup:
    """`bars`: side -> value (None: nothing was measured); `shown` writes a value."""
    most = max((value for _, value in bars if value is not None), default=0.0) or 1.0
    height = 2 * TOP + LINE * len(bars)
    parts = [
        f'<svg class="chart bars" viewBox="0 0 {WIDTH} {height}" style="max-width:{WIDTH}px" role="img">'
        f"<title>{escape(name)}</title>"
    ]
    for number, (side, value) in enumerate(bars):
        y = TOP + number * LINE
        width = 0.0 if value is None else (WIDTH - LABEL - VALUE) * value / most
        text = "nothing measured" if value is None else shown(value)
        parts.append(f'<text class="side" x="{LABEL - 10}" y="{y + 17}">{escape(shorten_label(side))}</text>')
        parts.append(
            f'<rect class="bar side-{number % 4}" x="{LABEL}" y="{y + 4}" width="{max(width, 1.5):.1f}" '
            f'height="{LINE - 9}" rx="2"/>'
        )
        parts.append(f'<text class="value" x="{LABEL + width + 8:.1f}" y="{y + 17}">{escape(text)}</text>')
    return Markup("".join(parts) + "</svg>")


def shorten_label(side: str) -> str:
    """What fits beside a bar."""
    return side if len(side) <= 28 else f"…{side[-27:]}"
