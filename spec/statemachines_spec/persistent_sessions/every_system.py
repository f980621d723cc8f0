"""Every system of persistent sessions, by its name."""

from __future__ import annotations

from statemachines_spec.explorer.system import System
from statemachines_spec.persistent_sessions import collecting, systems

SYSTEMS: dict[str, str] = {
    name: about for part in (systems.SYSTEMS, collecting.SYSTEMS) for name, (about, _) in part.items()
}
"""Name -> about."""


def system(name: str, size: str = "small", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The system called so; what has no owner that resumes is the same in every variant."""
    if name in collecting.SYSTEMS:
        return collecting.collecting(name, *collecting.SYSTEMS[name])
    return systems.system(name, size, variant, without)
