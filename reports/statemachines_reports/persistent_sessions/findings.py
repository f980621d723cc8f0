"""Findings: what is wrong in the histories of sessions, by check, and how much was looked at."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

GAP: Final = "gap"
TWICE: Final = "twice"
ORDER: Final = "order"
CUT: Final = "cut"
OWNER: Final = "owner"
EPOCHS: Final = "epochs"
AGED: Final = "aged"


class SessionFinding(NamedTuple):
    """Something that is not as it must be: the `row` of the segment that shows it, and what, in words."""

    check: str
    row: int
    detail: str


class Findings:
    """Of one segment: `wrong`; `looked`: check -> how many things it has looked at."""

    def __init__(self) -> None:
        self.wrong: list[SessionFinding] = []
        self.looked: Counter[str] = Counter()

    def look(self, check: str, holds: bool, row: int, detail: str, count: int = 1) -> None:
        """The check has looked at `count` things, of which this one must hold."""
        self.looked[check] += count
        if not holds:
            self.wrong.append(SessionFinding(check, row, detail))
