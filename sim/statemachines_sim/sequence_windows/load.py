"""Load: beside what publishers and receivers do by themselves: the routes, and the operator's words."""

from __future__ import annotations

from typing import Any

from statemachines_sim.cluster import SimCluster
from statemachines_sim.sequence_windows.operator import NAME
from statemachines_sim.sequence_windows.section import WindowSection
from statemachines_sim.units import S

LISTENERS = ("receiver-", "application-")


def play(own: WindowSection, world: SimCluster) -> None:
    """Every message goes to every receiver, as in a multicast group: who does not want it drops it."""

    def route(to: str) -> list[str]:
        return [node for node in world.processes if node.startswith(LISTENERS)]

    world.network.route_by(route)
    operator: Any = world.devices[NAME]
    for at_s in own.converge_s:
        world.after(int(at_s * S), operator.converge)
