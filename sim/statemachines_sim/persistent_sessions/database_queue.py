"""DatabaseQueue: the requests of one process to the database, in their order, in batches, each until it is answered.

What `RequestQueue` does in a real node, by the clock of the simulation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from statemachines.drivers.persistent_sessions.host_request import HostRequest
from statemachines.drivers.persistent_sessions.request_queue import BATCH_MAX, Taker
from statemachines.drivers.persistent_sessions.store import Asked, StoredLife, is_read
from statemachines.kernel import Answer, GaplessError, Request
from statemachines.persistent_sessions.request import DATABASE
from statemachines_sim.node_life import NodeLife
from statemachines_sim.persistent_sessions.database import (
    Batch,
    BatchDone,
    BatchRefused,
    BeginLife,
    LifeBegun,
)
from statemachines_sim.units import MS

AGAIN_NS = (20 * MS, 1_000 * MS)
"""First and longest pause before something that failed is asked again."""


class DatabaseQueue:
    """Of a `process`; `refused(why)`: the database does not know it any more."""

    def __init__(self, process: NodeLife, refused: Callable[[GaplessError], None]) -> None:
        self.asked_ns: int | None = None
        """When the batch was given first that is not answered yet (None: everything is)."""
        self._process = process
        self._refused = refused
        self._life: StoredLife | None = None
        self._number = 0
        self._waiting: deque[tuple[Asked, Taker]] = deque()
        self._busy = False

    def begin(self, lease_ms: int, begun: Callable[[StoredLife], None]) -> None:
        """Begin a life of the node, before anything else."""

        def take(answer: Any) -> None:
            self._life = answer.life
            begun(answer.life)

        self._ask(BeginLife(self._process.node, lease_ms), LifeBegun, take)

    def give(self, request: Asked, take: Taker) -> None:
        """Ask; `take` hears the answer, behind those to whatever was asked before."""
        self._waiting.append((request, take))
        self._go_on()

    def give_first(self, request: HostRequest, take: Taker) -> None:
        """The same, ahead of whatever waits."""
        self._waiting.appendleft((request, take))
        self._go_on()

    def _go_on(self) -> None:
        if self._busy or not self._waiting or self._life is None:
            return
        count = min(BATCH_MAX, len(self._waiting))
        batch = [self._waiting.popleft() for _ in range(count)]
        requests = tuple([request for request, _ in batch])
        number = 0
        if not all(map(is_read, requests)):
            self._number = number = self._number + 1

        def take(answer: Any) -> None:
            for (_, taker), one in zip(batch, answer.answers, strict=True):
                taker(one)
            self._busy, self.asked_ns = False, None
            self._go_on()

        self._busy, self.asked_ns = True, self._process.local_now()
        self._ask(Batch(self._life, number, requests), BatchDone, take)

    def _ask(
        self, request: Request, wanted: type[Answer], take: Callable[[Any], None], pause: int = AGAIN_NS[0]
    ) -> None:
        process = self._process

        def again() -> None:
            self._ask(request, wanted, take, min(2 * pause, AGAIN_NS[1]))

        def hear(answer: Answer) -> None:
            if isinstance(answer, BatchRefused):
                self._refused(answer.why)
            elif isinstance(answer, wanted):
                take(answer)
            else:
                process.after(pause, again)

        party = f"{process.life}/desk"
        process.world.devices[DATABASE].ask(process, party, request, lambda answer: process.run(lambda: hear(answer)))
