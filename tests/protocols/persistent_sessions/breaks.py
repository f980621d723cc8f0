"""How the clauses of persistent sessions that are no rows are broken (tools/clauses.py)."""

from __future__ import annotations

import sys

from mutants import swap


class AnyTimes:
    """Times that nobody checks; the check of the shipped ones is part of their type, and cannot be taken out."""

    def __init__(self, **given: int) -> None:
        self.given = given


BREAKS = {"PS-75": lambda stack: swap(sys.modules["test_sessions_resume"], "Times", AnyTimes)(stack)}
