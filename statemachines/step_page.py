"""Step page: a graph of states as one HTML file that a reader steps through: what is, what can happen, click, back."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from statemachines.whole_file import write_whole

T = TypeVar("T")

BEYOND: Final = -2
"""Leads to a state that the page does not hold."""

NOWHERE: Final = -1
"""Leads to no state: it was cut at the bounds, or it raised."""


class PageMove(msgspec.Struct, frozen=True, array_like=True):
    """Something that can happen in a state; `kind` and `event` are places in the lists of the page."""

    kind: int
    event: int
    target: int
    breaks: str = ""


class PageState(msgspec.Struct, frozen=True):
    """`parts`: the text of each component; `flying`: messages; `holds`: a letter a property: v (holds), x (does not),
    or - (says nothing here)."""

    parts: list[int]
    moves: list[PageMove]
    flying: list[int] = []
    holds: str = ""


class PageStep(msgspec.Struct, frozen=True):
    """A step of a counterexample: the place of its move in its state, where that leads (-1: nowhere), and the rows of
    tables that were taken, with their clauses."""

    move: int
    state: int
    rows: list[str] = []


class StepPage(msgspec.Struct, frozen=True):
    """All that the page has.  State 0 is the first; `picture` is SVG that is safe to put there.  An event is
    who takes it, and what it is; a kind says what happens, with {to} and {event} for these."""

    name: str
    about: str
    components: list[str]
    texts: list[str]
    kinds: list[str]
    events: list[tuple[str, str]]
    states: list[PageState]
    properties: list[dict[str, str]] = []
    path: list[PageStep] = []
    broken: str = ""
    picture: str = ""
    verdict: str = ""
    """HELD, VIOLATED or INCONCLUSIVE, and `sentence` of what; "" where nothing was judged."""
    sentence: str = ""

    @property
    def raises(self) -> bool:
        """The counterexample ends in a step that leads nowhere."""
        return bool(self.path) and self.path[-1].state == NOWHERE


def write_step_page(path: Path, page: StepPage) -> None:
    """Write the page; it appears whole, and needs nothing else."""
    fields = msgspec.structs.asdict(page) | {"network": any(one.flying for one in page.states), "raises": page.raises}
    # The data stand inside a script element: no text in them may end it.
    data = msgspec.json.encode(fields).decode().replace("<", "\\u003c")
    template = files("statemachines").joinpath("step_page.html").read_text(encoding="utf-8")
    write_whole(path, template.replace("DATA", data, 1).encode())


class EntryNumbers(dict[T, int]):
    """Entry -> its place in a list in which each stands once."""

    def __missing__(self, entry: T) -> int:
        self[entry] = number = len(self)
        return number
