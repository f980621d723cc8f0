"""SharedMemory: a pure service whose requests are accesses of memory: each happens at one instant.

Nothing travels: an access takes a moment, and then happens only if its process lives and runs, so that a crash or a
pause falls between any two accesses.  What is not atomic is made of several accesses (`Parts`), and a crash or a pause
falls between those too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from statemachines.kernel import Answer, Request, Service
from statemachines_sim.cluster import Fixture, SimCluster
from statemachines_sim.local_clock import LocalClock
from statemachines_sim.node_life import NodeLife, Reply

ACCESS_NS = (100, 2_000)
"""How long an access takes, by default."""


class AtomicParts:
    """Base of what is known about requests that are not atomic; this one takes all for atomic."""

    def split(self, request: Request, chance: random.Random) -> tuple[Request, ...]:
        """The accesses that it is made of, in order."""
        return (request,)

    def join(self, request: Request, answers: list[Answer]) -> Answer:
        """What is answered once all of them have happened; `answers`: theirs."""
        return answers[-1]


class SharedMemory:
    """`state`: what the words hold now."""

    clock: LocalClock | None = None

    def __init__(
        self,
        world: SimCluster,
        service: Service[Any],
        access_ns: tuple[int, int] = ACCESS_NS,
        parts: AtomicParts | None = None,
    ) -> None:
        self._world = world
        self._service = service
        self._access_ns = access_ns
        self._parts = parts or AtomicParts()
        self._chance = random.Random(f"{world.seed}/{service.name}")
        self.state = service.initial()

    def ask(self, process: NodeLife, party: str, request: Request, reply: Reply) -> None:
        """The access happens a moment later, when the process lives and runs, and is answered at the same instant."""
        parts = self._parts.split(request, self._chance)
        if len(parts) == 1:
            self._later(process, party, request, reply)
            return
        answers: list[Answer] = []
        left = iter(parts)

        def go_on(answer: Answer) -> None:
            answers.append(answer)
            following = next(left, None)
            if following is None:
                reply(self._parts.join(request, answers))
            else:
                self._later(process, party, following, go_on)

        self._later(process, party, next(left), go_on)

    def apply(self, request: Request, party: str = "", clock: LocalClock | None = None) -> tuple[Answer, ...]:
        """The access, now; `clock`: of who makes it, where that is not the memory's."""
        world = self._world
        clock = clock or self.clock
        now_ns = world.now if clock is None else clock.local(world.now)
        self.state, answers = self._service.apply(self.state, request, now_ns)
        if world.watching:
            world.watch.observe_request(self._service.name, party, request, answers, now_ns)
        return answers

    def heal(self) -> None:
        """Memory does not fail."""

    def _later(self, process: NodeLife, party: str, request: Request, reply: Callable[[Answer], None]) -> None:
        def access() -> None:
            for answer in self.apply(request, party, process.clock):
                reply(answer)

        process.after(self._chance.randint(*self._access_ns), access)


def shared_memory(
    service: Service[Any],
    *,
    access_ns: tuple[int, int] = ACCESS_NS,
    parts: AtomicParts | None = None,
    faults: tuple[str, ...] = (),
) -> Fixture:
    """The service as memory that all processes share; `faults`: of its clock, if it has one that may be wrong."""
    return Fixture(service.name, lambda world: SharedMemory(world, service, access_ns, parts), faults)
