"""Members that do not reach the leader host, which another host does: what they get meanwhile.

The first of two leader hosts leads.  One member knows it alone; two reach it by a proxy that goes bad, and reach the
other host.  The hosts see each other.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import ClassVar

from stage import ONE, THREE, TWO, Stage, topics
from workload import Workload

from statemachines.testing import fault_proxy
from statemachines.testing.process_harness import free_port

TIMES = {"ping_timeout_ms": 1_000, "validity_ms": 2_000, "claim_ttl_ms": 2_000, "revoke_timeout_ms": 5_000}
LOAD = topics(4)


class UnreachableWorkload(Workload):
    """`way` in which the proxy goes bad ("": the seed says); `stays`: whether the member does that reaches the leader;
    `rounds`: so many times every member that is there gets messages again."""

    options: ClassVar = {"way": "", "stays": 1, "rounds": 1}
    kinds = ("refused", "up", "down", "both")
    """Nobody is there any more; or what is said one way, or both, does not arrive."""

    def plan(self, faults):
        return [self.way or self.chance.choice(self.kinds)]

    @contextlib.asynccontextmanager
    async def open(self):
        with Stage(self.folder, **TIMES) as self.stage:
            self.first, second = (f"127.0.0.1:{free_port()}" for _ in range(2))
            self.stage.nodes.leader("leader-1", "--peers", second, listen=self.first)
            self.stage.nodes.leader("leader-2", "--peers", self.first, listen=second)
            host, _, port = self.first.rpartition(":")
            with fault_proxy.run_in_thread((host, int(port))) as self.proxy:
                self.hosts = "{}:{},{}".format(*self.proxy.address, second)
                yield

    async def hurt(self, what):
        self.done[what] += 1
        await asyncio.to_thread(self.serve, what)

    def serve(self, way):
        """A member that has another way, and one that comes later, get messages after the proxy has gone bad."""
        stage = self.stage
        stage.join(THREE, leader=self.first)
        stage.until_serving(THREE, load=LOAD)
        stage.join(ONE, leader=self.hosts)
        stage.until_serving(ONE, THREE, load=LOAD)
        if way == "refused":
            self.proxy.target = ("127.0.0.1", free_port())
            self.proxy.cut()
        else:
            self.proxy.block(way)
        stage.blow("leader-1")
        stage.join(TWO, leader=self.hosts)
        if not self.stays:
            stage.leave(THREE)
        for _ in range(self.rounds):
            stage.until_serving(ONE, TWO, *((THREE,) if self.stays else ()), load=LOAD)
        stage.until_done()

    def judge(self):
        return self.stage.wrong()

    def tally(self):
        return {"messages": self.stage.acked()}
