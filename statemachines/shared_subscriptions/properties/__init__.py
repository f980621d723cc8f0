"""Properties of shared subscriptions, as `spec/shared_subscriptions/properties.md` has them: each is judged here, once.

An observer is a frozen value, and a rule is a function.  Both take what happened, or the records of the machines, and
return what broke.  The simulator's watch feeds them, and keeps only what an outsider can know: when, and in which run.
The explorer asks them about local states and steps.  Runs under Hypothesis go by the watch.
"""

from __future__ import annotations

from typing import Final

PROPERTIES: Final[tuple[str, ...]] = (
    *(f"S{number}" for number in range(1, 18)),
    "S20",
    "S21",
    "S22",
    *(f"L{number}" for number in range(1, 12)),
)
"""By the names of the protocol's page."""
