"""How the clauses of persistent sessions that are no rows are broken (tools/clauses.py)."""

from __future__ import annotations

import sys

from mutants import swap


class AnyTimes:
    """Times that nobody checks; the check of the shipped ones is part of their type, and cannot be taken out."""

    def __init__(self, **given: int) -> None:
        self.given = given


def unchecked(test, name):
    """In this module of tests a type of this name is not checked."""
    return lambda stack: swap(sys.modules[test], name, AnyTimes)(stack)


BREAKS = {
    "PS-75": unchecked("test_sessions_resume", "Times"),
    "PS-89": unchecked("test_sessions_collector", "Graces"),
    "PS-187": unchecked("test_sessions_takeover", "Times"),
    "PS-115": unchecked("test_sessions_life", "LifeTimes"),
}
