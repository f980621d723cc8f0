"""Progress: how long nothing is delivered while processes of a real group are stopped, killed, cut off and kept busy.

    python tests/real/run.py progress --what pauses --faults 20     the leading host stands still for 2 s, each time
    python tests/real/run.py progress --what busy --processes 30    processes that compute, for a minute
    python tests/real/run.py progress --faults 20 --at-once 2       faults of members, hosts and store, two at a time

Two leader hosts, three members and a publisher of eight topics work over one SQLite file with the default times.
Members reach each host by a proxy, and the hosts reach each other by two more.  Each round says what was done, the
longest time without any delivery, the longest time without one of a topic, and how often a host took the claim.

A crowd under one client id: so many clean starts at once over two nodes, from one process, and its judge.

    python tests/real/run.py clean_starts --clients 2000

Every client hears how it ended: it was connected (and perhaps superseded by the next), or superseded while it waited;
one has the session at the end, and it is the only one in the tables.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, defaultdict
from itertools import pairwise
from typing import ClassVar, NamedTuple

from groups_workload import CONSUMERS, LEADERS, GroupProcess, GroupRun, begin
from node_processes import PATIENCE_S, nodes_of, until
from outside import hurt
from sessions_workload import read
from workload import Workload, run_beside

from statemachines.drivers.persistent_sessions import PersistentSession
from statemachines.drivers.persistent_sessions.persistent_session import SessionTaken
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.drivers.sql.failure import StoreUnavailable
from statemachines.kernel import GaplessError
from tests.waiting import pause_async

TOPICS = tuple(f"t{number}" for number in range(8))
EVERY_S = 0.1
"""A message to each topic."""
BUSY_S = 60.0
HOLD_S = 20.0
"""A fault lasts longer than every period of the group."""
SETTLED_S = 1.5
"""Every topic has had a delivery within this time: the group has settled."""
PROGRESS_WORKLOAD_PATIENCE_S = 90.0


class ProgressRun(GroupRun):
    """Everybody reaches others by a proxy."""

    def list_hosts(self, name):
        ways = self.to_peer if name in LEADERS else self.to_host
        return [way.address[1] for host, way in ways.items() if host != name]


class Round(NamedTuple):
    """What was done; seconds without any delivery, and without one of a topic, at the longest; claims taken."""

    what: str
    silent_s: float
    topic_s: float
    elected: int


class ProgressWorkload(Workload):
    """`what`: pauses, busy or faults; `seconds` that a pause lasts; `processes` that compute for a minute; `at_once`:
    so many faults at the same time."""

    options: ClassVar = {"what": "faults", "seconds": 2.0, "processes": 30, "at_once": 1}
    pause_s = (0.5, 1.5)

    def plan(self, faults):
        """Each fault in turn, in an order that the seed says."""
        if self.what != "faults":
            return [self.what] * (faults if self.what == "pauses" else 1)
        names, left = [], []
        for _ in range(faults * self.at_once):
            left = left or self.chance.sample(sorted(FAULTS), len(FAULTS))
            names.append(left.pop())
        return ["; ".join(names[first::faults]) for first in range(faults)]

    @contextlib.asynccontextmanager
    async def open(self):
        self.rounds = []
        with ProgressRun(self.folder, self.store, self.seed, {}) as self.run:
            await asyncio.to_thread(begin, self.run)
            async with run_beside() as begin_task:
                self.publishing = begin_task(self.publish())
                yield

    async def publish(self):
        """A message to each topic, again and again; its failure is ours."""
        async with Publisher(self.store, node="publisher-1") as publisher:
            while True:
                with contextlib.suppress(StoreUnavailable):
                    for topic in TOPICS:
                        await publisher.publish(topic, [b"x" * 64])
                await pause_async(EVERY_S, "the pace of the publisher")

    # -- what is seen -------------------------------------------------------------------------------------------

    def list_epochs(self):
        """Epoch -> the host that took the claim under it."""
        lines = ((one.name, line) for one in self.run._all for line in one.read_log().splitlines())
        return {int(line.rpartition(" ")[2]): name for name, line in lines if "leads it, under epoch" in line}

    def list_deliveries(self):
        """Topic -> when its messages were handed over, in order."""
        times = defaultdict(list)
        for lines in self.run.all_lines().values():
            for what, stream, *_, at_ns in lines:
                if what == "got":
                    times[stream.partition("/")[2]].append(at_ns)
        return {topic: sorted(moments) for topic, moments in times.items()}

    async def settle(self):
        """Until every topic had a delivery just now; raises `GaplessError` if it does not come."""

        def has_settled():
            assert not self.publishing.done(), self.publishing.result()
            since_ns = time.time_ns() - int(SETTLED_S * 1e9)
            times = self.list_deliveries()
            return all(times.get(topic, [0])[-1] > since_ns for topic in TOPICS)

        if not await until(has_settled, PROGRESS_WORKLOAD_PATIENCE_S, every_s=0.2):
            raise GaplessError(f"some topic gets nothing for {PROGRESS_WORKLOAD_PATIENCE_S:g} s; see {self.folder}")

    # -- what is done -------------------------------------------------------------------------------------------

    async def pause(self):
        """Any moment between two heartbeats."""
        await self.settle()
        await super().pause()

    async def hurt(self, what):
        """A round: something is done and undone, and the group settles again."""
        await self.settle()
        epochs, since_ns = self.list_epochs(), time.time_ns()
        lead = epochs[max(epochs)]
        await self.hurt_at_once(what.split("; "), lead)
        await self.settle()
        times = self.list_deliveries()
        self.rounds.append(
            Round(
                what,
                longest_gap_s([moment for one in times.values() for moment in one], since_ns),
                max(longest_gap_s(times[topic], since_ns) for topic in TOPICS),
                len(self.list_epochs()) - len(epochs),
            )
        )
        self.done[what] += 1
        print(self.rounds[-1], flush=True)

    async def hurt_at_once(self, names, lead):
        """One that a process is not there for any more is over at once."""
        (other,) = set(LEADERS) - {lead}
        victims = {
            "lead": GroupProcess(self.run, lead),
            "other": GroupProcess(self.run, other),
            "member": GroupProcess(self.run, self.chance.choice(CONSUMERS)),
            "way to lead": self.run.to_host[lead],
            "peer's way to lead": self.run.to_peer[lead],
            "lead's way to peer": self.run.to_peer[other],
            "store": self.store,
            "processors": self.processes,
        }
        held_s = {"pauses": self.seconds, "busy": BUSY_S}.get(self.what, HOLD_S)
        acts = [(kind, victims[whom], *more) for kind, whom, *more in map(KINDS.get, names)]
        acts = [hurt(kind, self.chance, *given, holds_s=(held_s,)) for kind, *given in acts]
        for ended in await asyncio.gather(*acts, return_exceptions=True):
            if ended is not None and not isinstance(ended, (ProcessLookupError, ChildProcessError)):
                raise ended

    # -- what came of it ----------------------------------------------------------------------------------------

    def judge(self):
        """A host that only stood still for a while keeps its claim."""
        return [f"{one}: a claim was taken" for one in self.rounds if one.elected and self.what != "faults"]

    def tally(self):
        return {
            "silent_s": max(one.silent_s for one in self.rounds),
            "topic_s": max(one.topic_s for one in self.rounds),
            "elected": sum(one.elected for one in self.rounds),
        }


FAULTS = {
    "SIGKILL of the leading host": ("kill", "lead"),
    "SIGKILL of the other host": ("kill", "other"),
    "SIGKILL of a member": ("kill", "member"),
    "SIGSTOP of the leading host": ("stop", "lead"),
    "SIGSTOP of the other host": ("stop", "other"),
    "SIGSTOP of a member": ("stop", "member"),
    "members do not reach the leading host": ("silence", "way to lead", "up"),
    "the leading host does not reach members": ("silence", "way to lead", "down"),
    "members and leading host are apart": ("silence", "way to lead"),
    "the other host does not reach the leading host": ("silence", "peer's way to lead"),
    "the leading host does not reach the other host": ("silence", "lead's way to peer"),
    "the database is locked": ("lock", "store"),
}
"""What a round of faults may do, by name: kind of fault, and whom it hits."""
KINDS = {**FAULTS, "pauses": ("stop", "lead"), "busy": ("busy", "processors")}


def longest_gap_s(moments, since_ns):
    """Between two deliveries one after the other, of which the later came after `since_ns`."""
    gaps = [later - earlier for earlier, later in pairwise(sorted(moments)) if later > since_ns]
    return max(gaps, default=0) / 1e9


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
