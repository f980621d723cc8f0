"""Every system of persistent sessions, by its name."""

from __future__ import annotations

from statemachines_spec.explorer.system import System
from statemachines_spec.persistent_sessions import (
    collector_systems,
    connection_systems,
    node_systems,
    systems,
    takeover_systems,
    unreachable,
)
from statemachines_spec.persistent_sessions.counterexamples import ASIDE

SYSTEMS: dict[str, str] = {
    **{name: about for name, (about, _) in systems.SYSTEMS.items()},
    **{name: about for name, (about, _) in collector_systems.SYSTEMS.items()},
    **{name: about for name, (about, _) in connection_systems.SYSTEMS.items()},
    **{name: about for name, (about, _) in connection_systems.FORGETTING_SYSTEMS.items()},
    **{name: about for name, (about, _) in node_systems.SYSTEMS.items()},
    **{name: about for name, (about, _) in takeover_systems.SYSTEMS.items()},
    **unreachable.SYSTEMS,
}
"""Name -> about."""


def system(name: str, size: str = "small", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The system called so; what has no owner that resumes is the same in every variant."""
    if name in ASIDE:
        return ASIDE[name].system(variant)
    if name in collector_systems.SYSTEMS:
        return collector_systems.collecting(name, *collector_systems.SYSTEMS[name])
    if name in connection_systems.SYSTEMS:
        return connection_systems.living(name, *connection_systems.SYSTEMS[name])
    if name in connection_systems.FORGETTING_SYSTEMS:
        return connection_systems.forgetting(name, *connection_systems.FORGETTING_SYSTEMS[name])
    if name in node_systems.SYSTEMS:
        return node_systems.system(name)
    if name in takeover_systems.SYSTEMS:
        return takeover_systems.taking(name, *takeover_systems.SYSTEMS[name], variant)
    if name in unreachable.SYSTEMS:
        return unreachable.system(name, variant)
    return systems.system(name, size, variant, without)
