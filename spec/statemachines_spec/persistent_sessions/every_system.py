"""Every system of persistent sessions, by its name."""

from __future__ import annotations

from statemachines_spec.explorer.system import System
from statemachines_spec.persistent_sessions import collecting, forgetting, living, systems, taking, unreachable
from statemachines_spec.persistent_sessions.counterexamples import ASIDE

SYSTEMS: dict[str, str] = {
    **{name: about for name, (about, _) in systems.SYSTEMS.items()},
    **{name: about for name, (about, _) in collecting.SYSTEMS.items()},
    **{name: about for name, (about, _) in living.SYSTEMS.items()},
    **{name: about for name, (about, _) in forgetting.SYSTEMS.items()},
    **{name: about for name, (about, _) in taking.SYSTEMS.items()},
    **unreachable.SYSTEMS,
}
"""Name -> about."""


def system(name: str, size: str = "small", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The system called so; what has no owner that resumes is the same in every variant."""
    if name in ASIDE:
        return ASIDE[name].system(variant)
    if name in collecting.SYSTEMS:
        return collecting.collecting(name, *collecting.SYSTEMS[name])
    if name in living.SYSTEMS:
        return living.living(name, *living.SYSTEMS[name])
    if name in forgetting.SYSTEMS:
        return forgetting.forgetting(name, *forgetting.SYSTEMS[name])
    if name in taking.SYSTEMS:
        return taking.taking(name, *taking.SYSTEMS[name], variant)
    if name in unreachable.SYSTEMS:
        return unreachable.system(name, variant)
    return systems.system(name, size, variant, without)
