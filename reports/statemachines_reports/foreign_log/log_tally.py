"""Log tally: what a check counted in some of the rows; tallies of all parts of a log are added up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

SHOWN: Final = 5
"""Of each check so many places are described."""


class LogTally(msgspec.Struct, frozen=True):
    """`found` of the `checked` are against the claim; `certain`: those that no missing or doubled line explains."""

    check: str
    checked: int = 0
    found: int = 0
    certain: int = 0
    details: tuple[str, ...] = ()


def add_tallies(tallies: Iterable[LogTally]) -> dict[str, LogTally]:
    """One tally a check."""
    sums: dict[str, LogTally] = {}
    for one in tallies:
        was = sums.get(one.check, LogTally(one.check))
        details = (*was.details, *one.details)
        sums[one.check] = LogTally(
            one.check, was.checked + one.checked, was.found + one.found, was.certain + one.certain, details
        )
    return sums
