"""Groups: two leader hosts, three consumers and a publisher that are killed, stopped, replaced, cut off and lied to.

Their store is locked or not reached; their hosts sleep, and wall clocks of these step.  `groups_judge` says what came
of it, and shares nothing with what it judges.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import msgspec
from carried_judge import Blow, acknowledged, judge_of_groups_judge, twice
from carried_workload import TENTH, declare_group, write_times
from node_processes import until
from outside import END, FAULTS, HOLDS_S, Pretender, Stranger, hurt, identity_of, reach_by_proxy
from workload import Workload

from statemachines.testing.fault_proxy import run_in_thread
from statemachines.testing.postgres import run_sql
from statemachines.testing.process_harness import NODE, HarnessError, ProcessHarness, free_port
from tests.waiting import pause, pause_async, read_clock_s

STEPPED = Path(__file__).with_name("stepped_clock.py")
TOPICS, LINES, RATE = 6, 80, 120
LEADERS, CONSUMERS = ("leader-1", "leader-2"), ("consumer-1", "consumer-2", "consumer-3")
AWAY = (LEADERS[1], CONSUMERS[1])
"""Whose way to PostgreSQL is cut or silent while others reach it."""
SUPERSEDED = 4


class GroupRun(ProcessHarness):
    """The processes, on machines whose clocks step (see stepped_clock.py), and what is left of them."""

    def __init__(self, folder, store, seed, times):
        super().__init__(folder)
        self.store, self.blows, self.clocks = store, [], {}
        self.ports = {name: free_port() for name in LEADERS}
        self.stranger = free_port()
        self.config = write_times(folder, times)
        self.topics = {
            f"t{topic}": [f"{seed} {topic} {line}".encode() for line in range(LINES)] for topic in range(TOPICS)
        }
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        self.away_store, self.way = self.stack.enter_context(reach_by_proxy(self.store))
        self.to_host, self.to_peer = (
            {name: self.stack.enter_context(run_in_thread(("127.0.0.1", port))) for name, port in self.ports.items()}
            for _ in range(2)
        )
        return self

    def __exit__(self, *_):
        with self.stack:
            self.close()

    # -- processes ----------------------------------------------------------------------------------------------

    def list_hosts(self, name):
        """Ports where it looks for a leader, or for the other host."""
        first, second = self.ports.values()
        return {
            LEADERS[0]: [second],
            LEADERS[1]: [first],
            CONSUMERS[0]: [self.to_host[LEADERS[0]].address[1], second],
            CONSUMERS[1]: [first, second],
            CONSUMERS[2]: [second, self.stranger, first],
        }[name]

    def begin_again(self, name):
        """A leader host or a consumer; some reach PostgreSQL by a way that is cut now and then."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.list_hosts(name))
        common = ("--store", self.away_store if name in AWAY else self.store, "--config", str(self.config))
        self.set_clock(name)
        self._program = (sys.executable, str(STEPPED), str(self.folder / f"{name}.clock"), "node")
        if name in LEADERS:
            listen = ("--listen", f"127.0.0.1:{self.ports[name]}", "--peers", hosts)
            self.start("leader", name, *common, *listen, says="listening on ")
        else:
            out = ("--out", str(self.folder / f"{name}.jsonl"), "--work-ms", "5", "--batch", "5")
            self.start("consumer", name, "$shared/g/#", *common, "--leader", hosts, *out)

    def publish(self, name, first=0):
        """A process that publishes each topic, but for the first lines."""
        folder = self.folder / name
        folder.mkdir()
        for topic, lines in self.topics.items():
            (folder / topic).write_bytes(b"".join(line + b"\n" for line in lines[first:]))
        paced = ("--input", str(folder), "--rate", str(RATE), "--batch", "5")
        self._program = NODE
        return self.start("publisher", name, "--store", self.store, *paced, ends=True)

    def set_clock(self, name, ahead_s=None, slept_s=0.0):
        """So far ahead of the true time (None: as before), and asleep for so much longer."""
        ahead, slept = self.clocks.get(name, (0, 0.0))
        self.clocks[name] = (ahead if ahead_s is None else ahead_s, slept + slept_s)
        path = self.folder / f"{name}.clock"
        written = path.with_suffix(".new")
        written.write_text(" ".join(map(str, self.clocks[name])))
        os.replace(written, path)

    def until_said(self, name, words, times):
        """It has logged them so often."""
        self.until(lambda: self.nodes[name].read_log().count(words) >= times, f"{name} to say {words!r}")

    # -- what came of it ----------------------------------------------------------------------------------------

    def lines(self, name):
        """(what, stream, grant, offset, digest, owner, when) of each line that is whole."""
        path = self.folder / f"{name}.jsonl"
        data = path.read_bytes() if path.exists() else b""
        found = []
        for line in data[: data.rfind(b"\n") + 1].splitlines():
            with contextlib.suppress(msgspec.DecodeError):  # cut by the death of its writer
                found.append(msgspec.json.decode(line))
        return found

    def all_lines(self):
        return {name: self.lines(name) for name in CONSUMERS}

    def judge(self):
        """What is wrong, in words, and how many messages came again."""
        lines = self.all_lines()
        return [*self.wrong, *judge_of_groups_judge(self.topics, lines, self.blows)], twice(lines)


