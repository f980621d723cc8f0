"""Systems of rows that wait for rows of other writers, and every system of persistent sessions with them.

They stand apart from the others, whose certificates do not rest on them.
"""

from __future__ import annotations

from functools import wraps

from msgspec.structs import replace

from statemachines_spec.explorer.system import System
from statemachines_spec.persistent_sessions import every_system
from statemachines_spec.persistent_sessions.systems import SessionSetting, build

MERGED: dict[str, tuple[str, SessionSetting]] = {
    "moving-released": (
        "a publisher goes to another writer, whose row releases one of the first writer, which waits for room",
        SessionSetting(messages=(4, 1), course=(0, 0, 0, 0, 1), lag=0, window=3, places=1, markers=1, hides=True),
    ),
}
"""Name -> (about, bounds)."""

SYSTEMS: dict[str, str] = {**every_system.SYSTEMS, **{name: about for name, (about, _) in MERGED.items()}}
"""Name -> about, of every system."""


@wraps(every_system.system)  # with its module, on which the certificates of its systems rest
def system(name: str, size: str = "small", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The system called so."""
    if name not in MERGED:
        return every_system.system(name, size, variant, without)
    about, setting = MERGED[name]
    made = build(name, about, setting, variant)
    return replace(made, origin=(f"{__name__}:system", {"name": name, "size": size, "variant": variant}))
