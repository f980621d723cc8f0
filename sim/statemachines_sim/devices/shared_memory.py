"""SharedMemory: a pure service whose requests are accesses of memory: each happens at one instant.

Nothing travels: an access takes a moment, and then happens only if its process lives and runs, so that a crash or a
pause falls between any two accesses.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from statemachines.kernel import Answer, Request, Service
from statemachines_sim.local_clock import LocalClock
from statemachines_sim.protocol import Fixture, Reply

if TYPE_CHECKING:
    from statemachines_sim.process import Process
    from statemachines_sim.world import World

ACCESS_NS = (100, 2_000)
"""How long an access takes, by default."""


class SharedMemory:
    """`state`: what the words hold now."""

    clock: LocalClock | None = None

    def __init__(self, world: World, service: Service[Any], access_ns: tuple[int, int] = ACCESS_NS) -> None:
        self._world = world
        self._service = service
        self._access_ns = access_ns
        self._chance = random.Random(f"{world.seed}/{service.name}")
        self.state = service.initial()

    def ask(self, process: Process, party: str, request: Request, reply: Reply) -> None:
        """The access happens a moment later, when the process lives and runs, and is answered at the same instant."""

        def access() -> None:
            for answer in self.apply(request, party):
                reply(answer)

        process.after(self._chance.randint(*self._access_ns), access)

    def apply(self, request: Request, party: str = "") -> tuple[Answer, ...]:
        """The access, now."""
        world = self._world
        now_ns = world.now if self.clock is None else self.clock.local(world.now)
        self.state, answers = self._service.apply(self.state, request, now_ns)
        if world.watching:
            world.watch.carried_out(self._service.name, party, request, answers, now_ns)
        return answers

    def heal(self) -> None:
        """Memory does not fail."""


def shared_memory(service: Service[Any], *, access_ns: tuple[int, int] = ACCESS_NS) -> Fixture:
    """The service as memory that all processes share."""
    return Fixture(service.name, lambda world: SharedMemory(world, service, access_ns), faults=())
