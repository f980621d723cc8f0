"""A run of a group with real processes that are killed, stopped, replaced, cut off and lied to, over a store that is
locked or not reached, on hosts that sleep and whose wall clocks step; `groups_judge` says what came of it, and shares
nothing with what it judges.

    python tests/real/groups_run.py --first 7 --runs 3 --faults 8
    python tests/real/groups_run.py --runs 3 --store postgresql://USER@HOST/DATABASE   (its group's tables are emptied)
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

from stage import TENTH  # noqa: E402

from statemachines.testing.process_harness import free_port  # noqa: E402
from tests.real.fake_leader import Pretender  # noqa: E402
from tests.real.groups_judge import Blow, acknowledged, judge, twice  # noqa: E402
from tests.real.outside import Stranger  # noqa: E402
from tests.real.relay import Relay  # noqa: E402
from tests.real.stored_group import declare_group  # noqa: E402

TOPICS, LINES, RATE = 6, 80, 120
LEADERS, CONSUMERS = ("leader-1", "leader-2"), ("consumer-1", "consumer-2", "consumer-3")
END = 2**63 - 1
PATIENCE_S = 300
"""On a machine with forty other things to do a process may need two minutes to begin, and half of one to end."""
KINDS = (
    *("kill", "kill", "stop", "stop", "sleep", "sleep", "replace", "twins"),
    *("cut", "silence", "step", "lock", "away", "lie", "forge", "pretend"),
)
"""What goes wrong, as often as it stands here."""
AWAY = (LEADERS[1], CONSUMERS[1])
"""Whose way to PostgreSQL is cut or silent while others reach it."""
SUPERSEDED = 4
FRESH_S = 5
"""A process that was begun so lately may not know yet what to do about SIGTERM; nor may one, on a busy machine, that
has not taken the number of its life."""


class Run:
    """Two leader hosts, three consumers, a publisher; what was done to them, and what is left."""

    def __init__(self, folder, store, seed, times):
        self.folder, self.store = folder, store
        self.chance = random.Random(seed)
        self.done = Counter()
        self.blows, self.wrong, self.children = [], [], []
        self.of, self.begun, self.clocks = {}, {}, {}
        self.ports = {name: free_port() for name in LEADERS}
        self.stranger = free_port()
        self.config = folder / "group.toml"
        self.config.write_text("".join(f"{key} = {value}\n" for key, value in times.items()))
        self.seed = seed
        self.topics = {
            f"t{topic}": [f"{seed} {topic} {line}".encode() for line in range(LINES)] for topic in range(TOPICS)
        }

    # -- processes ----------------------------------------------------------------------------------------------

    def start(self, name, *arguments, clock=None):
        """A process under this name; what it says goes on in one file."""
        module = ["-m", "statemachines"] if clock is None else [Path(__file__).with_name("stepped_clock.py"), clock]
        with (self.folder / f"{name}.log").open("ab") as log, (self.folder / f"{name}.out").open("ab") as out:
            command = [sys.executable, *map(str, (*module, "node", *arguments))]
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=log)
        self.children.append(child)
        self.of[name] = child
        self.begun[name] = time.time()
        return child

    def lead(self, name):
        peers = ",".join(f"127.0.0.1:{port}" for other, port in self.ports.items() if other != name)
        listen = ("--listen", f"127.0.0.1:{self.ports[name]}", "--peers", peers)
        self.start(name, "leader", *self.common(name), *listen, clock=self.clock_of(name))

    def consume(self, name):
        first, second = (self.ports[leader] for leader in LEADERS)
        ports = {
            CONSUMERS[0]: [self.relay.port, second],
            CONSUMERS[1]: [first, second],
            CONSUMERS[2]: [second, self.stranger, first],
        }[name]
        leaders = ("--leader", ",".join(f"127.0.0.1:{port}" for port in ports))
        out = ("--out", self.folder / f"{name}.jsonl", "--work-ms", "5", "--batch", "5")
        self.start(name, "consumer", "$shared/g/#", *self.common(name), *leaders, *out, clock=self.clock_of(name))

    def common(self, name):
        """Some reach PostgreSQL by a way that is cut now and then; a file has no ways."""
        store = self.away_store if name in AWAY else self.store
        return ("--store", store, "--config", self.config, "--state", self.folder, "--name", name)

    def clock_of(self, name):
        """What its clocks show: see stepped_clock.py."""
        self.clocks.setdefault(name, [0, 0.0])
        path = self.folder / f"{name}.clock"
        if not path.exists():
            self.write_clock(name)
        return path

    def write_clock(self, name):
        path = self.folder / f"{name}.clock"
        written = path.with_suffix(".new")
        written.write_text(" ".join(map(str, self.clocks[name])))
        os.replace(written, path)

    def until_said(self, name, words, times, where="log"):
        """It has logged (or printed) them so often."""
        end = time.monotonic() + PATIENCE_S
        while (self.folder / f"{name}.{where}").read_text().count(words) < times:
            assert time.monotonic() < end, f"{name} did not say {words!r}"
            time.sleep(0.02)

    def end(self):
        """Everybody in good order; who does not end, or ends otherwise, is wrong."""
        for name in (*CONSUMERS, *LEADERS):
            child = self.of[name]
            fresh = (-signal.SIGTERM,) if self.is_fresh(name) else ()
            child.send_signal(signal.SIGTERM)
            try:
                code = child.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.wrong.append(f"{name} did not end within {PATIENCE_S} s")
                continue
            if code not in (0, *fresh):
                self.wrong.append(f"{name} ended with {code}")
        for path in self.folder.glob("*.log"):
            if "Traceback" in path.read_text(errors="replace"):
                self.wrong.append(f"{path.name} has an error that nobody expected")

    def is_fresh(self, name):
        life = self.folder / f"{name}.life"
        lives = life.exists() and life.stat().st_mtime > self.begun[name]
        return not lives or time.time() - self.begun[name] < FRESH_S

    def __enter__(self):
        self.relay = Relay(self.ports[LEADERS[0]])
        self.away_store, self.way = self.store, None
        if self.store.startswith("postgresql"):
            port = urlsplit(self.store).port
            self.way = Relay(port)
            self.away_store = self.store.replace(f":{port}/", f":{self.way.port}/")
        return self

    def __exit__(self, *_):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
        for relay in filter(None, (self.relay, self.way)):
            relay.__exit__()

    # -- what goes wrong ----------------------------------------------------------------------------------------

    def hurt(self):
        """One fault, of any kind."""
        kind = self.chance.choice(KINDS)
        getattr(self, kind)()
        self.done[kind] += 1

    def again(self, name):
        (self.lead if name in LEADERS else self.consume)(name)

    def kill(self):
        name = self.chance.choice(LEADERS + CONSUMERS)
        self.of[name].kill()
        self.of[name].wait()
        self.again(name)

    def stop(self):
        """Up to beyond the end of a claim (1.5 s) and of every lease."""
        name = self.chance.choice(LEADERS + CONSUMERS)
        child, begin = self.of[name], time.time_ns()
        child.send_signal(signal.SIGSTOP)
        time.sleep(self.chance.choice([0.1, 0.4, 1.0, 2.5]))
        child.send_signal(signal.SIGCONT)
        self.blows.append(Blow(name, begin, time.time_ns()))

    def sleep(self):
        """The machine of one or two of them sleeps: nothing runs there, and the monotonic clock stands still."""
        names = self.chance.sample(LEADERS + CONSUMERS, self.chance.choice([1, 2]))
        children, begin = [self.of[name] for name in names], time.time_ns()
        for child in children:
            child.send_signal(signal.SIGSTOP)
        time.sleep(self.chance.choice([0.4, 1.0, 2.5]))
        end = time.time_ns()
        for name, child in zip(names, children, strict=True):
            self.clocks[name][1] += (end - begin) / 1e9
            self.write_clock(name)
            child.send_signal(signal.SIGCONT)
            self.blows.append(Blow(name, begin, time.time_ns()))

    def replace(self, others=1):
        """Another process under the name of one that lives, which is told so and ends."""
        name = self.chance.choice(CONSUMERS)
        all_of_it = [self.of[name]]
        for _ in range(others):
            self.again(name)
            all_of_it.append(self.of[name])
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and sum(one.poll() is None for one in all_of_it) > 1:
            time.sleep(0.02)
        codes = [one.poll() for one in all_of_it]
        if sorted(codes, key=str) != sorted([SUPERSEDED] * others + [None], key=str):
            self.wrong.append(f"{name} was replaced, and then they had ended with {codes}")
        # Of those that begin at once any may be the one that takes the name last.
        self.of[name] = all_of_it[codes.index(None)] if None in codes else self.of[name]

    def twins(self):
        """The same, by two that begin at the same time."""
        self.replace(others=2)

    def cut(self):
        self.relay.cut()

    def silence(self):
        self.relay.open.clear()
        time.sleep(self.chance.uniform(0.1, 1.5))
        self.relay.open.set()

    def step(self):
        """The wall clock of a leader host is set."""
        self.set_clock(self.chance.choice(LEADERS), self.chance.choice([-86_400, -60, -20, 0, 20, 60, 86_400]))

    def set_clock(self, name, seconds):
        """So far ahead of the true time."""
        self.clocks[name][0] = seconds
        self.write_clock(name)

    def lock(self):
        """Somebody stops inside a transaction that has everything locked; or PostgreSQL stands still."""
        seconds = self.chance.choice([0.2, 1.0, 2.5])
        if self.store.startswith("postgresql"):
            import psycopg
            from still import standing_still

            if self.chance.random() < 0.5:
                with standing_still(self.store):
                    time.sleep(seconds)
                return
            with contextlib.suppress(psycopg.Error), psycopg.connect(self.store) as connection:
                connection.execute("SET lock_timeout = '3s'")
                connection.execute("LOCK TABLE gapless.group_records, gapless.messages IN ACCESS EXCLUSIVE MODE")
                time.sleep(seconds)
            return
        connected = contextlib.closing(sqlite3.connect(self.store, timeout=3, isolation_level=None))
        with connected as connection, contextlib.suppress(sqlite3.OperationalError):
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            connection.execute("ROLLBACK")

    def away(self):
        """Some do not reach the store, and all others do; a file is locked instead."""
        if self.way is None:
            self.lock()
        elif self.chance.random() < 0.3:
            self.way.cut()
        else:
            self.way.open.clear()
            time.sleep(self.chance.choice([0.2, 1.0, 2.5]))
            self.way.open.set()

    def lie(self):
        """A stranger takes part, and says of whatever it is granted that all of it, and more, has been read."""
        self.take_part(self.feign_progress)

    def forge(self):
        """It lies about anything else: one field of what it says is another, or two."""
        self.take_part(self.feign_anything)

    def feign_progress(self, about):
        borrower, epoch, registration, stream, grant, _ = about
        word = self.chance.choice([2**62, END, LINES + 1])
        return "update_progress", borrower, epoch, registration, stream, grant, word, True

    def feign_anything(self, about):
        """What it has not read it does not say it had: that would be its right, and a loss."""
        true = list(about)
        others = sorted({line[5] for lines in self.all_lines().values() for line in lines if line[0] == "got"})
        streams = sorted({line[1] for lines in self.all_lines().values() for line in lines}) or [true[3]]
        numbers = [0, 1, 2, 3, 5, 2**62, END]
        values = (others or [true[0]], numbers, numbers, streams, numbers)
        for place in self.chance.sample(range(5), self.chance.choice([1, 2])):
            true[place] = self.chance.choice(values[place])
        borrower, epoch, registration, stream, grant, _ = true
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

    def pretend(self):
        """A stranger listens where one consumer looks for a leader, and says whatever a leader may."""
        streams = sorted({line[1] for lines in self.all_lines().values() for line in lines}) or ["1.0/t0"]
        with Pretender(self.identity(), self.stranger, self.chance, streams):
            time.sleep(self.chance.choice([0.5, 1.5]))

    def take_part(self, feign):
        """As a member that is no consumer of ours."""
        life = f"liar-{self.chance.getrandbits(32)}~1"
        port = self.ports[self.chance.choice(LEADERS)]
        with contextlib.suppress(OSError), Stranger(port, life, store=self.identity()) as liar:
            end = time.monotonic() + 2
            while time.monotonic() < end:
                liar.say(f"{life}/1", "leader", "leader_wanted", f"{life}/1", "g", "#")
                heard = liar.hear("leader_connect_response", "grant", seconds=0.3)
                if heard is not None and heard[3][0] == "grant":
                    liar.say(f"{life}/1", heard[0], *feign(heard[3][1:]))

    def identity(self):
        """Of the store, as anybody hears it in a hello."""
        if self.store.startswith("postgresql"):
            import psycopg

            with psycopg.connect(self.store) as connection:
                return str(connection.execute("SELECT identity FROM gapless.store").fetchone()[0])
        with contextlib.closing(sqlite3.connect(self.store)) as connection:
            return connection.execute("SELECT identity FROM store").fetchone()[0]

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
        return [*self.wrong, *judge(self.topics, lines, self.blows)], twice(lines)


def begin(run):
    """Everybody, and the publisher, whose process it gives back.  The first leader host leads, and the second follows,
    since one consumer asks that one first."""
    declare_group(run.store, config=run.config)
    run.lead(LEADERS[0])
    for name in CONSUMERS[:2]:
        run.consume(name)
    run.until_said(LEADERS[0], "leads it, under epoch", 1)
    run.lead(LEADERS[1])
    run.until_said(LEADERS[1], "listening on", 1, "out")
    run.consume(CONSUMERS[2])
    run.until_said(LEADERS[0], " is a member", len(CONSUMERS))
    (run.folder / "input").mkdir()
    for topic, lines in run.topics.items():
        (run.folder / "input" / topic).write_bytes(b"".join(line + b"\n" for line in lines))
    paced = ("--input", run.folder / "input", "--rate", RATE, "--batch", "5", "--state", run.folder)
    return run.start("publisher", "publisher", "--store", run.store, *paced)


def finish(run, publisher):
    """All that was published, or as much as comes; then everybody ends."""
    if publisher.wait(PATIENCE_S):
        run.wrong.append("the publisher failed")
    end = time.monotonic() + PATIENCE_S
    while len(acknowledged(run.all_lines())) < TOPICS * LINES and time.monotonic() < end:
        time.sleep(0.1)
    run.end()


def play(folder, store, seed, faults):
    """One run: what was done, what is wrong, and how many messages came twice."""
    with Run(folder, store, seed, TENTH) as run:
        publisher = begin(run)
        for _ in range(faults):
            time.sleep(run.chance.uniform(0.1, 0.6))
            run.hurt()
        finish(run, publisher)
        return run.done, *run.judge()


def main():
    """Runs of some seeds; 1: something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--runs", type=int, default=1, help="seeds")
    parser.add_argument("--faults", type=int, default=8, help="faults in a run")
    parser.add_argument("--store", default="", help="URL of PostgreSQL; a file of SQLite otherwise")
    given = parser.parse_args()
    failed = 0
    for seed in range(given.first, given.first + given.runs):
        folder = Path(tempfile.mkdtemp(prefix=f"groups-{seed}-"))
        if given.store:
            import psycopg

            with psycopg.connect(given.store, autocommit=True) as connection:
                connection.execute("DROP SCHEMA IF EXISTS gapless CASCADE")
        done, wrong, again = play(folder, given.store or str(folder / "messages.db"), seed, given.faults)
        said = f"{TOPICS * LINES} messages, {again} came again, {len(wrong)} wrong; {folder}"
        print(f"seed {seed}: {dict(sorted(done.items()))}, {said}", flush=True)
        for what in wrong:
            print(f"  {what}")
        failed += bool(wrong)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