def begin(run):
    """Everybody.  The first leader host leads, and the second follows, since one consumer asks that one first."""
    declare_group(run.store, config=run.config)
    for name in (LEADERS[0], *CONSUMERS[:2]):
        run.begin_again(name)
    run.until_said(LEADERS[0], "leads it, under epoch", 1)
    run.begin_again(LEADERS[1])
    run.begin_again(CONSUMERS[2])
    run.until_said(LEADERS[0], " is a member", len(CONSUMERS))


def finish(run, publisher):
    """All that was published, or as much as comes; then everybody ends in good order."""
    try:
        publisher.wait()
        run.until(lambda: len(acknowledged(run.all_lines())) >= TOPICS * LINES, "everything to be acknowledged")
    except HarnessError as error:
        run.wrong.append(str(error))
    run.close()


class GroupProcess(NamedTuple):
    """A process of the run, whichever has the name now."""

    run: GroupRun
    name: str

    def stop(self):
        self.run.nodes[self.name].stop()

    def resume(self):
        self.run.nodes[self.name].resume()

    async def end(self, _):
        self.run.kill(self.name)

    async def start(self):
        await asyncio.to_thread(self.run.begin_again, self.name)


class GroupsWorkload(Workload):
    """A group of real processes."""

    schemas = ("gapless",)
    kinds = (
        *("kill", "kill", "stop", "stop", "sleep", "sleep", "replace", "twins"),
        *("cut", "silence", "step", "lock", "away", "lie", "forge", "pretend"),
    )
    pause_s = (0.1, 0.6)

    @contextlib.asynccontextmanager
    async def open(self):
        with GroupRun(self.folder, self.store, self.seed, TENTH) as self.run:
            await asyncio.to_thread(begin, self.run)
            self.publisher = self.run.publish("publisher")
            yield

    async def finish(self):
        finish(self.run, self.publisher)

    def judge(self):
        wrong, self.again = self.run.judge()
        return wrong

    def tally(self):
        return {"messages": TOPICS * LINES, "came again": self.again}

    # -- what goes wrong ----------------------------------------------------------------------------------------

    async def hurt(self, what):
        """A leader host or a consumer, the network of one, the store, or the way of some to it."""
        self.done[what] += 1
        run, victims = self.run, self.chance.sample(LEADERS + CONSUMERS, 2)
        if what == "away" and run.way is not None:
            await hurt(self.chance.choice(["cut", "silence", "silence"]), self.chance, run.way)
        elif what in ("lock", "away"):
            postgres = run.store.startswith("postgresql")
            await hurt("lock tables" if postgres and self.chance.random() < 0.5 else "lock", self.chance, run.store)
        elif what in ("cut", "silence"):
            await hurt(what, self.chance, run.to_host[LEADERS[0]])
        elif what == "kill":
            await hurt(what, self.chance, GroupProcess(run, victims[0]), holds_s=(0,))
        elif what == "stop":
            await self.stop(victims[:1])
        elif what == "sleep":
            await self.stop(victims[: self.chance.choice([1, 2])], asleep=True)
        elif what == "step":
            seconds = self.chance.choice([-86_400, -60, -20, 0, 20, 60, 86_400])
            run.set_clock(self.chance.choice(LEADERS), seconds)
        elif what in ("replace", "twins"):
            await self.replace(1 + (what == "twins"))
        elif what == "pretend":
            self.pretend()
        else:
            self.take_part(self.feign_progress if what == "lie" else self.feign_anything)

    async def stop(self, names, asleep=False):
        """Up to beyond the end of a claim (1.5 s) and of every lease; `asleep`: their machine sleeps, and the monotonic
        clock stands still."""
        begin_ns = time.time_ns()
        async with FAULTS["stop"](*(GroupProcess(self.run, name) for name in names)):
            await pause_async(self.chance.choice(HOLDS_S["stop"]), "they stand still")
            for name in names if asleep else ():
                self.run.set_clock(name, slept_s=(time.time_ns() - begin_ns) / 1e9)
        self.run.blows += [Blow(name, begin_ns, time.time_ns()) for name in names]

    async def replace(self, others):
        """Other processes under the name of one that lives, which is told so and ends; of those that begin at once any
        may be the one that takes the name last."""
        run, name = self.run, self.chance.choice(CONSUMERS)
        processes = [run.nodes.pop(name)]
        for _ in range(others):
            run.begin_again(name)
            processes.append(run.nodes.pop(name))
        await until(lambda: sum(one.exit_code is None for one in processes) <= 1)
        codes = [one.exit_code for one in processes]
        if sorted(codes, key=str) != sorted([SUPERSEDED] * others + [None], key=str):
            run.wrong.append(f"{name} was replaced, and then they had ended with {codes}")
        run.nodes[name] = processes[codes.index(None) if None in codes else -1]
        run._all = [one for one in run._all if one.exit_code != SUPERSEDED]

    def pretend(self):
        """A stranger listens where one consumer looks for a leader, and says whatever a leader may."""
        with Pretender(self.find_identity(), self.run.stranger, self.chance, self.list_streams() or ["1.0/t0"]):
            pause(self.chance.choice([0.5, 1.5]), "the stranger talks")

    def take_part(self, feign):
        """A stranger is a member that is no consumer of ours, and lies about whatever it is granted."""
        life = f"liar-{self.chance.getrandbits(32)}~1"
        port = self.run.ports[self.chance.choice(LEADERS)]
        with contextlib.suppress(OSError), Stranger(port, life, store=self.find_identity()) as liar:
            end = read_clock_s() + 2
            while read_clock_s() < end:
                liar.say(f"{life}/1", "leader", "leader_wanted", f"{life}/1", "g", "#")
                heard = liar.hear("leader_connect_response", "grant", seconds=0.3)
                if heard is not None and heard[3][0] == "grant":
                    liar.say(f"{life}/1", heard[0], *feign(heard[3][1:]))

    def feign_progress(self, about):
        """All of it, and more, has been read."""
        borrower, epoch, registration, stream, grant, *_ = about
        word = self.chance.choice([2**62, END, LINES + 1])
        return "update_progress", borrower, epoch, registration, stream, grant, word, True

    def feign_anything(self, about):
        """One field of what it says is another, or two.  What it has not read it does not say it had: that would be its
        right, and a loss."""
        true = list(about)
        others = sorted({line[5] for lines in self.run.all_lines().values() for line in lines if line[0] == "got"})
        numbers = [0, 1, 2, 3, 5, 2**62, END]
        values = (others or [true[0]], numbers, numbers, self.list_streams() or [true[3]], numbers)
        for place in self.chance.sample(range(5), self.chance.choice([1, 2])):
            true[place] = self.chance.choice(values[place])
        borrower, epoch, registration, stream, grant, *_ = true
        progress, finished = self.chance.choice([0, 2**62, END]), self.chance.random() < 0.5
        report = [stream, grant, progress, finished]
        return self.chance.choice(
            [
                ("ping", borrower, epoch, registration, self.chance.choice(numbers), [report]),
                ("update_progress", borrower, epoch, registration, *report),
                ("revoke_finished", borrower, epoch, registration, stream, grant),
                ("disconnect", borrower, epoch, registration, [report]),
            ]
        )

    def list_streams(self):
        return sorted({line[1] for lines in self.run.all_lines().values() for line in lines})

    def find_identity(self):
        """Of the store, as anybody hears it in a hello."""
        if self.store.startswith("postgresql"):
            return str(run_sql(self.store, "SELECT identity FROM gapless.store")[0][0])
        return identity_of(Path(self.store))
