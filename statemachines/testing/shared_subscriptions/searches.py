"""Searches: the scenarios that are simulated, and the groups that Hypothesis drives, to find a planted bug."""

from __future__ import annotations

from typing import Final

from statemachines.testing.bug_search import DrivenTest, Searches
from statemachines.testing.shared_subscriptions.group import GROUP, GroupTest

SEARCHES: Final = Searches(
    scenarios=(
        "quiet", "joins", "network", "kills", "pauses", "partitions", "storm", "generations", "queues", "leaving",
        "halts", "kicks", "lossy", "busy_loops", "poison", "dead_letters",
    ),
    driven=(DrivenTest("groups", lambda: GroupTest, GROUP),),
)  # fmt: skip
