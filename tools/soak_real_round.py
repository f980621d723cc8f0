"""Real round: a group of processes on SQLite under faults, and its judges."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing

from soak_totals import OUT, Totals, empty_folder

from statemachines.demo.shared_subscriptions import account
from statemachines.drivers.lives import begin_log
from statemachines.drivers.shared_subscriptions import consumer_file
from statemachines.drivers.shared_subscriptions.roles import LEADER
from statemachines.drivers.tcp import parse_address
from statemachines.kernel import GaplessError
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.testing.fault_proxy import FaultProxy, run_in_thread
from statemachines.testing.frames import attack
from statemachines.testing.process_harness import free_port
from statemachines.testing.shared_subscriptions.nodes import GroupHarness
from statemachines.testing.shared_subscriptions.readers import READERS
from statemachines.trace import fault_row
from statemachines.trace.log import TraceLog, kill_row
from statemachines_reports.pipeline import analyze

TOPICS, LINES, RATE = 12, 150, 600
"""Topics, messages in each, messages published a second."""

CONSUMERS = ("consumer-1", "consumer-2", "consumer-3")
ATTACK = 50
"""Fuzzed connections at a time to a leader host that lives."""

PATIENCE_S = 120.0
SUBSCRIPTION = "$shared/g/#"


class RealRound:
    """A real group under faults, its files below OUT; consumer-1 and the leader host are behind the bad network."""

    def __init__(self, totals: Totals, nodes: GroupHarness, trace: TraceLog) -> None:
        self.totals = totals
        self.nodes = nodes
        self.trace = trace
        self.chance = random.Random(totals.seed)
        self.files = {name: OUT / f"{name}.jsonl" for name in CONSUMERS}
        self.listen = f"127.0.0.1:{free_port()}"
        self.proxy: FaultProxy | None = None
        self.topics = {
            f"t{topic}": [f"{totals.seed} {topic} {line}".encode() for line in range(LINES)] for topic in range(TOPICS)
        }

    def play(self) -> None:
        """Start everybody, do one thing after the other until all is acknowledged, end everybody."""
        folder = OUT / "input"
        folder.mkdir()
        for topic, lines in self.topics.items():
            (folder / topic).write_bytes(b"".join(line + b"\n" for line in lines))
        self.nodes.leader(listen=self.listen)
        with run_in_thread(parse_address(self.listen), seed=self.totals.seed) as self.proxy:
            for name in CONSUMERS:
                self.consume(name)
            self.nodes.publisher("publisher-1", "--input", str(folder), "--rate", str(RATE), "--batch", "10")
            self.act_until_done()

    def act_until_done(self) -> None:
        """One fault at a time, and time to recover in between: here progress is judged, too."""
        acts: tuple[Callable[[], None], ...] = (
            self.kill_consumer, self.kill_leader, self.stop_consumer, self.cut, self.part, self.attack,
        )  # fmt: skip
        begin = time.monotonic()
        total = TOPICS * LINES
        while (done := account.count_acknowledged(self.files)) < total:
            if time.monotonic() - begin > PATIENCE_S:
                raise GaplessError(f"{done} of {total} messages acknowledged in {PATIENCE_S:g} s")
            self.nodes.check_alive()
            self.chance.choice(acts)()
            time.sleep(self.chance.uniform(0.2, 1.0))

    def consume(self, name: str) -> None:
        """Start one; the first is behind the proxy."""
        assert self.proxy is not None
        leader = "{}:{}".format(*self.proxy.address) if name == CONSUMERS[0] else self.listen
        more = ("--out", str(self.files[name]), "--work-ms", "5", "--batch", "5")
        self.nodes.consumer(name, SUBSCRIPTION, leader, *more)

    def note(self, fault: str, node: str) -> None:
        """For the judge."""
        self.trace.write([fault_row(time.time_ns(), node, fault)])

    def kill(self, name: str) -> None:
        """SIGKILL, noted for the judge."""
        killed_ns = time.time_ns()
        self.nodes.kill(name)
        self.trace.write([kill_row(killed_ns, name, OUT / "trace")])

    def kill_consumer(self) -> None:
        name = self.chance.choice(CONSUMERS)
        self.kill(name)
        self.consume(name)
        self.totals.kills += 1

    def kill_leader(self) -> None:
        self.kill("leader-1")
        self.nodes.leader(listen=self.listen)
        self.totals.kills += 1
        self.totals.leader_kills += 1

    def stop_consumer(self) -> None:
        name = self.chance.choice(CONSUMERS)
        self.note("pause", name)
        self.nodes.nodes[name].stop()
        time.sleep(self.chance.uniform(0.1, 1.5))
        self.nodes.nodes[name].resume()
        self.totals.stops += 1

    def cut(self) -> None:
        assert self.proxy is not None
        self.note("cut", CONSUMERS[0])
        if self.chance.random() < 0.5:
            self.proxy.cut()
        else:
            self.proxy.cut_after(self.chance.choice(("up", "down")), self.chance.randrange(200))
        self.totals.cuts += 1

    def part(self) -> None:
        assert self.proxy is not None
        self.note("partition", CONSUMERS[0])
        self.proxy.block(self.chance.choice(("up", "down", "both")))
        time.sleep(self.chance.uniform(0.1, 1.5))
        self.proxy.heal()
        self.totals.partitions += 1

    def attack(self) -> None:
        """Strangers with fuzzed frames; they end up nowhere."""
        with closing(sqlite3.connect(self.nodes.store)) as connection:
            (store,) = connection.execute("SELECT identity FROM store").fetchone()
        seed = self.chance.getrandbits(32)
        asyncio.run(attack(READERS, LEADER.full_name, parse_address(self.listen), seed, ATTACK, store=store))
        self.totals.hostile_connections += ATTACK


def play_real(totals: Totals) -> None:
    """A real round, and its judges: the consumers' own files, and the logs of every node.  In every other one the nodes
    share a secret, and strangers get no further than their hello."""
    empty_folder()
    config = OUT / "group.toml"
    times = [key for key in Configuration.__struct_fields__ if key.endswith("_ms")]
    config.write_text("".join(f"{key} = {getattr(Configuration(), key) // 10}\n" for key in times))
    common: tuple[str, ...] = ()
    if totals.seed % 2:
        secret = OUT / "secret"
        secret.touch(mode=0o600)
        secret.write_text(f"the secret of soak round {totals.seed}\n")
        common = ("--secret-file", str(secret))
    trace = begin_log(OUT / "trace", "nemesis~1")
    try:
        with GroupHarness(OUT / "nodes", config=config, trace=OUT / "trace", common=common) as nodes:
            real = RealRound(totals, nodes, trace)
            real.play()
    except GaplessError as error:
        totals.count_violations(f"real round {totals.seed}: {error}; its files are in {OUT}")
        return
    finally:
        trace.close()
    judge(totals, real)


def judge(totals: Totals, real: RealRound) -> None:
    """Nobody ended badly; every message was acknowledged with its own content; every step and delivery was legal."""
    wrong = list(real.nodes.wrong)
    content = account.GroupAccount()
    got = [
        line for path in real.files.values() for line in consumer_file.read_file(path) if line.what == consumer_file.GOT
    ]
    for line in got:
        account.check_content(content, real.topics, line)
    analysis = analyze(OUT / "trace", OUT / "report", spark=False)
    wrong += content.wrong
    wrong += [f"{check.wrong} times broken: {check.claim}" for check in analysis.checks if not check.held]
    wrong += [f"there is no log of {log}" for log in analysis.absent if log.startswith("the end of ")]
    totals.real_rounds += 1
    totals.lines += account.count_acknowledged(real.files)
    totals.duplicates += len(got) - len({(line.stream, line.offset) for line in got})
    totals.steps_judged += sum(check.checked for check in analysis.checks if check.name == "rows")
    totals.count_violations(*(f"real round {totals.seed}: {what}; its files are in {OUT}" for what in wrong))
