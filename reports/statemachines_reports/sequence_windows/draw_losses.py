"""Drawing of losses: a line for each publisher and subject, a cell for each second, as SVG."""

from __future__ import annotations

from collections import defaultdict

from markupsafe import Markup, escape

from statemachines_reports.sequence_windows.outcomes import (
    BEFORE_FIRST,
    CYCLED,
    FORGOTTEN,
    LAST,
    MISSED,
    TOLD,
    UNKNOWN,
    UNWANTED,
    WRONG,
    Loss,
)

LABEL, LINE, TOP, WIDTH = 190, 15, 8, 560
LINES = 30
"""So many lines are drawn: those that lost most."""
KINDS = (
    ("told exactly", "var(--blue)", (TOLD,)),
    ("told as unknown", "var(--green)", (UNKNOWN,)),
    ("hidden by a limit, or nobody listened yet", "var(--grey)", (FORGOTTEN, LAST, CYCLED, BEFORE_FIRST, UNWANTED)),
    ("missed, or a wrong number", "var(--red)", (WRONG, MISSED)),
)
_KIND = {outcome: number for number, (_, _, outcomes) in enumerate(KINDS) for outcome in outcomes}


def draw_losses(losses: list[Loss], seconds: int) -> Markup:
    """The worst kind of a cell gives its colour, how many were lost its strength."""
    cells: dict[tuple[str, str], dict[int, dict[int, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    for one in losses:
        cells[one.publisher, one.subject][one.second][_KIND[one.outcome]] += one.count
    totals = {place: sum(sum(kinds.values()) for kinds in line.values()) for place, line in cells.items()}
    shown = sorted(sorted(cells, key=lambda place: (-totals[place], place))[:LINES])
    most = max((sum(kinds.values()) for line in cells.values() for kinds in line.values()), default=1)
    wide = (WIDTH - LABEL) / max(seconds, 1)
    height = TOP + LINE * (len(shown) + len(KINDS) + 2)
    parts = [
        f'<svg class="losses" viewBox="0 0 {WIDTH} {height}" style="max-width:{WIDTH}px" role="img">'
        "<title>Losses over time</title>"
    ]
    for number, (publisher, subject) in enumerate(shown):
        y = TOP + LINE * number
        name = escape(f"{publisher} {subject}"[-30:])
        parts.append(f'<text x="{LABEL - 6}" y="{y + 11}" style="text-anchor:end;font-size:10px">{name}</text>')
        for second, kinds in sorted(cells[publisher, subject].items()):
            count = sum(kinds.values())
            parts.append(
                f'<rect x="{LABEL + second * wide:.1f}" y="{y + 1}" width="{max(wide - 0.5, 1):.1f}" '
                f'height="{LINE - 2}" style="fill:{KINDS[max(kinds)][1]};opacity:{0.35 + 0.65 * count / most:.2f}">'
                f"<title>second {second}: {count}</title></rect>"
            )
    parts += _legend(TOP + LINE * (len(shown) + 1), seconds)
    return Markup("".join(parts) + "</svg>")


def _legend(top: int, seconds: int) -> list[str]:
    parts = [
        f'<text x="{LABEL}" y="{top}" style="text-anchor:start;font-size:10px">0 s</text>'
        f'<text x="{WIDTH}" y="{top}" style="text-anchor:end;font-size:10px">{seconds} s</text>'
    ]
    for number, (words, colour, _) in enumerate(KINDS):
        y = top + LINE * (number + 1) - 9
        parts.append(f'<rect x="{LABEL}" y="{y}" width="10" height="10" style="fill:{colour}"/>')
        parts.append(
            f'<text x="{LABEL + 16}" y="{y + 9}" style="text-anchor:start;font-size:10px">{escape(words)}</text>'
        )
    return parts
