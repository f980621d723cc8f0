"""Soak: rounds of simulated campaigns, of groups driven by Hypothesis, of real processes under faults, of a queue whose
processes are killed, and of fuzzed frames, for a given time.

    python tools/soak.py --minutes 10

A round runs some more seeds of a scenario; lets a real group (processes, TCP, SQLite) read through a bad network while
its members and its leader host are killed, stopped and lied to; explores a system against its certificate and looks for
a planted bug; kills and stops the nodes of sessions while publishers go on, on SQLite and on PostgreSQL by turns, the
more often the longer the soak is; lets sessions share streams of groups, in storms and in the calm behind them; cuts
members off the host that leads; lets processes at a queue in shared memory be killed and stopped before chosen
accesses, breaks calls at it off, and lets a crowd of them come and go; cuts a link between sessions of zenoh, which
comes back slow; starts a group on 70 000 topics beside busy processes; and fuzzes what reads frames.  It appends a line
of JSON with what it did to out/soak.jsonl; the number of lines is the seed of the next round, so no two are the same.
At the first violation it ends with exit code 1, and says what repeats it or where the files are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path

import msgspec
from hypothesis import seed as hypothesis_seed
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "real"))

import carried_run
import many_topics_run
import sessions_run
import unreachable_run

from statemachines import catalogue, registry
from statemachines.demo.shared_subscriptions import account
from statemachines.drivers.lives import begin_log
from statemachines.drivers.shared_subscriptions import consumer_file
from statemachines.drivers.shared_subscriptions.roles import LEADER
from statemachines.drivers.tcp import parse_address
from statemachines.kernel import GaplessError
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.testing.closed import CLOSED, SystemTest
from statemachines.testing.closed import PropertyBroken as SystemBroken
from statemachines.testing.cursor_recovery import crash_run, crowd_run, interrupted_run
from statemachines.testing.fault_proxy import FaultProxy, in_thread
from statemachines.testing.finding import find
from statemachines.testing.fixed_draws import fixed_draws
from statemachines.testing.frames import attack, fuzz
from statemachines.testing.postgres import PostgresServer
from statemachines.testing.process_harness import free_port
from statemachines.testing.shared_subscriptions.group import GROUP, GroupTest, PropertyBroken
from statemachines.testing.shared_subscriptions.nodes import GroupHarness
from statemachines.testing.shared_subscriptions.readers import READERS
from statemachines.testing.two_judges import disagreements
from statemachines.trace import fault_row
from statemachines.trace.log import TraceLog, kill_row
from statemachines_reports.pipeline import analyze
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import named, shipped_with
from statemachines_spec import certificates
from statemachines_spec.explorer.explore import explore
from statemachines_spec.protocol import all_parts
from statemachines_spec.shared_subscriptions.systems import system

PROTOCOL = "shared_subscriptions"
QUEUE = "cursor_recovery"
OUT = Path("out/soak")
LOG = Path("out/soak.jsonl")
SEEDS = 40
FRAMES = 50_000
EXAMPLES = 200
CRASHES = 100
HURTS_A_MINUTE = 17
HURTS_MIN, HURTS_MAX = 30, 1_000
"""Faults in a run of sessions (nodes that are killed or stopped, or kept from their store), for each minute that the
soak lasts: a fault takes a second or more, so a run takes a third of it.  An hour has runs of a thousand."""
LIVES = 600
"""Of a crowd at a queue."""
STORM = 8
"""Faults of a storm over sessions that share streams, and moves in the calm behind it: half a minute each."""
STORMS_A_MINUTE = 0.3
SLOW_SAMPLES = 3_000
"""Put into a cache while a link is cut, which comes back with 200 kB/s."""
SLOW_LINK_S = 300.0
TWICE = 12
"""Scenarios in a round: eight rounds go through all of them."""
STATES = 10_000_000
"""Of a system that is explored again, at most."""
SYSTEMS = ("late-copies", "borrower-crash", "unsubscribe", "revoke-timeout", "reordering", "false-timeouts")
"""Closed systems that Hypothesis drives, one in a round."""

TOPICS, LINES, RATE = 12, 150, 600
"""Of a real round: topics, messages in each, messages published a second."""

MANY_TOPICS, BUSY, HOSTS = 70_000, 4, 2
"""Of a group that starts on many topics at once: topics, processes that keep the machine busy beside it, and leader
hosts."""

CONSUMERS = ("consumer-1", "consumer-2", "consumer-3")
ATTACK = 50
"""Fuzzed connections at a time to a leader host that lives."""

BREAKS = 2_000
"""Calls at a queue in a round that are broken off amid an instruction."""

SERVED = 20
"""So many times each member that is cut off the leading host is to get messages."""
PATIENCE_S = 120.0
SUBSCRIPTION = "$shared/g/#"


class Totals(msgspec.Struct):
    """What was done: in a round, or in all of them."""

    seed: int = 0
    rounds: int = 0
    runs: int = 0
    faults: int = 0
    delivered: int = 0
    real_rounds: int = 0
    kills: int = 0
    leader_kills: int = 0
    stops: int = 0
    cuts: int = 0
    partitions: int = 0
    hostile_connections: int = 0
    lines: int = 0
    duplicates: int = 0
    steps_judged: int = 0
    frames: int = 0
    frames_refused: int = 0
    moves: int = 0
    explored: int = 0
    bugs_found: int = 0
    crash_runs: int = 0
    calls_broken_off: int = 0
    lives: int = 0
    lives_killed: int = 0
    through_queue: int = 0
    nodes_hurt: int = 0
    through_sessions: int = 0
    hurt_on_postgres: int = 0
    hurt_in_a_run: int = 0
    hurt_sharing: int = 0
    calm_moves: int = 0
    through_groups: int = 0
    over_slow_link: int = 0
    many_topics: int = 0
    claims_lost: int = 0
    cut_off: int = 0
    through_relays: int = 0
    violations: int = 0

    def add(self, other: Totals) -> None:
        """Field by field; `seed` is that of the last, `hurt_in_a_run` the most that there were in one."""
        most = max(self.hurt_in_a_run, other.hurt_in_a_run)
        for field in self.__struct_fields__:
            setattr(self, field, getattr(self, field) + getattr(other, field) if field != "seed" else other.seed)
        self.hurt_in_a_run = most

    def violated(self, what: str) -> None:
        """Count it, and say it."""
        self.violations += 1
        print(what, file=sys.stderr, flush=True)


def simulate(totals: Totals, scenario: str, seeds: int) -> None:
    """Some more seeds of a scenario."""
    first = totals.seed * seeds
    for outcome in campaign(named(scenario), range(first, first + seeds)):
        totals.runs += 1
        totals.faults += sum(outcome.faults.values())
        totals.delivered += outcome.tally["delivered"]
        if not outcome.held:
            totals.violated(f"{scenario} seed {outcome.seed}: {outcome.monitor}: {outcome.detail}")
            print(f"repeat it with: gapless simulate {scenario} --seed {outcome.seed}", file=sys.stderr)


def fuzz_frames(totals: Totals, count: int) -> None:
    """Whatever is read, nothing but a FrameError may come of it."""
    came = fuzz(READERS, totals.seed, count)
    totals.frames += came.inputs
    totals.frames_refused += came.refused


def drive(totals: Totals, examples: int) -> None:
    """Whole groups and a closed system under other examples than in any earlier round; a seed repeats them anywhere."""
    group = hypothesis_seed(totals.seed)(type("SoakedGroup", (GroupTest,), {}))
    closed = hypothesis_seed(totals.seed)(SystemTest.of(system(SYSTEMS[totals.seed % len(SYSTEMS)], "small")))
    before = GroupTest.moves
    try:
        with fixed_draws():
            run_state_machine_as_test(group, settings=settings(GROUP, derandomize=False, max_examples=examples))
            run_state_machine_as_test(closed, settings=settings(CLOSED, derandomize=False, max_examples=examples))
    except (PropertyBroken, SystemBroken) as broken:
        totals.violated(str(broken))
    totals.moves += GroupTest.moves - before + closed.moves


def judge_twice(totals: Totals, scenarios: int) -> None:
    """Some scenarios of all protocols, the next ones in the next round: monitors and the judge of the trace agree."""
    names = [
        f"{one}/{name}"
        for one in registry.names()
        if "sim" in registry.protocol(one).areas
        for name in shipped_with(one)
    ]
    for place in range(totals.seed * scenarios, (totals.seed + 1) * scenarios):
        for what in disagreements(named(names[place % len(names)]), (totals.seed,), OUT / "judges"):
            totals.violated(what)


def explore_again(totals: Totals, states_max: int) -> None:
    """One system of some protocol, the next one in the next round, against its certificate; and one planted bug, by
    all hunts.  They are so many that `make test` has only those which take seconds."""
    kept = [one for one in certificates_of_all() if one.states <= states_max]
    certificate = kept[totals.seed % len(kept)]
    result = explore(certificates.system_of(certificate))
    totals.explored += result.states
    for difference in certificates.differences(certificate, result):
        totals.violated(f"{certificate.protocol}, {certificate.system}, {certificate.size}: {difference}")
    bugs = [(name, bug) for name, part in all_parts().items() for bug in part.bugs]
    protocol, bug = bugs[totals.seed % len(bugs)]
    if find(protocol, bug, "exploration").what:
        totals.bugs_found += 1
    else:
        totals.violated(f"{protocol}: exploration does not find {bug.name}")


def certificates_of_all() -> list[certificates.Certificate]:
    """Every certificate that is kept."""
    folders = [catalogue.page(name).with_name("certificates") for name in all_parts()]
    return [certificates.read(path) for folder in folders for path in sorted(folder.glob("*.json"))]


def crash_queues(totals: Totals, runs: int) -> None:
    """Some more plans of processes that die or stop at chosen accesses."""
    first = totals.seed * runs
    for seed in range(first, first + runs):
        totals.crash_runs += 1
        for name, text in crash_run.run_seed(seed):
            totals.violated(f"crash run {seed}: {name}: {text}")
            module = "statemachines.testing.cursor_recovery.crash_run"
            print(f"repeat it with: python -m {module} --runs 1 --first {seed}", file=sys.stderr)


def break_off(totals: Totals, places: int) -> None:
    """Calls at a queue, broken off before instructions of the interpreter: one, or two that are near each other."""
    chance = random.Random(totals.seed)
    counts = {kind: interrupted_run.play(kind) for kind in interrupted_run.KINDS}
    for _ in range(places):
        kind = chance.choice(interrupted_run.KINDS)
        first = chance.randint(1, counts[kind])
        second = [first + chance.randint(1, 60)] if chance.random() < 0.5 else []
        try:
            interrupted_run.play(kind, first, *second)
        except interrupted_run.NotKept as error:
            totals.violated(f"a call that was broken off: {error}")
    totals.calls_broken_off += places


def kill_nodes(totals: Totals, faults: int) -> None:
    """Clients of sessions, and publishers that go on, while their nodes are killed and stopped: over a file, and in
    every other round over a PostgreSQL of its own."""
    folder = (OUT / "sessions").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    on_postgres = bool(totals.seed % 2)
    with PostgresServer() if on_postgres else nullcontext() as server:
        store = str(folder / "sessions.db") if server is None else server.database("sessions")
        done, answered, wrong = sessions_run.run_seed(folder, store, totals.seed, faults)
    totals.nodes_hurt += sum(done.values())
    totals.hurt_on_postgres += sum(done.values()) * on_postgres
    totals.hurt_in_a_run = sum(done.values())
    totals.through_sessions += answered
    for what in wrong:
        totals.violated(f"sessions, seed {totals.seed}: {what}")
    if wrong:
        again = f"python tests/real/sessions_run.py --first {totals.seed} --runs 1 --faults {faults}"
        again += " --store URL" * on_postgres
        print(f"files are in {folder}; repeat it with: {again}", file=sys.stderr)


def share_streams(totals: Totals, faults: int) -> None:
    """Sessions that share streams of groups, in storms of so many faults in all, and the calm behind each; over files,
    or a PostgreSQL of its own."""
    folder = (OUT / "carried").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    on_postgres = bool(totals.seed % 2)
    rounds = -(-faults // STORM)
    each = -(-faults // rounds)
    with PostgresServer() if on_postgres else nullcontext() as server:
        files = [str(folder / "sessions.db"), str(folder / "messages.db")]
        stores = files if server is None else [server.database("sessions"), server.database("streams")]
        done, what, wrong = carried_run.run_seed(folder, *stores, totals.seed, rounds, each, each)
    totals.hurt_sharing += what["hurt"]
    totals.calm_moves += sum(count for name, count in done.items() if name.startswith("calm"))
    totals.through_groups += what["given"]
    for one in wrong:
        totals.violated(f"shared streams, seed {totals.seed}: {one}")
    if wrong:
        again = f"python tests/real/carried_run.py --first {totals.seed} --rounds {rounds} --faults {each}"
        again += f" --moves {each}" + " --store URL" * on_postgres
        print(f"files are in {folder}; repeat it with: {again}", file=sys.stderr)


def slow_link(totals: Totals, samples: int) -> None:
    """A link between sessions of zenoh is cut, and comes back slow; nothing that is cached may be given up."""
    if not samples:
        return
    command = [sys.executable, "-m", "statemachines.testing.missed_samples.slow_link_run", "--samples", str(samples)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SLOW_LINK_S)
    except subprocess.TimeoutExpired as error:
        totals.violated(f"slow link: {error}\nrepeat it with: {' '.join(command[1:])}")
        return
    totals.over_slow_link += sum(json.loads(line)["delivered"] for line in ended.stdout.splitlines())
    if ended.returncode:
        totals.violated(f"slow link: {ended.stdout}{ended.stderr}\nrepeat it with: {' '.join(command[1:])}")


def start_many_topics(totals: Totals, topics: int) -> None:
    """A group finds many topics beside busy processes; a second member joins, and gets half of them."""
    folder = (OUT / "many").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    told = many_topics_run.run(folder, topics, BUSY, hosts=HOSTS)
    totals.many_topics += told.messages
    totals.claims_lost += told.elected - 1
    for what in told.wrong:
        totals.violated(f"many topics: {what}; its files are in {folder}")


def cut_off(totals: Totals, rounds: int) -> None:
    """Members that do not reach the leading host, in the way whose turn it is; they are to be served so many times."""
    way, stays = unreachable_run.CASES[totals.seed % len(unreachable_run.CASES)]
    folder = (OUT / "unreachable").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    came, wrong = unreachable_run.run_case(folder, way, stays, rounds)
    totals.cut_off += 1
    totals.through_relays += came
    for what in wrong:
        totals.violated(f"members cut off ({way}, {stays}): {what}; files are in {folder}")


def crowd_queue(totals: Totals, lives: int) -> None:
    """As many processes as a queue takes come and go."""
    crowd = crowd_run.run_crowd(totals.seed, lives)
    totals.lives += crowd.lives
    totals.lives_killed += crowd.killed
    totals.through_queue += crowd.delivered
    for name, text in crowd.violations:
        totals.violated(f"crowd {totals.seed}: {name}: {text}")


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
        with in_thread(parse_address(self.listen), seed=self.totals.seed) as self.proxy:
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
        while (done := account.acknowledged(self.files)) < total:
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
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
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
        totals.violated(f"real round {totals.seed}: {error}; its files are in {OUT}")
        return
    finally:
        trace.close()
    judge(totals, real)


def judge(totals: Totals, real: RealRound) -> None:
    """Nobody ended badly; every message was acknowledged with its own content; every step and delivery was legal."""
    wrong = list(real.nodes.wrong)
    content = account.Account()
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
    totals.lines += account.acknowledged(real.files)
    totals.duplicates += len(got) - len({(line.stream, line.offset) for line in got})
    totals.steps_judged += sum(check.checked for check in analysis.checks if check.name == "rows")
    for what in wrong:
        totals.violated(f"real round {totals.seed}: {what}; its files are in {OUT}")


def one_round(seed: int, given: argparse.Namespace) -> Totals:
    """A round; whatever goes wrong in it is a violation."""
    done = Totals(seed=seed, rounds=1)
    scenarios = [name for name in shipped_with(PROTOCOL) if name not in ("quiet", "joins")]
    try:
        simulate(done, f"{PROTOCOL}/{scenarios[seed % len(scenarios)]}", given.seeds)
        fuzz_frames(done, given.frames)
        drive(done, given.examples)
        queues = tuple(shipped_with(QUEUE))
        simulate(done, f"{QUEUE}/{queues[seed % len(queues)]}", given.seeds)
        explore_again(done, given.states)
        judge_twice(done, given.twice)
        crash_queues(done, given.crashes)
        break_off(done, BREAKS)
        crowd_queue(done, given.lives)
        slow_link(done, given.slow_samples)
        kill_nodes(done, given.hurts)
        share_streams(done, given.storm)
        start_many_topics(done, given.topics)
        cut_off(done, SERVED)
        play_real(done)
    except GaplessError as error:
        done.violated(f"round {seed}: {error}")
    return done


def summary(totals: Totals) -> str:
    """All of it, in a few lines."""
    t = totals
    return "\n".join(
        (
            f"{t.rounds} rounds: {t.runs} simulated runs, {t.faults:,} faults, {t.delivered:,} messages",
            f"{t.real_rounds} real rounds: {t.lines:,} messages, {t.duplicates:,} of them twice; {t.kills} SIGKILLs "
            f"({t.leader_kills} of leader hosts), {t.stops} SIGSTOPs, {t.cuts} cuts, {t.partitions} partitions, "
            f"{t.hostile_connections:,} hostile connections; {t.steps_judged:,} steps judged",
            f"{t.frames:,} fuzzed inputs, {t.frames_refused:,} refused; {t.moves:,} moves under Hypothesis",
            f"{t.explored:,} states explored again, {t.bugs_found} planted bugs found",
            f"{t.crash_runs:,} crash runs of the queue; {t.calls_broken_off:,} calls broken off; "
            f"{t.lives:,} processes came to one, {t.lives_killed:,} were "
            f"killed, {t.through_queue:,} messages came through",
            f"{t.nodes_hurt:,} faults of nodes of sessions and their store ({t.hurt_on_postgres:,} on PostgreSQL; "
            f"{t.hurt_in_a_run:,} in one run), {t.through_sessions:,} messages came through",
            f"{t.hurt_sharing:,} faults of nodes and stores of sessions that share streams, {t.calm_moves:,} moves in "
            f"the calm; {t.through_groups:,} messages came through",
            f"{t.over_slow_link:,} samples came over links that were cut and came back slow",
            f"{t.many_topics:,} messages of groups that started on many topics at once; "
            f"their leaders lost {t.claims_lost} claims",
            f"{t.cut_off} times members were cut off the leading host; {t.through_relays:,} messages came through",
            f"{t.violations} violations",
        )
    )


def main() -> int:
    """Rounds until the time is up; one at least."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default 10); one round at least")
    parser.add_argument("--log", type=Path, default=LOG, help=f"where a line is appended per round (default {LOG})")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"simulated runs in a round (default {SEEDS})")
    parser.add_argument("--frames", type=int, default=FRAMES, help=f"fuzzed inputs in a round (default {FRAMES})")
    parser.add_argument(
        "--examples", type=int, default=EXAMPLES, help=f"groups, and runs of a closed system, in a round ({EXAMPLES})"
    )
    parser.add_argument("--crashes", type=int, default=CRASHES, help=f"crash runs of the queue in a round ({CRASHES})")
    parser.add_argument("--lives", type=int, default=LIVES, help=f"processes that come to a queue in a round ({LIVES})")
    text = f"samples of zenoh that are put while a link is cut, in a round ({SLOW_SAMPLES})"
    parser.add_argument("--slow-samples", type=int, default=SLOW_SAMPLES, help=text)
    parser.add_argument("--twice", type=int, default=TWICE, help=f"scenarios in a round that two judges see ({TWICE})")
    parser.add_argument("--states", type=int, default=STATES, help=f"at most, of a system explored again ({STATES})")
    parser.add_argument(
        "--topics", type=int, default=MANY_TOPICS, help=f"of a group that starts at once ({MANY_TOPICS})"
    )
    often = f"{HURTS_A_MINUTE} for each minute, {HURTS_MIN} to {HURTS_MAX}"
    parser.add_argument("--hurts", type=int, default=0, help=f"faults in a round's run of sessions ({often})")
    often = f"{STORM} in each storm, a storm in {1 / STORMS_A_MINUTE:.1f} minutes"
    parser.add_argument("--storm", type=int, default=0, help=f"faults in a round's run of shared streams ({often})")
    given = parser.parse_args()
    given.storm = given.storm or STORM * max(1, round(STORMS_A_MINUTE * given.minutes))
    given.hurts = given.hurts or max(HURTS_MIN, min(HURTS_MAX, round(HURTS_A_MINUTE * given.minutes)))
    end = time.monotonic() + 60 * given.minutes
    given.log.parent.mkdir(parents=True, exist_ok=True)
    totals, seed = Totals(), len(given.log.read_bytes().splitlines()) if given.log.exists() else 0
    while not totals.violations and (totals.rounds == 0 or time.monotonic() < end):
        done = one_round(seed + totals.rounds, given)
        totals.add(done)
        with given.log.open("ab") as file:
            file.write(msgspec.json.encode(done) + b"\n")
    print(summary(totals))
    return 1 if totals.violations else 0


if __name__ == "__main__":
    sys.exit(main())
