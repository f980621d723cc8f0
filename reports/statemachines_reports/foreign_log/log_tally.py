"""Log tally: what a check counted in some of the rows; tallies of all parts of a log are added up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

SHOWN: Final = 5
"""Of each check so many places are described."""


class Tally(msgspec.Struct, frozen=True):
    """`found` of the `checked` are against the claim; `certain`: those that no missing or doubled line explains."""

    check: str
    checked: int = 0
    found: int = 0
    certain: int = 0
    details: tuple[str, ...] = ()


def add_tallies(tallies: Iterable[Tally]) -> dict[str, Tally]:
    """One tally a check."""
    sums: dict[str, Tally] = {}
    for one in tallies:
        was = sums.get(one.check, Tally(one.check))
        details = (*was.details, *one.details)
        sums[one.check] = Tally(
            one.check, was.checked + one.checked, was.found + one.found, was.certain + one.certain, details
        )
    return sums
