"""Machine page: a machine as a drawing whose states a reader clicks, and the rows that it takes in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from statemachines import diagrams
from statemachines.kernel import Fsm
from statemachines.step_page import EntryNumbers, PageMove, PageState, StepPage
from statemachines_reports.coverage import describe_line, list_takeable
from statemachines_reports.draw_machine import draw

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
