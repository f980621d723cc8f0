"""Progress: how long nothing is delivered while processes of a real group are stopped, killed, cut off and kept busy.

    python tests/real/progress_run.py pauses --rounds 20          the leading host stands still for 2 s, again and again
    python tests/real/progress_run.py busy --processes 30         processes that compute, for a minute
    python tests/real/progress_run.py faults --rounds 20 --seed 1 one fault after the other, of members, hosts and store
    python tests/real/progress_run.py faults --at-once 2          two at a time

Two leader hosts, three members and a publisher of eight topics work over one SQLite file with the default times.
Members reach each host by a proxy, and the hosts reach each other by two more.  Each round says what was done, the
longest time without any delivery, the longest time without one of a topic, and how often a host took the claim.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sqlite3
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from many_topics_run import busy

from statemachines.drivers.shared_subscriptions import consumer_file
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.drivers.sql.failure import StoreUnavailable
from statemachines.kernel import GaplessError
from statemachines.testing import fault_proxy
from statemachines.testing.process_harness import NodeProcess, free_port
from statemachines.testing.shared_subscriptions.nodes import GroupHarness

SUBSCRIPTION: Final = "$shared/progress/#"
TOPICS: Final = tuple(f"t{number}" for number in range(8))
HOSTS: Final = ("leader-1", "leader-2")
MEMBERS: Final = ("consumer-1", "consumer-2", "consumer-3")
EVERY_S: Final = 0.1
"""A message to each topic."""
PAUSE_S: Final = 2.0
HOLD_S: Final = 20.0
"""A fault lasts longer than every period of the group."""
SETTLED_S: Final = 1.5
"""Every topic has had a delivery within this time: the group has settled."""
PATIENCE_S: Final = 90.0


class Round(NamedTuple):
    """What was done; seconds without any delivery, and without one of a topic, at the longest; claims taken."""

    what: str
    silent_s: float
    topic_s: float
    elected: int

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.silent_s:.1f} s without a delivery, {self.topic_s:.1f} s without one of a topic, "
            f"{self.elected} claims taken"
        )


class ProgressStage:
    """The processes of the group, the proxies between them, and what its members have noted."""

    def __init__(self, folder: Path, *, hosts: tuple[str, ...] = HOSTS, members: tuple[str, ...] = MEMBERS) -> None:
        self.folder = folder
        self.files = {name: folder / f"{name}.jsonl" for name in members}
        self.hosts = hosts
        self.logs: list[NodeProcess] = []
        self._stack = ExitStack()

    def __enter__(self) -> ProgressStage:
        with ExitStack() as stack:
            self.nodes = stack.enter_context(GroupHarness(self.folder))
            self._ports = {name: free_port() for name in self.hosts}
            self.to_host = {name: self._open_proxy(stack, name) for name in self.hosts}
            self.to_peer = {name: self._open_proxy(stack, name) for name in self.hosts}
            for name in self.hosts:
                self.start_host(name)
            for name in self.files:
                self.start_member(name)
            stack.enter_context(publish_steadily(Path(self.nodes.store)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _open_proxy(self, stack: ExitStack, name: str) -> fault_proxy.FaultProxy:
        return stack.enter_context(fault_proxy.run_in_thread(("127.0.0.1", self._ports[name])))

    def start_host(self, name: str) -> None:
        """A leader host, also one that comes back."""
        peers = ["{}:{}".format(*self.to_peer[other].address) for other in self.hosts if other != name]
        more = ("--peers", ",".join(peers)) if peers else ()
        self.logs.append(self.nodes.leader(name, *more, listen=f"127.0.0.1:{self._ports[name]}"))

    def start_member(self, name: str) -> None:
        """A member, also one that comes back."""
        hosts = ",".join("{}:{}".format(*proxy.address) for proxy in self.to_host.values())
        self.nodes.consumer(name, SUBSCRIPTION, hosts, "--out", str(self.files[name]))

    # -- what is seen -------------------------------------------------------------------------------------------

    def list_epochs(self) -> dict[int, str]:
        """Epoch -> the host that took the claim under it."""
        lines = ((log.name, line) for log in self.logs for line in log.read_log().splitlines())
        return {int(line.rpartition(" ")[2]): name for name, line in lines if "leads it, under epoch" in line}

    def find_leading(self) -> str:
        """The host that took the claim last."""
        epochs = self.list_epochs()
        return epochs[max(epochs)]

    def list_deliveries(self) -> dict[str, list[int]]:
        """Topic -> when its messages were handed over, in order."""
        times = defaultdict(list)
        for path in self.files.values():
            for line in consumer_file.read_file(path):
                if line.what == consumer_file.GOT:
                    times[line.stream.partition("/")[2]].append(line.at_ns)
        return {topic: sorted(moments) for topic, moments in times.items()}

    def has_settled(self) -> bool:
        """Whether every topic had a delivery just now."""
        since_ns = time.time_ns() - int(SETTLED_S * 1e9)
        times = self.list_deliveries()
        return all(times.get(topic, [0])[-1] > since_ns for topic in TOPICS)

    def settle(self) -> None:
        """Wait for it; raises `GaplessError` if it does not come."""
        end = time.monotonic() + PATIENCE_S
        while not self.has_settled():
            if time.monotonic() > end:
                raise GaplessError(f"some topic gets nothing for {PATIENCE_S:g} s; see {self.folder}")
            time.sleep(0.2)

    def play(self, what: str, act: Callable[[], None]) -> Round:
        """A round: something is done and undone, and the group settles again."""
        self.settle()
        claims, since_ns = len(self.list_epochs()), time.time_ns()
        act()
        self.settle()
        times = self.list_deliveries()
        return Round(
            what,
            longest_gap_s([moment for one in times.values() for moment in one], since_ns),
            max(longest_gap_s(times[topic], since_ns) for topic in TOPICS),
            len(self.list_epochs()) - claims,
        )

    # -- what is done -------------------------------------------------------------------------------------------

    def pause(self, name: str, seconds: float) -> None:
        """SIGSTOP, and SIGCONT."""
        self.nodes.nodes[name].stop()
        time.sleep(seconds)
        self.nodes.nodes[name].resume()

    def kill(self, name: str) -> None:
        """SIGKILL; it comes back later."""
        self.nodes.kill(name)
        time.sleep(HOLD_S)
        (self.start_host if name in self.hosts else self.start_member)(name)

    def block(self, proxy: fault_proxy.FaultProxy, way: str) -> None:
        """Nothing arrives in a direction, or in both."""
        proxy.block(way)
        time.sleep(HOLD_S)
        proxy.heal()

    def lock_store(self, seconds: float) -> None:
        """Somebody keeps the database locked."""
        with closing(sqlite3.connect(self.nodes.store, timeout=30, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            connection.execute("ROLLBACK")


@contextmanager
def publish_steadily(store: Path) -> Iterator[None]:
    """A message to each topic, again and again; its failure is ours."""
    over, failed = threading.Event(), []

    async def publish() -> None:
        async with Publisher(store, node="publisher-1") as publisher:
            while not over.is_set():
                with suppress(StoreUnavailable):
                    for topic in TOPICS:
                        await publisher.publish(topic, [b"x" * 64])
                await asyncio.sleep(EVERY_S)

    def work() -> None:
        try:
            asyncio.run(publish())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if failed:
        raise failed[0]


def longest_gap_s(moments: list[int], since_ns: int) -> float:
    """Between two deliveries one after the other, of which the later came after `since_ns`."""
    gaps = [later - earlier for earlier, later in pairwise(sorted(moments)) if later > since_ns]
    return max(gaps, default=0) / 1e9


def list_faults(stage: ProgressStage) -> dict[str, Callable[[], None]]:
    """What a round of `faults` may do, by name; of the leading host as it is then."""
    lead = stage.find_leading()
    other = next(name for name in stage.hosts if name != lead)
    return {
        "SIGKILL of the leading host": lambda: stage.kill(lead),
        "SIGKILL of the other host": lambda: stage.kill(other),
        "SIGKILL of a member": lambda: stage.kill(MEMBERS[0]),
        "SIGSTOP of the leading host": lambda: stage.pause(lead, HOLD_S),
        "SIGSTOP of the other host": lambda: stage.pause(other, HOLD_S),
        "SIGSTOP of a member": lambda: stage.pause(MEMBERS[1], HOLD_S),
        "members do not reach the leading host": lambda: stage.block(stage.to_host[lead], "up"),
        "the leading host does not reach members": lambda: stage.block(stage.to_host[lead], "down"),
        "members and leading host are apart": lambda: stage.block(stage.to_host[lead], "both"),
        "the other host does not reach the leading host": lambda: stage.block(stage.to_peer[lead], "both"),
        "the leading host does not reach the other host": lambda: stage.block(stage.to_peer[other], "both"),
        "the database is locked": lambda: stage.lock_store(HOLD_S),
    }


def play_pauses(stage: ProgressStage, rounds: int, seconds: float, chance: random.Random) -> Iterator[Round]:
    """The leading host stands still, at any moment between two heartbeats."""
    for number in range(rounds):
        stage.settle()
        time.sleep(chance.uniform(0.5, 1.5))
        lead = stage.find_leading()
        yield stage.play(f"pause {number + 1} of {lead} for {seconds:g} s", partial(stage.pause, lead, seconds))


def play_busy(stage: ProgressStage, processes: int, seconds: float) -> Iterator[Round]:
    """Processes that compute."""
    stage.settle()

    def compute() -> None:
        with busy(processes):
            time.sleep(seconds)

    yield stage.play(f"{processes} processes compute for {seconds:g} s", compute)


def play_faults(stage: ProgressStage, rounds: int, at_once: int, chance: random.Random) -> Iterator[Round]:
    """Each fault in turn, or so many at a time, in an order that the seed says."""
    left: list[str] = []
    for number in range(rounds):
        stage.settle()
        faults = list_faults(stage)
        names = []
        while len(names) < at_once:
            left = left or chance.sample(sorted(faults), len(faults))
            names.append(left.pop())
        yield stage.play(f"{number + 1}. {'; '.join(names)}", partial(act_at_once, [faults[name] for name in names]))


def act_at_once(acts: list[Callable[[], None]]) -> None:
    """All of them, at the same time; one that a process is not there for any more is over at once."""
    with ThreadPoolExecutor(len(acts)) as threads:
        for done in [threads.submit(act) for act in acts]:
            with suppress(ProcessLookupError, ChildProcessError):
                done.result()


def main() -> int:
    """Rounds, a line each; exit code 1: a host took a claim that nobody should have lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("pauses", "busy", "faults"))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=PAUSE_S, help="that a pause lasts (default 2)")
    parser.add_argument("--processes", type=int, default=30, help="that compute for a minute (default 30)")
    parser.add_argument("--at-once", type=int, default=1, help="faults at the same time (default 1)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as folder, ProgressStage(Path(folder)) as stage:
        plans = {
            "pauses": lambda: play_pauses(stage, given.rounds, given.seconds, chance),
            "busy": lambda: play_busy(stage, given.processes, 60.0),
            "faults": lambda: play_faults(stage, given.rounds, given.at_once, chance),
        }
        rounds = []
        for one in plans[given.what]():
            print(one, flush=True)
            rounds.append(one)
    longest = max(one.silent_s for one in rounds), max(one.topic_s for one in rounds)
    elected = sum(one.elected for one in rounds)
    print("longest: {:.1f} s without a delivery, {:.1f} s without one of a topic; {} claims".format(*longest, elected))
    return 1 if elected and given.what != "faults" else 0


if __name__ == "__main__":
    sys.exit(main())
