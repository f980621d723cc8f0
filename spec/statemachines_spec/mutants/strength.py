"""Strength: how many of the same mutants each judge notices.

A sample of all, drawn by chance and the same each time, is shown to every judge, whatever the others said of it.
Mutants that a clause allows, and those that the checks of a declaration refuse, are left out: nobody is to notice them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from statemachines_spec.mutants.judging import UNJUDGED, MutantVerdict
from statemachines_spec.mutants.mutant import CODE
from statemachines_spec.mutants.notice import Notice

EXPLORATION = "exploration"
ANYBODY = "anybody"

HEADS = ("judge", "rows, guards, timers", "code", "all", "nobody else")


class Strength(msgspec.Struct, frozen=True):
    """What one `judge` noticed of the sample: of `rows` (guards and timers too), of `code`; `alone`: what nobody else
    did."""

    judge: str
    rows: int
    code: int
    alone: int

    @property
    def all(self) -> int:
        """Whatever it was."""
        return self.rows + self.code


class MutantSample(msgspec.Struct, frozen=True):
    """How many mutants every judge was shown, and how strong each is; the last line is all of them together."""

    rows: int
    code: int
    judges: tuple[Strength, ...]

    @property
    def all(self) -> int:
        """Rows and code."""
        return self.rows + self.code


def sample_of(
    drawn: Collection[str], verdicts: Iterable[MutantVerdict], excused: Collection[str], notices: Sequence[Notice]
) -> MutantSample | None:
    """Of those `drawn` what each judge noticed; only such count as every one of them was shown, and as exploration
    could judge (None: there are none)."""
    others = tuple(dict.fromkeys(one.judge for one in notices))
    said = {(one.name, one.judge): bool(one.what) for one in notices}
    shown = [
        one
        for one in verdicts
        if one.name in drawn
        and not one.refused
        and one.verdict != UNJUDGED
        and one.name not in excused
        and all((one.name, judge) in said for judge in others)
    ]
    if not shown or not others:
        return None
    by = {EXPLORATION: {one.name for one in shown if one.is_killed}}
    by |= {judge: {one.name for one in shown if said[one.name, judge]} for judge in others}
    code = {one.name for one in shown if one.group == CODE}
    judges = tuple(_strength(judge, by, code) for judge in by)
    noticed = set().union(*by.values())
    whole = Strength(ANYBODY, len(noticed - code), len(noticed & code), 0)
    return MutantSample(len(shown) - len(code), len(code), (*judges, whole))


def _strength(judge: str, by: dict[str, set[str]], code: set[str]) -> Strength:
    found = by[judge]
    rest = set[str]().union(*(some for other, some in by.items() if other != judge))
    return Strength(judge, len(found - code), len(found & code), len(found - rest))


def table(found: MutantSample) -> list[str]:
    """In Markdown."""
    rows = [f"| {' | '.join(HEADS)} |", "|---|" + "---:|" * (len(HEADS) - 1)]
    for one in found.judges:
        parts = ((one.rows, found.rows), (one.code, found.code), (one.all, found.all))
        shares = [f"{some} of {made} ({100 * some / made:.1f} %)" if made else "-" for some, made in parts]
        rows.append(f"| {' | '.join((one.judge, *shares, str(one.alone) if one.judge != ANYBODY else ''))} |")
    return rows
