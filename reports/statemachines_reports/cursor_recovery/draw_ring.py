"""Drawing of a ring: the data area as a circle, its blocks as arcs, the heads as hands, as SVG."""

from __future__ import annotations

from math import cos, pi, sin

from markupsafe import Markup, escape

from statemachines_reports.cursor_recovery.ring import BEING_READ, BEING_WRITTEN, LEFT, READABLE, Arc, Ring

SIZE, OUTER, INNER = 420, 150, 108
CENTRE = SIZE / 2
BEYOND = 32
KINDS = {READABLE: "readable", BEING_WRITTEN: "writing", BEING_READ: "reading", LEFT: "left"}
LINE = 18


def draw_ring(ring: Ring) -> Markup:
    """Position 0 is at the top; positions go clockwise, lap after lap."""
    names = [f"{name}: {who}" for name, who in ring.cursors]
    height = SIZE + LINE * (1 + len(names))
    parts = [
        f'<svg class="ring" viewBox="0 0 {SIZE} {height}" style="max-width:{SIZE}px" role="img">'
        f"<title>{escape(ring.title)}</title>",
        f'<path class="area" d="{_annulus(0, ring.capacity, ring.capacity)}"/>',
        *(_arc(arc, ring.capacity) for arc in ring.arcs),
        _hand(ring.read_head, ring.capacity, "read head"),
        _hand(ring.write_head, ring.capacity, "write head"),
        f'<text x="{CENTRE}" y="{CENTRE - 4}">{ring.write_head - ring.read_head:,} of {ring.capacity:,}</text>',
        f'<text class="small" x="{CENTRE}" y="{CENTRE + 14}">bytes in use</text>',
        *_legend(),
    ]
    for number, name in enumerate(names):
        parts.append(f'<text class="who" x="16" y="{SIZE + LINE * (number + 1)}">{escape(name)}</text>')
    return Markup("".join(parts) + "</svg>")


def _point(position: float, capacity: int, radius: float) -> str:
    angle = 2 * pi * (position % capacity) / capacity
    return f"{CENTRE + radius * sin(angle):.2f},{CENTRE - radius * cos(angle):.2f}"


def _annulus(first: int, end: int, capacity: int) -> str:
    """The outline of the bytes `first`..`end`, `end` not included."""
    if end - first >= capacity:  # a whole turn has no two ends that an arc could join
        half = capacity / 2
        return f"{_annulus_of(first, first + half, capacity)} {_annulus_of(first + half, first + capacity, capacity)}"
    return _annulus_of(first, end, capacity)


def _annulus_of(first: float, end: float, capacity: int) -> str:
    large = int(end - first > capacity / 2)
    return (
        f"M{_point(first, capacity, OUTER)} A{OUTER},{OUTER} 0 {large} 1 {_point(end, capacity, OUTER)} "
        f"L{_point(end, capacity, INNER)} A{INNER},{INNER} 0 {large} 0 {_point(first, capacity, INNER)} Z"
    )


def _arc(arc: Arc, capacity: int) -> str:
    title = f"{arc.first}..{arc.last}, {arc.state}, {arc.who}"
    path = _annulus(arc.first, arc.last + 1, capacity)
    return f'<path class="{KINDS[arc.state]}" d="{path}"><title>{escape(title)}</title></path>'


def _hand(position: int, capacity: int, name: str) -> str:
    begin, end = _point(position, capacity, INNER - 8), _point(position, capacity, OUTER + 8)
    x, y = _point(position, capacity, OUTER + BEYOND).split(",")
    return (
        f'<path class="hand" d="M{begin} L{end}"/>'
        f'<text class="small" x="{x}" y="{float(y) + 4:.2f}">{escape(name)}</text>'
    )


def _legend() -> list[str]:
    parts = []
    for number, (state, kind) in enumerate(KINDS.items()):
        x, y = 8 + (number % 2) * 210, 8 + (number // 2) * (SIZE - 30)
        parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="12" height="12"/>')
        parts.append(f'<text class="who" x="{x + 18}" y="{y + 10}">{escape(state)}</text>')
    return parts
