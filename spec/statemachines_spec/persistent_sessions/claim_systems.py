"""A system of whole nodes in which each claim is said once: what the database was asked before it drops none."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.persistent_sessions.takeover_record import FindOwner
from statemachines_spec.explorer.system import System, at_most
from statemachines_spec.persistent_sessions.node_database import LookOut
from statemachines_spec.persistent_sessions.node_systems import NodeSetting, build

SYSTEMS: dict[str, tuple[str, NodeSetting]] = {
    "node-claims-once": (
        "a client connects twice at a node, whose claims overtake each other, wait for slow looks and are not repeated",
        NodeSetting(at=("a", "a"), messages=(0, 1), slow=(FindOwner,)),
    ),
}
"""Name -> (about, bounds)."""


def system(name: str) -> System:
    """The system called so.  Its network reorders; nodes find nothing by a look into the database."""
    made = build(name, *SYSTEMS[name])
    return replace(made, budgets=(*made.budgets, at_most("looks for writers", 0, LookOut)))
