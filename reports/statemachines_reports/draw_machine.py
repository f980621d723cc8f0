"""Drawing of a machine: states in layers, edges by how often they were taken, as SVG.

Machine page: a machine as a drawing whose states a reader clicks, and the rows that it takes in each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from markupsafe import Markup, escape

from statemachines import diagrams
from statemachines.kernel import Fsm
from statemachines.step_page import EntryNumbers, PageMove, PageState, StepPage
from statemachines_reports.coverage import describe_line, list_takeable

WIDTH, HEIGHT = 132, 44
GAP_X, GAP_Y = 118, 46
MARGIN = 40

Places = dict[str, tuple[float, float]]

Uses = dict[tuple[str, str], int]
"""(source, dest) -> how many steps."""


Labels = dict[tuple[str, str], str]
"""(source, dest) -> what stands at the edge."""


def draw(fsm: Fsm[Any], uses: Uses, labels: Labels | None = None) -> Markup:
    """The machine; edges never taken are grey and dashed, steps that stay in a state are counted in its box.

    With `labels` it is drawn as it is declared: these stand in place of counts, and no edge is grey.
    """
    layers = _layers(fsm)
    places: Places = {
        state: (MARGIN + x * (WIDTH + GAP_X), MARGIN + 34 + y * (HEIGHT + GAP_Y))
        for x, layer in enumerate(layers)
        for y, state in enumerate(layer)
    }
    width = 2 * MARGIN + len(layers) * (WIDTH + GAP_X) - GAP_X
    height = 2 * MARGIN + 68 + max(map(len, layers)) * (HEIGHT + GAP_Y) - GAP_Y
    edges = _edges(fsm)
    most = max([uses.get(edge, 0) for edge in edges] + [1])
    parts = [
        f'<svg class="machine" viewBox="0 0 {width} {height}" style="max-width:{width}px" role="img">'
        f"<title>{escape(fsm.name)}</title>"
    ]
    if labels is None:
        labels = {edge: f"{uses[edge]:,}" if uses.get(edge) else "never" for edge in edges}
        labels |= {(state, state): f"{uses[state, state]:,} stay" for state in places if uses.get((state, state))}
        unused = {edge for edge in edges if not uses.get(edge)}
    else:
        unused = set()
    for number, edge in enumerate(edges):
        thickness = 1.2 + 2.6 * math.log1p(uses.get(edge, 0)) / math.log1p(most)
        parts.append(_edge(places, edge, labels[edge], thickness, number, edge in unused))
    parts += [_state(fsm, state, place, labels.get((state, state), "")) for state, place in places.items()]
    return Markup("".join(parts) + "</svg>")


def _edges(fsm: Fsm[Any]) -> list[tuple[str, str]]:
    """(source, dest) of every row that changes the state, once each, in the order of the table."""
    found = [
        (str(source.value), str(line.dest.value))
        for line in fsm.lines
        for source in line.sources
        if line.dest is not None and line.dest is not source
    ]
    return list(dict.fromkeys(found))


def _layers(fsm: Fsm[Any]) -> list[list[str]]:
    """States by their distance from the first one; final states stand last."""
    distance = {str(fsm.initial.value): 0}
    edges = _edges(fsm)
    queue = [str(fsm.initial.value)]
    while queue:
        state = queue.pop(0)
        for source, dest in edges:
            if source == state and dest not in distance:
                distance[dest] = distance[state] + 1
                queue.append(dest)
    last = max(distance.values())
    final = {str(one.value) for one in fsm.final}
    layers: list[list[str]] = [[] for _ in range(last + 2)]
    for one in fsm.states:
        name = str(one.value)
        layers[last + 1 if name in final else distance.get(name, last)].append(name)
    return [layer for layer in layers if layer]


def _state(fsm: Fsm[Any], state: str, place: tuple[float, float], stays: str) -> str:
    x, y = place
    kind = "final" if state in {str(one.value) for one in fsm.final} else "state"
    if state == str(fsm.initial.value):
        kind += " initial"
    below = f'<text class="small" x="{x + WIDTH / 2}" y="{y + 34}">{escape(stays)}</text>' if stays else ""
    name = y + (19 if stays else 27)
    return (
        f'<g class="{kind}" data-state="{escape(state)}">'
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="9"/>'
        f'<text x="{x + WIDTH / 2}" y="{name}">{escape(state)}</text>{below}</g>'
    )


def _edge(places: Places, edge: tuple[str, str], label: str, thickness: float, number: int, is_unused: bool) -> str:
    (x1, y1), (x2, y2) = places[edge[0]], places[edge[1]]
    forward = x2 > x1
    neighbours = forward and x2 - x1 <= WIDTH + GAP_X
    if x1 == x2:  # in one layer: from bottom to top at the side
        down = y2 > y1
        begin = (x1 + WIDTH * 0.3, y1 + HEIGHT) if down else (x1 + WIDTH * 0.7, y1)
        end = (x2 + WIDTH * 0.3, y2) if down else (x2 + WIDTH * 0.7, y2 + HEIGHT)
        bend = 0.0
    elif forward:
        begin, end = (x1 + WIDTH, y1 + HEIGHT * 0.4), (x2 - 5, y2 + HEIGHT * 0.4)
        bend = 0.0 if neighbours else -34.0 - 9 * (number % 3)
    else:
        begin, end = (x1, y1 + HEIGHT * 0.75), (x2 + WIDTH + 5, y2 + HEIGHT * 0.75)
        bend = 26.0 + 9 * (number % 3)
    middle = ((begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2 + bend)
    control = (middle[0], middle[1] + bend)
    kind, tip = ("edge unused", "tip-unused") if is_unused else ("edge", "tip")
    path = f"M{begin[0]:.0f},{begin[1]:.0f} Q{control[0]:.0f},{control[1]:.0f} {end[0]:.0f},{end[1]:.0f}"
    return (
        f'<g class="{kind}"><title>{escape(edge[0])} to {escape(edge[1])}: {escape(label)}</title>'
        f'<path d="{path}" stroke-width="{thickness:.1f}" marker-end="url(#{tip})"/>'
        f'<text x="{middle[0]:.0f}" y="{middle[1] - 4:.0f}">{escape(label)}</text></g>'
    )


LABEL_MAX: Final = 12
"""Letters at an arrow."""


def make_page(fsm: Fsm[Any], about: str) -> StepPage:
    """The page of a machine; state 0 is its first."""
    first = str(fsm.initial.value)
    names = [first, *(str(one.value) for one in fsm.states if str(one.value) != first)]
    events = EntryNumbers[tuple[str, str]]()
    moves: dict[str, list[PageMove]] = {name: [] for name in names}
    for line in list_takeable(fsm):
        said = describe_line(line)
        words = [said["event"], f"[{said['guard']}]" if said["guard"] else "", f"/ {said['action']}"]
        shown = " ".join(word for word in (*words[:2], words[2] if said["action"] else "") if word)
        event = events["", f"{shown} ({line.number}: {said['clause']})"]
        for source in (str(one.value) for one in line.sources):
            dest = source if line.dest is None else str(line.dest.value)
            moves[source].append(PageMove(0, event, names.index(dest)))
    picture = TIPS + str(draw(fsm, {}, {edge: _label(rows) for edge, rows in diagrams.arrows(fsm).items()}))
    states = [PageState([number], moves[name]) for number, name in enumerate(names)]
    return StepPage(fsm.full_name, about, ["state"], names, ["{event}"], list(events), states, picture=picture)


def _label(rows: Sequence[diagrams.Cells]) -> str:
    """The numbers of the rows at an arrow, as many as there is room for."""
    text = " ".join(str(one.number) for one in rows)
    return text if len(text) <= LABEL_MAX else text[:LABEL_MAX].rpartition(" ")[0] + " ..."


TIPS = (
    '<svg class="tips" width="0" height="0" style="position:absolute;width:0;height:0;min-width:0" aria-hidden="true">'
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" '
    'markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker></defs></svg>'
)
"""The tips of arrows."""
