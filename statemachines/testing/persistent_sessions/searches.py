"""Searches: the closed systems that Hypothesis drives to find a planted bug: small ones, of every kind."""

from __future__ import annotations

from typing import Final

from statemachines.testing.bug_search import DrivenTest, Searches
from statemachines.testing.system_test import SystemTest
from statemachines_spec.persistent_sessions import SPEC

SYSTEMS: Final = (
    "two-writers", "silence", "at-least-once", "taken-over", "expiry", "collector-stops", "unclear", "exactly-once",
    "overtaking", "break", "abandoned", "old-lies", "receive-maximum", "life-unclear", "taken-at-once",
    "collected-late", "node-comes-back",
)  # fmt: skip


def drive_system(name: str) -> DrivenTest:
    """A test of this system."""
    return DrivenTest(name, lambda: SystemTest.of(SPEC.system(name)))


SEARCHES: Final = Searches(driven=tuple(drive_system(name) for name in SYSTEMS))
