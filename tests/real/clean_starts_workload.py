"""A crowd under one client id: so many clean starts at once over two nodes, from one process, and its judge.

    python tests/real/run.py clean_starts --clients 2000

Every client hears how it ended: it was connected (and perhaps superseded by the next), or superseded while it waited;
one has the session at the end, and it is the only one in the tables.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import ClassVar

from node_processes import PATIENCE_S, nodes_of, until
from sessions_workload import read
from workload import Workload, run_beside

from statemachines.drivers.persistent_sessions import PersistentSession
from statemachines.drivers.persistent_sessions.persistent_session import SessionTaken
from statemachines.kernel import GaplessError

CLIENT = "crowd"
SETTLE_S = 30
"""So long the last of the crowd may take to learn that it is the last."""


class CleanStartsWorkload(Workload):
    """What became of each: `ended` says how; `connected` are those that are, as far as they know."""

    options: ClassVar = {"clients": 2_000}
    schemas = ("gapless_sessions",)

    @contextlib.asynccontextmanager
    async def open(self):
        self.ended, self.connected, self.over = Counter(), {}, asyncio.Event()
        async with nodes_of(self.folder, self.store) as nodes, run_beside() as self.begin:
            self.addresses = [node.address for node in nodes]
            yield

    async def come(self, number):
        """Start clean, and stay until somebody else has the client id, or all is over."""
        nodes = self.addresses[number % 2 :] + self.addresses[: number % 2]
        session = PersistentSession(CLIENT, nodes=nodes, clean_start=True, patience_s=120)
        try:
            async with session:
                self.connected[number] = session
                waits = asyncio.ensure_future(anext(session))
                gone = asyncio.ensure_future(self.over.wait())
                await asyncio.wait((waits, gone), return_when=asyncio.FIRST_COMPLETED)
                gone.cancel()
                if waits.done():
                    waits.result()
                else:
                    waits.cancel()
            self.ended["stayed"] += 1
        except SessionTaken:
            self.ended["superseded" if number in self.connected else "superseded before it was connected"] += 1
        except GaplessError as error:
            self.ended[f"{type(error).__name__}: {error}"] += 1
        finally:
            self.connected.pop(number, None)

    async def finish(self):
        tasks = [self.begin(self.come(number)) for number in range(self.clients)]
        await until(lambda: self.ended.total() >= self.clients - 1, 2 * PATIENCE_S, every_s=0.05)
        await until(lambda: self.connected, SETTLE_S, every_s=0.05)
        stored = [bytes(one).decode() for (one,) in read(self.store, "SELECT session FROM @sessions")]
        self.last = [one.session for one in self.connected.values()]
        if len(self.last) != 1 or stored != self.last:
            self.wrong.append(f"in the tables are {stored}, and {self.last} is connected")
        self.over.set()
        await asyncio.gather(*tasks)

    def judge(self):
        return self.wrong + [f"{count} times {how}" for how, count in self.ended.items() if ":" in how]

    def tally(self):
        return dict(self.ended)
