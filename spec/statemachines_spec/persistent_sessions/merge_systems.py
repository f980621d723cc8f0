"""Systems of rows that wait for rows of other writers."""

from __future__ import annotations

from statemachines_spec.explorer.system import System
from statemachines_spec.persistent_sessions.systems import SessionSetting, build

SYSTEMS: dict[str, tuple[str, SessionSetting]] = {
    "moving-released": (
        "a publisher goes to another writer, whose row releases one of the first writer, which waits for room",
        SessionSetting(messages=(4, 1), course=(0, 0, 0, 0, 1), lag=0, window=3, places=1, markers=1, hides=True),
    ),
}
"""Name -> (about, bounds)."""


def system(name: str) -> System:
    """The system called so."""
    return build(name, *SYSTEMS[name])
