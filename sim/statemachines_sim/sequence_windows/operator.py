"""Operator: what the hosts have beside their machines: clocks on the wall, and somebody who says when the network has
converged."""

from __future__ import annotations

import random
from typing import Any

from statemachines.kernel import ConfigurationError, Request
from statemachines_sim.cluster import Fixture, SimCluster
from statemachines_sim.local_clock import LocalClock
from statemachines_sim.node_life import NodeLife, Reply
from statemachines_sim.sequence_windows.section import WindowSection
from statemachines_sim.units import MS, S

NAME = "operator"
WORD_MS = (1, 200)
"""How long the operator's word takes to a node."""


class Operator:
    """A device that nobody asks.  `converged_ns`: what it said last, by its own wall's clock, which is right (0: it has
    said nothing); `converged_at`: the same in true time."""

    clock: LocalClock | None = None

    def __init__(self, world: SimCluster, own: WindowSection) -> None:
        self._world = world
        self._epoch_ns = own.epoch_s * S
        self._ahead: dict[str, int] = {}
        self._chance = random.Random(f"{world.seed}/{NAME}")
        self.converged_ns = 0
        self.converged_at = -1

    # -- the wall's clocks --------------------------------------------------------------------------------------

    def wall(self, process: NodeLife) -> int:
        """What the wall's clock of the process shows: that which never goes back, and what somebody has set."""
        return self._epoch_ns + process.local_now() + self._ahead.get(process.node, 0)

    def step_wall(self, node: str, by_ns: int) -> None:
        """Somebody sets the wall's clock of a node, by so much ahead or (below 0) back; it stays so."""
        self._ahead[node] = self._ahead.get(node, 0) + by_ns

    def is_right(self, process: NodeLife) -> bool:
        """Whether its wall's clock has never been anything but right."""
        return process.clock is None and process.node not in self._ahead

    # -- what the operator says -----------------------------------------------------------------------------------

    def converge(self) -> None:
        """The network has converged, now: every node hears of it a little later."""
        now_ns = self._world.now
        self.converged_ns, self.converged_at = self._epoch_ns + now_ns, now_ns
        self._world.note("converged", "")
        for _, process in sorted(self._world.processes.items()):
            delay = self._chance.randint(WORD_MS[0] * MS, WORD_MS[1] * MS)
            self._world.after(delay, self._tell, process, self.converged_ns, now_ns)

    def _tell(self, process: Any, t_ns: int, at_ns: int) -> None:
        process.run(lambda: process.converge(t_ns, at_ns))

    # -- as a device ------------------------------------------------------------------------------------------------

    def ask(self, process: NodeLife, party: str, request: Request, reply: Reply) -> None:
        raise ConfigurationError("service", NAME, "answers nobody: no machine of this protocol asks anything")

    def heal(self) -> None:
        """A clock that was set stays as it is."""


def operator(own: WindowSection) -> Fixture:
    """The operator of a run."""
    return Fixture(NAME, lambda world: Operator(world, own), faults=())
